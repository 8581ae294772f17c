// Rules and the objective as text: read while they are typed, their mistakes marked in place.

const REST = 160; // milliseconds without a key until a text is read

// A field, where its mistakes go, who reads it, and what is done with a text that is right.
function connectText({ input, said, read, accept, current = () => "" }) {
  let reading = 0;
  const clear = () => {
    reading += 1;
    said.replaceChildren();
    input.removeAttribute("aria-invalid");
  };
  async function look(final) {
    const text = input.value.trim();
    const mine = (reading += 1);
    if (!text || text === current()) return clear();
    if (!final) await pause(REST);
    if (mine !== reading) return;
    const told = await read(text).catch(() => null);
    if (!told || mine !== reading) return;
    if (told.ok === false) return mark(text, told, final);
    clear();
    if (final) return accept(told);
    const words = told.sentence || told.text;
    said.replaceChildren(make("p", { class: "note" }, words));
    announce(words, 1000);
  }
  function mark(text, told, final) {
    refill(said, make("p", { class: "fault" }, told.error), markPlace(text, told));
    input.setAttribute("aria-invalid", "true");
    announce(told.error, final ? 0 : 1000);
  }
  input.addEventListener("input", () => look(false));
  return { look, clear, mark };
}
function markPlace(text, told) {
  if (!known(told.column)) return null;
  const line = Math.max((told.line || 1) - 1, 0);
  const before = text.split("\n").slice(0, line).join("\n").length + (line ? 1 : 0);
  const at = Math.min(before + Math.max(told.column, 0), text.length);
  const marked = make("mark", {}, text.slice(at, at + 1) || " ");
  return make("pre", { class: "marked" }, text.slice(0, at), marked, text.slice(at + 1));
}

// A new rule.
const newRule = connectText({
  input: get("new-rule"),
  said: get("new-rule-said"),
  read: learn,
  accept: (card) => {
    get("new-rule").value = "";
    addRule(card);
  },
});
const closeNewRule = attachCompletion(get("new-rule"), get("new-rule-list"), true);
get("add").addEventListener("submit", (event) => {
  event.preventDefault();
  closeNewRule();
  newRule.look(true);
});

// A rule that is there already, in its card.
function openEditor(index) {
  document.querySelectorAll(".editor").forEach((one) => closeEditor(Number(one.dataset.index)));
  const current = () => state.rules[index].text; // a slider may move it meanwhile
  const input = make("input", {
    type: "text",
    id: `rule-text-${index}`,
    class: "formula",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    role: "combobox",
    "aria-label": "The rule",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": `rule-list-${index}`,
    "aria-describedby": `rule-fault-${index}`,
  });
  input.value = current();
  const list = make("ul", {
    id: `rule-list-${index}`,
    role: "listbox",
    "aria-label": "Rates, families, groups and classes",
    hidden: true,
  });
  const said = make("div", { id: `rule-fault-${index}` });
  const accept = (card) => {
    if (card.text === current()) return closeEditor(index);
    changeRule(index, card);
    get(`edit-${index}`).focus({ preventScroll: true });
  };
  const field = connectText({ input, said, read: learn, accept, current });
  const finish = () => (input.value.trim() === current() ? closeEditor(index) : field.look(true));
  const editor = make(
    "form",
    {
      class: "editor",
      "data-index": index,
      onsubmit: (event) => {
        event.preventDefault();
        finish();
      },
      onkeydown: (event) => event.key === "Escape" && closeEditor(index),
    },
    make("div", { class: "combo" }, input, list),
    said,
    make(
      "div",
      { class: "buttons" },
      make("button", { type: "submit" }, "Change"),
      make("button", { type: "button", onclick: () => closeEditor(index) }, "Leave it"),
    ),
  );
  attachCompletion(input, list, true);
  get(`formal-${index}`).hidden = true;
  get(`formal-${index}`).after(editor);
  input.focus();
}
function closeEditor(index) {
  const editor = get("rules").children[index].querySelector(".editor");
  const inside = editor.contains(document.activeElement);
  editor.remove();
  get(`formal-${index}`).hidden = false;
  if (inside) get(`edit-${index}`).focus({ preventScroll: true });
}

// The objective. One that cannot be read, or not be solved, is marked, and the last answer stays.
const readObjective = async (text) => {
  try {
    return await callJson("/api/objective", { text, rules: state.rules });
  } catch (problem) {
    if (problem instanceof Refusal) return { ok: false, error: problem.message };
    throw problem;
  }
};
const objective = connectText({
  input: get("minimize"),
  said: get("minimize-fault"),
  read: readObjective,
  accept: (told) => {
    get("minimize").value = told.text;
    if (told.text === state.minimize) return;
    state.minimize = told.text;
    commit();
    request(true);
  },
  current: () => state.minimize,
});
function resetObjective() {
  get("minimize").value = state.minimize;
  objective.clear();
}
function setObjective() {
  if (get("minimize").value.trim()) objective.look(true);
  else resetObjective();
}
attachCompletion(get("minimize"), get("minimize-list"), false);
get("minimize").addEventListener("change", setObjective);
get("minimize").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.defaultPrevented) setObjective();
});
