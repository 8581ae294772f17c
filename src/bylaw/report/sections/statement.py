"""The statement to sign: who answers for the policy, what it promises, and what was found."""

from __future__ import annotations

from collections import Counter

from bylaw.report.action_words import describe_cost
from bylaw.report.context import ReportContext, make_badge
from bylaw.report.markup import Html, make_section, tag
from bylaw.report.number_format import (
    format_count,
    format_moment,
    format_percent,
    join_words,
    pluralize,
    quote,
)
from bylaw.testing import Verdict

_MOST_RULES = 12  # that are repeated in the statement
_VERDICTS = (Verdict.CERTIFIED, Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.UNJUDGED)
_APPROVAL = (
    "The undersigned has read this report, with what it calls not guaranteed, and approves the use of this "
    "policy."
)


def write_statement(context: ReportContext) -> Html:
    rules = context.policy.problem.rules
    lines = [
        _write_subject(context),
        *([_write_promise(context), tag("p", *_write_findings(context))] if rules else []),
        tag("p", describe_cost(context.judged, context.measurement)),
        tag("p", _write_alarms(context)) if context.monitor else None,
        tag("p", _APPROVAL, class_="rule"),
    ]
    blanks = [tag("div", name, class_="signature") for name in _list_blanks(context)]
    return make_section("sign", "Statement to sign", *lines, tag("div", *blanks, class_="signatures"))


def _write_subject(context: ReportContext) -> Html:
    """Which policy, whose, of which model, chosen when and on which rows."""
    policy = context.policy
    owner = f", owned by {context.owner}," if context.owner else ""
    version = quote(context.model_version) if context.model_version else ""
    scores = f", by the scores of model version {version}" if version else ""
    rows = sum(part.rows for part in policy.fingerprints)
    source = _name_table(policy.card.source)
    chosen = f" on {pluralize(rows, 'case')}{source}" if rows else source
    return tag(
        "p",
        "The policy with the SHA-256 hash of its decisions ",
        tag("code", policy.digest, class_="digest"),
        ", in the file with the SHA-256 hash ",
        tag("code", context.file_digest, class_="digest"),
        f"{owner} decides cases as described in this report, {quote(context.title)}, of {context.created}"
        f"{scores}. It was chosen at {format_moment(policy.card.created)}{chosen}.",
    )


def _name_table(source: str) -> str:
    return f" of the table {quote(source)}" if source else ""


def _write_promise(context: ReportContext) -> Html:
    rules = context.policy.problem.rules
    items = [tag("li", context.write_sentence(rule)) for rule in rules[:_MOST_RULES]]
    more = len(rules) - len(items)
    further = [tag("li", f"{pluralize(more, 'further rule')}, listed above.")] if more > 0 else []
    return tag("div", tag("p", "It promises:"), tag("ol", *items, *further))


def _write_findings(context: ReportContext) -> list[Html | str]:
    """The verdict on all rules together, and on how many of the single rules."""
    where = f"{context.judged_name}{_name_table(context.judged_source)}"
    badge = make_badge(context.verdict)
    if context.audit is None:
        said = f"Found on {where}, {context.rate_measurement}, of all rules together: "
        return [said, badge, ". This is an estimate, and no proof for new cases."]
    level = format_percent(context.confidence)
    counts = Counter(rule.verdict for rule in context.audit.rules)
    listed = [f"{format_count(counts[verdict])} {verdict}" for verdict in _VERDICTS if counts[verdict]]
    single = pluralize(len(context.audit.rules), "single rule")
    said = f"Found on {where}, with {level} confidence, of all rules together: "
    return [said, badge, f". Of {single}: {join_words(listed)}."]


def _write_alarms(context: ReportContext) -> str:
    """Nothing, unless the policy was watched."""
    if context.monitor is None:
        return ""
    cases = pluralize(context.monitor.rows, "case was", "cases were")
    return f"Since then, {cases} watched: {context.alarms}."


def _list_blanks(context: ReportContext) -> list[str]:
    """What is to be filled in by hand."""
    known = {"Owner": context.owner, "Model version": context.model_version}
    return ["Name", "Date", "Signature", *(name for name, value in known.items() if not value)]
