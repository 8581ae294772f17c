"""Audits: each rule of a policy tested on held-out rows, with bounds, p-values and verdicts."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from bylaw._base import MIN_CELL, Floats, check_fraction, check_min_cell, find_stack_level
from bylaw.engines import Scan, attach_observed, read_rows
from bylaw.errors import EvidenceError, GuaranteeWarning, OptionError, Remedy
from bylaw.language import LABEL, ActionSpace, Problem, Statement, Worst, format_conditions
from bylaw.policy import Fingerprint, Look, Policy, compute_probabilities, hash_evidence, shares_rows
from bylaw.program import compute_group_rates, warn_of_missing_groups
from bylaw.rows import (
    KNOWN,
    Evidence,
    Limits,
    ObservedRows,
    RowData,
    check_alignment,
    encode_values,
    make_frame,
    observe,
)
from bylaw.testing._confidence_bounds import METHODS
from bylaw.testing._costs import Costs, add_changes, compare_costs, is_observed, list_costs
from bylaw.testing._formatting import make_audit_card
from bylaw.testing._hypotheses import DecidedRows, check_limits, check_weight
from bylaw.testing._reliability import Reliability, choose_shown_lines, compute_reliability
from bylaw.testing._verdicts import (
    RuleAudit,
    Verdict,
    estimate_rule,
    find_worst,
    hide_numbers,
    judge_rules,
    list_hidden_rules,
    to_plain,
)

RANDOM = 0.99  # a decision counts as random where its likeliest outcome has a lower probability

# A decision is impossible if its probability, as a share of that of the row's likeliest decision, is below
# these limits. Sampling takes one below the first once in 10^12 draws. Deterministic decisions are the
# likeliest ones, but scores that were written with few digits may decide a near tie either way.
_IMPOSSIBLE_IF_RANDOMIZED = 1e-12
_IMPOSSIBLE_IF_DETERMINISTIC = 0.9


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of `audit`: every rule with its estimate, bounds and verdict, and what the rules cost.

    Parameters
    ----------
    rules : tuple of RuleAudit
        one for each single rule; a family has several.
    confidence : float
        of each bound and of the verdicts.
    method : str
        of the confidence bounds.
    certificate : bool
        False for estimates on rows on which the policy was chosen.
    rows : int
    objective : str
        what the policy minimizes.
    cost_before, cost_after : float
        the objective with your model (its own scores, labels only), and with these decisions.
    cost_observed : bool
        whether costs are measured with true labels and, for `custom`, outcomes; not as they were predicted.
    rejected : float
        share of rows; nan where there are no rejections.
    random : float
        share of rows whose likeliest decision has a probability below 0.99.
    reliability : tuple of Reliability
        calibration of the probabilities, for everything that was observed.
    seen_rows : dict
        {"label" or an attribute: how many rows show it}, for those that not all rows show.
    seen_at_random : bool
        whether rows that show them are taken for a random sample, or weighted by `propensity_weights`.
    looks : int
        how many audits on held-out rows the policy's card shows, this one included; 0 for an estimate. The
        confidence is that of a single look.
    group_rates : dict
        where the worst group's rate is minimized: the rate of each group that has rows, for these decisions.
    min_cell : int
        the number of rows from which text, HTML and `to_dict` show numbers of a group.
    hidden : frozenset of str
        the single rules and groups that are about smaller ones, or beside one. Their numbers are in `rules`
        and `to_frame`, which are for readers who have the rows anyway.
    calibrated : bool
        whether the fit calibrated the probabilities, or compared ways to do so and found none better.
    cost_without_rules : float
        the objective for the best decisions without rules, by the same calibrated scores and among the same
        actions; nan where only a solver finds them (a ratio, or the rate of the worst group).

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, audit, error, rejected, solve
    >>> chance = np.linspace(0.01, 0.99, 400)
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), Evidence(np.column_stack([1 - chance, chance])))
    >>> new = np.linspace(0.02, 0.98, 500)
    >>> found = audit(policy, Evidence(np.column_stack([1 - new, new])), rules="rejected() <= 0.4")
    >>> str(found.verdict)
    'certified'
    >>> found.to_dict()["rules"][0]["target"]
    0.4
    """

    rules: tuple[RuleAudit, ...]
    confidence: float
    method: str
    certificate: bool
    rows: int
    objective: str
    cost_before: float
    cost_after: float
    cost_observed: bool
    rejected: float
    random: float
    reliability: tuple[Reliability, ...]
    seen_rows: Mapping[str, int] = field(default_factory=dict)
    seen_at_random: bool = True
    looks: int = 0
    group_rates: Mapping[str, float] = field(default_factory=dict)
    min_cell: int = MIN_CELL
    hidden: frozenset[str] = frozenset()
    calibrated: bool = False
    cost_without_rules: float = math.nan

    @property
    def shown(self) -> Audit:
        """Audit without numbers about small groups, as it may be passed on."""
        rules = tuple(
            hide_numbers(rule, self.min_cell) if rule.rule in self.hidden else rule for rule in self.rules
        )
        rates = {group: rate for group, rate in self.group_rates.items() if group not in self.hidden}
        lines = choose_shown_lines(self.reliability, self.min_cell)
        return replace(self, rules=rules, reliability=lines, group_rates=rates)

    @property
    def costs(self) -> Costs:
        """Objective with your model, without rules, and with rules."""
        return Costs(self.cost_before, self.cost_without_rules, self.cost_after)

    @property
    def verdict(self) -> Verdict:
        """Verdict on all rules together.

        `CERTIFIED` needs no correction for their number: it is wrong only if a rule that does not hold passes
        its own test.
        """
        worst = find_worst(rule.verdict for rule in self.rules)
        if not (self.rules and self.certificate) or worst is Verdict.VIOLATED:
            return worst
        p_values = [rule.p_value for rule in self.rules]
        passed = all(p <= 1 - self.confidence for p in p_values)  # nan does not pass
        return Verdict.CERTIFIED if passed else Verdict.UNDECIDED

    def to_frame(self, like: Any = None) -> Any:
        """Return one line per single rule.

        The columns are rule, target, estimate, lower, upper, p_value, p_holm, rows and verdict.

        Parameters
        ----------
        like : frame, optional
            the result is a frame of the same library; by default, of the first installed of pandas, polars
            and pyarrow.
        """
        names = ("rule", "target", "estimate", "lower", "upper", "p_value", "p_holm", "rows")
        columns: dict[str, Any] = {name: [getattr(rule, name) for rule in self.rules] for name in names}
        return make_frame({**columns, "verdict": [str(rule.verdict) for rule in self.rules]}, like)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; unknown numbers and those about small groups become None."""
        left_out, shown = ("rules", "reliability", "hidden"), self.shown
        fields = {name: value for name, value in vars(self).items() if name not in left_out}
        rules = [
            {**vars(rule), "verdict": str(rule.verdict), "remedy": rule.remedy and asdict(rule.remedy)}
            for rule in shown.rules
        ]
        lines = [line._asdict() for line in shown.reliability]
        fields["group_rates"] = shown.group_rates
        return to_plain({"verdict": str(self.verdict), **fields, "rules": rules, "reliability": lines})

    def __repr__(self) -> str:
        return make_audit_card(self).to_text()

    def _repr_html_(self) -> str:
        return make_audit_card(self).to_html()


def audit(
    policy: Policy,
    evidence: Evidence | Scan,
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    rules: Sequence[Statement | str] | Statement | str | None = None,
    decisions: Any = None,
    unlabelled: Evidence | None = None,
    outcomes: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    largest_weight: float | None = None,
    confidence: float = 0.95,
    method: Literal["betting", "hoeffding_bentkus", "clopper_pearson"] = "betting",
    fitted_rows: Literal["refuse", "estimate"] = "refuse",
    min_cell: int = MIN_CELL,
) -> Audit:
    """Test the rules of a policy on held-out rows, a random sample of those that it will decide.

    An audit is one look, and is noted on the policy's card, `policy.card.looks`; a second one warns.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence or Scan
        the rows, with what was observed of them. Rows that live
        elsewhere are read into memory, if they are not too many; otherwise pass a random sample,
        `rows.sample(1_000_000)`.
    labels : array of shape (n_rows,), optional
        the true labels; without them, rules that refer to labels are not judged. Where labels or groups
        are missing (None, NaN, NA, null, masked), each rule is judged on the rows that show all that it
        refers to. These must be a random sample of all rows, or have `propensity_weights`.
    groups : dict or frame, optional
        the true groups, {name: one value per row}, of attributes that the evidence knows only as
        probabilities or not at all.
    propensity_weights : array of shape (n_rows,), optional
        1 / P(seen | x) of the rows that show labels or groups which others lack. They multiply the sample
        weights of these rows; `largest_weight` bounds the product.
    rules : list of rules, families or texts, optional
        other rules than the policy's own.
    decisions : array of shape (n_rows,) or (n_rows, n_classes), optional
        the decisions that were taken, one action per row or, for sets, membership of each label as
        booleans. They are judged instead of the policy's probabilities. Decisions that the policy takes with
        probability 0 are another policy's, and are refused.
    unlabelled : Evidence, optional
        more rows without labels, which narrow the bounds of rules that refer to labels
        (prediction-powered inference).
    outcomes : dict, optional
        {name: array of shape (n_rows, n_actions)}: the observed costs in `custom(name)`. Those of
        the evidence are predictions: without outcomes, a rule on them is not judged, and its estimate is
        the predicted rate. "known" in place of an array states that a cost does not depend on outcomes,
        as in a price list. Rows that lack a value (NaN) are left out for the rules that refer to
        it. With `decisions`, only those of the decisions that were taken are needed; the costs of your model
        and without rules are not known then (nan).
    limits : dict, optional
        {name: (least, most)} of costs in `custom(name)`; without them, rules on such costs are not judged.
    largest_weight : float, optional
        the largest weight that any row of the population can have. Rows with a weight column are not
        judged without it, even if their weights are equal: heavier rows may be absent from the sample.
    confidence : float
        of each bound and each certificate; 0.95 is right in 95 of 100 audits.
    method : "betting", "hoeffding_bentkus" or "clopper_pearson"
        "betting" is narrow where rates vary little between rows; "clopper_pearson" is for decisions that
        are not random. Choose before you look at the result.
    fitted_rows : "refuse" or "estimate"
        whether rows on which the policy was chosen are refused, or give an estimate without a certificate:
        a rule then is estimated to hold if it is missed by at most `policy.guarantee.violation` plus 1e-6,
        in the unit of its rate.
    min_cell : int
        the number of rows that a group must have for its rates to appear in the audit's text, HTML and
        `to_dict`; 0 shows all. Where one group is hidden, the next smallest is, too.

    Returns
    -------
    Audit

    Raises
    ------
    EvidenceError
        when the rows are rows on which the policy was chosen, columns do not fit, or decisions have
        probability 0 under the policy.

    References
    ----------
    Waudby-Smith and Ramdas (2024), Estimating means of bounded random variables by betting, JRSS B.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, audit, error, rejected, solve
    >>> chance = np.linspace(0.01, 0.99, 400)
    >>> fitted = Evidence(np.column_stack([1 - chance, chance]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), fitted)
    >>> new = np.linspace(0.02, 0.98, 500)
    >>> held_out = Evidence(np.column_stack([1 - new, new]))
    >>> found = audit(policy, held_out, rules=["rejected() <= 0.4", "rejected() <= 0.05"])
    >>> [str(rule.verdict) for rule in found.rules]
    ['certified', 'violated']
    >>> str(audit(policy, fitted, fitted_rows="estimate").verdict)
    'estimated to hold'
    """
    if not isinstance(policy, Policy):
        raise OptionError(
            f"audit() takes a Policy and then Evidence, not {type(policy).__name__} first; a classifier is "
            "audited by its own method, classifier.audit(X, y)"
        )
    if method not in METHODS:
        raise OptionError(f"method must be one of {list(METHODS)}, got {method!r}")
    delta, min_cell = 1 - check_fraction(confidence, "confidence"), check_min_cell(min_cell)
    rows = attach_observed(
        evidence,
        labels=labels,
        groups=groups,
        propensity_weights=propensity_weights,
        outcomes=outcomes,
        limits=limits,
        largest_weight=largest_weight,
    )
    # Of scanned rows, groups have the values that the policy knows.
    known = {name: attribute.values for name, attribute in policy.feature_map.attributes.items()}
    evidence = read_rows(rows, known)
    evidence, seen, decided, hashed = _decide_rows(policy, evidence, unlabelled, decisions, fitted_rows)
    certificate, problem, space = not decided.estimated, policy.problem, policy.action_space
    if rules is not None:
        problem = Problem(problem.minimize, rules, None, space.decisions, space.reject)
    expanded = problem.expand(seen.classes, seen.group_values, space.options)
    stated, minimize = [found.rule for found in expanded], problem.minimize
    rates = (minimize, *(rule.excess for rule in stated))
    named = {*evidence.costs, *(name for rate in rates for name in list_costs(rate))}
    if unknown := [name for name in evidence.outcomes or () if name not in named]:
        raise OptionError(
            f"outcomes[{unknown[0]!r}]: no rule refers to custom({unknown[0]!r}); there are {sorted(named)}"
        )
    if certificate:
        found = judge_rules(stated, decided, method, delta)
    else:
        found = [estimate_rule(rule, decided, policy) for rule in stated]
    groups_compared, group_rates = (), {}
    if isinstance(minimize, Worst):
        groups_compared = minimize.list_groups(seen.classes, seen.group_values)
        measured = compute_group_rates(minimize, seen, decided.probabilities, space)
        warn_of_missing_groups(minimize, measured, policy.feature_map)
        group_rates = {format_conditions(group): rate for group, rate in measured.items()}
    costs = compare_costs(policy, seen, probabilities=decided.probabilities)
    # With outcomes of the decisions that were taken alone, it is not known what others would have cost.
    read = [evidence.outcomes.get(name, KNOWN) for name in list_costs(minimize)]
    lost = decisions is not None and any(not isinstance(cost, str) and np.isnan(cost).any() for cost in read)
    rejected, reject = math.nan, space.reject_position
    if reject is not None:
        rejected = float(np.average(decided.probabilities[:, reject], weights=seen.weights))
    result = Audit(
        rules=tuple(found),
        confidence=confidence,
        method=method,
        certificate=certificate,
        rows=len(evidence),
        objective=str(minimize),
        cost_before=math.nan if lost else costs.model,
        cost_after=costs.policy,
        cost_observed=is_observed(minimize, seen, space),
        rejected=rejected,
        random=compute_random_share(decided.probabilities, space, seen),
        reliability=compute_reliability(evidence, seen, LABEL in seen.observed),
        seen_rows={name: int(shown.sum()) for name, shown in seen.seen.items()},
        seen_at_random=evidence.propensity_weights is None,
        group_rates=group_rates,
        min_cell=min_cell,
        hidden=list_hidden_rules(stated, seen, min_cell, groups_compared),
        calibrated=policy.calibration is not None or policy.card.options.get("calibrate", "none") != "none",
        cost_without_rules=math.nan if lost else costs.without_rules,
    )
    if not certificate:
        return result
    warn_of_copies(hashed)
    columns = evidence.labels, evidence.true_groups or None, evidence.propensity_weights
    given = [column is not None for column in (*columns, unlabelled, decisions)]
    options = confidence, method, evidence.limits, evidence.largest_weight
    question = [sorted(map(str, stated)), given, *options]
    return replace(result, looks=record_look(policy, hashed, result.verdict, question, confidence))


def _decide_rows(
    policy: Policy, evidence: Evidence, unlabelled: Evidence | None, decisions: Any, fitted_rows: str
) -> tuple[Evidence, ObservedRows, DecidedRows, Fingerprint]:
    """Return the calibrated rows, as observed and with their decisions, and their fingerprint.

    They are marked as `estimated` if rows had a part in choosing the policy.
    """
    if fitted_rows not in ("refuse", "estimate"):
        raise OptionError(f"fitted_rows must be 'refuse' or 'estimate', not {fitted_rows!r}")
    parts = [evidence] if unlabelled is None else [evidence, unlabelled]
    calibrated = [policy.calibrate(part) for part in parts]
    hashed = [hash_evidence(policy.feature_map, part) for part in calibrated]
    estimated = any(shares_rows(part, policy.fingerprints) for part in hashed)
    if estimated and fitted_rows == "refuse":
        raise EvidenceError(
            "these are rows on which the policy was chosen, and they cannot certify it",
            Remedy("estimate_fitted_rows"),
        )
    evidence, *more = [policy.feature_map.admit(part) for part in calibrated]
    limits, outcomes = add_changes(evidence.costs, evidence.limits, evidence.outcomes)
    evidence = evidence.with_columns(limits=limits, outcomes=outcomes)
    check_alignment({"decisions": decisions}, evidence.index)
    taken = None if decisions is None else encode_decisions(decisions, policy.action_space, evidence)
    seen, companions = observe(evidence, taken), None
    for part in more:
        if taken is not None:
            raise OptionError(
                "unlabelled rows are decided by the policy: leave out decisions= or unlabelled="
            )
        if part.weights is not None:
            raise EvidenceError(
                "unlabelled rows take no weights: sample them as the labelled ones were sampled"
            )
        companions = DecidedRows(part, policy.probabilities(part), policy.action_space, labelled=False)
    rows = DecidedRows(
        seen,
        policy.probabilities(evidence) if taken is None else taken,
        policy.action_space,
        labelled=LABEL in seen.observed,
        unlabelled=companions,
        limits=check_limits(evidence.limits, seen),
        largest_weight=check_weight(evidence.largest_weight, evidence),
        estimated=estimated,
    )
    if taken is not None:
        refuse_impossible_decisions(policy, evidence, taken)
    return evidence, seen, rows, hashed[0]


def encode_decisions(taken: Any, space: ActionSpace, evidence: Evidence) -> Floats:
    """Return decisions that were taken, one-hot, (n_rows, n_actions)."""
    if not space.exclusive:
        membership = np.asarray(taken)
        if membership.shape != (len(evidence), len(space.actions)) or membership.dtype != bool:
            raise EvidenceError(
                f"decisions must be True or False for each row and label, of shape "
                f"({len(evidence)}, {len(space.actions)}), as from policy.decide"
            )
        return membership.astype(float)
    vector = evidence.vector(taken, "decisions")
    positions = {action: i for i, action in enumerate(space.actions)}
    return np.eye(len(space.actions))[encode_values(vector, positions, "decisions")]


def refuse_impossible_decisions(policy: Policy, evidence: Evidence, taken: Floats) -> None:
    """Raise if the policy cannot have taken these decisions, one-hot or as membership (n_rows, n_actions)."""
    # The probabilities before the likeliest decision is chosen tell near ties from clear decisions.
    chances = compute_probabilities(policy.feature_map, policy.score_matrix, policy.beta, evidence).T
    if policy.action_space.exclusive:
        shares = (taken * chances).sum(axis=1) / chances.max(axis=1)
    else:
        shares = (np.where(taken > 0, chances, 1 - chances) / np.maximum(chances, 1 - chances)).min(axis=1)
    limit = _IMPOSSIBLE_IF_DETERMINISTIC if policy.deterministic else _IMPOSSIBLE_IF_RANDOMIZED
    if (impossible := shares < limit).any():
        raise EvidenceError(
            f"decisions must be ones that this policy can take, got {int(impossible.sum()):,} of "
            f"{len(impossible):,} to which it gives probability 0, the first of them in row "
            f"{int(impossible.argmax())}. They were taken by another policy, or for other rows: audit "
            "the policy that took them, or audit this policy without decisions"
        )


def compute_random_share(probabilities: Floats, space: ActionSpace, rows: RowData) -> float:
    """Return the weighted share of rows whose likeliest decision has a probability below `RANDOM`."""
    return float(np.average(space.decision_confidence(probabilities) < RANDOM, weights=rows.weights))


def record_look(
    policy: Policy, rows: Fingerprint, verdict: Verdict, question: list[Any], confidence: float
) -> int:
    """Note on the policy's card that these rows judged it, and return the number of looks so far.

    The same rows with the same question (rules and options) and verdict are the same look; a further one
    warns. The error probability of an audit is that of one look: repeated looks as rows arrive, or until a
    verdict pleases, certify falsely more often.
    """
    asked = hashlib.sha256(json.dumps(question, sort_keys=True, default=str).encode()).hexdigest()[:16]
    looks, new = policy.card.looks, Look.now(str(verdict), asked, rows)
    for look in looks:
        same_question = (look.question, look.verdict) == (new.question, new.verdict)
        if same_question and new.fingerprint.digests and look.fingerprint == new.fingerprint:
            return len(looks)
    seen = any(shares_rows(rows, (look.fingerprint,)) for look in looks)
    looks.append(new)
    if len(looks) > 1:
        which = ", on rows of which some were in an earlier look" if seen else ""
        planned = f"{1 - (1 - confidence) / len(looks):.6g}"
        warnings.warn(
            GuaranteeWarning(
                f"this is look {len(looks)} at this policy{which}: {100 * confidence:g} % confidence is "
                "that of a single look, and the chance of a false certificate grows with each",
                Remedy("plan_looks", planned, (str(len(looks)),)),
            ),
            stacklevel=find_stack_level(),
        )
    return len(looks)


def warn_of_copies(rows: Fingerprint) -> None:
    """Warn if rows repeat each other in a way that no sample of independent rows does."""
    if rows.copied:
        warnings.warn(
            GuaranteeWarning(
                f"of the {rows.rows:,} held-out rows only {rows.n_different:,} are different: each counts as "
                "an independent one, and with copies a certificate is false more often than is stated",
                Remedy("drop_copies"),
            ),
            stacklevel=find_stack_level(),
        )
