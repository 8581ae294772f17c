// Talking to the server, and what to do while it does not answer.

const RETRY = 1200; // milliseconds between two knocks at a server that is gone
const token = new URLSearchParams(location.search).get("token") || "";
const tab = crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2);

const savingTab = `${tab} saves`; // of its own: a solve does not end a save

class Refusal extends Error {} // the server says why
class Away extends Error {}
class Stranger extends Error {} // it was started anew

async function call(path, body, signal) {
  const options = {
    method: body ? "POST" : "GET",
    headers: { "X-Bylaw-Token": token },
    cache: "no-store",
    signal,
  };
  if (body) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    lose();
    throw new Away("the server does not answer");
  }
  if (reply.status === 401 || reply.status === 403) {
    lose(true);
    throw new Stranger("the server does not know this page");
  }
  if (reply.ok) return reply;
  const words = await reply.json().then(
    (said) => said.error,
    () => `the server answered ${reply.status}`,
  );
  throw new Refusal(words);
}
async function callJson(path, body, signal) {
  const reply = await call(path, body, signal);
  return readReply(() => reply.json());
}
async function readReply(read) {
  try {
    return await read();
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    lose(); // the answer was cut off
    throw new Away("the server does not answer");
  }
}

// How far something is that takes long, told until `going` says that it ended.
async function follow(name, going, tell) {
  while (going()) {
    try {
      const told = await callJson(`/api/progress?tab=${encodeURIComponent(name)}`);
      if (going()) tell(told);
    } catch {
      return; // a server that is gone has its own banner
    }
    await pause(250);
  }
}
function describeProgress(words, told) {
  const parts = [];
  if (known(told.seconds)) parts.push(`${told.seconds.toFixed(1)} s`);
  if (told.step) parts.push(`step ${told.step}`);
  if (known(told.off_by)) parts.push(`rules off by ${roundNumber(told.off_by, 2)}`);
  return `${words} ${parts.join(", ")}`;
}
const cancelJob = (name) => callJson("/api/cancel", { tab: name }).catch(() => null);
// A page that is left asks for nothing any more.
addEventListener("pagehide", () =>
  [tab, savingTab].forEach((name) =>
    fetch("/api/cancel", {
      method: "POST",
      headers: { "X-Bylaw-Token": token },
      body: JSON.stringify({ tab: name }),
      keepalive: true,
    }).catch(() => null),
  ),
);
addEventListener("pageshow", (event) => event.persisted && start && request(true));

let lost = false;
function lose(unknown = false) {
  say(get("gone-title"), unknown ? "The server was started anew." : "The server does not answer.");
  const words = unknown
    ? "It does not know this page. Copy the address that it printed when it started: your rules and scenarios come along."
    : "Your rules and scenarios are kept in this page. If you start it again, give the address that it prints: they come along.";
  say(get("gone-words"), words);
  show(get("gone-form"), true);
  show(get("gone"), true);
  root.dataset.gone = unknown ? "unknown" : "away";
  if (!lost) knock();
}
async function knock() {
  lost = true;
  while (lost) {
    await pause(RETRY);
    try {
      const reply = await fetch("/api/start", { headers: { "X-Bylaw-Token": token }, cache: "no-store" });
      if (reply.status === 401 || reply.status === 403) lose(true);
      if (!reply.ok) continue;
      start = await reply.json();
    } catch {
      lose();
      continue;
    }
    lost = false;
  }
  show(get("gone"), false);
  delete root.dataset.gone;
  if (past.length) showStart();
  else begin();
  request(true);
}

// The address of another run; nowhere but this machine.
function readAddress(text) {
  try {
    const address = new URL(text.trim());
    const near = ["127.0.0.1", "localhost", "[::1]"].includes(address.hostname);
    return near && address.protocol === "http:" ? address : null;
  } catch {
    return null;
  }
}
get("gone-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const address = readAddress(get("gone-address").value);
  get("gone-address").setAttribute("aria-invalid", String(!address));
  if (!address) return;
  address.hash = writeState();
  if (address.host === location.host && address.search === location.search) location.reload();
  else location.assign(address);
});
