"""Why a row is decided as it is: scores are sums over rules, so each rule's share is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats, Value
from bylaw.data.arrays import make_frame
from bylaw.data.evidence import Evidence
from bylaw.formulation.blocks import make_block
from bylaw.formulation.linear_form import compile_problem
from bylaw.language.action_space import ActionSpace
from bylaw.policy.explanation_view import format_html
from bylaw.policy.policy import Policy


@dataclass(frozen=True, repr=False)
class Explanation:
    """Exact shares of each rule in each score: score = baseline + pulls, summed over rules; the probabilities
    are softmax(beta * score). Made by `explain`.

    All in the unit of what is minimised: `baseline` is minus the cost of an action, and a pull of 0.1
    towards it is worth as much as 0.1 less cost. For sets, a label with a score above zero is likelier
    in than out.
    """

    action_space: ActionSpace
    rules: tuple[str, ...]  # those with a price; the others move nothing
    baseline: Floats  # (n_rows, n_actions): minus the cost of each action
    pulls: Floats  # (n_rows, n_rules, n_actions)
    probabilities: Floats  # (n_rows, n_actions)

    @property
    def actions(self) -> tuple[Value, ...]:
        return self.action_space.actions

    @property
    def scores(self) -> Floats:
        """(n_rows, n_actions)."""
        return self.baseline + self.pulls.sum(axis=1)

    @property
    def before(self) -> NDArray[Any]:
        """Positions of the model's own answers: the best labels without rules, no options, (n_rows,); for
        sets, membership, (n_rows, K); where there are no labels, the best options."""
        return self.action_space.hard_decision(self.baseline[:, : len(self.action_space.model_actions)])

    @property
    def after(self) -> NDArray[Any]:
        """Positions of the best actions under the rules; for sets, membership."""
        return self.action_space.hard_decision(self.scores)

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Whether the rules changed the best decision, (n_rows,)."""
        return (self.before != self.after).reshape(len(self.baseline), -1).any(axis=1)

    def to_frame(self, like: Any = None) -> Any:
        """One line per row and action, one column per rule: baseline + rules = score.

        A frame of the library of `like`, or else of the first installed of pandas, polars, pyarrow.
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
        return (
            f"Explanation of {len(self.baseline)} rows, {int(self.moved.sum())} of them moved by "
            f"{len(self.rules)} rules"
        )

    def _repr_html_(self) -> str:
        """How many rows are decided otherwise, and why, for notebooks."""
        return format_html(self)


def explain(policy: Policy, evidence: Evidence) -> Explanation:
    """For each row, how each rule pulls at each action.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence
        the rows to explain.

    Returns
    -------
    Explanation
        `baseline` (n_rows, n_actions), `pulls` (n_rows, n_rules, n_actions), `before`, `after`, `moved`.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> explain(policy, evidence)
    Explanation of 19 rows, 1 of them moved by 1 rules
    """
    admitted = policy.feature_map.admit(policy.calibrate(evidence))
    form = compile_problem(policy.linear_problem, admitted, policy.frequencies)
    features = make_block(form, form.feature_map.admit(admitted)).features
    priced = [(j, price) for j, price in enumerate(policy.rule_prices) if price.multiplier]
    couplings = sparse.csr_array(form.couplings * form.scales[:, None])
    pulls = np.empty((len(evidence), len(priced), len(policy.actions)))
    for place, (j, price) in enumerate(priced):
        coupling = couplings[[j]].toarray().reshape(form.base.shape)
        pulls[:, place] = -price.multiplier * (features.T @ coupling) + 0.0  # no -0.0
    return Explanation(
        action_space=policy.action_space,
        rules=tuple(price.rule for _, price in priced),
        baseline=-(features.T @ form.base),
        pulls=pulls,
        probabilities=policy.probabilities(evidence),
    )
