"""Methods that a classifier has for some kinds of decisions only."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any


class AvailableMethod:
    """A method that is there for decisions that are sets of labels, or for the others; an `AttributeError`
    otherwise, which says what to use. scikit-learn's `available_if` hides that in the cause of its own."""

    def __init__(self, method: Callable[..., Any], sets: bool, instead: str) -> None:
        self.method, self.sets, self.instead = method, sets, instead
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, classifier: Any, owner: type | None = None) -> Any:
        if classifier is None:
            return self.method
        if (classifier._decision_kind == "sets") != self.sets:
            raise AttributeError(self.instead)
        return MethodType(self.method, classifier)


def available_for(sets: bool, instead: str) -> Callable[[Callable[..., Any]], Any]:
    """A decorator; `instead` says what to use where the method is not there."""
    return lambda method: AvailableMethod(method, sets, instead)
