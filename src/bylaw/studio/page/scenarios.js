// Scenarios: kept under a name, side by side.

const summarize = (reply) =>
  reply && {
    status: reply.status,
    cost: reply.cost,
    changed: reply.changed,
    rules: reply.rules,
  };

function fillScenarios(reply, asked) {
  kept.forEach((one) => {
    if (!one.answer && same(one.state, asked)) one.answer = summarize(reply);
  });
  showKept();
}
// Whatever came with the address is read once, so that levels of one rule share a line.
function learnKept() {
  const texts = kept.flatMap((one) => one.state.rules.map((rule) => rule.text));
  new Set(texts).forEach((text) => cards.has(text) || learn(text).then(showKept, () => null));
}
// Those that have no answer yet, one after the other, while nothing else is asked.
let solvingKept = false;
async function solveKept() {
  const next = () => (isIdle() ? kept.find((one) => !one.answer) : null);
  if (solvingKept) return;
  solvingKept = true;
  for (let one = next(); one; one = next()) {
    const reply = await askAside(one.state).catch((problem) => ({
      status: problem instanceof Refusal ? "failed" : "cancelled",
    }));
    if (reply.status === "cancelled") break; // something else was asked: after that
    one.answer = summarize(reply);
    showKept();
  }
  solvingKept = false;
}
function keep(name) {
  const now = stateNow();
  kept = kept.filter((one) => one.name !== name).concat({ name, state: now, answer: summarize(replyNow()) });
  writeHash();
  showKept();
  if (isIdle() && !replyNow()) workAside();
}
function goTo(scenario) {
  state = copy(scenario.state);
  clampHand();
  commit();
  restate(state);
}
function dropScenario(scenario) {
  const place = kept.indexOf(scenario);
  kept = kept.filter((one) => one !== scenario);
  writeHash();
  showKept();
  (get(`drop-${Math.min(place, kept.length - 1)}`) || get("keep-name")).focus();
}

function showKept() {
  if (!kept.length) {
    const words = "Keep what is on screen under a name, try something else, and compare.";
    return refill(get("kept"), make("p", { class: "note" }, words));
  }
  const now = stateNow();
  const columns = [...kept, { name: null, state: now, answer: summarize(replyNow()) }];
  const keys = [...new Set(columns.flatMap((one) => one.state.rules.map((rule) => ruleKey(rule.text))))];
  const row = (title, value) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, title),
      columns.map((one) => make("td", { class: one.name === null ? "strong" : null }, value(one))),
    );
  refill(
    get("kept"),
    make(
      "table",
      { class: "data kept" },
      make("caption", { class: "unseen" }, "Kept scenarios side by side"),
      make("thead", {}, make("tr", {}, make("td", {}), columns.map(nameScenario))),
      make(
        "tbody",
        {},
        row("as little as possible of", (one) => make("code", {}, one.state.minimize)),
        row("cost", (one) => tell(one, (reply) => formatAmount(reply.cost.after, reply.cost.unit))),
        row("difference to no rules", (one) =>
          tell(one, ({ cost }) =>
            known(cost.without_rules) ? formatDifference(cost.after - cost.without_rules, cost.unit) : NOTHING,
          ),
        ),
        row("changed", (one) => tell(one, (reply) => formatShare(reply.changed))),
        start.labelled ? row("rates", (one) => one.state.view) : null,
        keys.map((key) => row(make("code", {}, key), (one) => describeRule(one, key))),
      ),
    ),
  );
}
function nameScenario(one, i) {
  if (one.name === null) return make("th", { scope: "col" }, "now");
  const go = { type: "button", id: `go-${i}`, class: "go", title: "Go back to it", onclick: () => goTo(one) };
  const drop = { type: "button", id: `drop-${i}`, class: "plain", "aria-label": `Drop ${one.name}` };
  return make(
    "th",
    { scope: "col" },
    make("button", go, shorten(one.name, 30)),
    make("button", { ...drop, onclick: () => dropScenario(one) }, "×"),
  );
}
function tell(one, value) {
  if (!one.answer) return "…";
  if (one.answer.status === "solved") return value(one.answer);
  return one.answer.status === "conflict" ? "conflict" : NOTHING;
}
function describeRule(one, key) {
  const index = one.state.rules.findIndex((rule) => ruleKey(rule.text) === key);
  if (index < 0) return NOTHING;
  const rule = one.state.rules[index];
  if (!rule.on) return "off";
  const card = cardOf(rule.text);
  const told = one.answer && one.answer.rules && one.answer.rules[index];
  const rate =
    told && told.undefined
      ? "0/0"
      : told && known(told.rate)
        ? formatBeside(told.rate, told.bound, unitOf(told, card))
        : null;
  const level = card && known(card.level) ? ` (${formatExactly(card.level, card.unit)})` : null;
  return [rate || (one.answer ? NOTHING : "…"), level ? make("span", { class: "note" }, level) : null];
}

get("keep").addEventListener("submit", (event) => {
  event.preventDefault();
  keep(get("keep-name").value.trim() || nameFreely());
  get("keep-name").value = "";
});
// A name that is not taken.
function nameFreely() {
  let count = kept.length + 1;
  while (kept.some((one) => one.name === `Scenario ${count}`)) count += 1;
  return `Scenario ${count}`;
}
