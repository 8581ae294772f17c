// Numbers as people read them, as in reports: see bylaw/report/number_format.py.

const MINUS = "\u2212";
const SPACE = "\u00a0";
const NOTHING = "\u2014";
const VERDICT = 1e-6; // the tolerance of verdicts

const known = (value) => typeof value === "number" && Number.isFinite(value);
const tidy = (value) => Number(value.toPrecision(12));
const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const signed = (text) => (text === "-0" ? "0" : text.replaceAll("-", MINUS));

// Ties go to the even digit, as in Python: 1.25 is 1.2 in a report and on the page.
const decimals = new Map();
function fix(value, places, grouped = false) {
  const key = `${places}${grouped}`;
  if (!decimals.has(key)) {
    const options = { minimumFractionDigits: places, maximumFractionDigits: places };
    decimals.set(
      key,
      new Intl.NumberFormat("en", { ...options, roundingMode: "halfEven", useGrouping: grouped }),
    );
  }
  return decimals.get(key).format(value);
}

function roundNumber(value, digits = 3) {
  if (!known(value)) return NOTHING;
  if (!value) return "0";
  const places = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(value))), 0);
  if (places > 6) return signed(value.toExponential(1));
  return signed(trim(fix(value, places, true)));
}
function hundredths(value, fine) {
  value *= 100;
  if (value && Math.abs(value) < 0.005) return `${value < 0 ? MINUS : ""}under${SPACE}0.01`;
  return signed(trim(fix(value, Math.abs(value) >= fine || value === 0 ? 1 : 2)));
}
const addUnit = (text, unit) => {
  if (unit === "plain") return text;
  if (unit === "share") return `${text}${SPACE}%`;
  return `${text}${SPACE}${text === "1" || text === `${MINUS}1` ? "point" : "points"}`;
};
function formatAmount(value, unit) {
  if (!known(value)) return NOTHING;
  if (unit === "plain") return roundNumber(value);
  return addUnit(hundredths(value, unit === "share" ? 0.995 : 10), unit);
}
// A level: all of its digits.
const formatExactly = (value, unit) =>
  known(value) ? addUnit(signed(String(tidy(value * factorOf(unit)))), unit) : NOTHING;

// An amount with as many digits as it takes to tell it from a limit, unless a verdict does not.
function formatBeside(value, limit, unit) {
  const text = formatAmount(value, unit);
  const apart = Math.abs(value - limit);
  if (!known(apart) || apart <= VERDICT || text !== formatAmount(limit, unit)) return text;
  const places = Math.ceil(-Math.log10(apart));
  return formatExactly(Number(value.toFixed(places)), unit);
}
const formatShare = (value) => formatAmount(value, "share");
// In a narrow cell.
const formatCell = (value) => formatShare(value).replace(`under${SPACE}`, "<");
const formatCount = (value) => (known(value) ? fix(value, 0, true) : NOTHING);

// What a cost is more than another one.
const differenceUnit = (unit) => (unit === "share" ? "points" : unit);
function formatDifference(more, unit) {
  if (!known(more)) return NOTHING;
  const none = Math.abs(more) < 5e-7;
  return `${more > 0 && !none ? "+" : ""}${formatAmount(none ? 0 : more, differenceUnit(unit))}`;
}

const shorten = (value, most = 40) => {
  const letters = [...String(value)];
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("")}…`;
};
// A level as a person types it: percent of a share, points of a difference.
const factorOf = (unit) => (unit === "plain" ? 1 : 100);
const suffixOf = (unit) => ({ share: "%", points: "points" })[unit] || "";
