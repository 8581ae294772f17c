"""Metadata routing: weights and other parameters for the fit of each model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from inspect import signature
from typing import Any

from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from bylaw._base.runtime import find_stack_level
from bylaw._base.typing import Floats
from bylaw.errors import OptionError
from bylaw.estimators.cross_fitting import is_frozen


def make_router(owner: Any, estimator: Any, group_estimator: Any, calibrator: Any, cv: Any) -> MetadataRouter:
    """Metadata of `fit` goes to the owner, the estimator, the models of groups and the splitter."""
    mapping = MethodMapping().add(caller="fit", callee="fit")
    several = isinstance(group_estimator, Mapping)
    models = group_estimator if several else {None: group_estimator} if group_estimator is not None else {}
    found = MetadataRouter(owner=owner).add_self_request(owner)
    found.add(estimator=estimator, method_mapping=mapping)
    for key, model in models.items():
        found.add(**{format_route(key): model}, method_mapping=mapping)
    if calibrator is not None:
        found.add(calibrator=calibrator, method_mapping=mapping)
    if hasattr(cv, "get_metadata_routing"):
        found.add(splitter=cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    return found


def format_route(key: Any) -> str:
    """The name by which metadata is routed to a model of groups; None stands for one model of all."""
    return "group_estimator" if key is None else f"group_estimator_{key}"


class Routes:
    """The parameters that each model and the splitter get from a call of `fit`."""

    def __init__(self, owner: Any, weights: Floats | None, params: Mapping[str, Any], own: Mapping[str, Any]):
        self.weights = weights
        self.params = params
        self.routed: Any = None
        _check_names(owner, params)
        if get_config()["enable_metadata_routing"]:
            self.routed = process_routing(owner, "fit", sample_weight=weights, **own, **params)

    def select_params(self, name: str, model: Any) -> Mapping[str, Any]:
        """Those for the `fit` of the model that the router has under this name."""
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
        last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
        if "sample_weight" in signature(last[1].fit).parameters:
            name = f"{last[0]}__sample_weight" if last[0] else "sample_weight"
            return {name: self.weights, **params}
        warnings.warn(
            f"{type(model).__name__} takes no sample_weight: only the policy uses the weights, and not the "
            "training of this model",
            UserWarning,
            stacklevel=find_stack_level(),
        )
        return params

    @property
    def split_params(self) -> Mapping[str, Any]:
        """Those for the splitter."""
        return self.routed.splitter.split if self.routed is not None and "splitter" in self.routed else {}


def _check_names(owner: Any, params: Mapping[str, Any]) -> None:
    """A misspelt argument of the owner's own `fit` is not one of the estimator's."""
    own = [name for name in signature(owner.fit).parameters if name not in ("X", "y", "params")]
    for name in params:
        if close := get_close_matches(name, own, n=1, cutoff=0.8):
            raise OptionError(f"fit() has no argument {name!r}; did you mean {close[0]!r}?")
