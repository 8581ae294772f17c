// What is demanded: the state, its history, and its place in the address.

const LONGEST = 200; // steps that can be undone
const TOGETHER = 1000; // milliseconds between two moves by key that are one step
const LIMITS = { rules: 200, kept: 50, text: 20000, name: 60 }; // of what an address may hold
const BURST = { writes: 60, time: 10000 }; // browsers refuse more changes of the address

let start = null; // the server's first answer
let state = { minimize: "", rules: [], view: "predicted" };
let past = []; // snapshots, the current one at `present`
let present = -1;
let kept = []; // scenarios: {name, state, answer}
let inHand = 0; // the rule whose frontier is drawn
let moved = { what: null, time: 0 }; // the last commit

const copy = (value) => JSON.parse(JSON.stringify(value));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const stateNow = () => ({ minimize: state.minimize, rules: copy(state.rules), view: state.view });
const clampHand = () => (inHand = Math.min(Math.max(inHand, 0), Math.max(state.rules.length - 1, 0)));

// A step that can be undone; steps of the same kind that follow quickly, as from a key held down, are one.
function commit(what = null) {
  const now = performance.now();
  const joined = what && what === moved.what && now - moved.time < TOGETHER && present === past.length - 1;
  moved = { what, time: now };
  if (present < 0 || !same(past[present], state)) {
    past = past.slice(0, joined ? present : present + 1);
    past = past.concat(copy(state)).slice(-LONGEST);
    present = past.length - 1;
  }
  showHistory();
  writeHash();
}
function travel(step) {
  if (!past[present + step]) return;
  present += step;
  moved = { what: null, time: 0 };
  restate(copy(past[present]));
  showHistory();
}
// Another state as a whole.
function restate(other) {
  state = other;
  clampHand();
  writeHash();
  resetObjective();
  showDemands();
  request(true);
}
function showHistory() {
  const [undo, redo] = [get("undo"), get("redo")];
  const focused = document.activeElement;
  undo.disabled = present <= 0;
  redo.disabled = present >= past.length - 1;
  keepHistory();
  if (focused === undo && undo.disabled) redo.focus();
  if (focused === redo && redo.disabled) undo.focus();
}

// Of this tab and this run of the server, so that a reload loses no step.
const HISTORY = `bylaw history ${token}`;
function keepHistory() {
  try {
    sessionStorage.removeItem(HISTORY);
    sessionStorage.setItem(HISTORY, JSON.stringify({ past, present }));
  } catch {
    // no room for it, or no storage at all
  }
}
function recallHistory() {
  try {
    const found = JSON.parse(sessionStorage.getItem(HISTORY));
    const steps = found.past.map(readState);
    if (!steps.every(Boolean) || !same(steps[found.present], state)) return;
    [past, present] = [steps, found.present];
  } catch {
    // none, or not ours
  }
}

const writeState = () =>
  encodeURIComponent(
    JSON.stringify({ ...state, hand: inHand, kept: kept.map(({ name, state }) => ({ name, state })) }),
  );
let writes = [];
let writing = null;
function writeHash() {
  clearTimeout(writing);
  const now = performance.now();
  writes = writes.filter((time) => now - time < BURST.time);
  if (writes.length >= BURST.writes) {
    writing = setTimeout(writeHash, 500);
    return;
  }
  writes.push(now);
  history.replaceState(null, "", `${location.pathname}${location.search}#${writeState()}`);
}
function readHash() {
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const read = readState(found);
    if (!read) return false;
    const scenarios = Array.isArray(found.kept) ? found.kept.slice(0, LIMITS.kept) : [];
    kept = scenarios
      .filter((one) => one && typeof one.name === "string")
      .map((one) => ({ name: one.name.slice(0, LIMITS.name), state: readState(one.state), answer: null }))
      .filter((one, i, all) => one.state && all.findIndex((other) => other.name === one.name) === i);
    state = read;
    inHand = Number.isInteger(found.hand) ? found.hand : 0;
    clampHand();
    return true;
  } catch {
    return false;
  }
}
// From an address, which may hold anything.
function readState(found) {
  if (!found || typeof found.minimize !== "string" || !Array.isArray(found.rules)) return null;
  const fits = (text) => typeof text === "string" && text.length <= LIMITS.text;
  if (!fits(found.minimize)) return null;
  const rules = found.rules
    .filter((rule) => rule && fits(rule.text))
    .slice(0, LIMITS.rules)
    .map((rule) => ({ text: rule.text, on: rule.on !== false }));
  const observed = found.view === "observed" && start.labelled;
  return { minimize: found.minimize, rules, view: observed ? "observed" : "predicted" };
}
