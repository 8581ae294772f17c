// The frontier of the rule in hand: asked for once nothing moves, and kept while only its level does.

const QUIET = 350; // milliseconds without a change until a frontier is asked for
const FRONTIERS = 12; // that are kept

const frontiers = new Map(); // by all that they depend on: {body} or {error}
let tracing = null; // {key, controller}
let frontierTimer = null;

function stopFrontier() {
  clearTimeout(frontierTimer);
  if (tracing) tracing.controller.abort();
  tracing = null;
  frontiers.forEach((one, key) => one.error && frontiers.delete(key)); // another try may succeed
}
function frontierKey() {
  const rule = state.rules[inHand];
  const card = rule && cardOf(rule.text);
  if (!rule || !rule.on || !card || !known(card.level)) return null;
  const rules = state.rules.map((one, i) => (i === inHand ? card.template : one.on ? one.text : null));
  return JSON.stringify([state.minimize, rules, state.view, card.lowest, card.highest]);
}
function askFrontierSoon() {
  clearTimeout(frontierTimer);
  showFrontier();
  const key = frontierKey();
  if (key === null || frontiers.has(key) || (tracing && tracing.key === key)) return;
  frontierTimer = setTimeout(() => askFrontier(key), QUIET);
}
async function askFrontier(key) {
  if (!isIdle() || aside || key !== frontierKey()) return; // whatever it waits for asks again
  if (tracing) tracing.controller.abort();
  const mine = { key, controller: new AbortController() };
  tracing = mine;
  number += 1;
  showFrontier();
  let found = null;
  try {
    const body = { tab, number, ...stateNow(), rule: inHand };
    const reply = await callJson("/api/frontier", body, mine.controller.signal);
    if (reply.status !== "cancelled") found = { body: reply };
  } catch (problem) {
    if (problem instanceof Refusal) found = { error: problem.message };
  }
  if (found) remember(frontiers, key, found, FRONTIERS);
  if (tracing === mine) tracing = null;
  showFrontier();
}
function holdRule(index) {
  if (inHand === index) return;
  inHand = index;
  get("rules").childNodes.forEach((card, i) => card.classList.toggle("held", i === inHand));
  writeHash();
  if (!flight) askFrontierSoon();
}

function showFrontier() {
  const rule = state.rules[inHand];
  const card = rule && cardOf(rule.text);
  const key = frontierKey();
  const found = frontiers.get(key);
  say(get("frontier-rule"), card ? card.sentence || card.text : rule ? rule.text : "");
  if (found && found.body) refill(get("frontier"), drawFrontier(found.body, card));
  else refill(get("frontier"), make("p", { class: "note" }, explainFrontier(key, found)));
  get("frontier").dataset.state = key === null ? "none" : found ? "drawn" : "waiting";
  showBudget(card, key);
}
function explainFrontier(key, found) {
  if (found) return found.error;
  if (key === null)
    return state.rules.length
      ? "Pick a rule that is on and has a level: touch its slider."
      : "Add a rule to see what its levels cost.";
  return tracing ? "Other levels are being solved …" : "Other levels follow once nothing moves.";
}
let resized = null;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => answer && showFrontier(), 100);
});
