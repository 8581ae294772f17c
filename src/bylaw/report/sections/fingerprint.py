"""The fingerprint: which policy this is, and on what it was chosen and judged."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, fold, make_section, tag
from bylaw.report.number_format import format_count, format_moment, quote, round_number


def write_fingerprint(context: ReportContext) -> Html:
    policy = context.policy
    fitted = [format_count(part.rows) for part in policy.fingerprints]
    certificate = " (the last of them certified it)" if policy.certificate else ""
    held_out = f", held out{_name_source(context)}" if context.audit else ""
    entries = [
        ("Policy (SHA-256)", tag("code", policy.digest, class_="digest")),
        ("Whole file (SHA-256)", tag("code", context.file_digest, class_="digest")),
        ("Owner", context.owner or "not stated"),
        ("Model version", context.model_version or "not stated"),
        ("Policy made", format_moment(policy.card.created)),
        ("Fitted on the table", policy.card.source or "not recorded"),
        ("Report made", context.created),
        (
            "Cases the policy was chosen on",
            f"{' + '.join(fitted)}{certificate}" if fitted else "not recorded",
        ),
        ("Cases judged in this report", f"{format_count(len(context.judged))}{held_out}"),
        *([("Audits on held-out cases so far", f"{context.audit.looks:,}")] if context.audit else []),
    ]
    technical = [
        ("bylaw", version("bylaw")),
        ("Solver", policy.solution.status.name.lower().replace("_", " ")),
        ("Inverse temperature (beta)", round_number(policy.beta, 4)),
        (
            "Bounds met by predicted rates on the cases it was chosen on, to within",
            round_number(policy.guarantee.violation, 2),
        ),
    ]
    return make_section(
        "fingerprint",
        "Fingerprint",
        tag(
            "p",
            "Two policies with the same fingerprint decide alike. Compare it with that of the policy in use. "
            "That of the whole file also covers its rules, its certificate and the record of its audits.",
        ),
        _list_entries(entries),
        fold("For engineers", _list_entries(technical)),
    )


def _name_source(context: ReportContext) -> str:
    return f", from the table {quote(context.held_out_source)}" if context.held_out_source else ""


def _list_entries(entries: Sequence[tuple[str, Html | str]]) -> Html:
    return tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in entries), class_="entries")
