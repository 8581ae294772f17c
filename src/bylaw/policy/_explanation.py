"""Explanations of decisions: each score is a sum over rules, so the contribution of each rule is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from bylaw._base import Floats, Value
from bylaw.errors import RuleError
from bylaw.language import ActionSpace, ExpandedRule, Rate
from bylaw.policy._formatting import make_explanation_card
from bylaw.policy._policy import Policy
from bylaw.program import RulePrice, compile_rates, decide_as_model, list_free_options
from bylaw.rows import Evidence, make_frame

_SAME = 0.05  # largest relative residual of a fit to scores; prices in files have at least two digits
_MOST_ROUNDED = 1.5  # largest ratio of a frequency to its rounded value


@dataclass(frozen=True, repr=False)
class Explanation:
    """The contribution of each rule to the score of each action, made by `explain`.

    The score of an action is its baseline plus its pulls, summed over rules, and the probabilities are
    softmax(beta * score). All are in the unit of the objective: `baseline` is minus the cost of an action,
    and a pull of 0.1 towards an action has the same effect as 0.1 less cost. If decisions are sets, a label
    with a score above zero is included with a probability above one half.

    `before` is the decision of your model, as in audits and reports: the label of least cost by its own
    probabilities, before any calibration; if decisions are sets, the set with only this label.
    `without_rules` is the best decision by the calibrated probabilities if there were no rules; it is None if
    the objective is not linear, since a solver is then needed to find it. Rules that compare ratios, such as
    `predictive_parity`, have one pull together, under the text of the rule or family.
    """

    action_space: ActionSpace
    rules: tuple[str, ...]  # the rules with a price; the others do not change decisions
    baseline: Floats  # (n_rows, n_actions): minus the cost of each action
    pulls: Floats  # (n_rows, n_rules, n_actions): what each rule adds to the score of each action
    probabilities: Floats  # (n_rows, n_actions): the probability of each action
    before: NDArray[
        Any
    ]  # your model's decisions: indices, (n_rows,); for sets, membership (n_rows, n_labels)
    without_rules: NDArray[Any] | None = None  # the best decisions without rules, in the same form

    @property
    def actions(self) -> tuple[Value, ...]:
        return self.action_space.actions

    @property
    def scores(self) -> Floats:
        """The scores of all actions, (n_rows, n_actions)."""
        return self.baseline + self.pulls.sum(axis=1)

    @property
    def after(self) -> NDArray[Any]:
        """Indices of the best actions under the rules, (n_rows,); for sets, membership (n_rows, n_labels)."""
        return self.action_space.hard_decision(self.scores)

    @property
    def moved(self) -> NDArray[np.bool_]:
        """True on rows where the rules changed the best decision, (n_rows,).

        If the objective is not linear, the best decision without rules is not known, and this is `changed`.
        """
        return self.changed if self.without_rules is None else self._differ(self.without_rules)

    @property
    def changed(self) -> NDArray[np.bool_]:
        """True on rows where the best decision differs from that of your model, (n_rows,)."""
        return self._differ(self.before)

    def _differ(self, decisions: NDArray[Any]) -> NDArray[np.bool_]:
        return (decisions != self.after).reshape(len(self.baseline), -1).any(axis=1)

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with one line per row and action: its baseline, the pull of each rule, its score.

        Parameters
        ----------
        like : frame, optional
            The table is a frame of the same library; by default, of the first one that is installed of
            pandas, polars and pyarrow.
        """
        n_rows, n_actions = self.baseline.shape
        pulls = {rule: self.pulls[:, j].ravel() for j, rule in enumerate(self.rules)}
        columns = {
            "row": np.repeat(np.arange(n_rows), n_actions),
            "action": list(self.actions) * n_rows,
            "probability": self.probabilities.ravel(),
            "baseline": self.baseline.ravel(),
            **pulls,
            "score": self.scores.ravel(),
        }
        return make_frame(columns, like)

    def __repr__(self) -> str:
        changed, number = int(self.changed.sum()), len(self.rules)
        rows = f"Explanation of {len(self.baseline)} rows,"
        if self.without_rules is None:
            return f"{rows} {changed:,} of them decided otherwise than by your model"
        moved = f"{int(self.moved.sum()):,} of them moved by {number} {'rule' if number == 1 else 'rules'}"
        return f"{rows} {moved}, {changed:,} decided otherwise than by your model"

    def _repr_html_(self) -> str:
        """Return an HTML summary for notebooks: the decisions that differ from the model, and why."""
        return make_explanation_card(self).to_html()


def explain(policy: Policy, evidence: Evidence) -> Explanation:
    """Compute how much each rule adds to the score of each action on each row.

    Parameters
    ----------
    policy : Policy
        The policy.
    evidence : Evidence
        The rows to explain.

    Returns
    -------
    Explanation
        `baseline` (n_rows, n_actions), `pulls` (n_rows, n_rules, n_actions), `before`, `without_rules`,
        `after`, `moved` and `changed`.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> explain(policy, evidence)
    Explanation of 19 rows, 1 of them moved by 1 rule, 1 decided otherwise than by your model
    """
    rows = policy.feature_map.admit(policy.calibrate(evidence))
    features = policy.feature_map.columns(
        rows, slice(None), np.empty((len(policy.feature_map.features), len(rows)))
    )
    baseline, by_rule = _share_scores(policy)
    problem, space, scores = policy.problem, policy.action_space, features.T @ baseline
    without = None
    if isinstance(problem.minimize, Rate) and problem.minimize.is_linear:
        free = [action in list_free_options(problem.minimize, space) for action in space.actions]
        without = space.hard_decision(np.where(free, -np.inf, scores))
    pulls = np.zeros((len(rows), len(by_rule), len(policy.actions)))
    for j, matrix in enumerate(by_rule.values()):
        pulls[:, j] = features.T @ matrix + 0.0  # no -0.0
    # Prices and frequencies of a policy from a file are rounded: the remaining scores, except for terms that
    # are the same for all actions, are divided among the rules in proportion to their pulls.
    left = features.T @ policy.score_matrix - scores - pulls.sum(axis=1)
    left -= left.mean(axis=1, keepdims=True) if space.exclusive else 0.0
    sizes = np.abs(pulls).sum(axis=1)
    pulls += np.abs(pulls) * np.divide(left, sizes, out=np.zeros(left.shape), where=sizes > 0)[:, None]
    scores = scores + np.where(sizes > 0, 0.0, left)
    return Explanation(
        action_space=policy.action_space,
        rules=tuple(by_rule),
        baseline=scores,
        pulls=pulls,
        probabilities=policy.probabilities(evidence),
        before=space.hard_decision(decide_as_model(problem, rows, policy.frequencies)),
        without_rules=without,
    )


def _share_scores(policy: Policy) -> tuple[Floats, dict[str, Floats]]:
    """Split the score matrix (F, A) into a matrix of the objective and one matrix of each rule with a price.

    Return the matrix of the objective and a dict {rule: matrix}. They add up to the score matrix, except for
    terms that are the same for all actions.
    """
    feature_map, space = policy.feature_map, policy.action_space
    expanded = {str(one.rule): one for one in policy.expanded_rules}
    priced = [price for price in policy.rule_prices if price.multiplier]
    linear = [price for price in priced if price.rule in expanded and expanded[price.rule].rule.is_linear]
    others = [price for price in priced if price not in linear]
    couplings = compile_rates(
        feature_map, policy.frequencies, [expanded[price.rule].excess for price in linear]
    )
    pulls = [-price.multiplier * coupling for price, coupling in zip(linear, couplings, strict=True)]
    minimize = policy.linear_problem.minimize
    if not isinstance(minimize, Rate) or not minimize.resolve(space.classes).is_linear:
        if others:
            raise RuleError(
                f"the contributions of {_join(others)} and of minimize={minimize} cannot be separated, "
                "because both are about ratios: explain a policy that minimizes a rate such as error()"
            )
        rest = policy.score_matrix - sum(pulls, np.zeros(policy.score_matrix.shape))
        return rest, {price.rule: pull for price, pull in zip(linear, pulls, strict=True)}
    baseline = -compile_rates(feature_map, policy.frequencies, [minimize])[0]
    if policy.rounded and not others:
        baseline, *pulls = _scale_shares(policy, [baseline, *pulls])
    rest = policy.score_matrix - sum(pulls, np.zeros(policy.score_matrix.shape))
    named = dict(zip((price.rule for price in linear), pulls, strict=True))
    if others:
        named |= _share_quotients(policy, [expanded.get(one.rule) for one in others], others, rest - baseline)
    order = sorted(named, key=[*(price.rule for price in priced), *named].index)
    return baseline, {rule: named[rule] for rule in order}


def _scale_shares(policy: Policy, shares: Sequence[Floats]) -> list[Floats]:
    """Correct the matrices of the objective and the rules, (F, A) each, for rounded frequencies in a file.

    The scores of a feature were divided by the exact frequency of its condition, and the matrices by the
    rounded one. The entries of each condition are multiplied by the factor that makes up for this.
    """
    events = [feature.event for feature in policy.feature_map.features]
    total, factors = sum(shares, np.zeros(policy.score_matrix.shape)), np.ones((len(events), 1))
    for event in {event for event in events if event}:
        rows = [k for k, other in enumerate(events) if other == event]
        size = float(np.square(total[rows]).sum())
        factor = float((total[rows] * policy.score_matrix[rows]).sum() / size) if size else 1.0
        if 1 / _MOST_ROUNDED < factor < _MOST_ROUNDED:  # otherwise the multipliers are not unique
            factors[rows] = factor
    return [factors * share for share in shares]


def _share_quotients(
    policy: Policy, expanded: Sequence[ExpandedRule | None], prices: Sequence[RulePrice], rest: Floats
) -> dict[str, Floats]:
    """Split `rest` (F, A), the scores not explained by other matrices, between rules on ratios.

    A bound on a ratio that is multiplied by the denominator is linear, so that its multiplier follows from
    the scores. If rules compare ratios with each other, this is not possible, and they get one matrix
    together.
    """
    try:
        excesses = [one.excess for one in expanded if one is not None]
    except RuleError:  # rules that compare ratios with each other
        excesses = []
    if len(excesses) == len(prices):
        couplings = compile_rates(policy.feature_map, policy.frequencies, excesses)
        multipliers, missed = nnls(couplings.reshape(len(prices), -1).T, -rest.ravel())
        if missed <= _SAME * np.linalg.norm(rest):
            pairs = zip(prices, multipliers, couplings, strict=True)
            return {price.rule: -multiplier * coupling for price, multiplier, coupling in pairs}
    return {_join(prices): rest}


def _join(prices: Sequence[RulePrice]) -> str:
    return " and ".join(dict.fromkeys(price.statement for price in prices))
