"""Saved states of streams as JSON files."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from bylaw._base import BadValueError, Floats, Node, read_json
from bylaw.language import Problem, renew_text
from bylaw.policy import (
    TableSum,
    compute_digest,
    feature_map_to_dict,
    frequencies_to_list,
    guarantee_to_dict,
    problem_to_dict,
    read_feature_map,
    read_frequencies,
    read_guarantee,
    read_problem,
)
from bylaw.program import FeatureMap, LinearForm, RuleExcesses
from bylaw.solvers import OPTIMIZERS, TILE_ROWS, NewtonState

if TYPE_CHECKING:
    from bylaw.fitting._stream import Stream
    from bylaw.fitting._stream_state import StreamState

FORMAT = "bylaw-stream"
VERSION = 3
_LEAST_WEIGHT = 1e-100  # a smaller mean weight cannot be that of real rows


def to_dict(stream: Stream, fit: StreamState) -> dict[str, Any]:
    """Return the state of a stream as plain values, without loss of precision."""
    names = {optimizer: name for name, optimizer in OPTIMIZERS.items()}
    content = {
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
        "waiting": fit.waiting.tolist(),
        "followed": frequencies_to_list({event: fit.form.frequencies[event] for event in fit.followed}),
        "followed_mass": fit.followed_mass,
        "tiles": fit.tiles,
        "measured": [_excesses_to_dict(found) for found in fit.measured],
        "value": fit.value,
        "conflicting": fit.conflicting,
        "table": fit.table.to_dict(),
        "guarantee": guarantee_to_dict(fit.guarantee),
        "walk": fit.optimizer_state.state(),
    }
    return {**content, "checksum": compute_digest(content)}


def _excesses_to_dict(found: RuleExcesses) -> dict[str, Any]:
    return {
        "mass": found.mass,
        "squared_mass": found.squared_mass,
        "value": found.value,
        "excesses": found.excesses.tolist(),
        "scaled": found.scaled.tolist(),
        "squares": found.squares.tolist(),
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
    """Read the file of a stream, check its fields, and return them."""
    return read_json(path, "a stream", _fields)


def _fields(root: Node) -> dict[str, Any]:
    tiled = root["version"].value != 1
    root.check_version(FORMAT, VERSION, oldest=1)
    root.check_sizes()
    feature_map = read_feature_map(root)
    problem = read_problem(root, feature_map.action_space)
    form = _form(root, feature_map, problem)
    beta = root["beta"].positive()
    name = root["optimizer"]["name"].one_of(OPTIMIZERS)
    settings = {field.name: root["optimizer"][field.name] for field in fields(OPTIMIZERS[name])}
    optimizer = OPTIMIZERS[name](
        **{key: None if node.value is None else node.positive() for key, node in settings.items()}
    )
    if not 1 <= root["warm_up"].count() <= root["seen"].count() <= root["rows"].count():
        raise BadValueError("its numbers of rows must satisfy 1 <= warm_up <= seen <= rows")
    table = TableSum.from_node(root["table" if "table" in root.value else "fingerprint"])
    walk, n_places = optimizer.resume(root["walk"], len(form.bounds)), len(np.unique(form.couplings.indices))
    if isinstance(walk, NewtonState) and len(walk.slope) != (n_places if walk.mass else 0):
        raise BadValueError("the state of its optimizer (walk) does not match its rules")
    found = {
        "problem": problem,
        "rows": root["rows"].count(),
        "seen": root["seen"].count(),
        "warm_up": root["warm_up"].count(),
        "beta": beta,
        "optimizer": optimizer,
        "form": form,
        "mean_weight": _read_weight(root["mean_weight"]),
        "value": root["value"].number(),
        "table": table,
        "guarantee": read_guarantee(root["guarantee"], beta, table.rows),
        "conflicting": bool(root.value.get("conflicting", False)),
        "optimizer_state": walk,
        **(_read_tiles(root, form) if tiled else _begin_tiles(form)),
    }
    content = {name: value for name, value in root.value.items() if name != "checksum"}
    if "checksum" in root.value and root["checksum"].text() != compute_digest(content):
        raise BadValueError("its content does not match its checksum")  # earlier versions have no checksum
    return found


def _read_weight(node: Node) -> float:
    """Return a mean weight, by which weights of rows are divided; fail if it is not positive."""
    return node.number() if node.number() > _LEAST_WEIGHT else node.fail(f"a number above {_LEAST_WEIGHT:g}")


def _read_tiles(root: Node, form: LinearForm) -> dict[str, Any]:
    """Return the rows that wait for a complete tile, and the rates measured on earlier tiles."""
    n_rules = len(form.bounds)
    followed = tuple(read_frequencies(root["followed"], form.feature_map))
    if not set(followed) <= set(form.frequencies):
        raise BadValueError("it updates frequencies of conditions that its rules do not have (followed)")
    n_columns = len(form.feature_map.features) + len(followed) + 1
    rows = root["waiting"].list()
    waiting = root["waiting"].matrix(n_columns, len(rows[0].list()) if rows else 0)
    if waiting.shape[1] >= TILE_ROWS or (waiting[-1] < 0).any():
        raise BadValueError(f"its waiting rows must be fewer than {TILE_ROWS} and have weights >= 0")
    return {
        "waiting": waiting,
        "followed": followed,
        "followed_mass": root["followed_mass"].positive(zero=True),
        "tiles": root["tiles"].count(),
        "measured": tuple(
            RuleExcesses(
                mass=node["mass"].positive(),
                squared_mass=node["squared_mass"].positive(),
                value=node["value"].number(),
                excesses=node["excesses"].vector(n_rules),
                scaled=node["scaled"].vector(n_rules),
                squares=node["squares"].vector(n_rules),
            )
            for node in root["measured"].list()
        ),
    }


def _begin_tiles(form: LinearForm) -> dict[str, Any]:
    """Return the fields of `_read_tiles` for files of an earlier version, which contain no rows."""
    return {
        "waiting": np.empty((len(form.feature_map.features) + 1, 0)),
        "followed": (),
        "followed_mass": 0.0,
        "tiles": 0,
        "measured": (),
    }


def _form(root: Node, feature_map: FeatureMap, problem: Problem) -> LinearForm:
    n_features, n_actions = len(feature_map.features), len(feature_map.action_space.actions)
    names = tuple(renew_text(node.text()) for node in root["names"].list())
    values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
    space = feature_map.action_space
    rules = tuple(problem.expand(space.classes, values, space.options))
    if names != tuple(str(found.rule) for found in rules):
        raise BadValueError("the names of its rules do not match its problem")
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
