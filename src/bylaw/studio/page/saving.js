// Files, one after the other. What takes long shows its progress and can be cancelled.

const SAVED = { rules: "rules.toml", policy: "policy.json", report: "report.html", python: "solve.py" };
let saves = []; // {kind, asked}, the first of them going on
let savesBegun = 0;

function save(kind) {
  if (saves.some((one) => one.kind === kind && same(one.asked, stateNow()))) return;
  saves.push({ kind, asked: stateNow() });
  if (saves.length === 1) saveAll();
}
async function saveAll() {
  while (saves.length) {
    const mine = saves[0];
    const timer = setTimeout(() => showSaving(mine), SLOW);
    const said = await saveOne(mine);
    clearTimeout(timer);
    saves = saves.filter((one) => one !== mine);
    show(get("saving"), false);
    sayResult(said);
  }
}
async function saveOne({ kind, asked }) {
  const name = SAVED[kind];
  try {
    savesBegun += 1;
    const reply = await call("/api/save", { tab: savingTab, number: savesBegun, kind, ...asked });
    if (!reply.headers.has("Content-Disposition")) return { words: `${name} was not written: cancelled.` };
    const address = URL.createObjectURL(await readReply(() => reply.blob()));
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
    return { words: `${name} is among your downloads.`, next: (start.next || {})[kind] };
  } catch (problem) {
    return { words: problem instanceof Refusal ? problem.message : `${name} was not written.`, failed: true };
  }
}
function sayResult({ words, next, failed }) {
  const after = next
    ? [make("span", {}, ` ${next.words}`), make("code", { class: "command" }, next.command)]
    : [];
  get("saved").classList.toggle("fault", Boolean(failed));
  refill(get("saved"), words, after);
}
function showSaving(mine) {
  const going = () => saves[0] === mine;
  if (!going()) return;
  const waiting = () =>
    saves.length > 1
      ? ` (then ${saves
          .slice(1)
          .map((one) => SAVED[one.kind])
          .join(", ")})`
      : "";
  const words = `Writing ${SAVED[mine.kind]} …`;
  say(get("saved"), "");
  say(get("saving-words"), words);
  announce(words);
  show(get("saving"), true);
  follow(savingTab, going, (told) => say(get("saving-words"), describeProgress(words, told) + waiting()));
}
get("cancel-save").addEventListener("click", () => {
  saves = saves.slice(0, 1);
  document.querySelector(`[data-save=${saves[0].kind}]`).focus();
  cancelJob(savingTab);
});
document
  .querySelectorAll("[data-save]")
  .forEach((button) => button.addEventListener("click", () => save(button.dataset.save)));
