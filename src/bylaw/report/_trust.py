"""Sections on trust: random decisions, calibration, and what is guaranteed and what is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bylaw.calibration import CalibratedEvidence
from bylaw.program import Status
from bylaw.report._context import ReportContext
from bylaw.testing import (
    CLOSE,
    NOTABLE,
    Reliability,
    Verdict,
    bin_confidence,
    choose_shown_lines,
    compute_reliability,
)
from bylaw.view import (
    Content,
    Html,
    count_of,
    describe_certificate,
    describe_group,
    draw_reliability,
    draw_stack,
    fold,
    format_count,
    format_percent,
    format_points,
    format_signed,
    join,
    make_list,
    make_page_table,
    pluralize,
    quote,
    round_number,
    tag,
    write_cost,
)

_RANDOM_NAMES = {
    "settled": "settled (one outcome has 99 % or more)",
    "leaning": "leaning (75 % to 99 %)",
    "open": "open (below 75 %)",
}


def write_randomness(context: ReportContext) -> Sequence[Content]:
    """Write the section on random decisions: their share, and how to repeat them."""
    rows, hard = context.judged, context.policy.hard
    if hard is not None:
        more = write_cost(max(hard.price, 0.0), context.policy.problem.minimize)
        text = (
            "Decisions are deterministic: each case gets the decision with the largest score (the "
            "first of equal "
            "ones), and these decisions satisfy the rules. Cases with the same scores get the same decision. "
            "By the model’s probabilities on the cases on which the policy was chosen, that costs "
            f"{more} more than drawing some of them at random."
        )
        return [tag("p", text)]
    parts = rows.compute_randomness()
    shares = {look: f"{name}: {format_percent(parts[look])}" for look, name in _RANDOM_NAMES.items()}
    keys = [
        join([tag("span", "", class_=f"key {look}", aria_hidden="true"), f" {text} of cases"])
        for look, text in shares.items()
    ]
    chart = draw_stack("; ".join(shares.values()), list(parts.items()))
    lead = (
        "Some rules can only be satisfied exactly if a few similar cases are decided differently. For "
        f"{format_percent(rows.random_share)} of the cases the policy therefore decides at random, with "
        "known probabilities; all other decisions are settled."
    )
    note = (
        "Random decisions can be repeated. Where cases have identifiers, the identifier of a case and the "
        "policy’s fingerprint determine the outcome: the same case gets the same decision again, in any "
        "batch and on any machine, and anyone with the policy’s file can check it. The rules hold for these "
        "random decisions, but not if the most likely outcome is always taken instead."
    )
    figure = tag("figure", chart, tag("figcaption", make_list(keys, "keys")))
    return [tag("p", lead), figure, tag("p", note)]


def write_guarantees(context: ReportContext) -> Sequence[Content]:
    """Write the section on what is guaranteed and what is not."""
    return [
        tag("h3", "Guaranteed"),
        make_list(_list_guarantees(context), "yes"),
        tag("h3", "Not guaranteed"),
        make_list(_list_gaps(context), "no"),
    ]


def _list_guarantees(context: ReportContext) -> list[str]:
    policy, guarantees = context.policy, []
    basis = "as predicted by the model’s probabilities"
    if any(policy.tightened.values()):
        basis += ", with the rules’ bounds shifted so that observed rates, or a margin, are respected"
    if policy.problem.rules and _is_solved(context):
        gap = write_cost(policy.guarantee.excess_cost, policy.problem.minimize)
        guarantees += [
            f"On the cases on which the policy was chosen, {basis}, all rules together are violated by no "
            f"more than {_write_violation(max(policy.guarantee.violation, 1e-4), context)}. This is the "
            "precision of the solver: observed rates may differ from predicted ones by more.",
            f"There, no policy under the same rules costs less by more than {gap}, as far as the model’s "
            "probabilities are right.",
        ]
    if policy.certificate is not None:
        guarantees.append(describe_certificate(policy.certificate))
    if context.audit is not None:
        certified, violated = (_count(context, one) for one in (Verdict.CERTIFIED, Verdict.VIOLATED))
        level, rules = format_percent(context.confidence), pluralize(len(context.audit.rules), "single rule")
        text = (
            f"Of {rules}, on {context.judged.name}: {format_count(certified)} certified, "
            f"{format_count(violated)} violated. Each list is correct as a whole with {level} confidence."
        )
        if context.verdict is Verdict.CERTIFIED:
            text += f" That all rules hold together is certified at {level}, too."
        guarantees += [text] if certified + violated else []
    guarantees.append("The same policy file, cases and identifiers give the same decisions, to the last bit.")
    return guarantees


def _is_solved(context: ReportContext) -> bool:
    return context.policy.solution.status in (Status.CONVERGED, Status.SAMPLED)


def _write_violation(violation: float, context: ReportContext) -> str:
    if all(bounded.unit != "plain" for bounded in context.bounded_rates):
        return format_points(violation)
    return round_number(violation, 2)


def _count(context: ReportContext, verdict: Verdict) -> int:
    return sum(rule.verdict is verdict for rule in context.audit.rules) if context.audit else 0


def _list_gaps(context: ReportContext) -> list[str]:
    policy, rates, gaps = context.policy, context.bounded_rates, []
    outside = sum(one.verdict in (Verdict.BROKEN, Verdict.VIOLATED) for one in rates)
    if outside:
        gaps.append(
            f"That every rule holds: on {context.judged.name}, {context.rate_measurement}, "
            f"{count_of(outside, len(rates), 'rate')} {'is' if outside == 1 else 'are'} outside the bounds. "
            "See “Do they hold?”."
        )
    # What held-out cases, or their absence, leave open about new ones.
    if context.audit is None:
        only = "; only the certificate above covers new cases." if policy.certificate else "."
        text = f"That the rules hold on new cases. No held-out cases were given to test it{only}"
        if policy.problem.rules and not math.isnan(policy.guarantee.sampling):
            missed = _write_violation(policy.guarantee.sampling, context)
            text += (
                f" The policy was chosen on {pluralize(round(policy.guarantee.rows), 'case')}, a sample: on "
                f"others, all rules together may be violated by about {missed} more."
            )
        gaps.append(text)
    elif context.verdict is Verdict.UNDECIDED:
        which = "every" if _count(context, Verdict.CERTIFIED) else "any"
        alone = ", by the cases of this report alone" if policy.certificate else ""
        stands = " The certificate is based on other cases, and remains valid." if policy.certificate else ""
        gaps.append(
            f"That {which} rule holds on new cases{alone}. “Undecided” does not mean that a rule holds, nor "
            f"that it does not.{stands}"
        )
    if not _is_solved(context):
        gaps.append(
            "That the rules hold on the cases on which the policy was chosen: the solver stopped before its "
            f"tolerance ({policy.solution.status.value})."
        )
    if not context.judged.labeled:
        gaps.append(
            "That the model’s probabilities are right. No true labels were given to compare them with."
        )
    return [
        *gaps,
        "Anything after the population changes, or if several cases belong to one person: the proofs assume "
        "that cases are independent samples of the population to be decided.",
        "The rates of one day or one batch. Rules bound averages over many cases and over random decisions; "
        "a single batch varies around them.",
        "Anything about a single person, or about groups and outcomes that no rule names.",
        *context.words.list_gaps(context.judged),
        "Compliance with the law. The policy satisfies the rules listed here, not all that the law requires.",
    ]


def write_calibration(context: ReportContext) -> Sequence[Content]:
    """Write the section that compares the model's probabilities with observed frequencies."""
    rows, calibration = context.judged, context.policy.calibration
    lines = compute_reliability(rows.evidence, rows.seen, rows.labeled)
    lines = choose_shown_lines(lines, rows.min_cell)
    if not lines:
        text = (
            "This is not known, since the true labels of these cases were not given. With them (labels= in "
            "Python, or a column of labels), the model’s probabilities can be compared with the "
            "observed labels."
        )
        return [tag("p", text)]
    raw = rows.evidence.raw if isinstance(rows.evidence, CalibratedEvidence) else None
    bins, before = (
        bin_confidence(evidence, rows.seen) if rows.labeled and evidence is not None else []
        for evidence in (rows.evidence, raw)
    )
    content = []
    if bins:
        stated = "; ".join(
            f"confidence {format_percent(one.predicted)}, accuracy {format_percent(one.observed)}"
            for one in bins
        )
        caption = (
            "Horizontal axis: the model’s confidence, the probability of its best label. Vertical axis: "
            "how often "
            "that label is right. Each dot is a tenth of the cases; on the dashed line the model is "
            "calibrated, below it overconfident."
        )
        if before:
            caption += " Open circles: the same before the policy’s calibration."
        points, others = ([one[:3] for one in part] for part in (bins, before))
        plot = draw_reliability(f"Calibration. {stated}", points, others)
        up, across = (tag("p", name, class_="axis-name") for name in ("Accuracy", "Confidence"))
        content.append(
            tag("figure", tag("div", up, plot, across), tag("figcaption", caption), class_="beside")
        )
    if calibration is not None:
        text = (
            "The policy first calibrates the model’s probabilities, by "
            f"maps that were fitted on the cases on which it was chosen ({calibration.describe()})."
        )
        if before:
            after, was = (
                format_points(sum(one.share * abs(one.observed - one.predicted) for one in part))
                for part in (bins, before)
            )
            text += f" Confidence and accuracy differ by {was} on average before, and by {after} after."
        content.append(tag("p", text))
    # The worst bin of confidence, if any is far from the diagonal.
    off, text = [one for one in bins if one.is_notable], _describe_agreement(lines)
    if off:
        worst = max(off, key=lambda one: abs(one.deviations))
        distance = f", {format_signed(worst.deviations)} standard errors off"
        text += (
            f" But where the model’s confidence is {format_percent(worst.predicted)}, it is right in "
            f"{format_percent(worst.observed)} of the "
            f"cases{distance if math.isfinite(worst.deviations) else ''}: its confidence is not calibrated."
        )
    return [*content, tag("p", text), _tabulate_reliability(lines)]


def _describe_agreement(lines: Sequence[Reliability]) -> str:
    """Describe whether predicted and observed shares agree, on average and in bins of probability."""
    notable = [line for line in lines if line.is_off]
    text = (
        "Over all cases, and over each group, predicted and observed shares agree on average, as far as "
        "this many cases can show."
    )
    if notable:
        worst = max(notable, key=lambda line: abs(line.observed - line.predicted))
        text = (
            f"In {format_count(len(notable))} of {pluralize(len(lines), 'comparison')} predicted and "
            f"observed shares differ by more than {NOTABLE:g} standard errors, which chance hardly explains. "
            f"The largest difference: {_name_line(worst)}, {format_percent(worst.predicted)} predicted and "
            f"{format_percent(worst.observed)} observed. Rules that depend on these probabilities may not "
            "hold on new cases."
        )
    text += " Among cases of about the same probability"
    if uneven := [line for line in lines if line.is_uneven]:
        worst = max(uneven, key=lambda line: line.unevenness - line.expected_unevenness)
        return (
            f"{text} they do not agree in {format_count(len(uneven))} of "
            f"{pluralize(len(lines), 'comparison')}: {_name_line(worst)} is off by "
            f"{format_points(worst.unevenness)} on average over ten bins, where "
            f"{format_points(worst.expected_unevenness)} would be expected by chance."
        )
    most = max(line.most_unevenness for line in lines if not line.among)
    if most > CLOSE:
        unseen = format_points(most)
        return f"{text} there are too few to decide: mean errors of up to {unseen} may go unnoticed."
    return f"{text} they agree within {format_points(most)} on average."


def _name_line(line: Reliability) -> str:
    among = f" among cases with {describe_group(line.group)}" if line.group else ""
    return f"{line.of} {quote(line.value)}{among}"


def _tabulate_reliability(lines: Sequence[Reliability]) -> Html:
    worst = sorted(lines, key=lambda line: -line.severity)
    calibrated = any(not math.isnan(line.raw_predicted) for line in lines)
    rows = [
        [
            _name_line(line),
            *([format_percent(line.raw_predicted)] if calibrated else []),
            format_percent(line.predicted),
            format_percent(line.observed),
            format_signed(line.deviations),
            f"{format_points(line.unevenness)} ({format_points(line.expected_unevenness)})",
            format_count(line.rows),
        ]
        for line in worst
    ]
    heads = ["Share of", *(["Before calibration"] if calibrated else []), "Predicted", "Observed"]
    heads += ["In standard errors", "Mean error in bins (expected by chance)", "Cases"]
    rest = ("comparison", " with the best agreement")
    table = make_page_table("Predicted and observed shares, worst first", heads, rows, rest=rest)
    return fold("Predicted and observed shares", table)
