"""The state of a stream as JSON."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import sparse

from bylaw._base.json_reader import BadValueError, Node, read_json
from bylaw._base.typing import Floats
from bylaw.formulation.linear_form import LinearForm
from bylaw.policy.fingerprint import Fingerprint
from bylaw.policy.serialization import (
    frequencies_to_list,
    problem_to_dict,
    read_frequencies,
    read_guarantee,
    read_problem,
    read_recipe,
    recipe_to_dict,
)
from bylaw.solvers.stochastic import OPTIMIZERS

if TYPE_CHECKING:
    from bylaw.fitting.stream import Fit, Stream

FORMAT = "bylaw-stream"
VERSION = 1


def to_dict(stream: Stream, fit: Fit) -> dict[str, Any]:
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
        "fingerprint": fit.fingerprint.to_dict(),
        "guarantee": asdict(fit.guarantee),
        "walk": fit.walk.state(),
    }


def _form_to_dict(form: LinearForm) -> dict[str, Any]:
    couplings = form.couplings
    return {
        **recipe_to_dict(form.recipe),
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
        "statements": list(form.statements),
        "frequencies": frequencies_to_list(form.frequencies),
    }


def read(path: Path) -> dict[str, Any]:
    """The fields of a stream, each checked."""
    return read_json(path, "a stream", _fields)


def _fields(root: Node) -> dict[str, Any]:
    root.check_version(FORMAT, VERSION)
    form = _form(root)
    beta = root["beta"].positive()
    name = root["optimizer"]["name"].one_of(OPTIMIZERS)
    (setting,) = (field.name for field in fields(OPTIMIZERS[name]))
    node = root["optimizer"][setting]
    optimizer = OPTIMIZERS[name](None if node.value is None else node.positive())
    if not 1 <= root["warm_up"].count() <= root["seen"].count() <= root["rows"].count():
        raise BadValueError("its rows, the rows it has seen and its warm-up contradict each other")
    return {
        "problem": read_problem(root, form.decisions),
        "rows": root["rows"].count(),
        "seen": root["seen"].count(),
        "warm_up": root["warm_up"].count(),
        "beta": beta,
        "optimizer": optimizer,
        "form": form,
        "mean_weight": root["mean_weight"].positive(),
        "value": root["value"].number(),
        "fingerprint": Fingerprint.from_node(root["fingerprint"]),
        "guarantee": read_guarantee(root["guarantee"], beta),
        "walk": optimizer.resume(root["walk"], len(form.bounds)),
    }


def _form(root: Node) -> LinearForm:
    recipe = read_recipe(root)
    n_features, n_actions = len(recipe.features), len(recipe.decisions.actions)
    names = tuple(node.text() for node in root["names"].list())
    statements = tuple(node.text() for node in root["statements"].list())
    if len(names) != len(statements):
        raise BadValueError("its names and statements differ in number")
    return LinearForm(
        recipe=recipe,
        base=root["base"].matrix(n_features, n_actions),
        base_constant=root["base_constant"].number(),
        couplings=_couplings(root["couplings"], len(names), n_features * n_actions),
        bounds=root["bounds"].vector(len(names)),
        scales=_scales(root["scales"], len(names)),
        names=names,
        statements=statements,
        frequencies=read_frequencies(root["frequencies"], recipe),
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
