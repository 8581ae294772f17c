"""Is the model calibrated? Its probabilities beside what happened."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bylaw.calibration.calibration import CalibratedEvidence
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, make_section, make_table, tag
from bylaw.report.number_format import (
    format_count,
    format_percent,
    format_points,
    format_signed,
    pluralize,
    quote,
)
from bylaw.report.sentences import describe_group
from bylaw.report.svg_charts import draw_reliability
from bylaw.rows.evidence import Evidence
from bylaw.testing import (
    CLOSE,
    NOTABLE,
    Reliability,
    ReliabilityBin,
    bin_confidence,
    choose_shown_lines,
    compute_reliability,
)

_MOST_LINES = 40


def write_calibration(context: ReportContext) -> Html:
    rows = context.judged
    lines = compute_reliability(rows.evidence, rows.seen, rows.labelled)
    lines = choose_shown_lines(lines, rows.min_cell)
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
    among = f" among cases with {describe_group(line.group)}" if line.group else ""
    return f"{line.of} {quote(line.value)}{among}"


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
    left = tag("p", f"Not shown: {pluralize(more, 'comparison')} with the best agreement.", class_="note")
    return fold(
        "Predicted and observed shares",
        make_table("Predicted and observed shares, worst first", heads, rows),
        left if more > 0 else None,
    )
