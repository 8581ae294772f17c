"""The first page: what was decided, whether the rules hold, and what they cost."""

from __future__ import annotations

from bylaw.auditing.audit import Verdict
from bylaw.language.rates import error, miscoverage, rejected, size
from bylaw.report.context import Facts, badge
from bylaw.report.markup import Html, join, section, tag
from bylaw.report.number_format import count, listed, percent, plural, quoted, rounded

_MOST_NAMED = 6  # labels or groups in a sentence
_NOTICED = 0.005  # a rise of errors that is worth a sentence


def summary(facts: Facts) -> Html:
    heading = tag("p", badge(facts.verdict), tag("span", f" All rules together, on {facts.rows}."))
    return section(
        "summary",
        "Summary",
        tag("div", heading, class_="verdict") if facts.bars else None,
        tag("p", f"{_what(facts)} {_verdict(facts)}", class_="lead"),
        tag("p", f"{_cost(facts)} {_changes(facts)}", class_="lead"),
        tag("p", said, class_="lead") if (said := _worse_off(facts)) else None,
        tag("p", said, class_="lead") if (said := _certificate(facts)) else None,
        tag("dl", *(_figure(*figure) for figure in _figures(facts)), class_="figures"),
    )


def _what(facts: Facts) -> str:
    classes = facts.policy.action_space.classes
    labels = plural(len(classes), "label")
    if len(classes) <= _MOST_NAMED:
        labels += f" ({listed([quoted(label) for label in classes], 'or')})"
    given = {
        "labels": f"one of {labels}",
        "reject": f"one of {labels}, or refers it: a referred case gets no automatic answer",
        "sets": f"a set of labels, taken from {labels}",
    }[facts.kind]
    rules = plural(len(facts.policy.problem.rules), "rule")
    return f"For each case the policy gives {given}. It starts from a trained model and must keep {rules}."


def _verdict(facts: Facts) -> str:
    sure = percent(facts.confidence)
    return {
        Verdict.CERTIFIED: f"Cases that had no part in choosing it prove, with {sure} confidence, that every "
        "rule holds for the population they come from.",
        Verdict.VIOLATED: f"Cases that had no part in choosing it prove, with {sure} confidence, that at "
        "least one rule does not hold.",
        Verdict.UNDECIDED: "The cases that were set aside do not suffice to prove that every rule holds, "
        f"or that one does not; {_estimates(facts)}.",
        Verdict.HOLDS: f"Every rule is met on {facts.rows}; this is an estimate, and no proof for new cases.",
        Verdict.BROKEN: f"At least one rule is not met on {facts.rows}; this is an estimate, and no proof.",
        Verdict.UNJUDGED: "Not every rule could be judged."
        if facts.bars
        else "There are no rules to be judged.",
    }[facts.verdict]


def _estimates(facts: Facts) -> str:
    rates = plural(len(facts.bars), "rate")
    if unjudged := sum(bool(bar.reason) for bar in facts.bars):
        return f"{unjudged} of {rates} could not be judged at all"
    outside = sum(bar.slack < 0 for bar in facts.bars)
    if not outside:
        return "by their estimates, all rates are within their bounds"
    return f"by their estimates, {outside} of {rates} are outside their bounds"


def _cost(facts: Facts) -> str:
    cases = facts.judged
    if cases.sets:
        missed = cases.rate(miscoverage()), cases.rate(miscoverage(), before=True)
        return (
            f"The sets miss the true label of {percent(missed[0])} of the cases ({facts.measured}) and hold "
            f"{rounded(cases.rate(size()))} labels on average; the model’s single best label misses "
            f"{percent(missed[1])}."
        )
    before, after = cases.rate(error(), before=True), cases.rate(error())
    said = (
        f"The model alone answers {percent(before)} of all cases wrongly ({facts.measured}). With the rules "
    )
    said += f"{percent(after)} are answered wrongly"
    if facts.kind == "reject":
        said += f", and {percent(cases.rate(rejected()))} are referred instead of answered"
    return said + "."


def _changes(facts: Facts) -> str:
    cases = facts.judged
    changed = percent(cases.changed_share(cases.everybody))
    other = (
        f"{changed} of the sets are not just the model’s best label"
        if cases.sets
        else f"{changed} of the decisions differ from the model’s own"
    )
    return f"{other}, and {percent(cases.random_share)} of the cases are decided by a draw."


def _worse_off(facts: Facts) -> str:
    """The groups in which errors rise."""
    cases = facts.judged
    cells = [(f"{p.name} {quoted(cell.name)}", cell) for p in cases.partitions for cell in p.cells]
    rates = [(name, cases.mistakes(cell, before=True), cases.mistakes(cell)) for name, cell in cells]
    worse = [(name, b, a) for name, b, a in rates if b is not None and a is not None and a - b > _NOTICED]
    if not worse:
        return ""
    shown = sorted(worse, key=lambda group: group[1] - group[2])[:_MOST_NAMED]
    groups = [f"{name}, from {percent(before)} to {percent(after)}" for name, before, after in shown]
    what = "Sets miss the true label more often" if cases.sets else "Wrong answers rise"
    more = f" (and {len(worse) - len(shown)} more)" if len(worse) > len(shown) else ""
    return f"{what} in {plural(len(worse), 'group')}{more}: {listed(groups, 'and')}."


def _certificate(facts: Facts) -> str:
    proof = facts.policy.certificate
    if proof is None:
        return ""
    return (
        f"When the policy was made, {count(proof.rows)} other cases certified all rules together, with "
        f"{percent(proof.confidence)} confidence."
    )


def _figures(facts: Facts) -> list[tuple[str, str, str]]:
    """(name, number, remark)"""
    cases = facts.judged
    changed = percent(cases.changed_share(cases.everybody))
    if cases.sets:
        before, after = (percent(cases.rate(miscoverage(), before=b)) for b in (True, False))
        figures = [
            ("True label missed", f"{before} → {after}", "best label alone → sets"),
            ("Labels in a set", rounded(cases.rate(size())), "on average"),
            ("Sets changed", changed, "not the best label alone"),
        ]
    else:
        before, after = (percent(cases.rate(error(), before=b)) for b in (True, False))
        figures = [("Wrong answers", f"{before} → {after}", "model alone → with the rules")]
        if facts.kind == "reject":
            figures.append(("Referred", percent(cases.rate(rejected())), "no automatic answer"))
        figures.append(("Decisions changed", changed, "compared with the model alone"))
    return [*figures, ("Left to chance", percent(cases.random_share), "decided by a repeatable draw")]


def _figure(name: str, number: str, remark: str) -> Html:
    shown = join([tag("span", number, class_="number"), tag("span", remark, class_="remark")])
    return tag("div", tag("dt", name), tag("dd", shown))
