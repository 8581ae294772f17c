"""Policies as JSON: what is written, and a reader that trusts nothing it reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bylaw._base.json_reader import BadValueError, Node, read_json
from bylaw._base.typing import Floats
from bylaw.formulation.linear_form import Attribute, Feature, Recipe
from bylaw.formulation.solution import Certificate, Guarantee, RulePrice, Solution, Status
from bylaw.language.action_space import Decisions
from bylaw.language.expressions import KIND_IN_WORDS, LABEL, Source
from bylaw.language.problem import Problem
from bylaw.policy.fingerprint import Fingerprint
from bylaw.policy.provenance import Card

if TYPE_CHECKING:
    from bylaw.policy.policy import Policy

FORMAT = "bylaw-policy"
VERSION = 1


def recipe_to_dict(recipe: Recipe) -> dict[str, Any]:
    decisions = recipe.decisions
    return {
        "decisions": {
            "kind": decisions.kind,
            "classes": list(decisions.classes),
            "reject": decisions.reject,
        },
        "features": [
            {"source": f.source and f.source._asdict(), "event": dict(f.event)} for f in recipe.features
        ],
        "attributes": {
            name: {"values": list(a.values), "known": a.known} for name, a in recipe.attributes.items()
        },
    }


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    return {"minimize": str(problem.minimize), "rules": [str(rule) for rule in problem.rules]}


def frequencies_to_list(frequencies: Mapping[Any, float]) -> list[dict[str, Any]]:
    return [{"event": dict(event), "frequency": f} for event, f in frequencies.items()]


def law_to_dict(recipe: Recipe, weights: Floats, beta: float) -> dict[str, Any]:
    """What decisions depend on."""
    return {**recipe_to_dict(recipe), "weights": weights.tolist(), "beta": beta}


def digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def to_dict(policy: Policy) -> dict[str, Any]:
    """The policy as plain values. Floats are written so that they read back to the last bit."""
    solution = policy.solution
    content = {
        "format": FORMAT,
        "version": VERSION,
        "hash": policy.digest,
        "card": policy.card.to_dict(),
        **problem_to_dict(policy.problem),
        **law_to_dict(policy.recipe, policy.weights, policy.beta),
        "guarantee": asdict(policy.guarantee),
        "multipliers": [price._asdict() for price in policy.rule_prices],
        "frequencies": frequencies_to_list(policy.frequencies),
        "fingerprints": [part.to_dict() for part in policy.fingerprints],
        "certificate": policy.certificate and asdict(policy.certificate),
        "solution": {
            "status": solution.status.name,
            "gradient_mapping": solution.gradient_mapping,
            "value": solution.value,
            "steps": solution.steps,
        },
    }
    return {**content, "checksum": digest_of(content)}


def read(path: Path) -> dict[str, Any]:
    """The fields of a policy, each checked."""
    return read_json(path, "a policy", _fields)


def _fields(root: Node) -> dict[str, Any]:
    root.check_version(FORMAT, VERSION)
    recipe = read_recipe(root)
    decisions = recipe.decisions
    prices = [
        RulePrice(
            node["statement"].text(),
            node["rule"].text(),
            node["multiplier"].positive(zero=True),
            node["tightened"].number(),
        )
        for node in root["multipliers"].list()
    ]
    weights = root["weights"].matrix(len(recipe.features), len(decisions.actions))
    with np.errstate(over="ignore"):
        if not np.isfinite(root["beta"].positive() * weights).all():
            raise BadValueError("its beta and weights are too large together")
    content = {
        "problem": read_problem(root, decisions),
        "recipe": recipe,
        "weights": weights,
        "rule_prices": tuple(prices),
        "solution": _solution(root["solution"], np.array([price.multiplier for price in prices])),
        "guarantee": read_guarantee(root["guarantee"], root["beta"].positive()),
        "frequencies": read_frequencies(root["frequencies"], recipe),
        "fingerprints": tuple(Fingerprint.from_node(node) for node in root["fingerprints"].list()),
        "certificate": _certificate(root["certificate"]),
        "card": Card.from_node(root["card"]),
    }
    rest = {name: value for name, value in root.value.items() if name != "checksum"}
    if root["checksum"].text() != digest_of(rest):
        raise BadValueError("its checksum is not that of its content: it was changed after it was saved")
    if root["hash"].text() != digest_of(law_to_dict(recipe, weights, root["beta"].positive())):
        raise BadValueError("its hash is not that of its law")
    return content


def read_problem(root: Node, decisions: Decisions) -> Problem:
    rules = [node.text() for node in root["rules"].list()]
    return Problem(root["minimize"].text(), rules, decisions.classes, decisions.kind, decisions.reject)


def read_recipe(root: Node) -> Recipe:
    kind = root["decisions"]["kind"].one_of(KIND_IN_WORDS)
    classes = tuple(node.scalar() for node in root["decisions"]["classes"].list())
    if len(set(classes)) < max(len(classes), 2):
        raise BadValueError("its classes are too few, or not all different")
    decisions = Decisions(kind, classes, root["decisions"]["reject"].scalar())
    attributes = {name: _attribute(node) for name, node in root["attributes"].items()}
    features = tuple(_feature(node, decisions, attributes) for node in root["features"].list())
    if len(set(features)) < len(features):
        raise BadValueError("its features are not all different")
    return Recipe(decisions, features, attributes)


def read_frequencies(node: Node, recipe: Recipe) -> dict[Any, float]:
    return {
        _event(item["event"], recipe.decisions, recipe.attributes): item["frequency"].positive()
        for item in node.list()
    }


def _attribute(node: Node) -> Attribute:
    values = tuple(value.scalar() for value in node["values"].list())
    return Attribute(values, node["known"].one_of([True, False]))


def _event(
    node: Node, decisions: Decisions, attributes: Mapping[str, Attribute]
) -> tuple[tuple[str, Any], ...]:
    event = {}
    for name, value in node.items():
        if name != LABEL and name not in attributes:
            raise BadValueError(f"{node.place} speaks of an unknown attribute {name!r}")
        event[name] = value.one_of(decisions.classes if name == LABEL else attributes[name].values)
    return tuple(sorted(event.items()))


def _feature(node: Node, decisions: Decisions, attributes: Mapping[str, Attribute]) -> Feature:
    event = _event(node["event"], decisions, attributes)
    source = node["source"]
    if source.value is None:
        return Feature(None, event)
    kind = source["kind"].one_of(["reference", "cost"])
    items = decisions.classes if kind == "reference" else range(len(decisions.actions))
    return Feature(Source(kind, source["name"].text(), source["item"].one_of(items)), event)


def _solution(node: Node, multipliers: Floats) -> Solution:
    status = Status[node["status"].one_of(Status.__members__)]
    mapping = node["gradient_mapping"].positive(zero=True)
    return Solution(multipliers, status, mapping, node["value"].number(), node["steps"].count())


def _certificate(node: Node) -> Certificate | None:
    if node.value is None:
        return None
    if not 0 < node["confidence"].number() < 1:
        node["confidence"].fail("between 0 and 1")
    return Certificate(
        confidence=node["confidence"].number(),
        rows=node["rows"].count(),
        margin=node["margin"].positive(zero=True),
        tested=node["tested"].count(),
        p_value=node["p_value"].positive(zero=True),
    )


def read_guarantee(node: Node, beta: float) -> Guarantee:
    terms = {f.name: node[f.name].positive(zero=True) for f in fields(Guarantee) if f.name != "beta"}
    return Guarantee(**terms, beta=beta)
