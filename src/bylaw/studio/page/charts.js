// Charts: places along a row in percent, as in reports.

function fitScale(values) {
  const finite = values.filter(known);
  if (!finite.length) finite.push(0);
  const low = Math.min(...finite);
  const high = Math.max(...finite);
  const apart = high - low > 1e-6 * Math.max(Math.abs(high), Math.abs(low)); // or they differ by rounding alone
  const margin = apart ? 0.06 * (high - low) : 0.05 * (Math.abs(high) || 1);
  return { low: Math.max(low - margin, low >= 0 ? 0 : -Infinity), high: high + margin };
}
const placeOn = (scale, value) =>
  3 +
  94 *
    Math.min(Math.max(scale.high > scale.low ? (value - scale.low) / (scale.high - scale.low) : 0.5, 0), 1);
const at = (scale, value) => `${placeOn(scale, value).toFixed(2)}%`;
function listTicks(scale, most) {
  const width = scale.high - scale.low;
  if (!(width > 1e-9 * Math.abs(scale.high))) return [scale.low];
  const power = 10 ** Math.floor(Math.log10(width / most));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => width / s <= most);
  const first = Math.ceil(scale.low / step - 1e-9);
  const count = Math.floor(scale.high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.min(Math.max(count, 0), 20) }, (_, i) => tidy((first + i) * step));
}
// As many digits as it takes to tell two ticks apart.
function formatTick(tick, ticks, unit) {
  if (ticks.length < 2) return formatAmount(tick, unit);
  const step = Math.abs(ticks[1] - ticks[0]) * factorOf(unit);
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(step) - 1e-9), 0) + 1, 8);
  return `${signed(trim((tick * factorOf(unit)).toFixed(digits)))}${unit === "share" ? `${SPACE}%` : ""}`;
}
const lineFrom = (x1, x2, y1, y2, name) => draw("line", { x1, x2, y1, y2, class: name });
const makeSvg = (title, height, name, ...content) =>
  draw(
    "svg",
    { role: "img", width: "100%", height, class: name, focusable: "false" },
    draw("title", {}, title),
    ...content,
  );

function drawDots(title, before, after, scale, lower, upper) {
  const between = known(before) && known(after);
  return makeSvg(
    title,
    28,
    "row",
    listTicks(scale, 3).map((tick) => lineFrom(at(scale, tick), at(scale, tick), 0, 28, "grid")),
    known(lower) && known(upper)
      ? [
          lineFrom(at(scale, lower), at(scale, upper), 23, 23, "interval"),
          [lower, upper].map((end) => lineFrom(at(scale, end), at(scale, end), 20, 26, "interval")),
        ]
      : null,
    between ? lineFrom(at(scale, before), at(scale, after), 12, 12, "way") : null,
    known(before) ? draw("circle", { cx: at(scale, before), cy: 12, r: 5, class: "before" }) : null,
    known(after) ? draw("circle", { cx: at(scale, after), cy: 12, r: 5.5, class: "after" }) : null,
  );
}
function drawAxis(scale, unit) {
  return draw(
    "svg",
    { width: "100%", height: 16, "aria-hidden": "true", class: "axis", focusable: "false" },
    listTicks(scale, 3).map((tick, _, ticks) => {
      const place = placeOn(scale, tick);
      return draw(
        "text",
        {
          x: at(scale, tick),
          y: 12,
          "text-anchor": place < 8 ? "start" : place > 92 ? "end" : "middle",
          class: "tick",
        },
        formatTick(tick, ticks, unit),
      );
    }),
  );
}
