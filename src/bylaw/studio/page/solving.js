// Solving: at most one at a time, the newest next, and no answer that is older than the one shown.

const SLOW = 300; // milliseconds until what takes long shows its progress

let number = 0; // of the newest question
let shownNumber = 0; // of the answer on the page
let flight = null; // {number, asked, controller, timer}
let wanted = null; // what is to be asked next
let answer = null; // the newest answer that was solved
let answered = null; // the state that it answers
let received = null; // the newest reply of any status, and what was asked: {reply, asked}
// What is known of the state as it is, solved or not; null if nothing is.
const replyNow = () =>
  received && received.reply.status !== "cancelled" && same(received.asked, stateNow())
    ? received.reply
    : null;
const isAnswered = () => Boolean(answer) && same(answered, stateNow());

function request(now) {
  wanted = stateNow();
  get("results").dataset.settled = "false";
  if (get("saved").classList.contains("fault")) say(get("saved"), ""); // of what was wanted before
  if (flight && now && !same(flight.asked, wanted)) {
    flight.controller.abort();
    land();
  }
  take();
}
function take() {
  if (flight || !wanted || lost) return;
  stopFrontier();
  const asked = wanted;
  wanted = null;
  number += 1;
  const mine = { number, asked, controller: new AbortController() };
  mine.timer = setTimeout(() => showProgress(mine), SLOW);
  flight = mine;
  ask(mine);
}
function land() {
  clearTimeout(flight.timer);
  flight = null;
  show(get("progress"), false);
}
async function ask(mine) {
  let reply = null;
  try {
    const body = { tab, number: mine.number, ...mine.asked };
    reply = await callJson("/api/solve", body, mine.controller.signal);
  } catch (problem) {
    if (flight !== mine) return;
    if (problem instanceof Refusal) reply = { status: "failed", error: problem.message };
    else if (!wanted) wanted = mine.asked; // for when it is back
  }
  if (flight === mine) land();
  if (reply) receive(reply, mine);
  take();
}
function receive(reply, mine) {
  if (mine.number < shownNumber) return;
  shownNumber = mine.number;
  received = { reply, asked: mine.asked };
  const current = same(mine.asked, stateNow());
  const last = answered;
  if (reply.status === "solved") {
    answer = reply;
    answered = mine.asked;
  }
  paint(reply, mine.asked, last, current);
  const results = get("results");
  results.dataset.number = mine.number;
  results.dataset.status = reply.status;
  results.dataset.seconds = reply.seconds ?? "";
  results.dataset.settled = String(current);
  if (!current || reply.status === "cancelled") return;
  fillScenarios(reply, mine.asked);
  if (reply.status !== "failed") workAside();
}

function showProgress(mine) {
  if (flight !== mine) return;
  say(get("progress-words"), "Solving …");
  announce("Solving …");
  show(get("progress"), true);
  follow(
    tab,
    () => flight === mine,
    (told) => say(get("progress-words"), describeProgress("Solving …", told)),
  );
}
get("cancel").addEventListener("click", () => {
  wanted = null;
  get("results").focus({ preventScroll: true });
  cancelJob(tab);
});

// Beside that, once nothing moves: scenarios first, then the frontier. Whatever the user asks ends it.
let aside = 0;
const isIdle = () => !flight && !wanted && !dragging && !lost;
async function askAside(asked) {
  aside += 1;
  try {
    number += 1;
    return await callJson("/api/solve", { tab, number, ...asked });
  } finally {
    aside -= 1;
  }
}
async function workAside() {
  await solveKept();
  if (isIdle()) askFrontierSoon();
}
