// Levels: moved by a slider, typed in a field, or gone to.

let dragging = false; // a slider's thumb
let byKey = false; // the last move of a slider

// A rule's text at another level; the server says what stands before and after the number.
const putLevel = (card, level) => card.parts[0] + String(tidy(level)) + card.parts[1];
function makeLevel(card, index) {
  const factor = factorOf(card.unit);
  const move = (final, what) =>
    moveLevel(index, roundTo(Number(slider.value), cardOf(state.rules[index].text)), final, what);
  const slider = make("input", {
    type: "range",
    id: `slider-${index}`,
    min: card.lowest,
    max: card.highest,
    step: card.step || "any",
    "aria-labelledby": `sentence-${index}`,
    "aria-valuetext": formatExactly(card.level, card.unit),
    oninput: () => move(false),
    onchange: () => move(true, byKey ? `slider-${index}` : null),
    onpointerdown: () => ([dragging, byKey] = [true, false]),
    onkeydown: () => (byKey = true),
  });
  slider.value = card.level;
  const field = make("input", {
    type: "number",
    id: `level-${index}`,
    step: "any",
    inputmode: "decimal",
    "aria-labelledby": `sentence-${index} unit-${index}`,
    oninput: () => typeLevel(index, field, factor, false),
    onchange: () => typeLevel(index, field, factor, true),
  });
  field.value = tidy(card.level * factor);
  const unit = make("span", { id: `unit-${index}` }, suffixOf(card.unit));
  return make("div", { class: "level" }, slider, make("span", { class: "amount" }, field, unit));
}
const roundTo = (value, card) => {
  const rounded = card.step ? tidy(Math.round(value / card.step) * card.step) : value;
  return Math.min(Math.max(rounded, card.lowest), card.highest);
};
function drop() {
  if (!dragging) return;
  dragging = false;
  if (isIdle()) workAside(); // it may have waited
}
addEventListener("pointerup", drop);
addEventListener("pointercancel", drop);

function moveLevel(index, level, final, what = null) {
  const rule = state.rules[index];
  const card = cardOf(rule.text);
  const editor = get(`rule-text-${index}`);
  const untouched = editor && editor.value.trim() === rule.text;
  rule.text = putLevel(card, level);
  if (untouched) editor.value = rule.text;
  if (!cards.has(rule.text)) keepCard(rule.text, { ...card, text: rule.text, level, sentence: null });
  showLevel(index, cardOf(rule.text));
  if (final) commit(what);
  if (final && (level < card.lowest || level > card.highest)) readAgain(index);
  if (rule.on) request(final);
  else if (final) readAgain(index);
}
function typeLevel(index, field, factor, final) {
  const value = Number(field.value);
  const fine = field.value.trim() !== "" && Number.isFinite(value);
  field.setAttribute("aria-invalid", String(!fine));
  if (fine) moveLevel(index, tidy(value / factor), final);
  else if (final) {
    field.value = tidy(cardOf(state.rules[index].text).level * factor);
    field.setAttribute("aria-invalid", "false");
  }
}
function showLevel(index, card) {
  const slider = get(`slider-${index}`);
  const field = get(`level-${index}`);
  slider.setAttribute("aria-valuetext", formatExactly(card.level, card.unit));
  if (document.activeElement !== slider) slider.value = card.level;
  if (document.activeElement !== field) {
    field.value = tidy(card.level * factorOf(card.unit));
    field.setAttribute("aria-invalid", "false");
  }
  say(get(`text-${index}`), card.text);
  if (card.sentence) say(get(`sentence-${index}`), card.sentence);
}
// What no answer brings: the sentence of a rule that is off or could not be solved, and another range. The
// card stays, since a user may be typing in it.
async function readAgain(index) {
  const text = state.rules[index].text;
  const card = await readCard(text).catch(() => null);
  if (!card || !state.rules[index] || state.rules[index].text !== text) return;
  if (!card.ok) return sayFault(index, card.error);
  if (get(`said-${index}`).querySelector(".fault")) say(get(`said-${index}`), "");
  nameCard(index, card.sentence);
  // The frontier spans the range: the answer, if it came first, has asked for that of the old one.
  const reply = replyNow();
  if (reply && reply.status !== "failed" && isIdle()) askFrontierSoon();
  const slider = get(`slider-${index}`);
  if (!slider) return replaceCard(index);
  Object.entries({ min: card.lowest, max: card.highest, step: card.step || "any" }).forEach(([name, value]) =>
    slider.setAttribute(name, value),
  );
  slider.value = card.level;
}
