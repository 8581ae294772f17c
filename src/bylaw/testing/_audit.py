"""Audits: tests of a policy's rules on held-out rows, with confidence bounds, p-values and verdicts."""

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
    """The result of `audit`: every rule with its estimate, bounds and verdict, and the cost of the rules.

    Parameters
    ----------
    rules : tuple of RuleAudit
        The audit of each single rule; a family has several.
    confidence : float
        The confidence of each bound and of the verdicts.
    method : str
        The method of the tests and confidence bounds.
    certificate : bool
        False for estimates on rows that were used to fit or choose the policy.
    rows : int
        The number of rows.
    objective : str
        The text of the rate that the policy minimizes.
    cost_before, cost_after : float
        The objective with your model (its own scores, labels only), and with the audited decisions.
    cost_observed : bool
        Whether costs are measured with observed labels and, for `custom`, outcomes, and not predicted.
    rejected : float
        The share of rejected rows; nan if the policy cannot reject.
    random : float
        The share of rows whose likeliest decision has a probability below 0.99.
    reliability : tuple of Reliability
        The calibration of the probabilities of observed labels and groups.
    seen_rows : dict
        {"label" or an attribute: the number of rows where it is observed}, for those missing on some rows.
    seen_at_random : bool
        True if these rows are taken as a random sample; False if `propensity_weights` are used.
    looks : int
        The number of audits on held-out rows that the policy's card records, including this one; 0 for an
        estimate. The confidence is that of a single look.
    group_rates : dict
        {group: its rate}, if the policy minimizes the rate of the worst group; empty otherwise.
    min_cell : int
        The number of rows that a group needs for its numbers to appear in text, HTML and `to_dict`.
    hidden : frozenset of str
        The single rules and groups whose numbers are hidden because a group is smaller, or because the
        numbers of a smaller group would follow from them. `rules` and `to_frame` have all numbers.
    calibrated : bool
        Whether the fit calibrated the probabilities, or tried to without improving them.
    cost_without_rules : float
        The objective for the best decisions without rules, with the same calibrated scores and actions; nan
        if only a solver finds them (a ratio, or the rate of the worst group).

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
        """The audit without numbers about small groups, so that it can be passed on."""
        rules = tuple(
            hide_numbers(rule, self.min_cell) if rule.rule in self.hidden else rule for rule in self.rules
        )
        rates = {group: rate for group, rate in self.group_rates.items() if group not in self.hidden}
        lines = choose_shown_lines(self.reliability, self.min_cell)
        return replace(self, rules=rules, reliability=lines, group_rates=rates)

    @property
    def costs(self) -> Costs:
        """The objective with your model, without rules, and with rules."""
        return Costs(self.cost_before, self.cost_without_rules, self.cost_after)

    @property
    def verdict(self) -> Verdict:
        """The verdict on all rules together.

        `CERTIFIED` needs no correction for the number of rules: it is wrong only if a rule that is violated
        passes its own test.
        """
        worst = find_worst(rule.verdict for rule in self.rules)
        if not (self.rules and self.certificate) or worst is Verdict.VIOLATED:
            return worst
        p_values = [rule.p_value for rule in self.rules]
        passed = all(p <= 1 - self.confidence for p in p_values)  # nan does not pass
        return Verdict.CERTIFIED if passed else Verdict.UNDECIDED

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with one line per single rule.

        The columns are rule, target, estimate, lower, upper, p_value, p_holm, rows and verdict.

        Parameters
        ----------
        like : frame, optional
            The result is a frame of the same library; by default, of the first installed of pandas, polars
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
    """Test the rules of a policy on held-out rows, a random sample of the rows that it will decide.

    Each audit counts as one look and is recorded in `policy.card.looks`; a second look warns.

    Parameters
    ----------
    policy : Policy
        The policy to test.
    evidence : Evidence or Scan
        The held-out rows, with observed labels and groups. Rows in files or a database are read into memory,
        if they are not too many; otherwise pass a random sample, `rows.sample(1_000_000)`.
    labels : array of shape (n_rows,), optional
        The true labels; without them, rules that refer to labels are not judged. If some labels or groups
        are missing (None, NaN, NA, null, masked), each rule is judged on the rows where none that it refers
        to is missing. These must be a random sample of all rows, or have `propensity_weights`.
    groups : dict or frame, optional
        The true groups, {name: one value per row}, of attributes for which the evidence has only
        probabilities or nothing.
    propensity_weights : array of shape (n_rows,), optional
        Inverse propensity weights 1 / P(observed | x) of the rows whose labels or groups are observed, if
        these are missing on other rows. They multiply the sample weights; `largest_weight` bounds the
        product.
    rules : list of rules, families or texts, optional
        Rules to test instead of the policy's own.
    decisions : array of shape (n_rows,) or (n_rows, n_classes), optional
        The decisions that were taken, one action per row or, for sets, membership of each label as
        booleans. They are judged instead of the policy's probabilities. Decisions to which the policy gives
        probability 0 are refused.
    unlabelled : Evidence, optional
        More rows, without labels, that make the bounds of rules that refer to labels narrower
        (prediction-powered inference).
    outcomes : dict, optional
        {name: array of shape (n_rows, n_actions)}: the observed costs in `custom(name)`. The costs in the
        evidence are predictions: without outcomes, a rule on them is not judged, and its estimate is the
        predicted rate. Pass "known" instead of an array for a cost that does not depend on outcomes, such as
        a price. Rows with a missing value (NaN) are left out for the rules that refer to the cost. With
        `decisions`, only the costs of these decisions are needed; the costs of your model and without rules
        are then unknown (nan).
    limits : dict, optional
        {name: (least, most)}: the range of the costs in `custom(name)`; without it, rules on them are not
        judged.
    largest_weight : float, optional
        The largest weight that any row of the population can have. Rules are not judged on rows with weights
        without it, even if all weights are equal: heavier rows may be absent from the sample.
    confidence : float
        The confidence of each bound and each certificate; 0.95 is right in 95 of 100 audits.
    method : "betting", "hoeffding_bentkus" or "clopper_pearson"
        The method of the tests and bounds. "betting" gives narrow bounds if rates vary little between rows;
        "clopper_pearson" is for decisions that are not random. Choose before you look at the result.
    fitted_rows : "refuse" or "estimate"
        Whether rows that were used to fit or choose the policy are refused, or give an estimate without a
        certificate: a rule is then estimated to hold if it is violated by at most
        `policy.guarantee.violation` plus 1e-6, in the unit of its rate.
    min_cell : int
        The number of rows that a group must have for its rates to appear in the audit's text, HTML and
        `to_dict`; 0 shows all. If one group is hidden, so is the next smallest.

    Returns
    -------
    Audit

    Raises
    ------
    EvidenceError
        If the rows were used to fit or choose the policy, columns do not match the rows, or decisions have
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
            f"the first argument of audit() must be a Policy, got {type(policy).__name__}; for a "
            "classifier, call classifier.audit(X, y)"
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
    # The groups of scanned rows are encoded by the values that the policy knows.
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
        raise OptionError(f"outcomes must be of costs that a rule uses, {sorted(named)}, got {unknown[0]!r}")
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
    # If outcomes are given only for the decisions that were taken, the costs of others are unknown.
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
    """Return the calibrated rows, the observed rows, the rows with decisions, and a fingerprint.

    The rows with decisions are marked as `estimated` if some of them were used to fit or choose the policy.
    """
    if fitted_rows not in ("refuse", "estimate"):
        raise OptionError(f"fitted_rows must be 'refuse' or 'estimate', got {fitted_rows!r}")
    parts = [evidence] if unlabelled is None else [evidence, unlabelled]
    calibrated = [policy.calibrate(part) for part in parts]
    hashed = [hash_evidence(policy.feature_map, part) for part in calibrated]
    estimated = any(shares_rows(part, policy.fingerprints) for part in hashed)
    if estimated and fitted_rows == "refuse":
        raise EvidenceError(
            "some of these are rows on which the policy was chosen, and they cannot certify it",
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
                "decisions= and unlabelled= cannot be combined, since unlabelled rows have no "
                "decisions: leave out one"
            )
        if part.weights is not None:
            raise EvidenceError(
                "unlabelled rows must not have weights: sample them in the same way as the labeled rows"
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
    """Return the decisions that were taken as a 0/1 array, (n_rows, n_actions)."""
    if not space.exclusive:
        membership = np.asarray(taken)
        if membership.shape != (len(evidence), len(space.actions)) or membership.dtype != bool:
            raise EvidenceError(
                f"decisions must be a boolean array with one column for each label, of shape "
                f"({len(evidence)}, {len(space.actions)}), as returned by policy.decide; got "
                f"{membership.dtype} of shape {membership.shape}"
            )
        return membership.astype(float)
    vector = evidence.vector(taken, "decisions")
    positions = {action: i for i, action in enumerate(space.actions)}
    return np.eye(len(space.actions))[encode_values(vector, positions, "decisions")]


def refuse_impossible_decisions(policy: Policy, evidence: Evidence, taken: Floats) -> None:
    """Raise if the policy gives probability zero to some of these decisions.

    `taken` is a 0/1 array, (n_rows, n_actions).
    """
    # Use probabilities, even if the policy takes the likeliest decision, so that near ties are accepted.
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
    """Record on the policy's card that these rows were audited, and return the number of looks so far.

    The same rows with the same question (rules and options) and verdict count as the same look; a further
    look warns. The error probability of an audit is that of one look: auditing again as rows arrive, or until
    the verdict is the desired one, makes false certificates more likely.
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
        which = ", with some rows of an earlier look" if seen else ""
        planned = f"{1 - (1 - confidence) / len(looks):.6g}"
        warnings.warn(
            GuaranteeWarning(
                f"this is look {len(looks)} at this policy{which}: the confidence of "
                f"{100 * confidence:g} % is valid for a single look, and each further look makes a false "
                "certificate more likely",
                Remedy("plan_looks", planned, (str(len(looks)),)),
            ),
            stacklevel=find_stack_level(),
        )
    return len(looks)


def warn_of_copies(rows: Fingerprint) -> None:
    """Warn if the held-out rows contain more copies than independent rows would."""
    if rows.copied:
        warnings.warn(
            GuaranteeWarning(
                f"only {rows.n_different:,} of the {rows.rows:,} held-out rows are different: the "
                "tests assume independent rows, and copies make a false certificate more likely than stated",
                Remedy("drop_copies"),
            ),
            stacklevel=find_stack_level(),
        )
