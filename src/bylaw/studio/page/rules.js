// The rules as cards: a sentence with a switch, a slider and a field for its level.

const CARDS = 2000; // that are remembered

const cards = new Map(); // text of a rule -> what the server says of it
const asking = new Map(); // text of a rule -> promise of that

const cardOf = (text) => cards.get(text) || null;
const isStated = (text) => state.rules.some((rule) => rule.text === text);
const keepCard = (text, card) => remember(cards, text, card, CARDS, isStated);
// What a rule is, whatever its level.
const ruleKey = (text) => (cardOf(text) ? cardOf(text).template || text : text);

function learn(text) {
  if (cards.has(text)) return Promise.resolve(cards.get(text));
  if (!asking.has(text))
    asking.set(
      text,
      readCard(text).finally(() => asking.delete(text)),
    );
  return asking.get(text);
}
async function readCard(text) {
  try {
    const card = await callJson("/api/rule", { text, minimize: state.minimize });
    if (card.ok) keepCard(text, card);
    return card;
  } catch (problem) {
    if (problem instanceof Refusal) return { ok: false, error: problem.message };
    throw problem;
  }
}

function showDemands() {
  const inside = get("rules").contains(document.activeElement);
  refill(get("rules"), state.rules.map(makeCard));
  if (inside && !get("rules").contains(document.activeElement)) get("rules").focus({ preventScroll: true });
  show(get("no-rules"), state.rules.length === 0);
  document.querySelectorAll("#views input").forEach((input) => (input.checked = input.value === state.view));
  state.rules.forEach((rule, i) => cardOf(rule.text) || showLearned(rule, i));
  if (answer && get("results").dataset.status === "solved") sayOfRules(answer, answered);
}
// Once the server has said what a rule is.
async function showLearned(rule, index) {
  const card = await learn(rule.text).catch(() => null);
  const now = state.rules[index];
  if (!card || !now || now.text !== rule.text) return;
  if (card.ok) replaceCard(index);
  else sayFault(index, card.error);
}
function replaceCard(index) {
  const old = get("rules").children[index];
  if (!old || old.querySelector(".editor")) return;
  const focused = old.contains(document.activeElement) ? document.activeElement.id : null;
  old.replaceWith(makeCard(state.rules[index], index));
  if (focused && get(focused)) get(focused).focus({ preventScroll: true });
  if (answer && get("results").dataset.status === "solved") sayOfRules(answer, answered);
  if (index === inHand && !flight) askFrontierSoon();
}
function makeCard(rule, index) {
  const card = cardOf(rule.text);
  const sentence = (card && card.sentence) || rule.text;
  const toggle = make("input", {
    type: "checkbox",
    role: "switch",
    id: `on-${index}`,
    "aria-labelledby": `sentence-${index}`,
    onchange: (event) => switchRule(index, event.target.checked),
  });
  toggle.checked = rule.on;
  const button = (name, title, shown, onclick) =>
    make(
      "button",
      {
        type: "button",
        class: `plain ${name}`,
        id: `${name}-${index}`,
        title,
        "aria-label": `${title}: ${sentence}`,
        onclick,
      },
      shown,
    );
  return make(
    "li",
    {
      class: `card${rule.on ? "" : " off"}${index === inHand ? " held" : ""}`,
      onfocusin: (event) => event.target.closest(".level") && holdRule(index),
      onpointerdown: () => holdRule(index),
    },
    make(
      "div",
      { class: "head" },
      toggle,
      make("p", { class: "rule", id: `sentence-${index}`, ondblclick: () => openEditor(index) }, sentence),
      button("remove", "Remove", "×", () => removeRule(index)),
    ),
    make(
      "div",
      { class: "formal", id: `formal-${index}`, ondblclick: () => openEditor(index) },
      make("code", { id: `text-${index}` }, rule.text),
      button("edit", "Edit", "Edit", () => openEditor(index)),
    ),
    card && known(card.level) ? makeLevel(card, index) : null,
    make("p", { class: "said", id: `said-${index}` }),
  );
}
function nameCard(index, sentence) {
  say(get(`sentence-${index}`), sentence);
  get(`remove-${index}`).setAttribute("aria-label", visible(`Remove: ${sentence}`));
  get(`edit-${index}`).setAttribute("aria-label", visible(`Edit: ${sentence}`));
}

function switchRule(index, on) {
  state.rules[index].on = on;
  get("rules").children[index].classList.toggle("off", !on);
  if (!on) say(get(`said-${index}`), "");
  commit();
  request(true);
}
function removeRule(index) {
  state.rules.splice(index, 1);
  if (inHand >= index && inHand > 0) inHand -= 1;
  commit();
  showDemands();
  request(true);
  const next = get(`remove-${Math.min(index, state.rules.length - 1)}`) || get("new-rule");
  next.focus();
}
function addRule(card) {
  keepCard(card.text, card);
  state.rules.push({ text: card.text, on: true });
  inHand = state.rules.length - 1;
  commit();
  showDemands();
  request(true);
}
function changeRule(index, card) {
  keepCard(card.text, card);
  state.rules[index].text = card.text;
  inHand = index;
  commit();
  showDemands();
  request(true);
}

// What an answer says of each rule goes below it. Rules may have come and gone since it was asked for.
function findRules(reply, asked) {
  return state.rules.map((rule) => {
    const place = asked.rules.findIndex((one) => ruleKey(one.text) === ruleKey(rule.text));
    return place < 0 || !reply.rules
      ? null
      : { told: reply.rules[place], exact: asked.rules[place].text === rule.text };
  });
}
function nameRules(reply, asked) {
  findRules(reply, asked).forEach((found, i) => {
    if (!found || !found.told || !found.told.sentence || !found.exact) return;
    const { sentence } = found.told;
    if (cardOf(state.rules[i].text)) cardOf(state.rules[i].text).sentence = sentence;
    nameCard(i, sentence);
  });
}
function sayOfRules(reply, asked) {
  nameRules(reply, asked);
  findRules(reply, asked).forEach((found, i) => {
    const rule = state.rules[i];
    if (!found || !found.told || !rule.on) return say(get(`said-${i}`), "");
    const { told } = found;
    const unit = unitOf(told, cardOf(rule.text));
    const rate = told.undefined
      ? " Now 0/0: it holds only because nothing is decided so"
      : known(told.rate)
        ? ` Now ${formatBeside(told.rate, told.bound, unit)}`
        : "";
    const word = told.undefined
      ? "undefined"
      : told.holds === false
        ? "missed"
        : told.price > 0
          ? "binding"
          : "holds";
    refill(
      get(`said-${i}`),
      make("span", { class: `badge ${told.holds === false || told.undefined ? "bad" : "good"}` }, word),
      make("span", {}, rate),
    );
  });
}
function clearRules() {
  state.rules.forEach((rule, i) => {
    const settled = cardOf(rule.text) && cardOf(rule.text).sentence;
    if (settled || !get(`said-${i}`).querySelector(".fault")) say(get(`said-${i}`), "");
    if (!settled) readAgain(i);
  });
}
const sayFault = (index, error) => refill(get(`said-${index}`), make("span", { class: "fault" }, error));
const unitOf = (told, card) => told.unit || (card ? card.unit : "plain");
