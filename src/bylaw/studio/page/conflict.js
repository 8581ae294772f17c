// A conflict: in words, and a button for each way out.

function showConflict(reply, asked) {
  const conflict = reply.conflict || { words: reply.error || "", rules: [], relaxations: [] };
  const words = String(conflict.words || "");
  const cells = words.indexOf("Too few rows");
  const first = words.split("\n")[0];
  const more = cells < 0 ? "" : `\n${words.slice(cells)}`;
  say(get("conflict-words"), first.charAt(0).toUpperCase() + first.slice(1) + more);
  refill(get("conflict-rules"), conflict.rules.map(nameReach));
  const ways = listWays(conflict, asked);
  const buttons = ways.map((way, i) => {
    const least = i === 0 && way.least ? [make("span", { class: "badge good" }, "least"), " "] : null;
    const attributes = { type: "button", class: "relax", id: `relax-${i}`, onclick: () => relax(way.moves) };
    return make("button", attributes, least, nameWay(way.moves));
  });
  refill(get("relaxations"), buttons);
  show(get("ways-title"), ways.length > 0);
  ways
    .flatMap((way) => way.moves)
    .map(({ text }) => state.rules.findIndex((rule) => rule.text === text))
    .filter((i) => i >= 0)
    .forEach((i) => refill(get(`said-${i}`), make("span", { class: "badge bad" }, "in conflict")));
}
function nameReach(rule) {
  const card = cardOf(rule.text);
  const most = card ? formatBeside(rule.reach, card.level, card.unit) : roundNumber(rule.reach, 4);
  const reach = known(rule.reach) ? ` can reach ${most} while the others listed hold` : "";
  return make("li", {}, make("code", {}, rule.text), reach);
}
// The smallest change of all, then each rule of the conflict alone: {least, moves: [{text, level}]}.
function listWays(conflict, asked) {
  const least = conflict.relaxations
    .filter((one) => known(one.level) && asked.rules[one.rule])
    .map(({ rule, level }) => ({ text: asked.rules[rule].text, level }));
  const alone = conflict.rules
    .map((listed) => loosenAlone(listed, asked))
    .filter((move) => move && !(least.length === 1 && least[0].text === move.text));
  const ways = alone.map((move) => ({ least: false, moves: [move] }));
  return least.length ? [{ least: true, moves: least }, ...ways] : ways;
}
// The level that one rule alone can reach, rounded outwards; of rules that are written as they are listed.
function loosenAlone({ text, reach }, asked) {
  const card = asked.rules.some((rule) => rule.on && rule.text === text) ? cardOf(text) : null;
  const sense = card && card.parts && /([<>]=) $/.exec(card.parts[0]);
  if (!sense || card.parts[1] || !known(reach)) return null;
  const round = sense[1] === "<=" ? Math.ceil : Math.floor;
  const outwards = (sense[1] === "<=" ? 1 : -1) * 1e-6;
  return { text, level: tidy(round((reach + outwards) * 1e4) / 1e4) };
}
function nameWay(moves) {
  const parts = moves.map(({ text, level }) => {
    const card = cardOf(text);
    return `${shorten(text, 60)} to ${formatExactly(level, card ? card.unit : "plain")}`;
  });
  return `Loosen ${parts.join(" and ")}`;
}
// Rules are found by their text: others may have come and gone since.
async function relax(moves) {
  const told = await Promise.all(moves.map(({ text }) => learn(text))).catch(() => null);
  const places = moves.map(({ text }) => state.rules.findIndex((rule) => rule.on && rule.text === text));
  if (!told || told.some((card) => !card.parts) || places.includes(-1)) return;
  moves.forEach(({ level }, i) => {
    const text = putLevel(told[i], level);
    state.rules[places[i]].text = text;
    if (!cards.has(text)) keepCard(text, { ...told[i], text, level, sentence: null });
  });
  inHand = places[0];
  commit();
  showDemands();
  request(true);
  get("results").focus({ preventScroll: true });
}
