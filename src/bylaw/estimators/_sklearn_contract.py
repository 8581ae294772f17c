"""Helpers for scikit-learn's conventions: cloning, random states, metadata routing, scorers of searches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from numbers import Integral, Real
from types import FrameType
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from bylaw._base import Floats, find_stack_level
from bylaw.errors import OptionError
from bylaw.language import Problem

_SCORER = {  # {kind of decisions: (True if scorers of labels raise an error, the reason)}
    "sets": (True, "compares single labels, but the decisions are sets of labels"),
    "reject": (False, "counts a rejection as a wrong label"),
    "options": (False, "counts an option as a wrong label"),
}
_INSTEAD = (
    "Leave out scoring=: the classifier's score() is one minus the expected cost, averaged over the random "
    "decisions"
)


def ensure_probabilities(estimator: Any, what: str) -> Any:
    """Return a classifier with `predict_proba`: the classifier itself, or a calibrated version of it.

    A classifier that has only `decision_function` is wrapped in `CalibratedClassifierCV`.
    """
    if hasattr(estimator, "predict_proba"):
        return estimator
    if hasattr(estimator, "decision_function"):
        return CalibratedClassifierCV(estimator)
    raise OptionError(
        f"{what} must be a classifier with predict_proba or decision_function, got {estimator!r}"
    )


def clone_unfitted(estimator: Any) -> Any:
    """Return an unfitted copy of one estimator, with a simpler type annotation than `clone`."""
    return clone(estimator)


def is_frozen(estimator: Any) -> bool:
    """Return True if the estimator is a `FrozenEstimator`, which is not trained again."""
    return isinstance(estimator, FrozenEstimator)


def is_fraction(cv: Any) -> bool:
    """Return True if `cv` is a fraction of the rows, for one split, and not a number of folds."""
    return isinstance(cv, Real) and not isinstance(cv, Integral)


def check_random_state(state: Any) -> None:
    """Raise an error unless the state is None, a seed, a RandomState or a Generator."""
    if state is None or isinstance(state, np.random.RandomState | np.random.Generator):
        return
    if isinstance(state, Integral) and not isinstance(state, bool) and 0 <= int(state) < 2**32:
        return
    raise OptionError(
        "random_state must be None, a whole number from 0 to 2**32 - 1, a numpy.random.Generator or a "
        f"numpy.random.RandomState, got {state!r}"
    )


def make_seed(state: Any) -> Any:
    """Return a random state that scikit-learn's splitters accept, which do not accept a `Generator`."""
    return int(state.integers(2**31)) if isinstance(state, np.random.Generator) else state


def make_generator(state: Any) -> np.random.Generator:
    """Return a numpy Generator for a random state.

    A seed gives the same numbers at each call; a `Generator` or `RandomState` gives new ones.
    """
    return np.random.default_rng(state.randint(2**31) if isinstance(state, np.random.RandomState) else state)


def make_router(owner: Any) -> MetadataRouter:
    """Return the metadata router of `fit`.

    It routes to the classifier itself, its estimator, group estimators, calibrator and splitter.
    """
    mapping = MethodMapping().add(caller="fit", callee="fit")
    router = MetadataRouter(owner=owner).add_self_request(owner)
    router.add(estimator=owner.estimator, method_mapping=mapping)
    models = owner.group_estimator
    for key, model in (models if isinstance(models, Mapping) else {None: models}).items():
        if model is not None:
            router.add(**{name_route(key): model}, method_mapping=mapping)
    if owner.calibrator is not None and not isinstance(owner.calibrator, str):
        router.add(calibrator=owner.calibrator, method_mapping=mapping)
    if hasattr(owner.cv, "get_metadata_routing"):
        router.add(splitter=owner.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return router


def name_route(key: Any) -> str:
    """Return the name of a group estimator in the metadata router; the key of a single model is None."""
    return "group_estimator" if key is None else f"group_estimator_{key}"


class Routes:
    """The extra arguments of a call of `fit`, distributed to the models and the splitter."""

    def __init__(self, owner: Any, weights: Floats | None, params: Mapping[str, Any], own: Mapping[str, Any]):
        self.weights = weights
        self.params = params
        self.routed: Any = None
        names = [name for name in signature(owner.fit).parameters if name not in ("X", "y", "params")]
        for name in params:  # a misspelled argument of `fit` is not one of the estimator's
            if close := get_close_matches(name, names, n=1, cutoff=0.8):
                raise OptionError(f"fit() got an unknown argument {name!r}; did you mean {close[0]!r}?")
        if get_config()["enable_metadata_routing"]:
            self.routed = process_routing(owner, "fit", sample_weight=weights, **own, **params)

    def select_params(self, name: str, model: Any) -> Mapping[str, Any]:
        """Return the keyword arguments for the `fit` of the model with this name in the router."""
        params = self.params if name == "estimator" else {}
        if is_frozen(model):
            if params and self.routed is None:
                raise OptionError(
                    f"fit() got {list(params)} for the estimator, which is frozen and not trained: leave "
                    "them out, or pass the estimator without FrozenEstimator"
                )
            return {}
        if self.routed is not None:
            return self.routed[name].fit
        if self.weights is None:
            return params
        step, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
        if "sample_weight" in signature(last.fit).parameters:
            return {f"{step}__sample_weight" if step else "sample_weight": self.weights, **params}
        warnings.warn(
            f"{type(model).__name__} does not accept sample_weight, so the weights are used for the policy "
            "only: use another model to train with weights",
            UserWarning,
            stacklevel=find_stack_level(),
        )
        return params

    @property
    def split_params(self) -> Mapping[str, Any]:
        """The keyword arguments for the `split` of the splitter."""
        return self.routed.splitter.split if self.routed is not None and "splitter" in self.routed else {}


def check_search(problem: Problem, needed: Sequence[str]) -> None:
    """Raise an error if `fit` runs inside a search whose scorer cannot score this classifier.

    The check is made in `fit` because scikit-learn reports its errors, but turns errors of a scorer into the
    score nan. `needed` names the arguments that `predict` and `score` need besides X: groups and earlier
    models.
    """
    # Find the scorers of the search in its frame on the stack.
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_fit_and_score":
        frame = frame.f_back
    if frame is None or not str(frame.f_globals.get("__name__")).startswith("sklearn."):
        return
    scorer = frame.f_locals.get("scorer")
    refused, reason = _SCORER.get(problem.kind, (False, ""))
    for one in getattr(scorer, "_scorers", {"score": scorer}).values():
        if type(one).__module__ != "sklearn.metrics._scorer":
            continue
        if type(one).__name__ == "_PassthroughScorer":  # the classifier's own score
            if needed and not get_config()["enable_metadata_routing"]:
                requests = ", ".join(f"{name}=True" for name in needed)
                raise OptionError(
                    f"the search passes {' and '.join(needed)} to fit, but not to score: enable metadata "
                    "routing before the search:\n"
                    "    sklearn.set_config(enable_metadata_routing=True)\n"
                    f"    clf = clf.set_fit_request({requests}).set_score_request({requests})"
                )
            continue
        # Any other scorer of scikit-learn compares predict(X) with labels.
        name = getattr(getattr(one, "_score_func", one), "__name__", "the scorer")
        message = (
            f"{name} {reason}. {_INSTEAD}. For another rate, pass a function: scoring=lambda clf, X, y: "
            "1 - clf.expected(rate, X, y)"
        )
        if refused:
            raise OptionError(message)
        if needed:
            raise OptionError(
                f"{name} calls predict without {' and '.join(needed)}, which predict needs. {_INSTEAD}"
            )
        if reason:
            warnings.warn(message, UserWarning, stacklevel=find_stack_level())
