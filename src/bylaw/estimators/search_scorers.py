"""Cross-validation and grid searches: what their scorers cannot do is said by `fit`, before they fail one by
one. scikit-learn turns an error of a scorer into a score that is nan, and an error of every fit into one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from sklearn import get_config

from bylaw._base.runtime import find_stack_level
from bylaw.errors import OptionError
from bylaw.language.problem import Problem

_SCORERS = "sklearn.metrics._scorer"
_CALLER = "_fit_and_score"  # of scikit-learn's searches; its argument `scorer` scores the fitted model
_FINDINGS = {  # by kind of decisions: whether a scorer of labels is refused, and why
    "sets": (True, "compares one label per row, and the decisions are sets of labels"),
    "reject": (False, "takes a rejection for a wrong label"),
    "options": (False, "takes an option for a wrong label"),
}
_INSTEAD = (
    "Leave out scoring=: score() is one minus the expected cost, with the randomness of the decisions "
    "integrated out"
)
_ANOTHER = ". For another rate, pass a function: scoring=lambda clf, X, y: 1 - clf.expected(rate, X, y)"


def check_search(problem: Problem, known_groups: Sequence[str], references: Sequence[str]) -> None:
    """Where `fit` is called by a search: refuse a scorer that cannot score, with what to write instead.

    `known_groups` and `references` are columns that `predict` and `score` need beside X.
    """
    for scorer in _find_scorers():
        by_score = type(scorer).__name__ == "_PassthroughScorer"  # the classifier's own
        wanted = [
            name for name, found in (("sensitive_features", known_groups), ("reference", references)) if found
        ]
        if not by_score:
            _check_scorer(scorer, problem, wanted)
        elif wanted and not get_config()["enable_metadata_routing"]:
            requests = ", ".join(f"{name}=True" for name in wanted)
            raise OptionError(
                f"the search gives {' and '.join(wanted)} to fit, but not to score: that takes metadata "
                "routing. Write before it:\n"
                "    sklearn.set_config(enable_metadata_routing=True)\n"
                f"    clf = clf.set_fit_request({requests}).set_score_request({requests})"
            )


def _check_scorer(scorer: Any, problem: Problem, wanted: Sequence[str]) -> None:
    """A scorer of scikit-learn, such as "accuracy": it compares `predict(X)` with the labels."""
    name = getattr(getattr(scorer, "_score_func", scorer), "__name__", "the scorer")
    refused, finding = _FINDINGS.get(problem.kind, (False, ""))
    if refused:
        raise OptionError(f"{name} {finding}. {_INSTEAD}{_ANOTHER}")
    if wanted:
        raise OptionError(
            f"{name} calls predict without the {' and '.join(wanted)} that it needs. {_INSTEAD}"
        )
    if finding:
        message = f"{name} {finding}. {_INSTEAD}{_ANOTHER}"
        warnings.warn(message, UserWarning, stacklevel=find_stack_level())


def _find_scorers() -> Iterator[Any]:
    """The scorers of scikit-learn by which a search that called us will score."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != _CALLER:
        frame = frame.f_back
    if frame is None or not str(frame.f_globals.get("__name__")).startswith("sklearn."):
        return
    found = frame.f_locals.get("scorer")
    for scorer in getattr(found, "_scorers", {"score": found}).values():
        if type(scorer).__module__ == _SCORERS:
            yield scorer
