// The chart of a frontier: a level is looked at by pointer or key, and gone to by a click or Enter.

const EDGE = { left: 58, right: 14, top: 12, bottom: 40 };
const TALL = 230;
let looked = null; // the level that is looked at

// What is drawn, and where.
function layFrontier(body, card) {
  const points = body.levels
    .map((level, i) => ({ level, cost: body.costs[i], missed: Boolean(body.missed && body.missed[i]) }))
    .filter((one) => known(one.cost))
    .sort((one, other) => one.level - other.level);
  const conflicts = (body.conflicts || []).filter(known);
  const cost = isAnswered() ? answer.cost.after : interpolate(points, card.level);
  const current = known(cost) ? { level: card.level, cost } : null;
  const levels = [...points.map((one) => one.level), ...conflicts, card.level];
  const across = { low: Math.min(...levels), high: Math.max(...levels) };
  const up = fitScale([...points, ...(current ? [current] : [])].map((one) => one.cost));
  const wide = Math.min(Math.max(get("frontier").clientWidth, 260), 560);
  const part = (scale, value) =>
    scale.high > scale.low ? (value - scale.low) / (scale.high - scale.low) : 0.5;
  return {
    points,
    conflicts,
    current,
    across,
    up,
    wide,
    costUnit: body.cost.unit,
    words: body.cost.words || body.cost.name,
    free: body.free, // what the other rules cost
    x: (level) => EDGE.left + (wide - EDGE.left - EDGE.right) * part(across, level),
    y: (cost) => EDGE.top + (TALL - EDGE.top - EDGE.bottom) * (1 - part(up, cost)),
  };
}
function drawFrontier(body, card) {
  const plan = layFrontier(body, card);
  if (!plan.points.length) return make("p", { class: "note" }, "At none of these levels can the rules hold.");
  const told = plan.points.map(
    (one) => `${formatExactly(one.level, card.unit)}: ${formatAmount(one.cost, plan.costUnit)}`,
  );
  const svg = draw(
    "svg",
    { role: "img", viewBox: `0 0 ${plan.wide} ${TALL}`, width: plan.wide, height: TALL, focusable: "false" },
    draw("title", {}, `Cost by level: ${told.join("; ")}`),
    drawGrid(plan, card),
    shadeConflicts(plan),
    drawCurve(plan, card),
  );
  const plot = make(
    "div",
    {
      class: "plot",
      id: "frontier-plot",
      role: "slider",
      tabindex: 0,
      "aria-label": "Cost at another level: arrows look, Enter goes there",
      "aria-valuemin": plan.across.low,
      "aria-valuemax": plan.across.high,
    },
    svg,
  );
  const readout = make("p", { class: "readout", id: "frontier-readout" });
  const look = (level) => lookAt(plan, card, { svg, plot, readout }, level);
  connectPlot(plan, card, plot, svg, look);
  look(looked);
  return [plot, readout, make("p", { class: "note" }, describeFrontier(plan))];
}
function describeFrontier(plan) {
  const view = state.view === "observed" ? ", as observed" : "";
  const words = `${shorten(plan.words, 60)} at each level${view}.`;
  const shaded = plan.conflicts.length ? " Shaded: the rules cannot hold." : "";
  const hollow = plan.points.some((one) => one.missed) ? " Hollow: a rule is missed as observed." : "";
  return `${words[0].toUpperCase()}${words.slice(1)} Click to go there.${shaded}${hollow}`;
}
function drawGrid(plan, card) {
  const text = (words, x, y, anchor, name = "tick") =>
    draw("text", { x, y, "text-anchor": anchor, class: name }, words);
  const bottom = TALL - EDGE.bottom;
  const name = card.unit === "points" ? "level of the rule, points" : "level of the rule";
  return [
    listTicks(plan.up, 4).map((tick, _, all) => [
      lineFrom(EDGE.left, plan.wide - EDGE.right, plan.y(tick), plan.y(tick), "grid"),
      text(formatTick(tick, all, plan.costUnit), EDGE.left - 8, plan.y(tick) + 4, "end"),
    ]),
    listTicks(plan.across, 5).map((tick, _, all) =>
      text(formatTick(tick, all, card.unit), plan.x(tick), bottom + 18, "middle"),
    ),
    text(name, plan.wide - EDGE.right, TALL - 4, "end", "name"),
  ];
}
function drawCurve({ points, current, x, y }, card) {
  const now = x(card.level);
  return [
    points
      .slice(1)
      .map((one, i) =>
        lineFrom(x(points[i].level), x(one.level), y(points[i].cost), y(one.cost), "curve-line"),
      ),
    points.map((one) =>
      draw("circle", {
        cx: x(one.level),
        cy: y(one.cost),
        r: 3.5,
        class: one.missed ? "point missed" : "point",
      }),
    ),
    lineFrom(now, now, EDGE.top, TALL - EDGE.bottom, "now-line"),
    current ? draw("circle", { cx: now, cy: y(current.cost), r: 7, class: "now", id: "frontier-now" }) : null,
    draw("g", { class: "look" }),
  ];
}
function shadeConflicts({ conflicts, points, x }) {
  const below = conflicts.filter((level) => level < points[0].level);
  const above = conflicts.filter((level) => level > points[points.length - 1].level);
  return [below, above]
    .filter((side) => side.length)
    .map((side) => [x(Math.min(...side)), x(Math.max(...side))])
    .map(([from, to]) =>
      draw("rect", {
        x: from,
        y: EDGE.top,
        width: Math.max(to - from, 1),
        height: TALL - EDGE.top - EDGE.bottom,
        class: "impossible",
      }),
    );
}
function interpolate(points, level) {
  const after = points.findIndex((one) => one.level >= level);
  if (after < 0) return null;
  if (points[after].level === level) return points[after].cost;
  if (after === 0) return null;
  const [low, high] = [points[after - 1], points[after]];
  return low.cost + ((high.cost - low.cost) * (level - low.level)) / (high.level - low.level);
}

// One level: what it costs, and how much more than with the other rules alone. Between two levels that were solved, a
// straight line; as predicted, costs are convex in the level, so that it is an upper bound.
function lookAt(plan, card, { svg, plot, readout }, level) {
  looked = known(level) ? Math.min(Math.max(level, plan.across.low), plan.across.high) : null;
  const here = looked ?? card.level;
  const now = here === card.level;
  const cost = now && plan.current ? plan.current.cost : interpolate(plan.points, here);
  const words = describeLevel(plan, card, here, cost, now);
  say(readout, words);
  plot.setAttribute("aria-valuenow", here);
  plot.setAttribute("aria-valuetext", words);
  const cross = [lineFrom(plan.x(here), plan.x(here), EDGE.top, TALL - EDGE.bottom, "look-line")];
  if (known(cost)) cross.push(draw("circle", { cx: plan.x(here), cy: plan.y(cost), r: 4.5, class: "look" }));
  svg.querySelector("g.look").replaceChildren(...(now ? [] : cross));
}
function describeLevel(plan, card, level, cost, now) {
  const name = `${now ? "Now, at" : "At"} ${formatExactly(level, card.unit)}`;
  if (!known(cost)) return `${name}: the rules cannot hold`;
  const more = known(plan.free) ? cost - plan.free : null;
  const against = known(more)
    ? `, ${formatDifference(more, plan.costUnit)} against the other rules alone`
    : "";
  return `${name}: ${formatAmount(cost, plan.costUnit)}${against}`;
}
function connectPlot(plan, card, plot, svg, look) {
  const levelAt = (event) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * plan.wide;
    const share = Math.min(Math.max((place - EDGE.left) / (plan.wide - EDGE.left - EDGE.right), 0), 1);
    return roundTo(plan.across.low + share * (plan.across.high - plan.across.low), card);
  };
  const go = (level) => {
    looked = null;
    moveLevel(inHand, level, true);
  };
  svg.addEventListener("pointermove", (event) => look(levelAt(event)));
  svg.addEventListener("pointerleave", () => look(null));
  svg.addEventListener("click", (event) => go(levelAt(event)));
  plot.addEventListener("blur", () => look(null));
  plot.addEventListener("keydown", (event) => {
    const step = (card.step || (plan.across.high - plan.across.low) / 200) * 5;
    const from = looked ?? card.level;
    const ways = {
      ArrowRight: from + step,
      ArrowUp: from + step,
      ArrowLeft: from - step,
      ArrowDown: from - step,
    };
    const level = { ...ways, Home: plan.across.low, End: plan.across.high }[event.key];
    if (event.key === "Escape") look(null);
    else if (event.key === "Enter" && looked !== null) go(looked);
    else if (known(level)) look(roundTo(level, card));
    else return;
    event.preventDefault();
  });
}
