"""Compile a problem into one linear form.

Every loss and rule is  c_j(x, a) = sum_k phi_k(x) B_j[k, a] - b_j  with a few features phi of
a row: chances of events such as 1, P(label | x), P(group, label | x), times columns of the
evidence. Whoever holds E[phi_k(x) pi(a | x)] holds every rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from bylaw._base.typing import Floats, Value
from bylaw.data.arrays import as_matrix
from bylaw.data.evidence import Evidence, as_evidence, check_cost
from bylaw.data.groups import GroupProbabilities, KnownGroup
from bylaw.errors import EvidenceError, RuleError
from bylaw.language.action_space import Decisions
from bylaw.language.expressions import LABEL, Atom, Conditions, Rate, Source, in_words
from bylaw.language.problem import Problem

Frequencies = Mapping[Conditions, float]
_ORDINARY = (1e-2, 1e3)  # sizes of rules that are left as they are
_SAMPLE = 4096  # rows that show how large features are
_FEW = 20  # where less than one weight in so many is not zero, products leave out the zeros
_SMALL = 1000  # weights: too few for that to pay


class Feature(NamedTuple):
    """source(x) * P(event | x)."""

    source: Source | None
    event: Conditions

    def column(self, evidence: Evidence, rows: slice) -> Floats | float:
        chance = evidence.chance(self.event, rows)
        return chance if self.source is None else evidence.column(self.source, rows) * chance


class Attribute(NamedTuple):
    """What the fit knew of a group: its values, and whether rows show them."""

    values: tuple[Value, ...]
    known: bool


@dataclass(frozen=True)
class Recipe:
    """How to turn evidence into features, and what evidence that takes."""

    decisions: Decisions
    features: tuple[Feature, ...]
    attributes: Mapping[str, Attribute]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False)

    def admit(self, evidence: Evidence) -> Evidence:
        """The evidence, checked against the fit and with the custom functions' costs."""
        as_evidence(evidence)
        if evidence.classes != self.decisions.classes:
            raise EvidenceError(
                f"the policy decides among the classes {list(self.decisions.classes)}, in this order; "
                f"the evidence has {list(evidence.classes)}"
            )
        groups = {name: _admit_group(name, fitted, evidence) for name, fitted in self.attributes.items()}
        costs = {n: self._cost(n, evidence) for n in self._named("cost")}
        for name in self._named("reference"):
            if name not in evidence.references:
                raise EvidenceError(f"a rule speaks of {name!r}; pass references={{{name!r}: its labels}}")
        return evidence.replaced(groups={**evidence.groups, **groups}, costs={**evidence.costs, **costs})

    def columns(self, evidence: Evidence, rows: slice, out: Floats) -> Floats:
        """The features of these rows, (n_features, n_rows)."""
        for k, feature in enumerate(self.features):
            out[k] = feature.column(evidence, rows)
        return out

    def _named(self, kind: str) -> list[str]:
        return list(dict.fromkeys(f.source.name for f in self.features if f.source and f.source.kind == kind))

    def _cost(self, name: str, evidence: Evidence) -> Floats:
        if name in self.functions:
            matrix = as_matrix(self.functions[name](evidence.belief or evidence), f"custom({name!r})")[0]
            matrix = check_cost(matrix, name, len(evidence))
        elif name in evidence.costs:
            matrix = evidence.costs[name]
        else:
            raise EvidenceError(f"a rule speaks of custom({name!r}); pass costs={{{name!r}: an array}}")
        if matrix.shape[1] != len(self.decisions.actions):
            raise EvidenceError(
                f"costs[{name!r}] has {matrix.shape[1]} columns; it needs one per action, "
                f"{list(self.decisions.actions)}"
            )
        return matrix


@dataclass(frozen=True)
class LinearForm:
    """The compiled problem. F features, A actions, M rules."""

    recipe: Recipe
    base: Floats  # (F, A): loss of an action = features' base
    base_constant: float
    couplings: sparse.csr_array  # (M, F * A): B_j, one flattened matrix per row
    bounds: Floats  # (M,): b_j
    names: tuple[str, ...]  # of the M rules
    statements: tuple[str, ...]  # the text each rule comes from, as its author wrote it
    scales: Floats  # (M,): the unit each rule is measured in; couplings and bounds are divided by it
    frequencies: Frequencies = field(default_factory=dict)

    @property
    def decisions(self) -> Decisions:
        return self.recipe.decisions

    def prices(self, multipliers: Floats) -> Floats:
        """What one more unit of slack in each rule, as it is written, would save, (M,)."""
        return multipliers / self.scales

    def weights(self, multipliers: Floats) -> Floats:
        """Scores = features' weights: -(L + C' lambda) but for the bounds, (F, A)."""
        return -(self.base + (self.couplings.T @ multipliers).reshape(self.base.shape))


def scores_of(weights: Floats, features: Floats) -> Floats:
    """weights' features, (A, n_rows), of weights (F, A) and features (F, n_rows).

    With many classes most weights are zero: a label's score depends on its own probability, not on those of
    the others.
    """
    if weights.size < _SMALL or np.count_nonzero(weights) * _FEW > weights.size:
        return weights.T @ features
    return sparse.csr_array(weights.T) @ features


def compile_problem(
    problem: Problem, evidence: Evidence, frequencies: Frequencies | None = None
) -> LinearForm:
    """The linear form of a problem on these rows.

    Frequencies P(event) of the conditions are read off the evidence and frozen in the form,
    unless they are given.
    """
    decisions = problem.decisions_over(evidence.classes)
    rules = problem.expand(evidence.classes, evidence.group_values)
    compiler = _Compiler(decisions, evidence, dict(frequencies or {}))
    base, base_constant = compiler.rate(problem.minimize)
    rows = [compiler.rate(rule.excess) for rule, _ in rules]
    shape = (len(compiler.features), len(decisions.actions))
    recipe = compiler.recipe()
    couplings = _stack([entries for entries, _ in rows], shape)
    scales = _scales(recipe, couplings, evidence) if rules else np.ones(0)
    return LinearForm(
        recipe=recipe,
        base=_dense(base, shape),
        base_constant=base_constant,
        couplings=sparse.csr_array(couplings / scales[:, None]),
        bounds=np.array([-constant for _, constant in rows]) / scales,
        scales=scales,
        names=tuple(str(rule) for rule, _ in rules),
        statements=tuple(str(statement) for _, statement in rules),
        frequencies=compiler.used,
    )


Entries = dict[tuple[int, int], float]  # (feature, action) -> coefficient


class _Compiler:
    def __init__(self, decisions: Decisions, evidence: Evidence, frequencies: dict[Conditions, float]):
        self.decisions = decisions
        self.evidence = evidence
        self.frequencies = frequencies
        values = {LABEL: decisions.classes, **evidence.group_values}
        self.own = {name: {value: value for value in found} for name, found in values.items()}
        self.used: dict[Conditions, float] = {}
        self.features: dict[Feature, int] = {}
        self.functions: dict[str, Callable[..., Any] | None] = {}

    def rate(self, rate: Rate) -> tuple[Entries, float]:
        """A rate as coefficients of E[feature * pi(action)], and a constant."""
        entries: Entries = {}
        constant = rate.constant
        for atom, factor in rate.terms:
            meaning = atom.meaning(self.decisions.kind, self.decisions.classes)
            constant += factor * meaning.constant
            conditions = self._own(atom.conditions)
            scale = factor / self._frequency(conditions)
            for term in meaning.terms:
                event = _also(conditions, term.label)
                if event is not None:
                    key = self._feature(atom, term.source, event), self.decisions.position(term.action)
                    entries[key] = entries.get(key, 0.0) + scale * term.coefficient
        return entries, constant

    def recipe(self) -> Recipe:
        names = {name for feature in self.features for name, _ in feature.event if name != LABEL}
        attributes = {
            name: Attribute(group.values, isinstance(group, KnownGroup))
            for name, group in self.evidence.groups.items()
            if name in names
        }
        functions = {name: function for name, function in self.functions.items() if function}
        return Recipe(self.decisions, tuple(self.features), attributes, functions)

    def _own(self, conditions: Conditions) -> Conditions:
        """The values as the classes and groups have them: who says 1 may mean 1.0 or True."""
        return tuple((name, self.own.get(name, {}).get(value, value)) for name, value in conditions)

    def _feature(self, atom: Atom, source: Source | None, event: Conditions) -> int:
        name = source.name if source is not None and source.kind == "cost" else None
        if name is not None and self.functions.setdefault(name, atom.function) is not atom.function:
            raise RuleError(f"two costs are both called custom({name!r}); rename one of them")
        return self.features.setdefault(Feature(source, event), len(self.features))

    def _frequency(self, conditions: Conditions) -> float:
        if conditions and conditions not in self.frequencies:
            chance = self.evidence.chance(conditions)
            self.frequencies[conditions] = float(np.average(chance, weights=self.evidence.weights))
        frequency = self.frequencies[conditions] if conditions else 1.0
        if conditions:
            self.used[conditions] = frequency
        if not frequency > 0:
            raise EvidenceError(
                f"a rule speaks of the rows with {in_words(conditions)}, but they have no weight here; "
                "remove the rule, merge the group with another, or add rows"
            )
        return frequency


def _also(conditions: Conditions, label: Value | None) -> Conditions | None:
    """The conditions and this label; None if they contradict each other."""
    event = dict(conditions)
    if label is not None and event.setdefault(LABEL, label) != label:
        return None
    return tuple(sorted(event.items()))


def _dense(entries: Entries, shape: tuple[int, int]) -> Floats:
    matrix = np.zeros(shape)
    for key, coefficient in entries.items():
        matrix[key] = coefficient
    return matrix


def _stack(rows: list[Entries], shape: tuple[int, int]) -> sparse.csr_array:
    triples = [(j, k * shape[1] + a, c) for j, row in enumerate(rows) for (k, a), c in row.items()]
    where = ([j for j, _, _ in triples], [i for _, i, _ in triples])
    return sparse.csr_array(([c for *_, c in triples], where), shape=(len(rows), shape[0] * shape[1]))


def _scales(recipe: Recipe, couplings: sparse.csr_array, evidence: Evidence) -> Floats:
    """One for rules in ordinary units, so that the tolerance is absolute; otherwise the rule's own
    size, so that millions and millionths are solved alike."""
    sample = recipe.admit(evidence.rows(slice(None, None, -(-len(evidence) // _SAMPLE))))
    columns = recipe.columns(sample, slice(None), np.empty((len(recipe.features), len(sample))))
    n_actions = len(recipe.decisions.actions)
    typical = np.repeat(np.abs(columns).mean(axis=1), n_actions)
    sizes = (abs(couplings) @ sparse.diags_array(typical)).max(axis=1).toarray().ravel()
    return np.where((sizes > _ORDINARY[0]) & (sizes < _ORDINARY[1]) | (sizes == 0), 1.0, sizes)


def _admit_group(name: str, fitted: Attribute, evidence: Evidence) -> KnownGroup | GroupProbabilities:
    """The group with the values of the fit, of which a batch may lack some."""
    if name not in evidence.groups:
        raise EvidenceError(f"the policy needs {name!r} to decide; pass groups={{{name!r}: ...}}")
    group = evidence.groups[name]
    if isinstance(group, KnownGroup) != fitted.known:
        was, wanted = (
            ("values", "one value per row") if fitted.known else ("probabilities", "its probabilities")
        )
        raise EvidenceError(f"the policy was fitted with {was} of {name!r}; pass {wanted}, as then")
    if isinstance(group, KnownGroup):
        return admit_values(name, group, fitted.values)
    if unseen := set(group.values) - set(fitted.values):
        raise _unseen(name, unseen, fitted.values)
    if missing := set(fitted.values) - set(group.values):
        raise EvidenceError(
            f"{name} lacks the probabilities of {sorted(map(str, missing))}; pass a column each"
        )
    return group


def admit_values(name: str, group: KnownGroup, values: tuple[Value, ...]) -> KnownGroup:
    """The group with positions among the values of the fit."""
    if unseen := set(group.values) - set(values):
        raise _unseen(name, unseen, values)
    return group.with_values(values)


def _unseen(name: str, unseen: set[Any], values: tuple[Value, ...]) -> EvidenceError:
    return EvidenceError(
        f"{name} has values the policy was not fitted on: {sorted(map(str, unseen))}; it knows "
        f"{list(values)}. Fit again with such rows, or map them to a known value"
    )
