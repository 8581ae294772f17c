"""The rules: in words, whether they hold, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bylaw.auditing.audit import Verdict
from bylaw.language.parser import Statement
from bylaw.report.bounded_rates import Bar
from bylaw.report.context import Facts, badge
from bylaw.report.cost_curves import level_unit
from bylaw.report.markup import Html, bullets, folded, join, paragraphs, section, table, tag
from bylaw.report.number_format import amount, beside, count, percent, plural, points, rounded
from bylaw.report.sentences import rate_in_words, saving, sentence
from bylaw.report.svg_charts import Scale, axis, bounds_of, scale_of, track

_SHOWN = 12  # bars
_MOST_ROWS = 300  # lines of the table of all rules
_MOST_RULES = 100  # in words
_FAR = 1000  # times as many rows are no advice
_POINT = 0.01


def rules_in_words(facts: Facts) -> Html:
    problem = facts.policy.problem
    goal = f"The aim: to make {rate_in_words(problem.minimize, facts.kind)} as small as these rules allow."
    items = [
        tag(
            "li",
            tag("p", sentence(rule, facts.kind), class_="rule"),
            tag("p", tag("code", str(rule)), class_="formal"),
        )
        for rule in problem.rules[:_MOST_RULES]
    ]
    more = len(problem.rules) - len(items)
    return section(
        "rules",
        "The rules in words",
        tag("p", goal),
        tag("ol", *items, class_="rules") if items else tag("p", "There are no rules."),
        tag("p", f"{plural(more, 'more rule')} not shown here.") if more > 0 else None,
        tag(
            "p",
            "A case is one row of data. "
            + ("“Referred” means: no automatic answer. " if facts.kind == "reject" else "")
            + ("Cases count by their weights. " if facts.judged.evidence.weights is not None else "")
            + "A “point” is one of a hundred percent: from 40 % to 42 % are 2 points. The line below each "
            "rule is the exact statement that the program reads.",
            class_="note",
        ),
    )


def rules_kept(facts: Facts) -> Html:
    if not facts.bars:
        return section("kept", "Do the rules hold?", tag("p", "There are no rules to judge."))
    scales = _scales(facts.bars)
    shown, rest = facts.bars[:_SHOWN], facts.bars[_SHOWN:]
    cards = [_card(bar, scales[bar.statement], facts) for bar in shown]
    worst = f"The {len(shown)} most critical of {plural(len(facts.bars), 'rate')} are drawn. " if rest else ""
    return section(
        "kept",
        "Do the rules hold?",
        paragraphs(_origin(facts)),
        tag("p", f"{worst}{_legend(facts)}", class_="note"),
        tag("ul", *cards, class_="cards"),
        folded(f"{_all(facts)} as a table", *_all_rates(facts)),
    )


def _all(facts: Facts) -> str:
    return "The rate" if len(facts.bars) == 1 else f"All {len(facts.bars)} rates"


def _origin(facts: Facts) -> str:
    if facts.audit is not None:
        return (
            f"Measured on {facts.rows}, with the draws averaged out. Each interval is made of two bounds, "
            f"each right in {percent(facts.confidence)} of such audits. “Certified”: these cases prove that "
            "the rule holds. “Violated”: they prove that it does not. “Undecided”: they are too few to tell. "
            "A limit from above and one from below are two rules; verdicts are adjusted for the number of "
            f"all, {facts.single_rules}."
        )
    return (
        f"These are estimates on {facts.rows}, {facts.rates_measured}. They say nothing certain about new "
        "cases. For intervals and verdicts, set cases aside that have no part in choosing the policy, and "
        "give them to the report as held out (held_out= in Python, --held-out on the command line)."
    )


def _legend(facts: Facts) -> str:
    interval = ", with its interval as a line" if facts.audit is not None else ""
    return f"Shaded: where the rule wants the rate to be. Dot: the estimate{interval}."


def _scales(bars: Sequence[Bar]) -> dict[str, Scale]:
    """One for all rates of a statement, so that they compare."""
    scales = {}
    for statement in dict.fromkeys(bar.statement for bar in bars):
        own = [bar for bar in bars if bar.statement == statement]
        ends = [v for bar in own for v in (bar.low, bar.high, bar.estimate, bar.lower, bar.upper)]
        scales[statement] = scale_of(ends, around_zero=True)
    return scales


def _card(bar: Bar, scale: Scale, facts: Facts) -> Html:
    name = _capital(rate_in_words(bar.rate, facts.kind))
    facts_line = _numbers(bar, facts)
    return tag(
        "li",
        tag("div", tag("p", name, class_="rule"), badge(bar.verdict), class_="head"),
        track(bar, scale, f"{name}: {facts_line}"),
        axis(scale, bar.unit, bounds_of(bar, scale)),
        tag("p", facts_line, class_="numbers"),
    )


def _numbers(bar: Bar, facts: Facts) -> str:
    if bar.reason:
        return f"Not judged: {bar.reason.partition(': pass ')[0]}."
    said = f"Allowed: {allowed(bar)}. Estimate: {beside(bar.estimate, (bar.low, bar.high), bar.unit)}"
    if math.isfinite(bar.lower):
        said += f", between {amount(bar.lower, bar.unit)} and {amount(bar.upper, bar.unit)}"
    weighted = facts.judged.evidence.weights is not None
    said += (
        f", worth {count(bar.rows)} cases of equal weight."
        if weighted
        else f", from {count(bar.rows)} cases."
    )
    if bar.verdict is Verdict.UNDECIDED and not math.isnan(bar.rows_needed):
        far = bar.rows_needed > _FAR * len(facts.judged)
        said += (
            " It is at its limit."
            if far
            else f" About {count(_two_digits(bar.rows_needed))} cases in all would tell."
        )
    return said


def _two_digits(number: float) -> float:
    return float(f"{number:.1e}")


def allowed(bar: Bar) -> str:
    if math.isfinite(bar.low) and math.isfinite(bar.high):
        low = rounded(100 * bar.low) if bar.unit == "points" else amount(bar.low, bar.unit, exactly=True)
        return f"{low} to {amount(bar.high, bar.unit, exactly=True)}"
    if math.isfinite(bar.high):
        return f"at most {amount(bar.high, bar.unit, exactly=True)}"
    return f"at least {amount(bar.low, bar.unit, exactly=True)}"


def _all_rates(facts: Facts) -> list[Html]:
    rows = [
        [
            join([_capital(rate_in_words(bar.rate, facts.kind)), tag("code", str(bar.rate))], " "),
            allowed(bar),
            beside(bar.estimate, (bar.low, bar.high), bar.unit),
            "—"
            if math.isnan(bar.lower)
            else f"{amount(bar.lower, bar.unit)} to {amount(bar.upper, bar.unit)}",
            badge(bar.verdict),
        ]
        for bar in facts.bars[:_MOST_ROWS]
    ]
    more = len(facts.bars) - len(rows)
    left = tag("p", f"{plural(more, 'rate')} not shown: those with most room to spare.", class_="note")
    heads = ["Rate", "Allowed", "Estimate", "Interval", "Verdict"]
    return [table("Every rate that the rules bound, worst first", heads, rows), *([left] if more > 0 else [])]


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def prices(facts: Facts) -> Html:
    """What one more step of room in each rule would save."""
    problem = facts.policy.problem
    said = facts.policy.prices
    if not problem.rules:
        return section("prices", "What each rule costs", tag("p", "There are no rules, so nothing to pay."))
    items = [
        join(
            [
                tag("span", sentence(rule, facts.kind), class_="rule"),
                tag("span", _price(said.get(str(rule), 0.0), rule, facts), class_="price"),
            ],
            " ",
        )
        for rule in sorted(problem.rules, key=lambda rule: -said.get(str(rule), 0.0))[:_MOST_RULES]
    ]
    return section(
        "prices",
        "What each rule costs",
        bullets(items, "prices"),
        tag(
            "p",
            "These prices are for small steps from where the rules stand, by the model’s own probabilities "
            f"on the cases on which the policy was chosen{_shifted(facts)}. Larger steps: see the curves "
            "below.",
            class_="note",
        ),
    )


def _shifted(facts: Facts) -> str:
    """Where prices are not those of the curves."""
    if not any(facts.policy.tightened.values()):
        return ""
    return ", with bounds shifted so that observed rates, or a margin, are respected; the curves shift none"


def _price(price: float, rule: Statement, facts: Facts) -> str:
    word, shares = saving(facts.policy.problem.minimize)
    if price <= 0:
        return "It costs nothing at present: the best decisions keep it anyway."
    unit = level_unit(rule)
    step, name = (1.0, "one more unit of room") if unit == "plain" else (_POINT, "one more point of room")
    if price * step < 1e-6:
        return "It costs next to nothing at present."
    saved = f"{points(price * step)} {word}" if shares else f"{rounded(price * step)} {word}"
    return f"{_capital(name)} would save {saved}."
