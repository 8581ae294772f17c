"""How far to trust it: random decisions, what is guaranteed and what is not."""

from __future__ import annotations

import math

from bylaw.program.solution import HardDecisions, Status
from bylaw.report.context import ReportContext
from bylaw.report.markup import Html, join, make_list, make_section, tag
from bylaw.report.number_format import (
    count_of,
    format_count,
    format_percent,
    format_points,
    pluralize,
    round_number,
)
from bylaw.report.sentences import describe_certificate
from bylaw.report.svg_charts import draw_stack
from bylaw.testing import RANDOM, Verdict

_LEANING = 0.75
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
    basis = "as predicted by the model’s probabilities"
    if any(policy.tightened.values()):
        basis += ", with the rules’ bounds shifted so that observed rates, or a margin, are respected"
    if policy.problem.rules and _is_solved(context):
        found.append(
            f"On the cases on which the policy was chosen, {basis}, all rules together are violated by "
            f"no more than {_write_violation(context)}. This is the precision of the solver: observed rates "
            "may differ from predicted ones by more."
        )
        excess = policy.guarantee.excess_cost
        cost = format_points(excess) if policy.problem.minimize.is_probability else round_number(excess)
        found.append(
            f"There, no policy under the same rules costs less by more than {cost}, as far as the model’s "
            "probabilities are right."
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
    certified, violated = (
        format_count(_count(context, verdict)) for verdict in (Verdict.CERTIFIED, Verdict.VIOLATED)
    )
    rules = pluralize(len(context.audit.rules), "single rule")
    said = (
        f"Of {rules}, on {context.judged_name}: {certified} certified, {violated} violated. Each list is "
        f"correct as a whole with {format_percent(context.confidence)} confidence."
    )
    if context.verdict is Verdict.CERTIFIED:
        said += f" That all rules hold together is certified at {format_percent(context.confidence)}, too."
    return said


def _list_gaps(context: ReportContext) -> list[str]:
    gaps = _describe_violations(context), _describe_proof_gap(context), _describe_solver_gap(context)
    missing = [text for text in gaps if text]
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


def _describe_violations(context: ReportContext) -> str:
    """Which rules do not hold by the rates of this report."""
    outside = [one for one in context.bounded_rates if one.verdict in (Verdict.BROKEN, Verdict.VIOLATED)]
    if not outside:
        return ""
    which = count_of(len(outside), len(context.bounded_rates), "rate")
    return (
        f"That every rule holds: on {context.judged_name}, {context.rate_measurement}, {which} "
        f"{'is' if len(outside) == 1 else 'are'} outside the bounds. See “Do they hold?”."
    )


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
        f" The policy was chosen on {pluralize(round(policy.guarantee.rows), 'case')}, a sample: on others, "
        f"all rules together may be missed by about {_write_size(policy.guarantee.sampling, context)} more."
    )


def _describe_solver_gap(context: ReportContext) -> str:
    if _is_solved(context):
        return ""
    return (
        "That the rules hold on the cases on which the policy was chosen: the solver stopped before its "
        f"tolerance ({context.policy.solution.status.value})."
    )
