"""The first and the last sections: the summary, the fingerprint, and the statement to sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import metadata

from bylaw._base import Value
from bylaw.report._action_words import describe_cost, list_figures
from bylaw.report._context import ReportContext
from bylaw.testing import Verdict
from bylaw.view import (
    Content,
    Html,
    capitalize,
    count_of,
    describe_certificate,
    fold,
    format_count,
    format_moment,
    format_percent,
    join,
    join_words,
    make_page_table,
    pluralize,
    quote,
    round_number,
    shorten,
    tag,
)

_MOST_NAMED, _MOST_GROUPS = 6, 12  # names in a sentence, and groups or rules in a table or list


def write_summary(context: ReportContext) -> Sequence[Content]:
    """Write the summary: the decisions of the policy, the verdict on its rules, and the costs."""
    rows, words, proof = context.judged, context.words, context.policy.certificate
    changed, random = rows.compute_changed_share(rows.all_rows), format_percent(rows.random_share)
    changes = (
        f"{words.changes.format(share=format_percent(changed))}, and {random} of the cases are decided at "
        f"random.{f' Since then, {context.alarms}.' if context.monitor else ''}"
    )
    heading = tag("p", context.badge, tag("span", f" All rules together, on {rows.name}."))
    paragraphs = [
        f"{_write_offer(context)} {_write_verdict(context)}",
        f"{describe_cost(rows, context.measurement)} {changes}",
        _write_worse_off(context),
        "" if proof is None else describe_certificate(proof),
    ]
    deterministic = context.policy.deterministic
    remark = "deterministic decisions" if deterministic else "repeatable, with stated probabilities"
    figures = [*list_figures(rows), ("Random decisions", random, remark)]
    tiles = [
        tag(
            "div",
            tag("dt", name),
            tag("dd", tag("span", number, class_="number"), tag("span", remark, class_="remark")),
        )
        for name, number, remark in figures
    ]
    return [
        tag("div", heading, class_="verdict") if context.bounded_rates else None,
        *(tag("p", text, class_="lead") for text in paragraphs if text),
        tag("dl", *tiles, class_="figures"),
        tag("p", _define_references(context), class_="note"),
        _tabulate_groups(context),
    ]


def _define_references(context: ReportContext) -> str:
    """Define what the decisions of the policy are compared with."""
    policy, space = context.policy, context.policy.action_space
    decided = f"the {'label' if space.classes else 'option'} of least cost"
    if not policy.problem.minimize.is_linear and space.classes:
        decided = "the most likely label"
    before = ", before they were calibrated" if policy.calibration else ""
    text = f"“Your model” takes {decided}, by its own scores{before}. “Changed” means: different from "
    "this decision."
    if not policy.problem.rules:
        return text
    same = "calibration and decisions" if policy.calibration else "scores and decisions"
    return f"{text} “Without rules” is the best policy for the same objective, {same}, but without the rules."


def _tabulate_groups(context: ReportContext) -> Html | None:
    """Return a table of each group's size and its shares of withheld answers, mistakes and changes."""
    rows, words = context.judged, context.words
    cells = [(f"{part.name}: ", cell) for part in rows.partitions for cell in part.cells]
    if not cells:
        return None
    lines, labels = [], len(context.policy.action_space.classes)
    for name, cell in [("", rows.all_rows), *cells[:_MOST_GROUPS]]:
        title = f"{name}{shorten(cell.name)}" if name else "All cases"
        lines.append([title, format_count(cell.cases)])
        if words.withheld is not None:
            lines[-1].append(format_percent(float(cell.average(rows.probabilities)[labels:].sum())))
        if words.mistake is not None:
            costs = rows.compare_mistakes(cell)
            shares = (costs.model, costs.policy) if costs else ()
            lines[-1] += [format_percent(share) for share in shares] or ["—", "—"]
        lines[-1].append(format_percent(rows.compute_changed_share(cell)))
    heads = ["Group", "Cases", *([] if words.withheld is None else [capitalize(words.withheld_name)])]
    heads += [f"{words.mistake_name}: your model", "With rules"] if words.mistake is not None else []
    table = make_page_table(f"Group by group, on {rows.name}", [*heads, "Changed"], lines)
    more = len(cells) - _MOST_GROUPS
    note = f"{pluralize(more, 'more group')}: see “Before and after”."
    return join([table, tag("p", note, class_="note") if more > 0 else None])


def _write_offer(context: ReportContext) -> str:
    def count(actions: Sequence[Value], word: str) -> str:
        """Format actions as in "2 labels (“no” or “yes”)"."""
        named = f" ({join_words([quote(action) for action in actions], 'or')})" if actions else ""
        return pluralize(len(actions), word) + (named if len(actions) <= _MOST_NAMED else "")

    space = context.policy.action_space
    actions = {"labels": count(space.classes, "label"), "options": count(space.options, "option")}
    offer = context.words.offer.format(**actions)
    rules = pluralize(len(context.policy.problem.rules), "rule")
    return f"For each case the policy gives {offer}. It starts from a trained model and must satisfy {rules}."


def _write_verdict(context: ReportContext) -> str:
    level, rows = format_percent(context.confidence), context.judged.name
    return {
        Verdict.CERTIFIED: f"Held-out cases, which had no part in choosing it, prove with {level} confidence "
        "that every rule holds for the population they come from.",
        Verdict.VIOLATED: f"Held-out cases, which had no part in choosing it, prove with {level} confidence "
        "that at least one rule does not hold.",
        Verdict.UNDECIDED: "The held-out cases do not suffice to prove that every rule holds, or that one "
        f"does not; {_write_estimates(context)}.",
        Verdict.HOLDS: f"Every rule is satisfied on {rows}, {context.rate_measurement}; this is an estimate, "
        "not a proof for new cases.",
        Verdict.BROKEN: f"At least one rule is not satisfied on {rows}, {context.rate_measurement}; this is "
        "an estimate, not a proof.",
        Verdict.UNJUDGED: "Not every rule could be judged."
        if context.bounded_rates
        else "There are no rules to be judged.",
    }[context.verdict]


def _write_estimates(context: ReportContext) -> str:
    rates = context.bounded_rates
    if unjudged := sum(bool(bounded.judged.reason) for bounded in rates):
        return f"{count_of(unjudged, len(rates), 'rate')} could not be judged at all"
    if outside := sum(bounded.slack < 0 for bounded in rates):
        verb = "is" if outside == 1 else "are"
        return f"by the estimates, {count_of(outside, len(rates), 'rate')} {verb} outside the bounds"
    if any(bounded.hidden for bounded in rates):
        return "the rates of some groups are not shown, since they have too few cases"
    within = "its rate is within its bounds" if len(rates) == 1 else "all rates are within the bounds"
    return f"by the estimates, {within}"


def _write_worse_off(context: ReportContext) -> str:
    """Return a sentence on the groups in which mistakes increase most; empty without such groups."""
    rows = context.judged
    worse: list[tuple[float, str]] = []
    for part in rows.partitions:
        for cell in part.cells:
            costs = rows.compare_mistakes(cell)
            if costs is not None and costs.policy - costs.model > 0.005:  # worth a sentence
                model, policy = format_percent(costs.model), format_percent(costs.policy)
                name = f"{part.name} {quote(cell.name)} ({cell.size}), from {model} to {policy}"
                worse.append((costs.model - costs.policy, name))
    if not worse:
        return ""
    named = [name for _, name in sorted(worse, key=lambda group: group[0])[:_MOST_NAMED]]
    more = f" (and {len(worse) - len(named)} more)" if len(worse) > len(named) else ""
    number = pluralize(len(worse), "group")
    return f"Compared with your model, {context.words.more_mistakes} in {number}{more}: {join_words(named)}."


def write_fingerprint(context: ReportContext) -> Sequence[Content]:
    """Write the section that identifies the policy and the rows on which it was fitted and judged."""
    policy, source = context.policy, context.held_out_source
    fitted = " + ".join(format_count(part.rows) for part in policy.fingerprints) or "not recorded"
    certified = " (the last of them certified it)" if policy.certificate and policy.fingerprints else ""
    table = f", from the table {quote(source)}" if source else ""
    held_out = f", held out{table}" if context.audit else ""
    entries = [
        ("Policy (SHA-256)", tag("code", policy.digest, class_="digest")),
        ("Whole file (SHA-256)", tag("code", context.file_digest, class_="digest")),
        ("Owner", context.owner or "not stated"),
        ("Model version", context.model_version or "not stated"),
        ("Policy made", format_moment(policy.card.created)),
        ("Fitted on the table", policy.card.source or "not recorded"),
        ("Report made", context.created),
        ("Cases the policy was chosen on", f"{fitted}{certified}"),
        ("Cases judged in this report", f"{format_count(len(context.judged))}{held_out}"),
        *([("Audits on held-out cases so far", f"{context.audit.looks:,}")] if context.audit else []),
    ]
    precision = "Largest violation by predicted rates on the cases it was chosen on"
    technical = [
        ("bylaw", metadata.version("bylaw")),
        ("Solver", policy.solution.status.name.lower().replace("_", " ")),
        ("Inverse temperature (beta)", round_number(policy.beta, 4)),
        (precision, round_number(policy.guarantee.violation, 2)),
    ]
    lead = (
        "Two policies with the same fingerprint make the same decisions. Compare the fingerprint with "
        "the one of "
        "the policy in use. The hash of the whole file also covers its rules, its certificate and the "
        "record of "
        "its audits."
    )
    more = fold("For engineers", _list_entries(technical))
    return [tag("p", lead), _list_entries(entries), more]


def _list_entries(entries: Sequence[tuple[str, Html | str]]) -> Html:
    return tag("dl", *(tag("div", tag("dt", k), tag("dd", v)) for k, v in entries), class_="entries")


def write_statement(context: ReportContext) -> Sequence[Content]:
    """Write the statement to sign: the policy, its owner, its rules and the verdicts."""
    policy, rules, monitor = context.policy, context.policy.problem.rules, context.monitor
    # Which policy it is, of whom and of which model, and when and on which rows it was chosen.
    owner = f", owned by {context.owner}," if context.owner else ""
    model = (
        f", by the scores of model version {quote(context.model_version)}" if context.model_version else ""
    )
    rows = sum(part.rows for part in policy.fingerprints)
    cases = f" on {pluralize(rows, 'case')}" if rows else ""
    subject = tag(
        "p",
        "The policy with the SHA-256 hash of its decisions ",
        tag("code", policy.digest, class_="digest"),
        ", in the file with the SHA-256 hash ",
        tag("code", context.file_digest, class_="digest"),
        f"{owner} decides cases as described in this report, {quote(context.title)}, of {context.created}"
        f"{model}. It was chosen at {format_moment(policy.card.created)}{cases}"
        f"{_name_table(policy.card.source)}.",
    )
    promises = [context.write_sentence(rule) for rule in rules[:_MOST_GROUPS]]
    if (more := len(rules) - len(promises)) > 0:
        promises.append(f"{pluralize(more, 'further rule')}, listed above.")
    promise = tag("div", tag("p", "It must satisfy:"), tag("ol", *(tag("li", item) for item in promises)))
    watched = pluralize(monitor.rows, "case was", "cases were") if monitor else ""
    approval = (
        "The undersigned has read this report, including what is not guaranteed, and approves the use of "
        "this policy."
    )
    # What is missing is filled in by hand.
    named = {"Owner": context.owner, "Model version": context.model_version}
    blanks = ["Name", "Date", "Signature", *(name for name, value in named.items() if not value)]
    return [
        subject,
        *([promise, tag("p", *_write_findings(context))] if rules else []),
        tag("p", describe_cost(context.judged, context.measurement)),
        tag("p", f"Since then, {watched} watched: {context.alarms}.") if monitor else None,
        tag("p", approval, class_="rule"),
        tag("div", *(tag("div", name, class_="signature") for name in blanks), class_="signatures"),
    ]


def _name_table(source: str) -> str:
    return f" of the table {quote(source)}" if source else ""


def _write_findings(context: ReportContext) -> list[Html | str]:
    """Describe the verdict on all rules together, and the number of single rules by verdict."""
    rows = context.judged
    source = context.policy.card.source if rows.fitted else ""
    where = f"{rows.name}{_name_table(context.held_out_source if rows.held_out else source)}"
    if context.audit is None:
        lead = f"Verdict on all rules together, on {where}, {context.rate_measurement}: "
        return [lead, context.badge, ". This is an estimate, not a proof for new cases."]
    counts = Counter(rule.verdict for rule in context.audit.rules)
    order = (Verdict.CERTIFIED, Verdict.VIOLATED, Verdict.UNDECIDED, Verdict.UNJUDGED)
    listed = [f"{format_count(counts[verdict])} {verdict}" for verdict in order if counts[verdict]]
    single = pluralize(len(context.audit.rules), "single rule")
    lead = (
        f"Verdict on all rules together, on {where}, with {format_percent(context.confidence)} confidence: "
    )
    return [lead, context.badge, f". Of {single}: {join_words(listed)}."]
