"""How far to trust it: random decisions, calibration, what is guaranteed and what is not, the fingerprint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version

from bylaw.auditing.audit import RANDOM
from bylaw.auditing.reliability import (
    CLOSE,
    NOTABLE,
    Reliability,
    ReliabilityBin,
    bin_confidence,
    compute_reliability,
)
from bylaw.auditing.verdicts import Verdict
from bylaw.calibration.calibration import CalibratedEvidence
from bylaw.data.evidence import Evidence
from bylaw.formulation.solution import HardDecisions, Status
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, join, make_list, make_section, make_table, tag
from bylaw.report.number_format import (
    format_count,
    format_percent,
    format_points,
    format_signed,
    pluralize,
    round_number,
    shorten,
)
from bylaw.report.sentences import describe_certificate
from bylaw.report.svg_charts import draw_reliability, draw_stack

_LEANING = 0.75
_MOST_LINES = 40
_LEAST_VIOLATION = 1e-4  # that is worth telling apart


def write_randomness(context: ReportContext) -> Html:
    if context.policy.hard is not None:
        return make_section(
            "chance", "Random decisions", tag("p", _describe_hard(context.policy.hard, context))
        )
    rows = context.judged
    confidence = rows.decision_confidence
    open_ = rows.compute_share(confidence < _LEANING)
    leaning = rows.compute_share((confidence >= _LEANING) & (confidence < RANDOM))
    parts = [("settled", 1 - open_ - leaning), ("leaning", leaning), ("open", open_)]
    names = ["settled (one outcome has 99 % or more)", "leaning (75 % to 99 %)", "open (below 75 %)"]
    shares = [f"{name}: {format_percent(share)}" for name, (_, share) in zip(names, parts, strict=True)]
    keys = [
        join([tag("span", "", class_=f"key {look}", aria_hidden="true"), f" {text} of cases"])
        for text, (look, _) in zip(shares, parts, strict=True)
    ]
    return make_section(
        "chance",
        "Random decisions",
        tag(
            "p",
            "Some rules can only be met exactly if a few similar cases are decided differently. For "
            f"{format_percent(rows.random_share)} of the cases the policy therefore decides at random, with "
            "probabilities that it states beforehand; all others are settled.",
        ),
        tag("figure", draw_stack("; ".join(shares), parts), tag("figcaption", make_list(keys, "keys"))),
        tag(
            "p",
            "Random decisions can be repeated. Where cases have identifiers, the identifier of a case and "
            "the policy’s fingerprint determine the outcome: the same case gets the same decision again, "
            "in any batch and on any machine, and anyone with the policy’s file can check it. The rules "
            "hold for these random decisions; always taking the likeliest outcome instead is not covered.",
        ),
    )


def _describe_hard(hard: HardDecisions, context: ReportContext) -> str:
    """Of a policy without chance."""
    price = max(hard.price, 0.0)
    shares = context.policy.problem.minimize.is_probability
    return (
        "Decisions are made without chance: each case gets the decision of largest score, of equal ones the "
        "first, and the rules are held on these decisions. Cases with the same scores are decided alike. By "
        "the model’s probabilities on the cases on which the policy was chosen, that costs "
        f"{format_points(price) if shares else round_number(price)} more than drawing some of them at random."
    )


def write_calibration(context: ReportContext) -> Html:
    rows = context.judged
    lines = compute_reliability(rows.evidence, rows.seen, rows.labelled)
    bins = bin_confidence(rows.evidence, rows.seen) if rows.labelled else []
    before = bin_confidence(raw, rows.seen) if rows.labelled and (raw := _find_raw(rows.evidence)) else []
    if lines:
        content = [_draw_bins(bins, before)] if bins else []
        content += _describe_calibration(context, bins, before)
        content += [tag("p", f"{_describe_shares(lines)}{_describe_bins(bins)}"), _tabulate(lines)]
    else:
        content = [
            tag(
                "p",
                "This is not known here: the true labels of these cases were not given. With them (labels= "
                "in Python, or a column of labels), the model’s probabilities can be compared with what "
                "happened.",
            )
        ]
    return make_section("calibration", "Is the model calibrated?", *content)


def _find_raw(evidence: Evidence) -> Evidence | None:
    """The model's own probabilities, where the policy calibrates them."""
    return evidence.raw if isinstance(evidence, CalibratedEvidence) else None


def _describe_calibration(
    context: ReportContext, bins: Sequence[ReliabilityBin], before: Sequence[ReliabilityBin]
) -> list[Html]:
    """What the policy does to the model's probabilities, and what it gains."""
    calibration = context.policy.calibration
    if calibration is None:
        return []
    said = (
        "The policy does not take the model’s probabilities as they are: it calibrates them first, by maps "
        f"that were fitted on the cases on which it was chosen ({calibration.describe()})."
    )
    if before:
        error, was = (
            sum(one.share * abs(one.observed - one.predicted) for one in part) for part in (bins, before)
        )
        said += (
            f" Confidence and accuracy differ by {format_points(was)} on average before, and by "
            f"{format_points(error)} after."
        )
    return [tag("p", said)]


def _draw_bins(bins: Sequence[ReliabilityBin], before: Sequence[ReliabilityBin]) -> Html:
    title = "; ".join(
        f"confidence {format_percent(one.predicted)}, accuracy {format_percent(one.observed)}" for one in bins
    )
    caption = (
        "Across: the model’s confidence, the probability that it gives its best label. Up: how often that "
        "label is right. Each dot is a tenth of the cases; on the dashed line the model is calibrated, "
        "below it overconfident."
    )
    if before:
        caption += " Open circles: the same before the policy’s calibration."
    plot = draw_reliability(f"Calibration. {title}", [one[:3] for one in bins], [one[:3] for one in before])
    return tag("figure", plot, tag("figcaption", caption), class_="beside")


def _describe_shares(lines: Sequence[Reliability]) -> str:
    notable = [line for line in lines if line.is_off]
    if not notable:
        return (
            "Over all cases, and over each group, predicted and observed shares agree on average, as far as "
            f"this many cases can show.{_describe_unevenness(lines)}"
        )
    worst = max(notable, key=lambda line: abs(line.observed - line.predicted))
    return (
        f"In {format_count(len(notable))} of {pluralize(len(lines), 'comparison')} predicted and observed "
        f"shares differ by more than {NOTABLE:g} standard errors, which chance hardly explains. The largest "
        f"difference: {_name_line(worst)}, {format_percent(worst.predicted)} predicted and "
        f"{format_percent(worst.observed)} observed. Rules that depend on these probabilities may not hold "
        f"on new cases.{_describe_unevenness(lines)}"
    )


def _describe_unevenness(lines: Sequence[Reliability]) -> str:
    """Whether probabilities that are right on average are right on rows of about the same probability."""
    uneven = [line for line in lines if line.is_uneven]
    if uneven:
        worst = max(uneven, key=lambda line: line.unevenness - line.expected_unevenness)
        return (
            f" Among cases of about the same probability they do not agree in {format_count(len(uneven))} of "
            f"{pluralize(len(lines), 'comparison')}: {_name_line(worst)} is off by "
            f"{format_points(worst.unevenness)} on average over ten bins, where chance explains "
            f"{format_points(worst.expected_unevenness)}."
        )
    most = max(line.most_unevenness for line in lines if not line.among)
    if most > CLOSE:
        return (
            " Among cases of about the same probability there are too few to tell: mean errors of up to "
            f"{format_points(most)} may go unnoticed."
        )
    return f" Among cases of about the same probability they agree within {format_points(most)} on average."


def _describe_bins(bins: Sequence[ReliabilityBin]) -> str:
    """Nothing, unless a dot of the plot is far from the line."""
    notable = [one for one in bins if one.is_notable]
    if not notable:
        return ""
    worst = max(notable, key=lambda one: abs(one.deviations))
    off = (
        f", {format_signed(worst.deviations)} standard errors off" if math.isfinite(worst.deviations) else ""
    )
    return (
        f" But where the model’s confidence is {format_percent(worst.predicted)}, it is right in "
        f"{format_percent(worst.observed)} of the cases{off}: its confidence is not calibrated."
    )


def _name_line(line: Reliability) -> str:
    among = f" among {line.among}" if line.among else ""
    return f"{line.of} “{shorten(line.value)}”{among}"


def _tabulate(lines: Sequence[Reliability]) -> Html:
    worst = sorted(lines, key=lambda line: -line.severity)[:_MOST_LINES]
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
    heads += ["In standard errors", "Mean error in bins (by chance)", "Cases"]
    more = len(lines) - len(rows)
    left = tag("p", f"{pluralize(more, 'comparison')} not shown: those that agree best.", class_="note")
    return fold(
        "Predicted and observed shares",
        make_table("Worst first", heads, rows),
        left if more > 0 else None,
    )


def write_guarantees(context: ReportContext) -> Html:
    return make_section(
        "guarantees",
        "What is guaranteed, and what is not",
        tag("h3", "Guaranteed"),
        make_list(_list_guarantees(context), "yes"),
        tag("h3", "Not guaranteed"),
        make_list(_list_gaps(context), "no"),
    )


def _list_guarantees(context: ReportContext) -> list[str]:
    policy, found = context.policy, []
    basis = "by the model’s probabilities"
    if any(policy.tightened.values()):
        basis += ", after shifting the rules’ bounds so that observed rates, or a margin, are respected"
    if policy.problem.rules and _is_solved(context):
        found.append(
            f"On the cases on which the policy was chosen, {basis}, all rules together are missed by no more "
            f"than {_write_violation(context)}."
        )
        excess = policy.guarantee.excess_cost
        cost = format_points(excess) if policy.problem.minimize.is_probability else round_number(excess)
        found.append(
            f"There, no policy that satisfies the same rules has a cost lower by more than {cost}, as far as "
            "the model’s probabilities are right."
        )
    if policy.certificate is not None:
        found.append(describe_certificate(policy.certificate))
    if context.audit is not None and _count(context, Verdict.CERTIFIED) + _count(context, Verdict.VIOLATED):
        found.append(_describe_audit(context))
    return [*found, "The same policy file, cases and identifiers give the same decisions, to the last bit."]


def _is_solved(context: ReportContext) -> bool:
    return context.policy.solution.status in (Status.CONVERGED, Status.SAMPLED)


def _write_violation(context: ReportContext) -> str:
    return _write_size(max(context.policy.guarantee.violation, _LEAST_VIOLATION), context)


def _write_size(violation: float, context: ReportContext) -> str:
    if all(bounded.unit != "plain" for bounded in context.bounded_rates):
        return format_points(violation)
    return round_number(violation, 2)


def _count(context: ReportContext, verdict: Verdict) -> int:
    return sum(rule.verdict is verdict for rule in context.audit.rules) if context.audit else 0


def _describe_audit(context: ReportContext) -> str:
    assert context.audit is not None
    rules = pluralize(len(context.audit.rules), "single rule")
    said = (
        f"On {context.judged_name}, {format_count(_count(context, Verdict.CERTIFIED))} of {rules} are "
        f"certified and {format_count(_count(context, Verdict.VIOLATED))} violated, each list correct "
        f"as a whole with {format_percent(context.confidence)} confidence."
    )
    if context.verdict is Verdict.CERTIFIED:
        said += f" That all rules hold together is certified at {format_percent(context.confidence)}, too."
    return said


def _list_gaps(context: ReportContext) -> list[str]:
    missing = [text for text in (_describe_proof_gap(context), _describe_solver_gap(context)) if text]
    if not context.judged.labelled:
        missing.append("That the model’s probabilities are right. No true label was compared with them here.")
    return [
        *missing,
        "Anything after the population changes, or where several cases belong to one person: the proofs take "
        "cases as independent samples of the population that will be decided.",
        "The rates of one day or one batch. Rules bound averages over many cases and over random decisions; "
        "a single batch varies around them.",
        "Anything about a single person, or about groups and outcomes that no rule names.",
        *context.words.list_gaps(context.judged),
        "Compliance with the law. The rules are those stated here, and no more.",
    ]


def _describe_proof_gap(context: ReportContext) -> str:
    """What held-out rows leave open about new ones."""
    certificate = context.policy.certificate
    if context.audit is None:
        only = "; only the certificate above covers new cases." if certificate else "."
        return (
            f"That the rules hold on new cases. No held-out cases were given to test it{only}"
            f"{_describe_sampling(context)}"
        )
    if context.verdict is not Verdict.UNDECIDED:
        return ""
    which = "every" if _count(context, Verdict.CERTIFIED) else "any"
    alone = ", by the cases of this report alone" if certificate else ""
    stands = " The certificate is based on other cases, and remains valid." if certificate else ""
    return (
        f"That {which} rule holds on new cases{alone}. “Undecided” is no evidence that a rule holds, and "
        f"none that it does not.{stands}"
    )


def _describe_sampling(context: ReportContext) -> str:
    """What the number of fitted rows leads to expect."""
    policy = context.policy
    if not policy.problem.rules or math.isnan(policy.guarantee.sampling):
        return ""
    return (
        f" The policy was chosen on {format_count(policy.guarantee.rows)} cases, a sample: on others, all "
        f"rules together may be missed by about {_write_size(policy.guarantee.sampling, context)} more."
    )


def _describe_solver_gap(context: ReportContext) -> str:
    if _is_solved(context):
        return ""
    return (
        "That the rules hold on the cases on which the policy was chosen: the solver stopped before its "
        f"tolerance ({context.policy.solution.status.value})."
    )


def write_fingerprint(context: ReportContext) -> Html:
    policy = context.policy
    fitted = [format_count(part.rows) for part in policy.fingerprints]
    certificate = " (the last of them certified it)" if policy.certificate else ""
    held_out = ", held out" if context.audit else ""
    entries = [
        ("Policy (SHA-256)", tag("code", policy.digest, class_="digest")),
        ("Policy made", policy.card.created),
        ("Fitted on the table", policy.card.source or "not recorded"),
        ("Report made", context.created),
        ("bylaw", version("bylaw")),
        (
            "Cases the policy was chosen on",
            f"{' + '.join(fitted)}{certificate}" if fitted else "not recorded",
        ),
        ("Cases judged in this report", f"{format_count(len(context.judged))}{held_out}"),
        *([("Audits on held-out cases so far", f"{context.audit.looks:,}")] if context.audit else []),
        ("Solver", policy.solution.status.name.lower().replace("_", " ")),
        ("Inverse temperature (beta)", round_number(policy.beta, 4)),
        ("Bounds met on the cases it was chosen on, to within", f"{policy.guarantee.violation:.1e}"),
    ]
    listing = tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in entries), class_="entries")
    lines = [tag("div", name, class_="signature") for name in ("Name", "Date", "Signature")]
    return make_section(
        "fingerprint",
        "Fingerprint",
        tag(
            "p",
            "Two policies with the same fingerprint decide alike. Compare it with that of the policy in use.",
        ),
        listing,
        tag("div", *lines, class_="signatures"),
    )
