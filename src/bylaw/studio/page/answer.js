// The answer: what it costs, what each rule costs, what is left to chance, and why there may be none.

function paint(reply, asked, last, current) {
  const { status } = reply;
  const solved = status === "solved";
  const blamed = status === "failed" && isObjective(asked, last);
  if (blamed) objective.mark(asked.minimize, { error: reply.error }, true);
  show(get("failure"), status === "failed" && !blamed);
  say(get("failure"), status === "failed" && !blamed ? reply.error || "It could not be solved." : "");
  show(get("conflict"), status === "conflict");
  if (status === "conflict") say(get("brief"), "these rules conflict");
  if (status === "failed") say(get("brief"), "cannot be solved");
  showStale(status);
  ["policy", "report"].forEach((kind) => {
    document.querySelector(`[data-save=${kind}]`).disabled = current && !solved && status !== "cancelled";
  });
  if (solved) showAnswer(reply, asked);
  else if (current) {
    nameRules(reply, asked);
    clearRules();
  }
  if (status === "conflict") showConflict(reply, asked);
  if (current && !dragging) speak(reply);
  showKept();
}
// Whether nothing but the objective is new since the last answer, which was solved.
const isObjective = (asked, last) =>
  Boolean(last) &&
  last.minimize !== asked.minimize &&
  same(last.rules, asked.rules) &&
  last.view === asked.view;

function showStale(status) {
  show(get("stale"), status !== "solved" && Boolean(answer) && !isAnswered());
  say(
    get("stale"),
    `${status === "cancelled" ? "Cancelled. " : ""}Below is the last answer, from before this change`,
  );
}
function speak(reply) {
  const { cost } = reply;
  const words = {
    solved: () =>
      `${cost.words || cost.name}: ${nameCosts(cost)}. ${formatShare(reply.changed)} of decisions differ from those of your model.`,
    conflict: () => "These rules cannot all hold.",
    cancelled: () => "Cancelled.",
  }[reply.status];
  if (words) announce(words());
}

function showAnswer(reply, asked) {
  show(get("answer"), true);
  showFigures(reply);
  showRates(reply, asked);
  showPrices(reply, asked);
  showChanges(reply);
  showRandomness(reply);
  sayOfRules(reply, asked);
  showFrontier();
}
function makeFigure(name, value, remark, main) {
  const number = make("span", { class: "number" }, value);
  const below = remark ? make("span", { class: "remark" }, remark) : null;
  return make("div", { class: main ? "main" : null }, make("dt", {}, name), make("dd", {}, number, below));
}
function nameCosts(cost) {
  const named = [
    [cost.before, "with your model"],
    [cost.without_rules, "without rules"],
    [cost.after, "with rules"],
  ];
  const shown = named.filter(([value]) => known(value));
  return shown.map(([value, words]) => `${formatAmount(value, cost.unit)} ${words}`).join(", ");
}
function showFigures(reply) {
  const { cost } = reply;
  const words = shorten(cost.words || cost.name, 60);
  const [before, without, after] = [cost.before, cost.without_rules, cost.after].map((value) =>
    formatAmount(value, cost.unit),
  );
  const view = cost.observed ? "as observed" : "as the scores predict";
  const difference = known(cost.after) && known(cost.without_rules) ? cost.after - cost.without_rules : null;
  refill(
    get("figures"),
    makeFigure("Your model", before, words),
    makeFigure("Without rules", without, words),
    makeFigure("With these rules", after, words, true),
    makeFigure("Difference", formatDifference(difference, cost.unit), `with rules less without, ${view}`),
    makeFigure(
      "Decisions that change",
      formatShare(reply.changed),
      `of ${formatCount(start.rows)} rows, compared with your model`,
    ),
  );
  say(get("brief"), `${before} → ${after} · ${formatShare(reply.changed)} change`);
  refill(
    get("warnings"),
    (reply.warnings || []).map((text) => make("li", {}, text)),
  );
  show(get("warnings"), Boolean(reply.warnings && reply.warnings.length));
}

function showPrices(reply, asked) {
  const told = (reply.rules || []).map((rule, i) => ({ rule, i })).filter(({ rule }) => rule);
  const most = Math.max(...told.map(({ rule }) => rule.price || 0), 0);
  const prices = told.map(({ rule, i }) => makePrice(rule, unitOf(rule, cardOf(asked.rules[i].text)), most));
  refill(get("prices"), prices.length ? prices : make("li", { class: "note" }, "No rules, no price."));
}
function makePrice(rule, unit, most) {
  const width = most > 0 ? (100 * (rule.price || 0)) / most : 0;
  const sense = known(rule.signed) ? "within" : rule.sense === ">=" ? "at least" : "at most";
  const rate = known(rule.signed) ? rule.signed : rule.rate;
  const bound = known(rule.bound) ? ` (${sense} ${formatExactly(rule.bound, unit)})` : "";
  return make(
    "li",
    {},
    make("span", { class: "rule" }, rule.sentence || rule.text),
    make(
      "span",
      { class: "numbers" },
      known(rate) ? `${formatBeside(rate, rule.bound, unit)}${bound}` : null,
      rule.undefined ? `0/0, undefined${bound}` : null,
      typeof rule.worst === "string" ? `: ${shorten(rule.worst, 160)}` : null,
      known(rule.lower) && known(rule.upper)
        ? `, interval ${formatAmount(rule.lower, unit)} to ${formatAmount(rule.upper, unit)}`
        : null,
    ),
    draw(
      "svg",
      { width: "100%", height: 10, "aria-hidden": "true", focusable: "false", class: "price-bar" },
      draw("rect", { x: 0, y: 1, width: "100%", height: 8, rx: 2, class: "settled" }),
      draw("rect", { x: 0, y: 1, width: `${width.toFixed(2)}%`, height: 8, rx: 2, class: "bar" }),
    ),
    make(
      "span",
      { class: "price" },
      rule.price_words || (known(rule.price) ? `price ${roundNumber(rule.price)}` : ""),
    ),
  );
}

function showRandomness(reply) {
  const chance = reply.random;
  if (!chance) return refill(get("random"), make("p", { class: "note" }, "Nothing is known of it."));
  const parts = [
    ["settled", "certain", chance.settled],
    ["leaning", "mostly one decision", chance.leaning],
    ["open", "a draw", chance.open],
  ];
  let begin = 0;
  const pieces = parts.map(([name, , share]) => {
    const [x, width] = [begin, share || 0].map((value) => `${(100 * value).toFixed(2)}%`);
    begin += share || 0;
    return draw("rect", { x, y: 0, width, height: 22, class: name });
  });
  const title = parts.map(([, words, share]) => `${words} ${formatShare(share)}`).join(", ");
  const keys = parts.map(([name, words, share]) =>
    make("li", {}, make("span", { class: `key ${name}` }), ` ${words}: ${formatShare(share)}`),
  );
  refill(get("random"), makeSvg(title, 22, "stack", pieces), make("ul", { class: "keys" }, keys));
}
