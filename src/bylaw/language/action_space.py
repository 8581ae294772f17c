"""Action spaces: a decision is a label, a label or an option such as a rejection, or a set of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bylaw._base.numeric import normalize, separate, sigmoid, softmax, split_labels
from bylaw._base.typing import Floats, Value
from bylaw.errors import BylawError, Remedy, RuleError

Kind = Literal["labels", "reject", "options", "sets"]
# From distributions (n_options, n_rows) and the suffix of their keys to sampled positions (n_rows,).
Sampler = Callable[[Sequence[Floats], str], Iterator[NDArray[np.int64]]]


@dataclass(frozen=True)
class ActionSpace:
    """The actions that a policy chooses from, and how scores become their probabilities.

    Parameters
    ----------
    classes : tuple
        the labels.
    reject : str, int, float or bool
        the label that a rejection gets, where there are rejections.
    options : tuple
        the actions that are no labels.
    """

    classes: tuple[Value, ...]
    reject: Value = "reject"
    options: tuple[Value, ...] = ()

    kind: ClassVar[Kind]
    description: ClassVar[str]  # what a decision is, in words
    exclusive: ClassVar[bool] = True  # exactly one action is taken, so that probabilities sum to one

    def __post_init__(self) -> None:
        if self.options:
            raise RuleError(f"a decision is {self.description}: there are no options {list(self.options)}")

    @property
    def actions(self) -> tuple[Value, ...]:
        """The labels, then the options."""
        return (*self.classes, *self.options)

    @property
    def model_actions(self) -> tuple[Value, ...]:
        """The actions of your model: the labels, or the options if there are no labels."""
        return self.classes or self.options

    @property
    def reference_actions(self) -> tuple[Value, ...]:
        """The actions that an earlier model's decision can agree with: all but a rejection."""
        place = self.reject_position
        return tuple(action for i, action in enumerate(self.actions) if i != place)

    @property
    def named_options(self) -> tuple[Value, ...]:
        """The options that a problem or the evidence lists; a rejection alone needs no list."""
        return ()

    @property
    def decisions(self) -> Kind | tuple[Value, ...]:
        """The argument of `Problem(decisions=)` for this space."""
        return self.actions if self.named_options else self.kind

    @property
    def reject_position(self) -> int | None:
        """The place of a rejection among the actions, if there is one."""
        return self._positions[self.reject] if self.reject in self.options else None

    @classmethod
    def choose_phrase(cls, phrase: str, set_phrase: str) -> str:
        """Return the wording of a rate or family for these decisions."""
        return phrase

    def position(self, action: Value) -> int:
        return self._positions[action]

    def find_decision(self, decision: Any) -> Value:
        """Return the decision that a rate is given; raise if it does not exist."""
        if decision not in self.actions:
            raise RuleError(
                f"given(decision={decision!r}): no such decision; the decisions are {list(self.actions)}"
            )
        return decision

    @cached_property
    def _positions(self) -> dict[Value, int]:
        """The place of each action, the first if there are several."""
        return {action: place for place, action in reversed(list(enumerate(self.actions)))}

    @property
    def entropy(self) -> float:
        """The largest entropy of one decision: log|A|, or K log 2 for sets."""
        return math.log(len(self.actions))

    def to_probabilities(self, scores: Floats) -> Floats:
        """Turn scores (n_actions, n_rows), times beta, into probabilities in place.

        Returns the potential of each row, (n_rows,): log-sum-exp, or the sum of softplus.
        """
        return softmax(scores)

    def normalize(self, scores: Floats, out: Floats) -> None:
        """Write the probabilities of scores (n_actions, n_rows), which are overwritten, to `out`."""
        normalize(scores, out)

    def curvature_diagonal(self, probabilities: Floats) -> Floats:
        """Return pi_a of the potential's derivative, pi_a 1{a = b} - pi_a pi_b, (n_actions, n_rows)."""
        return probabilities

    def decision_confidence(self, probabilities: Floats) -> Floats:
        """Return the probability of the likeliest action, (n_rows,).

        Probabilities are (n_rows, n_actions).
        """
        return probabilities.max(axis=1)

    @property
    def rivals(self) -> tuple[Value, ...]:
        """The actions of which one is taken; none of sets."""
        return self.actions

    def compare_actions(self, costs: Floats) -> Floats:
        """Return the differences of costs (..., n_actions) to the first action; of sets, the costs."""
        return costs[..., 1:] - costs[..., :1]

    def min_loss(self, losses: Floats) -> Floats:
        """Return the loss of the best decision on each row, (n_rows,), of losses (n_actions, n_rows)."""
        return losses.min(axis=0)

    def best_decision(self, losses: Floats) -> Floats:
        """Return one for the actions of the best decision on a row, else zero, (n_actions, n_rows)."""
        best = np.zeros(losses.shape)
        best[losses.argmin(axis=0), np.arange(losses.shape[1])] = 1.0
        return best

    def hard_decision(self, scores: Floats) -> NDArray[Any]:
        """Return the positions, (n_rows,), of the largest score on each row of (n_rows, n_actions)."""
        return scores.argmax(axis=1)

    def harden(self, probabilities: Floats) -> Floats:
        """Return one for the likeliest action of each row, of equal ones the first, else zero.

        Probabilities are (n_actions, n_rows).
        """
        return self.best_decision(-probabilities)

    def constant_decisions(self) -> Floats:
        """Return decisions that are the same for every row, (n_decisions, n_actions)."""
        return np.eye(len(self.actions))

    def combine_ranges(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Return the range of a decision's total, (n,) each, of ranges of actions, (n, n_actions)."""
        return low.min(axis=1), high.max(axis=1)

    def combine_norms(self, squares: Floats, crosses: Floats, bounds: float) -> Floats:
        """Return the largest |c - b| of a decision on each row, (n_rows,).

        `squares` are |c_a|^2 and `crosses` 2 c_a'b, (n_actions, n_rows) each; `bounds` is |b|^2.
        """
        return np.sqrt(np.maximum((squares - crosses).max(axis=0) + bounds, 0.0))

    def sample(self, probabilities: Floats, sampler: Sampler) -> NDArray[Any]:
        """Return sampled positions of actions, (n_rows,), of probabilities (n_actions, n_rows)."""
        return next(sampler([probabilities], ""))

    def name_decisions(self, sampled: NDArray[Any]) -> NDArray[Any]:
        """Return decisions, (n_rows,), from the result of `sample`."""
        return self.action_array()[sampled]

    def list_decision_columns(self) -> list[str]:
        """Return the columns of decisions in a table."""
        return ["decision"]

    def action_array(self) -> NDArray[Any]:
        """Return the actions as an array, of objects if they are of several types."""
        if len({type(action) for action in self.actions}) == 1:
            return np.array(self.actions)
        return np.array(self.actions, dtype=object)


class LabelSpace(ActionSpace):
    """One label per row."""

    kind = "labels"
    description = "one label per row"


@dataclass(frozen=True)
class OptionSpace(ActionSpace):
    """One label per row, or one of the options beside the labels.

    An option is an expert, a queue or a model to call, and never an error. Without classes, one option per
    row.
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
    """One label per row, or a rejection: the one option that needs no name of its own."""

    kind = "reject"
    description = "one label per row, or a rejection"

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", (self.reject,))
        if str(self.reject) in map(str, self.classes):
            raise RuleError(
                f"the label of a rejection, {self.reject!r}, is also a class", Remedy("choose_reject")
            )

    @property
    def named_options(self) -> tuple[Value, ...]:
        return ()


class SetSpace(ActionSpace):
    """A set of labels per row: each label is included, or not, independently of the others."""

    kind = "sets"
    description = "a set of labels per row"
    exclusive = False

    @classmethod
    def choose_phrase(cls, phrase: str, set_phrase: str) -> str:
        return set_phrase or phrase

    def find_decision(self, decision: Any) -> Value:
        raise RuleError(
            f"given(decision={decision!r}): a set of labels is not one decision; use precision(label), how "
            "often a label that is in a set is the true one"
        )

    @property
    def entropy(self) -> float:
        return len(self.classes) * math.log(2)

    def to_probabilities(self, scores: Floats) -> Floats:
        return sigmoid(scores)

    def normalize(self, scores: Floats, out: Floats) -> None:
        separate(scores, out)

    def curvature_diagonal(self, probabilities: Floats) -> Floats:
        """Return pi_a (1 - pi_a), (n_actions, n_rows); labels are independent."""
        return probabilities * (1 - probabilities)

    def decision_confidence(self, probabilities: Floats) -> Floats:
        """Return the confidence, (n_rows,), in the label that is least certain to be in or out."""
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
        """Return one for labels that are more likely in than out, else zero, (n_classes, n_rows)."""
        return (probabilities > 0.5).astype(np.float64)

    def constant_decisions(self) -> Floats:
        count = len(self.classes)
        return np.vstack([np.eye(count), np.zeros(count), np.ones(count)])

    def combine_ranges(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return np.minimum(low, 0.0).sum(axis=1), np.maximum(high, 0.0).sum(axis=1)

    def combine_norms(self, squares: Floats, crosses: Floats, bounds: float) -> Floats:
        """Return the largest norm: a set may hold every label, so their norms add up."""
        return np.sqrt(np.maximum(squares, 0.0)).sum(axis=0) + math.sqrt(bounds)

    def sample(self, probabilities: Floats, sampler: Sampler) -> NDArray[Any]:
        """Return sampled membership of each label, (n_rows, n_classes)."""
        inside = sampler([np.stack([chance, 1 - chance]) for chance in probabilities], "/{}")
        return np.column_stack([position == 0 for position in inside])

    def name_decisions(self, sampled: NDArray[Any]) -> NDArray[Any]:
        """Return the membership of each label, (n_rows, n_classes), as sampled."""
        return sampled

    def list_decision_columns(self) -> list[str]:
        """Return a column for the membership of each label."""
        return [f"in_{label}" for label in self.actions]


ACTION_SPACES: dict[Kind, type[ActionSpace]] = {
    space.kind: space for space in (LabelSpace, RejectSpace, OptionSpace, SetSpace)
}


def check_options(options: Sequence[Value], classes: Sequence[Value], error: type[BylawError]) -> None:
    """Raise unless options differ from each other and from the classes, also as text."""
    taken = list(map(str, classes))
    for option in options:
        if str(option) in taken:
            known = "a class" if str(option) in map(str, classes) else "stated twice"
            raise error(f"the option {option!r} is also {known}; give every decision a name of its own")
        taken.append(str(option))


def make_action_space(
    kind: Kind, classes: Sequence[Value], reject: Value = "reject", options: Sequence[Value] = ()
) -> ActionSpace:
    """Return the action space of a kind over these classes; only "options" takes options."""
    if kind not in ACTION_SPACES:
        raise RuleError(
            f"decisions must be 'labels', 'reject' or 'sets', or a list of labels and options, not {kind!r}"
        )
    if kind == OptionSpace.kind and classes and tuple(options) == (reject,):
        kind = RejectSpace.kind
    return ACTION_SPACES[kind](tuple(classes), reject, tuple(options))
