"""Why a row is decided as it is: scores are sums over rules, so each rule's share is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base.typing import Floats, Value
from bylaw.data.arrays import frame_of
from bylaw.data.evidence import Evidence
from bylaw.formulation.dual import block_of
from bylaw.formulation.linear_form import compile_problem
from bylaw.policy.policy import Policy


@dataclass(frozen=True, repr=False)
class Explanation:
    """score = alone + pulls, summed over rules; the law is softmax(beta * score).

    All in the unit of what is minimised: `alone` is minus the cost of an action, and a pull of 0.1
    towards it is worth as much as 0.1 less cost. For sets, a label with a score above zero is likelier
    in than out.
    """

    actions: tuple[Value, ...]
    rules: tuple[str, ...]  # those with a price; the others move nothing
    alone: Floats  # (n_rows, n_actions): minus the cost of each action
    pulls: Floats  # (n_rows, n_rules, n_actions)
    probabilities: Floats  # (n_rows, n_actions)
    n_classes: int
    sets: bool  # actions are labels to include

    @property
    def scores(self) -> Floats:
        """(n_rows, n_actions)."""
        return self.alone + self.pulls.sum(axis=1)

    @property
    def before(self) -> NDArray[Any]:
        """Positions of the model's own answers: the best labels without rules, none rejected, (n_rows,);
        for sets, membership, (n_rows, K)."""
        return self.alone > 0 if self.sets else self.alone[:, : self.n_classes].argmax(axis=1)

    @property
    def after(self) -> NDArray[Any]:
        """Positions of the best actions under the rules; for sets, membership."""
        return self.scores > 0 if self.sets else self.scores.argmax(axis=1)

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Whether the rules changed the best decision, (n_rows,)."""
        changed = self.before != self.after
        return changed.any(axis=1) if self.sets else changed

    def to_frame(self, like: Any = None) -> Any:
        """One line per row and action, one column per rule: alone + rules = score.

        A frame of the library of `like`, or else of the first installed of pandas, polars, pyarrow.
        """
        n_rows, n_actions = self.alone.shape
        pulls = {rule: self.pulls[:, j].ravel() for j, rule in enumerate(self.rules)}
        columns = {
            "row": np.repeat(np.arange(n_rows), n_actions),
            "action": list(self.actions) * n_rows,
            "probability": self.probabilities.ravel(),
            "alone": self.alone.ravel(),
            **pulls,
            "score": self.scores.ravel(),
        }
        return frame_of(columns, like)

    def __repr__(self) -> str:
        return (
            f"Explanation of {len(self.alone)} rows, {int(self.moved.sum())} of them moved by "
            f"{len(self.rules)} rules"
        )


def explain(policy: Policy, evidence: Evidence) -> Explanation:
    """For each row, how each rule pulls at each action."""
    admitted = policy.recipe.admit(evidence)
    form = compile_problem(policy.problem, admitted, policy.frequencies)
    features = block_of(form, form.recipe.admit(admitted)).features
    prices = [(name, price) for name, price in policy.multipliers.items() if price]
    couplings = sparse.csr_array(form.couplings * form.scales[:, None])
    pulls = np.empty((len(evidence), len(prices), len(policy.actions)))
    for j, (name, price) in enumerate(prices):
        coupling = couplings[[form.names.index(name)]].toarray().reshape(form.base.shape)
        pulls[:, j] = -price * (features.T @ coupling) + 0.0  # no -0.0
    return Explanation(
        actions=policy.actions,
        rules=tuple(name for name, _ in prices),
        alone=-(features.T @ form.base),
        pulls=pulls,
        probabilities=policy.probabilities(evidence),
        n_classes=len(policy.decisions.classes),
        sets=policy.decisions.kind == "sets",
    )
