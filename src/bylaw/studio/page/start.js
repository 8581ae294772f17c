// Colours, keys, and how everything begins.

// The reader's colours until the button is pressed.
const dark = () =>
  root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
function nameTheme() {
  say(get("theme"), dark() ? "Light" : "Dark");
  get("theme").setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
}
get("theme").addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  nameTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();

get("undo").addEventListener("click", () => travel(-1));
get("redo").addEventListener("click", () => travel(1));
// A text that is being typed has its own undo.
function isTyping(field) {
  if (!(field instanceof HTMLInputElement) || field.type !== "text") return false;
  return field.value !== (field.id === "minimize" ? state.minimize : "");
}
addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.altKey || isTyping(event.target)) return;
  const key = event.key.toLowerCase();
  if (key !== "z" && key !== "y") return;
  event.preventDefault();
  const field = document.activeElement;
  if (field instanceof HTMLInputElement && field.type === "number") field.blur();
  travel(key === "y" || event.shiftKey ? 1 : -1);
});
document.querySelectorAll("#views input").forEach((input) =>
  input.addEventListener("change", () => {
    state.view = input.value;
    commit();
    request(true);
  }),
);
get("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address after # holds the state
  get("results").focus();
});
addEventListener("hashchange", () => {
  if (!start || !readHash()) return writeHash();
  commit();
  restate(state);
});

function showStart() {
  const classes = start.classes.length;
  const sizes = classes ? `${classes} classes` : `${start.actions.length} options`;
  document.title = visible(`${start.title || "scores"} · bylaw studio`);
  say(get("title"), start.title || "bylaw studio");
  say(get("subtitle"), `${formatCount(start.rows)} rows, ${sizes}`);
  say(get("version"), `bylaw ${start.version}. This page talks to this computer only.`);
  show(get("views"), start.labelled);
  if (!isTyping(document.activeElement)) resetObjective();
  showDemands();
  showKept();
  learnKept();
}
function begin() {
  state = {
    minimize: start.problem.minimize,
    rules: start.problem.rules.map(({ text, on }) => ({ text, on: on !== false })),
    view: start.labelled ? "observed" : "predicted",
  };
  readHash();
  recallHistory();
  commit();
  showWords();
  showStart();
}
callJson("/api/start").then(
  (told) => {
    start = told;
    begin();
    request(true);
  },
  (problem) => {
    if (!(problem instanceof Refusal)) return;
    show(get("failure"), true);
    say(get("failure"), problem.message);
  },
);
