"""The state of a stream as JSON."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import sparse

from bylaw._base.json_reader import BadValueError, Node, read_json
from bylaw._base.typing import Floats
from bylaw.formulation.linear_form import FeatureMap, LinearForm
from bylaw.language.problem import Problem
from bylaw.policy.fingerprint import NO_ROWS, Fingerprint
from bylaw.policy.serialization import (
    feature_map_to_dict,
    frequencies_to_list,
    problem_to_dict,
    read_feature_map,
    read_frequencies,
    read_guarantee,
    read_problem,
)
from bylaw.solvers.stochastic import OPTIMIZERS

if TYPE_CHECKING:
    from bylaw.fitting.stream import Stream, StreamState

FORMAT = "bylaw-stream"
VERSION = 2


def to_dict(stream: Stream, fit: StreamState) -> dict[str, Any]:
    """The state of a stream as plain values; floats read back to the last bit."""
    names = {optimizer: name for name, optimizer in OPTIMIZERS.items()}
    return {
        "format": FORMAT,
        "version": VERSION,
        **problem_to_dict(stream.problem),
        "rows": stream.rows,
        "seen": stream.seen,
        "warm_up": stream.warm_up,
        "beta": stream.beta,
        "optimizer": {"name": names[type(stream.optimizer)], **asdict(stream.optimizer)},
        **_form_to_dict(fit.form),
        "mean_weight": fit.mean_weight,
        "value": fit.value,
        "fingerprint": fit.make_fingerprint().to_dict(),
        "guarantee": asdict(fit.guarantee),
        "walk": fit.optimizer_state.state(),
    }


def _form_to_dict(form: LinearForm) -> dict[str, Any]:
    couplings = form.couplings
    return {
        **feature_map_to_dict(form.feature_map),
        "base": form.base.tolist(),
        "base_constant": form.base_constant,
        "couplings": {
            "indptr": couplings.indptr.tolist(),
            "indices": couplings.indices.tolist(),
            "data": couplings.data.tolist(),
        },
        "bounds": form.bounds.tolist(),
        "scales": form.scales.tolist(),
        "names": list(form.names),
        "statements": [str(found.statement) for found in form.rules],
        "frequencies": frequencies_to_list(form.frequencies),
    }


def read(path: Path) -> dict[str, Any]:
    """The fields of a stream, each checked."""
    return read_json(path, "a stream", _fields)


def _fields(root: Node) -> dict[str, Any]:
    root.check_version(FORMAT, VERSION, oldest=1)
    feature_map = read_feature_map(root)
    problem = read_problem(root, feature_map.action_space)
    form = _form(root, feature_map, problem)
    beta = root["beta"].positive()
    name = root["optimizer"]["name"].one_of(OPTIMIZERS)
    (setting,) = (field.name for field in fields(OPTIMIZERS[name]))
    node = root["optimizer"][setting]
    optimizer = OPTIMIZERS[name](None if node.value is None else node.positive())
    if not 1 <= root["warm_up"].count() <= root["seen"].count() <= root["rows"].count():
        raise BadValueError("its rows, the rows it has seen and its warm-up contradict each other")
    return {
        "problem": problem,
        "rows": root["rows"].count(),
        "seen": root["seen"].count(),
        "warm_up": root["warm_up"].count(),
        "beta": beta,
        "optimizer": optimizer,
        "form": form,
        "mean_weight": root["mean_weight"].positive(),
        "value": root["value"].number(),
        "earlier": Fingerprint.from_node(root["fingerprint"]),
        "recent": NO_ROWS,
        "guarantee": read_guarantee(root["guarantee"], beta),
        "optimizer_state": optimizer.resume(root["walk"], len(form.bounds)),
    }


def _form(root: Node, feature_map: FeatureMap, problem: Problem) -> LinearForm:
    n_features, n_actions = len(feature_map.features), len(feature_map.action_space.actions)
    names = tuple(node.text() for node in root["names"].list())
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    rules = tuple(problem.expand(feature_map.action_space.classes, values))
    if names != tuple(str(found.rule) for found in rules):
        raise BadValueError("its names are not those of its rules")
    return LinearForm(
        feature_map=feature_map,
        base=root["base"].matrix(n_features, n_actions),
        base_constant=root["base_constant"].number(),
        couplings=_couplings(root["couplings"], len(names), n_features * n_actions),
        bounds=root["bounds"].vector(len(names)),
        scales=_scales(root["scales"], len(names)),
        rules=rules,
        frequencies=read_frequencies(root["frequencies"], feature_map),
    )


def _scales(node: Node, n_rules: int) -> Floats:
    scales = node.vector(n_rules)
    return scales if (scales > 0).all() else node.fail("positive numbers")


def _couplings(node: Node, n_rules: int, n_places: int) -> sparse.csr_array:
    indptr = [item.count() for item in node["indptr"].list()]
    indices = [item.count() for item in node["indices"].list()]
    ordered = all(a <= b for a, b in itertools.pairwise(indptr))
    if len(indptr) != n_rules + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or not ordered:
        node.fail("a sparse matrix with one row per rule")
    if any(i >= n_places for i in indices):
        node.fail(f"a sparse matrix with {n_places} columns")
    return sparse.csr_array((node["data"].vector(len(indices)), indices, indptr), shape=(n_rules, n_places))
