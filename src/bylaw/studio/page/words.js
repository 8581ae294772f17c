// The words that rules are made of, to choose from.

// Whether these rows have what a word is about.
function isUsable({ name, kind }) {
  if (kind === "family") return Object.keys(start.groups).length > 0;
  if (ofReferences.includes(name)) return start.references.length > 0;
  return name !== "custom" || start.costs.length > 0;
}
function makeWord(word) {
  const begin = () => {
    const input = get("new-rule");
    input.value = `${word.name}(${word.signature.endsWith("()") ? ") " : ""}`;
    input.focus();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const name = make("code", {}, word.signature);
  return make(
    "li",
    {},
    make("button", { type: "button", class: "word", onclick: begin }, name),
    make("span", {}, word.help),
  );
}
function showWords() {
  const list = (title, kind) => {
    const words = listWords(kind).filter(isUsable);
    return words.length ? [make("h4", {}, title), make("ul", {}, words.map(makeWord))] : null;
  };
  refill(
    get("words"),
    list("The same for every group", "family"),
    list("Rates, to be compared with a number by <= or >=", "rate"),
  );
}
