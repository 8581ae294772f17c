// Completion: what may come at the cursor.

const quote = (value) => {
  if (typeof value === "string") return `'${visible(value.replace(/[\\']/g, "\\$&")).replace(/\n/g, "\\n")}'`;
  return value === true ? "True" : value === false ? "False" : String(value);
};
const listWords = (...kinds) => start.words.filter((word) => kinds.includes(word.kind));
const ofClasses = ["selected", "precision", "recall", "f1"];
const ofReferences = ["disagreement", "omits"];

// The open brackets before the cursor: for each, the word before it and the argument's name.
function readContext(text) {
  const stack = [];
  let quoted = null;
  for (let i = 0; i < text.length; i += 1) {
    const sign = text[i];
    if (quoted) {
      if (sign === "\\") i += 1;
      else if (sign === quoted.sign) quoted = null;
    } else if (sign === "'" || sign === '"') quoted = { sign, from: i };
    else if ("([{".includes(sign))
      stack.push({ sign, before: (text.slice(0, i).match(/[A-Za-z_]\w*$/) || [""])[0], from: i });
    else if (")]}".includes(sign)) stack.pop();
  }
  const word = quoted ? text.slice(quoted.from) : (text.match(/[A-Za-z_]\w*$/) || [""])[0];
  const called = [...stack].reverse().find((one) => one.before) || { before: "", from: 0 };
  const inside = text.slice(called.from + 1, text.length - word.length);
  const named = (inside.match(/([A-Za-z_]\w*)\s*=\s*[[(]?[^=]*$/) || [null, null])[1];
  const stillNamed =
    named && !/=.*,\s*$/.test(inside.slice(inside.lastIndexOf(named)))
      ? named
      : /labels\s*=\s*\[[^\]]*$/.test(inside)
        ? "labels"
        : null;
  return {
    word,
    quoted: Boolean(quoted),
    called: called.before,
    named: stillNamed,
    dotted: !quoted && /\)\.[A-Za-z_]*$/.test(text),
    inside,
  };
}
function listValues(context) {
  const family = listWords("family").some((one) => one.name === context.called);
  if (context.called === "given") {
    if (context.named === "label") return start.classes.map((value) => [value, "class"]);
    if (context.named === "decision") return start.actions.map((value) => [value, "decision"]);
    if (context.named) return (start.groups[context.named] || []).map((value) => [value, context.named]);
    return null;
  }
  if (context.named === "labels") return start.actions.map((value) => [value, "decision"]);
  if (context.named === "between") return ["overall", "groups"].map((value) => [value, "compared"]);
  if (context.named && context.named !== "by") return [];
  if (family || context.named === "by") return Object.keys(start.groups).map((value) => [value, "group"]);
  if (ofClasses.includes(context.called)) return start.actions.map((value) => [value, "decision"]);
  if (ofReferences.includes(context.called)) return start.references.map((value) => [value, "earlier model"]);
  if (context.called === "custom") return start.costs.map((value) => [value, "cost"]);
  return null;
}
function listCompletions(text, cursor, rulesToo) {
  const context = readContext(text.slice(0, cursor));
  const from = cursor - context.word.length;
  const plain = context.word.replace(/^['"]/, "").toLowerCase();
  let found = [];
  const complete = !context.quoted && !context.word && /['")\]\d]\s*$/.test(text.slice(0, cursor)); // an operator comes next
  const values = complete ? [] : listValues(context);
  if (context.dotted) found = [{ insert: "given(", shown: ".given(…)", help: "among some rows only" }];
  else if (values) {
    const close =
      [...ofClasses, ...ofReferences, "custom"].includes(context.called) && !text.slice(cursor).includes(")")
        ? ")"
        : "";
    found = values.map(([value, help]) => ({ insert: quote(value) + close, shown: String(value), help }));
  } else if (context.called === "given") {
    const names = Object.keys(start.groups).filter((name) => /^[A-Za-z_]\w*$/.test(name));
    found = [
      ...names.map((name) => [name, "group"]),
      ["label", "the true class"],
      ["decision", "what is decided"],
    ].map(([name, help]) => ({ insert: `${name}=`, shown: `${name}=`, help }));
  } else if (!context.quoted) {
    const sources = rulesToo ? listWords("rate", "family") : listWords("rate", "objective");
    found = sources.map((one) => ({
      insert: `${one.name}(${/\(\s*\)/.test(one.signature) ? ")" : ""}`,
      shown: one.signature || one.name,
      help: one.help || "",
      name: one.name,
    }));
  }
  const begins = (one) => (one.name || one.shown).toLowerCase().startsWith(plain);
  const holds = (one) =>
    !begins(one) && plain.length > 1 && `${one.shown} ${one.help}`.toLowerCase().includes(plain);
  found = [...found.filter(begins), ...found.filter(holds)].filter((one) => one.insert !== context.word);
  return {
    from,
    items: found.slice(0, 40),
    eager: Boolean(values) || context.dotted || context.called === "given",
  };
}
