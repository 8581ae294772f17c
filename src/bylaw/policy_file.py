"""Policies as JSON: what is written, and a reader that trusts nothing it reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bylaw.algebra import KIND_IN_WORDS, LABEL, Source
from bylaw.decisions import Decisions, Floats
from bylaw.errors import PolicyFileError, RuleError
from bylaw.linear_form import Attribute, Feature, Recipe
from bylaw.problem import Problem
from bylaw.solution import Guarantee, Solution, Status

if TYPE_CHECKING:
    from bylaw.policy import Policy

FORMAT = "bylaw-policy"
VERSION = 1
LAW = ("decisions", "features", "attributes", "weights", "beta")  # what decisions depend on


def to_dict(policy: Policy) -> dict[str, Any]:
    """The policy as plain values. Floats are written so that they read back to the last bit."""
    decisions, solution = policy.decisions, policy.solution
    return {
        "format": FORMAT,
        "version": VERSION,
        "minimize": str(policy.problem.minimize),
        "rules": [str(rule) for rule in policy.problem.rules],
        "decisions": {
            "kind": decisions.kind,
            "classes": list(decisions.classes),
            "reject": decisions.reject,
        },
        "features": [
            {"source": f.source and f.source._asdict(), "event": dict(f.event)}
            for f in policy.recipe.features
        ],
        "attributes": {
            name: {"values": list(a.values), "known": a.known} for name, a in policy.recipe.attributes.items()
        },
        "weights": policy.weights.tolist(),
        "beta": policy.beta,
        "guarantee": asdict(policy.guarantee),
        "multipliers": [
            {"statement": s, "rule": rule, "multiplier": price} for s, rule, price in policy.rule_prices
        ],
        "frequencies": [{"event": dict(e), "frequency": f} for e, f in policy.frequencies.items()],
        "solution": {
            "status": solution.status.name,
            "gradient_mapping": solution.gradient_mapping,
            "value": solution.value,
            "steps": solution.steps,
        },
    }


def write(policy: Policy, path: Path) -> None:
    """Whole or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot save {path}: there is no folder {path.parent}")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(to_dict(policy), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """The fields of a policy, each checked."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, _BadValueError) as problem:
        raise PolicyFileError(f"{path} is not a policy: it is not valid JSON ({problem})") from None
    try:
        return _fields(_Node(content, "policy"))
    except (_BadValueError, RuleError) as problem:
        raise PolicyFileError(f"{path} is damaged: {problem}. Save the policy again") from None


class _BadValueError(Exception):
    pass


def _no_constant(name: str) -> NoReturn:
    raise _BadValueError(f"{name} is not a number")


class _Node:
    """A value of the file and its place in it."""

    def __init__(self, value: Any, place: str) -> None:
        self.value = value
        self.place = place

    def fail(self, wanted: str) -> NoReturn:
        shown = repr(self.value)
        raise _BadValueError(
            f"{self.place} must be {wanted}, not {shown if len(shown) < 60 else shown[:60] + '...'}"
        )

    def __getitem__(self, key: str) -> _Node:
        if not isinstance(self.value, dict) or key not in self.value:
            raise _BadValueError(f"{self.place} has no {key!r}")
        return _Node(self.value[key], f"{self.place}.{key}")

    def items(self) -> list[tuple[str, _Node]]:
        if not isinstance(self.value, dict):
            self.fail("an object")
        return [(key, self[key]) for key in self.value]

    def list(self) -> list[_Node]:
        if not isinstance(self.value, list):
            self.fail("a list")
        return [_Node(item, f"{self.place}[{i}]") for i, item in enumerate(self.value)]

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else self.fail("text")

    def scalar(self) -> Any:
        value = self.value
        if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
            return value
        return self.fail("text or a finite number")

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail("a number")
        try:
            number = float(self.value)
        except OverflowError:
            self.fail("a finite number")
        return number if math.isfinite(number) else self.fail("a finite number")

    def one_of(self, choices: Any) -> Any:
        return self.value if self.value in list(choices) else self.fail(f"one of {list(choices)}")


def _fields(root: _Node) -> dict[str, Any]:
    root["format"].one_of([FORMAT])
    version = root["version"].scalar()
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        raise _BadValueError(
            f"it has schema version {version!r}, and this bylaw reads version {VERSION}"
            + ("; upgrade bylaw" if newer else "")
        )
    kind = root["decisions"]["kind"].one_of(KIND_IN_WORDS)
    classes = tuple(node.scalar() for node in root["decisions"]["classes"].list())
    if len(set(classes)) < max(len(classes), 2):
        raise _BadValueError("its classes are too few, or not all different")
    decisions = Decisions(kind, classes, root["decisions"]["reject"].scalar())
    attributes = {name: _attribute(node) for name, node in root["attributes"].items()}
    features = tuple(_feature(node, decisions, attributes) for node in root["features"].list())
    if len(set(features)) < len(features):
        raise _BadValueError("its features are not all different")
    prices = [
        (node["statement"].text(), node["rule"].text(), _positive(node["multiplier"], zero=True))
        for node in root["multipliers"].list()
    ]
    rules = [node.text() for node in root["rules"].list()]
    return {
        "problem": Problem(root["minimize"].text(), rules, classes, kind, decisions.reject),
        "recipe": Recipe(decisions, features, attributes),
        "weights": _weights(root["weights"], len(features), len(decisions.actions)),
        "rule_prices": tuple(prices),
        "solution": _solution(root["solution"], np.array([price for *_, price in prices])),
        "guarantee": _guarantee(root["guarantee"], _positive(root["beta"])),
        "frequencies": {
            _event(node["event"], decisions, attributes): _positive(node["frequency"])
            for node in root["frequencies"].list()
        },
    }


def _attribute(node: _Node) -> Attribute:
    values = tuple(value.scalar() for value in node["values"].list())
    return Attribute(values, node["known"].one_of([True, False]))


def _event(
    node: _Node, decisions: Decisions, attributes: Mapping[str, Attribute]
) -> tuple[tuple[str, Any], ...]:
    event = {}
    for name, value in node.items():
        if name != LABEL and name not in attributes:
            raise _BadValueError(f"{node.place} speaks of an unknown attribute {name!r}")
        event[name] = value.one_of(decisions.classes if name == LABEL else attributes[name].values)
    return tuple(sorted(event.items()))


def _feature(node: _Node, decisions: Decisions, attributes: Mapping[str, Attribute]) -> Feature:
    event = _event(node["event"], decisions, attributes)
    source = node["source"]
    if source.value is None:
        return Feature(None, event)
    kind = source["kind"].one_of(["reference", "cost"])
    items = decisions.classes if kind == "reference" else range(len(decisions.actions))
    return Feature(Source(kind, source["name"].text(), source["item"].one_of(items)), event)


def _weights(node: _Node, n_features: int, n_actions: int) -> Floats:
    rows = [[entry.number() for entry in row.list()] for row in node.list()]
    if len(rows) != n_features or any(len(row) != n_actions for row in rows):
        node.fail(f"a matrix of {n_features} features x {n_actions} actions")
    return np.array(rows, dtype=np.float64).reshape(n_features, n_actions)


def _positive(node: _Node, zero: bool = False) -> float:
    number = node.number()
    return number if number > 0 or (zero and number == 0) else node.fail("a positive number")


def _solution(node: _Node, multipliers: Floats) -> Solution:
    status = Status[node["status"].one_of(Status.__members__)]
    steps = node["steps"].scalar()
    if type(steps) is not int or steps < 0:
        node["steps"].fail("a whole number")
    mapping = _positive(node["gradient_mapping"], zero=True)
    return Solution(multipliers, status, mapping, node["value"].number(), steps)


def _guarantee(node: _Node, beta: float) -> Guarantee:
    terms = {f.name: _positive(node[f.name], zero=True) for f in fields(Guarantee) if f.name != "beta"}
    return Guarantee(**terms, beta=beta)
