// The tightest level that costs no more than a given amount: found by solving, not read off the chart.

let searching = null; // the search that goes on
let budgetLevel = null; // that the last one found, or ended at

const budgetUnit = () => (answer ? differenceUnit(answer.cost.unit) : "points");

function showBudget(card, key) {
  show(get("budget"), key !== null && Boolean(answer) && known(card.loosening));
  say(get("budget-unit"), suffixOf(budgetUnit()));
  if (!searching && (key === null || card.level !== budgetLevel)) sayBudget(""); // of another level
}
// The levels of a slider, from the loosest to the tightest.
function listLevels(card) {
  const count = Math.round((card.highest - card.lowest) / card.step);
  const levels = Array.from({ length: count + 1 }, (_, i) => roundTo(card.lowest + i * card.step, card));
  return card.loosening > 0 ? levels.reverse() : levels;
}
// The cost with one rule changed; null where the rules conflict.
async function measureCost(asked, index, change) {
  const rules = asked.rules.map((rule, i) => (i === index ? { ...rule, ...change } : rule));
  const reply = await askAside({ ...asked, rules });
  if (reply.status === "solved") return reply.cost.after;
  if (reply.status === "conflict") return null;
  throw new Refusal(reply.error || "The search was ended: something else was asked.");
}
// Where to look, by the frontier if there is one: between its tightest level within the cost and the next.
// As observed, costs need not rise steadily, so that a bisection of all levels could miss it.
function findBracket(levels, card, most, free) {
  const traced = frontiers.get(frontierKey());
  if (!traced || !traced.body) return null;
  const points = traced.body.levels.map((level, i) => ({
    place: (card.loosening * (levels[0] - level)) / card.step,
    fits: traced.body.costs[i] - free <= most,
  }));
  points.sort((one, other) => one.place - other.place);
  const last = points.findLastIndex((one) => one.fits);
  if (last < 0) return null;
  const next = points[last + 1];
  return [Math.floor(points[last].place + 1e-6), next ? Math.ceil(next.place - 1e-6) : levels.length];
}
// The last place that fits, by bisection, and what each place costs that was tried.
async function findTightest(levels, most, bracket, measure) {
  const found = new Map();
  const isWithin = async (place) => {
    if (!found.has(place)) found.set(place, await measure(levels[place]));
    return found.get(place) !== null && found.get(place) <= most + VERDICT;
  };
  let [fits, fails] = bracket && (await isWithin(bracket[0])) ? bracket : [0, levels.length];
  if (!(await isWithin(fits))) return { place: -1, found };
  if (fails === levels.length && (await isWithin(fails - 1))) return { place: fails - 1, found };
  fails = Math.min(fails, levels.length - 1);
  while (fails - fits > 1) {
    const middle = (fits + fails) >> 1;
    if (await isWithin(middle)) fits = middle;
    else fails = middle;
  }
  if (fails < levels.length && !found.has(fails)) await isWithin(fails); // to tell what the next one costs
  return { place: fits, found };
}
async function search(most) {
  const [index, asked] = [inHand, stateNow()];
  const card = cardOf(asked.rules[index].text);
  const levels = listLevels(card);
  budgetLevel = card.level;
  clearTimeout(frontierTimer);
  const mine = (searching = { asked });
  const going = () => searching === mine && same(stateNow(), asked);
  let solved = 0;
  const measure = async (change) => {
    if (!going() || !isIdle()) throw new Refusal("The search was ended: something else was asked.");
    sayBudget(`Solving level ${(solved += 1)} …`);
    return measureCost(asked, index, change);
  };
  try {
    const free = await measure({ on: false }); // what the other rules cost
    if (free === null) throw new Refusal("The other rules conflict.");
    const more = async (level) => {
      const cost = await measure({ text: putLevel(card, level) });
      return cost === null ? null : cost - free;
    };
    const bracket = findBracket(levels, card, most, free);
    const { place, found } = await findTightest(levels, most, bracket, more);
    if (!going()) return;
    const words = describeSearch(card, levels, place, found, most);
    sayBudget(words);
    announce(words);
    if (place >= 0) {
      budgetLevel = levels[place];
      moveLevel(index, levels[place], true);
    }
  } catch (problem) {
    if (searching === mine) sayBudget(problem instanceof Refusal ? problem.message : "The search was ended.");
  } finally {
    if (searching === mine) searching = null;
    if (isIdle()) askFrontierSoon();
  }
}
function describeSearch(card, levels, place, found, most) {
  const name = (i) => formatExactly(levels[i], card.unit);
  const cost = (i) => (found.get(i) === null ? "the rules conflict" : formatMore(found.get(i), most));
  if (place < 0) return `Not even at ${name(0)}, its loosest: ${cost(0)}.`;
  const next = found.has(place + 1) ? ` At ${name(place + 1)}: ${cost(place + 1)}.` : "";
  return `${name(place)}: ${cost(place)} against the other rules alone.${next}`;
}
const formatMore = (more, most) => `${more > VERDICT ? "+" : ""}${formatBeside(more, most, budgetUnit())}`;
const sayBudget = (text) => say(get("budget-said"), text);

get("budget").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = get("budget-most").value.trim();
  const most = Number(text) / factorOf(budgetUnit());
  const fine = text !== "" && known(most);
  get("budget-most").setAttribute("aria-invalid", String(!fine));
  if (!fine) sayBudget("Give a number, such as 0.5.");
  else if (isIdle() && frontierKey() !== null) search(most);
});
