"""Who gets which metadata: weights and other parameters for the fit of each model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from inspect import signature
from typing import Any

from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from bylaw.conditional.crossfit import is_frozen
from bylaw.decisions import Floats


def router(owner: Any, estimator: Any, group_estimator: Any) -> MetadataRouter:
    """Metadata of `fit` goes to the owner, to the estimator, and to the models of groups."""
    mapping = MethodMapping().add(caller="fit", callee="fit")
    several = isinstance(group_estimator, Mapping)
    models = group_estimator if several else {None: group_estimator} if group_estimator is not None else {}
    found = MetadataRouter(owner=owner).add_self_request(owner)
    found.add(estimator=estimator, method_mapping=mapping)
    for key, model in models.items():
        found.add(**{name_of(key): model}, method_mapping=mapping)
    return found


def name_of(key: Any) -> str:
    """A group's model among those that metadata is routed to; None stands for the one of all."""
    return "group_estimator" if key is None else f"group_estimator_{key}"


def fit_params(
    owner: Any, name: str, model: Any, weights: Floats | None, params: Mapping[str, Any]
) -> Mapping[str, Any]:
    """For the `fit` of the model that the router knows by this name."""
    if is_frozen(model):
        return {}
    if get_config()["enable_metadata_routing"]:
        return process_routing(owner, "fit", sample_weight=weights, **params)[name].fit
    if weights is None:
        return params
    if "sample_weight" in signature(model.fit).parameters:
        return {**params, "sample_weight": weights}
    warnings.warn(
        f"{type(model).__name__} takes no sample_weight, so its training ignores the weights, and only the "
        "policy uses them. Pass them to a step of a pipeline as <step>__sample_weight, or enable metadata "
        "routing",
        UserWarning,
        stacklevel=5,
    )
    return params
