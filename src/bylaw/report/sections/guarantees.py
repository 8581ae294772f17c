"""How far to trust it: chance, calibration, what is guaranteed and what is not, and the fingerprint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from bylaw.auditing.audit import RANDOM, Verdict
from bylaw.auditing.reliability import Reliability, reliability
from bylaw.formulation.solution import Status
from bylaw.language.families import Family
from bylaw.report.context import Facts
from bylaw.report.markup import Html, bullets, folded, join, section, table, tag
from bylaw.report.number_format import count, percent, plural, points, rounded, short, signed
from bylaw.report.sentences import is_share
from bylaw.report.svg_charts import reliability_plot, stack

_LEANING = 0.75
_BINS = 10
_TELLING = 3.0  # standard errors
_MOST_LINES = 40
_LEAST_VIOLATION = 1e-4  # that is worth telling apart


def randomness(facts: Facts) -> Html:
    cases = facts.judged
    sure = cases.likeliest
    open_, leaning = cases.share_of(sure < _LEANING), cases.share_of((sure >= _LEANING) & (sure < RANDOM))
    parts = [("settled", 1 - open_ - leaning), ("leaning", leaning), ("open", open_)]
    names = ["settled (one outcome has at least 99 %)", "leaning (75 % to 99 %)", "open (below 75 %)"]
    title = "; ".join(f"{name}: {percent(share)}" for name, (_, share) in zip(names, parts, strict=True))
    keys = [
        join(
            [tag("span", "", class_=f"key {look}", aria_hidden="true"), f" {name}: {percent(share)} of cases"]
        )
        for name, (look, share) in zip(names, parts, strict=True)
    ]
    return section(
        "chance",
        "Chance",
        tag(
            "p",
            f"Some rules can only be met exactly if a few like cases are decided differently. For "
            f"{percent(cases.random_share)} of the cases the policy therefore draws the decision, with "
            "probabilities that it states beforehand; all others are settled.",
        ),
        tag("figure", stack(title, parts), tag("figcaption", bullets(keys, "keys"))),
        tag(
            "p",
            "Draws can be repeated. Where cases have identifiers, the identifier of a case and the "
            "policy’s fingerprint determine its draw: the same case gets the same decision again, in any "
            "batch and on any machine, and anybody with the policy’s file can check it. The rules hold for "
            "these drawn decisions; always taking the likeliest outcome instead is not covered.",
        ),
    )


def calibration(facts: Facts) -> Html:
    cases = facts.judged
    lines = reliability(cases.evidence, cases.seen, cases.labelled)
    content: list[Html] = []
    bins = _bins(facts) if cases.labelled else []
    if bins:
        content += [_curve(bins)]
    if not lines:
        content = [
            tag(
                "p",
                "This cannot be said here: the true labels of these cases were not given. With them (labels= "
                "in Python, or a column of labels), the model’s probabilities can be compared with what "
                "happened.",
            )
        ]
    else:
        content += [_finding(lines, bins), _table(lines)]
    return section("calibration", "Do the model’s probabilities mean what they say?", *content)


class _Bin(NamedTuple):
    """Cases in which the model is about as sure of its best label."""

    stated: float
    right: float
    share: float  # of all cases
    deviations: float  # right less stated, in standard errors


def _bins(facts: Facts) -> list[_Bin]:
    """When the model is so sure of its best label, how often is it right?"""
    cases = facts.judged
    belief, weights = cases.evidence.probabilities, cases.weights
    sure = belief.max(axis=1)
    right = (cases.seen.probabilities.argmax(axis=1) == belief.argmax(axis=1)).astype(float)
    bins = []
    for part in np.array_split(np.argsort(sure, kind="stable"), min(_BINS, len(sure))):
        mass = float(weights[part].sum())
        if mass > 0:
            stated, seen = (float(weights[part] @ values[part]) / mass for values in (sure, right))
            error = math.sqrt(float(weights[part] ** 2 @ (sure[part] * (1 - sure[part])))) / mass
            apart = (seen - stated) / error if error > 0 else 0.0
            bins.append(_Bin(stated, seen, mass / float(weights.sum()), apart))
    return bins


def _curve(bins: Sequence[_Bin]) -> Html:
    title = "; ".join(f"says {percent(one.stated)}, is right {percent(one.right)}" for one in bins)
    caption = (
        "Across: how sure the model is of its best label. Up: how often that label is right. Each dot is a "
        "tenth of the cases; on the dashed line they agree, below it the model is too sure of itself."
    )
    plot = reliability_plot(f"Calibration. {title}", [one[:3] for one in bins])
    return tag("figure", plot, tag("figcaption", caption), class_="beside")


def _finding(lines: Sequence[Reliability], bins: Sequence[_Bin]) -> Html:
    return tag("p", f"{_of_shares(lines)}{_of_sureness(bins)}")


def _of_shares(lines: Sequence[Reliability]) -> str:
    telling = [line for line in lines if abs(line.deviations) > _TELLING]
    if not telling:
        return (
            "Over all cases, and over each group, predicted and observed shares agree, as far as this many "
            "cases can tell."
        )
    worst = max(telling, key=lambda line: abs(line.observed - line.predicted))
    return (
        f"In {count(len(telling))} of {plural(len(lines), 'comparison')} predicted and observed shares "
        f"differ by more than {_TELLING:g} standard errors, which chance hardly explains. The largest "
        f"difference: {_what(worst)}, {percent(worst.predicted)} predicted and "
        f"{percent(worst.observed)} observed. Rules that rest on these probabilities may be missed on new "
        "cases."
    )


def _of_sureness(bins: Sequence[_Bin]) -> str:
    """Nothing, unless a dot of the plot is far from the line."""
    telling = [one for one in bins if abs(one.deviations) > _TELLING]
    if not telling:
        return ""
    worst = max(telling, key=lambda one: abs(one.deviations))
    return (
        f" But where the model says {percent(worst.stated)}, it is right in {percent(worst.right)} of the "
        f"cases, {signed(worst.deviations)} standard errors off: how sure it is cannot be taken at its word."
    )


def _what(line: Reliability) -> str:
    among = f" among {line.among}" if line.among else ""
    return f"{line.of} “{short(line.value)}”{among}"


def _table(lines: Sequence[Reliability]) -> Html:
    worst = sorted(lines, key=lambda line: -abs(line.deviations))[:_MOST_LINES]
    rows = [
        [
            _what(line),
            percent(line.predicted),
            percent(line.observed),
            signed(line.deviations),
            count(line.rows),
        ]
        for line in worst
    ]
    heads = ["Share of", "Predicted", "Observed", "In standard errors", "Cases"]
    more = len(lines) - len(rows)
    left = tag("p", f"{plural(more, 'comparison')} not shown: those that agree best.", class_="note")
    return folded(
        "Predicted and observed shares",
        table("Worst first", heads, rows),
        left if more > 0 else None,
    )


def guarantees(facts: Facts) -> Html:
    return section(
        "guarantees",
        "What is guaranteed, and what is not",
        tag("h3", "Guaranteed"),
        bullets(_guaranteed(facts), "yes"),
        tag("h3", "Not guaranteed"),
        bullets(_not_guaranteed(facts), "no"),
    )


def _guaranteed(facts: Facts) -> list[str]:
    policy, found = facts.policy, []
    basis = "by the model’s own probabilities"
    if any(policy.tightened.values()):
        basis += ", after shifting the rules’ bounds so that observed rates, or a margin, are respected"
    if policy.problem.rules and _settled(facts):
        found.append(
            f"On the cases on which the policy was chosen, {basis}, all rules together are missed by no more "
            f"than {_violation(facts)}."
        )
        excess = policy.guarantee.excess_cost
        cost = points(excess) if is_share(policy.problem.minimize) else rounded(excess)
        found.append(
            f"There, no policy that keeps the same rules has a cost lower by more than {cost}, as far as the "
            "model’s probabilities are right."
        )
    if policy.certificate is not None:
        proof = policy.certificate
        found.append(
            f"When the policy was made, {count(proof.rows)} held-out cases certified that all rules hold "
            f"together for the population they come from, with {percent(proof.confidence)} confidence."
        )
    if facts.audit is not None and _judged(facts, Verdict.CERTIFIED) + _judged(facts, Verdict.VIOLATED):
        found.append(_audited(facts))
    return [*found, "The same policy file, cases and identifiers give the same decisions, to the last bit."]


def _settled(facts: Facts) -> bool:
    return facts.policy.solution.status in (Status.CONVERGED, Status.SAMPLED)


def _violation(facts: Facts) -> str:
    violation = facts.policy.guarantee.violation
    if all(bar.unit != "plain" for bar in facts.bars):
        return points(max(violation, _LEAST_VIOLATION))
    return rounded(max(violation, _LEAST_VIOLATION), 2)


def _judged(facts: Facts, verdict: Verdict) -> int:
    return sum(rule.verdict is verdict for rule in facts.audit.rules) if facts.audit else 0


def _audited(facts: Facts) -> str:
    assert facts.audit is not None
    rules = plural(len(facts.audit.rules), "single rule")
    said = (
        f"On {facts.rows}, {count(_judged(facts, Verdict.CERTIFIED))} of {rules} are certified and "
        f"{count(_judged(facts, Verdict.VIOLATED))} are violated, each list right as a whole with "
        f"{percent(facts.confidence)} confidence."
    )
    if facts.verdict is Verdict.CERTIFIED:
        said += f" That all rules hold together is certified at {percent(facts.confidence)}, too."
    return said


def _not_guaranteed(facts: Facts) -> list[str]:
    missing = []
    if facts.audit is None:
        missing.append(
            "That the rules hold on new cases. No case was set aside for this report to test it"
            + ("; only the certificate above speaks of new cases." if facts.policy.certificate else ".")
        )
    elif facts.verdict is Verdict.UNDECIDED:
        proved = _judged(facts, Verdict.CERTIFIED)
        alone = ", by the cases of this report alone" if facts.policy.certificate else ""
        missing.append(
            f"That {'every' if proved else 'any'} rule holds on new cases{alone}. “Undecided” is no evidence "
            "that a rule holds, and none that it does not."
            + (" The certificate rests on other cases, and stands." if alone else "")
        )
    if not _settled(facts):
        missing.append(
            "That the rules hold on the cases on which the policy was chosen: the solver stopped before its "
            f"tolerance ({facts.policy.solution.status.value})."
        )
    if not facts.judged.labelled:
        missing.append("That the model’s probabilities are right. No true label was compared with them here.")
    missing.append(
        "Anything after the population changes, or where several cases belong to one person: proofs take "
        "cases as independent draws from the population that will be decided."
    )
    missing.append(
        "The rates of one day or one batch. Rules speak of averages over many cases and over the draws; a "
        "single batch varies around them by chance."
    )
    missing.append("Anything about a single person, or about groups and outcomes that no rule names.")
    if facts.kind == "reject" and not _rejections_compared(facts):
        missing.append("That groups are referred equally often: no rule here compares referrals by group.")
    missing.append("That the law is kept. The rules are those stated here, and no more.")
    return missing


def _rejections_compared(facts: Facts) -> bool:
    rules = facts.policy.problem.rules
    return any(isinstance(rule, Family) and rule.name == "rejection_parity" for rule in rules) or any(
        atom.name in ("rejected", "accepted") and atom.conditions for rule in rules for atom in rule.atoms()
    )


def fingerprint(facts: Facts) -> Html:
    policy = facts.policy
    fitted = [count(part.rows) for part in policy.fingerprints]
    certificate = " (the last of them certified it)" if policy.certificate else ""
    entries = [
        ("Policy (SHA-256)", tag("code", policy.digest, class_="digest")),
        ("Policy made", policy.card.created),
        ("Fitted on the table", policy.card.source or "not recorded"),
        ("Report made", facts.created),
        ("bylaw", version("bylaw")),
        (
            "Cases the policy was chosen on",
            f"{' + '.join(fitted)}{certificate}" if fitted else "not recorded",
        ),
        ("Cases judged in this report", f"{count(len(facts.judged))}{', held out' if facts.audit else ''}"),
        ("Solver", policy.solution.status.name.lower().replace("_", " ")),
        ("Inverse temperature (beta)", rounded(policy.beta, 4)),
        ("Bounds met by the solver to within", f"{policy.guarantee.violation:.1e}"),
    ]
    listing = tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in entries), class_="entries")
    lines = [tag("div", name, class_="signature") for name in ("Name", "Date", "Signature")]
    return section(
        "fingerprint",
        "Fingerprint",
        tag(
            "p",
            "Two policies with the same fingerprint decide alike. Compare it with that of the policy in use.",
        ),
        listing,
        tag("div", *lines, class_="signatures"),
    )
