"""Action spaces: a decision is a label, a label or an option such as a rejection, or a set of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Value, normalize, separate, sigmoid, softmax, split_labels
from bylaw.errors import BylawError, Remedy, RuleError

Kind = Literal["labels", "reject", "options", "sets"]
# A function of distributions (n_options, n_rows) and the suffix of the random keys; yields indices (n_rows,).
Sampler = Callable[[Sequence[Floats], str], Iterator[NDArray[np.int64]]]


@dataclass(frozen=True)
class ActionSpace:
    """The actions that a policy can take, and how scores of the actions become probabilities.

    Parameters
    ----------
    classes : tuple
        The labels.
    reject : str, int, float or bool
        The name of a rejection among the decisions, if rejections are possible.
    options : tuple
        The actions that are not labels.
    """

    classes: tuple[Value, ...]
    reject: Value = "reject"
    options: tuple[Value, ...] = ()

    kind: ClassVar[Kind]
    description: ClassVar[str]  # what a decision is, for messages
    exclusive: ClassVar[bool] = True  # exactly one action is taken, so that probabilities sum to one

    def __post_init__(self) -> None:
        if self.options:
            raise RuleError(
                f"options must be empty if a decision is {self.description}, got {list(self.options)}"
            )

    @property
    def actions(self) -> tuple[Value, ...]:
        """The labels, then the options."""
        return (*self.classes, *self.options)

    @property
    def model_actions(self) -> tuple[Value, ...]:
        """The actions that the user's model predicts: the labels, or the options if there are no labels."""
        return self.classes or self.options

    @property
    def reference_actions(self) -> tuple[Value, ...]:
        """The actions that an earlier model can have predicted: all except a rejection."""
        place = self.reject_position
        return tuple(action for i, action in enumerate(self.actions) if i != place)

    @property
    def named_options(self) -> tuple[Value, ...]:
        """The options that a problem or the evidence must list; a rejection alone need not be listed."""
        return ()

    @property
    def decisions(self) -> Kind | tuple[Value, ...]:
        """The argument `decisions` of `Problem` that gives this action space."""
        return self.actions if self.named_options else self.kind

    @property
    def reject_position(self) -> int | None:
        """The index of the rejection among the actions; None without rejections."""
        return self._positions[self.reject] if self.reject in self.options else None

    @classmethod
    def choose_phrase(cls, phrase: str, set_phrase: str) -> str:
        """Return the phrase that fits these decisions: `set_phrase` if decisions are sets, else `phrase`."""
        return phrase

    def position(self, action: Value) -> int:
        return self._positions[action]

    def find_decision(self, decision: Any) -> Value:
        """Return the decision in a condition `given(decision=...)`; raise if it is not one of the actions."""
        if decision not in self.actions:
            raise RuleError(f"decision in given() must be one of {list(self.actions)}, got {decision!r}")
        return decision

    @cached_property
    def _positions(self) -> dict[Value, int]:
        """The index of each action, the first one if an action occurs several times."""
        return {action: place for place, action in reversed(list(enumerate(self.actions)))}

    @property
    def entropy(self) -> float:
        """The largest possible entropy of one decision: log(n_actions), or n_classes * log(2) for sets."""
        return math.log(len(self.actions))

    def to_probabilities(self, scores: Floats) -> Floats:
        """Convert scores (n_actions, n_rows), already multiplied by beta, into probabilities in place.

        Return the potential of each row, (n_rows,): the log-sum-exp of its scores, or for sets the sum of
        their softplus.
        """
        return softmax(scores)

    def normalize(self, scores: Floats, out: Floats) -> None:
        """Write the probabilities of `scores` (n_actions, n_rows) to `out`; `scores` is overwritten."""
        normalize(scores, out)

    def curvature_diagonal(self, probabilities: Floats) -> Floats:
        """Return the diagonal terms of the Jacobian of each row's probabilities, (n_actions, n_rows).

        The Jacobian with respect to the scores is p_a 1{a = b} - p_a p_b, and its diagonal terms are the p_a.
        """
        return probabilities

    def decision_confidence(self, probabilities: Floats) -> Floats:
        """Return the probability of the most likely action of each row, (n_rows,).

        `probabilities` has shape (n_rows, n_actions).
        """
        return probabilities.max(axis=1)

    @property
    def rivals(self) -> tuple[Value, ...]:
        """The mutually exclusive actions; empty for sets, whose labels do not exclude each other."""
        return self.actions

    def compare_actions(self, costs: Floats) -> Floats:
        """Return costs (..., n_actions) minus the first action's cost; for sets, return them unchanged."""
        return costs[..., 1:] - costs[..., :1]

    def min_loss(self, losses: Floats) -> Floats:
        """Return the loss of the best decision on each row, (n_rows,), from losses (n_actions, n_rows)."""
        return losses.min(axis=0)

    def best_decision(self, losses: Floats) -> Floats:
        """Return 1 for the actions in the best decision of each row and 0 for others, (n_actions, n_rows)."""
        best = np.zeros(losses.shape)
        best[losses.argmin(axis=0), np.arange(losses.shape[1])] = 1.0
        return best

    def hard_decision(self, scores: Floats) -> NDArray[Any]:
        """Return the index of the largest score on each row, (n_rows,), from scores (n_rows, n_actions)."""
        return scores.argmax(axis=1)

    def harden(self, probabilities: Floats) -> Floats:
        """Return 1 for the most likely action of each row (the first of equal ones) and 0 for the others.

        `probabilities` and the result have shape (n_actions, n_rows).
        """
        return self.best_decision(-probabilities)

    def constant_decisions(self) -> Floats:
        """Return decisions that are the same for every row, as 0 and 1, (n_decisions, n_actions)."""
        return np.eye(len(self.actions))

    def combine_ranges(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of a decision, (n,) each.

        `low` and `high`, (n, n_actions), are the smallest and largest values of each action.
        """
        return low.min(axis=1), high.max(axis=1)

    def combine_norms(self, squares: Floats, crosses: Floats, bounds: float) -> Floats:
        """Return, for each row, the largest norm |c - b| over all decisions, (n_rows,).

        c is the vector of coefficients of a decision and b the vector of bounds. `squares` contains |c_a|^2
        and `crosses` 2 c_a'b for each action a, (n_actions, n_rows) each; `bounds` is |b|^2.
        """
        return np.sqrt(np.maximum((squares - crosses).max(axis=0) + bounds, 0.0))

    def sample(self, probabilities: Floats, sampler: Sampler) -> NDArray[Any]:
        """Sample a decision for each row from probabilities (n_actions, n_rows).

        Return the indices of actions, (n_rows,), or for sets whether each label is included, (n_rows,
        n_classes).
        """
        return next(sampler([probabilities], ""))

    def name_decisions(self, sampled: NDArray[Any]) -> NDArray[Any]:
        """Convert the result of `sample` into decisions, (n_rows,)."""
        return self.action_array()[sampled]

    def list_decision_columns(self) -> list[str]:
        """Return the names of the columns that contain the decisions in a table."""
        return ["decision"]

    def action_array(self) -> NDArray[Any]:
        """Return the actions as an array, with dtype object if they have different types."""
        if len({type(action) for action in self.actions}) == 1:
            return np.array(self.actions)
        return np.array(self.actions, dtype=object)


class LabelSpace(ActionSpace):
    """The action space in which a decision is one label."""

    kind = "labels"
    description = "one label per row"


@dataclass(frozen=True)
class OptionSpace(ActionSpace):
    """The action space in which a decision is one label, or one of the options beside the labels.

    An option is an expert, a queue or a model to call, and never counts as an error. Without classes, a
    decision is one option.
    """

    kind = "options"
    description = "one label per row, or an option"

    def __post_init__(self) -> None:
        check_options(self.options, self.classes, RuleError)

    @property
    def named_options(self) -> tuple[Value, ...]:
        return self.options


@dataclass(frozen=True)
class RejectSpace(OptionSpace):
    """The action space in which a decision is one label or a rejection, the only option."""

    kind = "reject"
    description = "one label per row, or a rejection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", (self.reject,))
        if str(self.reject) in map(str, self.classes):
            raise RuleError(
                f"reject must differ from all classes, got {self.reject!r}",
                Remedy("choose_reject"),
            )

    @property
    def named_options(self) -> tuple[Value, ...]:
        return ()


class SetSpace(ActionSpace):
    """The action space in which a decision is a set: each label is included, or not, independently."""

    kind = "sets"
    description = "a set of labels per row"
    exclusive = False

    @classmethod
    def choose_phrase(cls, phrase: str, set_phrase: str) -> str:
        return set_phrase or phrase

    def find_decision(self, decision: Any) -> Value:
        raise RuleError(
            f"given(decision={decision!r}) is not defined if decisions are sets; use precision(label), the "
            "probability that a label in a set is the true one"
        )

    @property
    def entropy(self) -> float:
        return len(self.classes) * math.log(2)

    def to_probabilities(self, scores: Floats) -> Floats:
        return sigmoid(scores)

    def normalize(self, scores: Floats, out: Floats) -> None:
        separate(scores, out)

    def curvature_diagonal(self, probabilities: Floats) -> Floats:
        """Return p_a (1 - p_a), (n_actions, n_rows), since labels are included independently."""
        return probabilities * (1 - probabilities)

    def decision_confidence(self, probabilities: Floats) -> Floats:
        """Return the confidence in the most uncertain label of each row, max(p, 1 - p), (n_rows,)."""
        return np.maximum(probabilities, 1 - probabilities).min(axis=1)

    @property
    def rivals(self) -> tuple[Value, ...]:
        return ()

    def compare_actions(self, costs: Floats) -> Floats:
        return costs

    def min_loss(self, losses: Floats) -> Floats:
        parts = (np.minimum(part, 0.0).sum(axis=0) for part in split_labels(losses))
        return sum(parts, np.zeros(losses.shape[1]))

    def best_decision(self, losses: Floats) -> Floats:
        return (losses < 0).astype(np.float64)

    def hard_decision(self, scores: Floats) -> NDArray[Any]:
        """Return whether each label is in the set, (n_rows, n_classes)."""
        return scores > 0

    def harden(self, probabilities: Floats) -> Floats:
        """Return 1 for labels with a probability above 0.5 and 0 for the others, (n_classes, n_rows)."""
        return (probabilities > 0.5).astype(np.float64)

    def constant_decisions(self) -> Floats:
        count = len(self.classes)
        return np.vstack([np.eye(count), np.zeros(count), np.ones(count)])

    def combine_ranges(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return np.minimum(low, 0.0).sum(axis=1), np.maximum(high, 0.0).sum(axis=1)

    def combine_norms(self, squares: Floats, crosses: Floats, bounds: float) -> Floats:
        """Return an upper bound of the largest norm: a set can contain all labels, so norms are added."""
        return np.sqrt(np.maximum(squares, 0.0)).sum(axis=0) + math.sqrt(bounds)

    def sample(self, probabilities: Floats, sampler: Sampler) -> NDArray[Any]:
        """Sample whether each label is in the set, (n_rows, n_classes)."""
        inside = sampler([np.stack([chance, 1 - chance]) for chance in probabilities], "/{}")
        return np.column_stack([position == 0 for position in inside])

    def name_decisions(self, sampled: NDArray[Any]) -> NDArray[Any]:
        """Return the sampled membership of each label, (n_rows, n_classes), unchanged."""
        return sampled

    def list_decision_columns(self) -> list[str]:
        """Return the name of one column per label, for whether the set contains the label."""
        return [f"in_{label}" for label in self.actions]


ACTION_SPACES: dict[Kind, type[ActionSpace]] = {
    space.kind: space for space in (LabelSpace, RejectSpace, OptionSpace, SetSpace)
}


def check_options(options: Sequence[Value], classes: Sequence[Value], error: type[BylawError]) -> None:
    """Raise `error` if an option occurs twice or equals a class, compared as text."""
    taken = list(map(str, classes))
    for option in options:
        if str(option) in taken:
            known = "is also a class" if str(option) in map(str, classes) else "occurs twice"
            raise error(f"options must differ from each other and from the classes: {option!r} {known}")
        taken.append(str(option))


def make_action_space(
    kind: Kind, classes: Sequence[Value], reject: Value = "reject", options: Sequence[Value] = ()
) -> ActionSpace:
    """Return the action space of a kind for these classes; only the kind "options" uses `options`."""
    if kind not in ACTION_SPACES:
        raise RuleError(
            f"decisions must be 'labels', 'reject' or 'sets', or a list of labels and options, got {kind!r}"
        )
    if kind == OptionSpace.kind and classes and tuple(options) == (reject,):
        kind = RejectSpace.kind
    return ACTION_SPACES[kind](tuple(classes), reject, tuple(options))
