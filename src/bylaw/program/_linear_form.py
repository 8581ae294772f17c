"""Compile a problem into one linear form.

The loss and every rule are c_j(x, a) = sum_k phi_k(x) B_j[k, a] - b_j with a few features phi of a row x:
probabilities of events such as 1, P(label | x), P(group, label | x), times columns of the evidence. All
rates follow from the moments E[phi_k(x) pi(a | x)] of a policy pi.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bylaw._base import Floats, Matrix, Value, compact
from bylaw.errors import EvidenceError, Remedy, RuleError
from bylaw.language import (
    CHANGED,
    LABEL,
    ActionSpace,
    Atom,
    Conditions,
    CostColumn,
    ExpandedRule,
    Objective,
    Problem,
    Rate,
    Ratio,
    ReferenceColumn,
    Source,
    Worst,
    format_conditions,
    selected,
)
from bylaw.rows import (
    Group,
    KnownGroup,
    ObservedRows,
    Part,
    RowData,
    as_matrix,
    check_alignment,
    check_cost,
    name_cost,
)

Frequencies = Mapping[Conditions, float]
AnyRows = TypeVar("AnyRows", bound=RowData)


class Feature(NamedTuple):
    """A number of each row: source(x) * P(event | x), or P(event | x) alone without a source."""

    source: Source | None
    event: Conditions

    def column(self, evidence: RowData, rows: Part) -> Floats | float:
        chance = evidence.event_probability(self.event, rows)
        return chance if self.source is None else evidence.column(self.source, rows) * chance


class Attribute(NamedTuple):
    """The values of a group when the policy was fitted, and whether they were known on each row."""

    values: tuple[Value, ...]
    known: bool


@dataclass(frozen=True)
class FeatureMap:
    """The features of a problem, and the groups, costs and functions from which they are computed."""

    action_space: ActionSpace
    features: tuple[Feature, ...]
    attributes: Mapping[str, Attribute]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False)

    def admit(self, evidence: AnyRows) -> AnyRows:
        """Return the rows with the costs that functions compute, after checking them against the fit."""
        if evidence.classes != self.action_space.classes:
            raise EvidenceError(
                f"the classes of the evidence must be {list(self.action_space.classes)}, in this order, as "
                f"in the fit of the policy, got {list(evidence.classes)}"
            )
        if evidence.options and evidence.options != self.action_space.options:
            raise EvidenceError(
                f"the options of the evidence must be {list(self.action_space.options)}, in this order, as "
                f"in the fit of the policy, got {list(evidence.options)}"
            )
        groups = {name: _admit_group(name, fitted, evidence) for name, fitted in self.attributes.items()}
        costs = {
            name: evaluate_cost(name, self.functions.get(name), evidence, self.action_space)
            for name in self.cost_names
        }
        for name in self.reference_names:
            if name not in evidence.references:
                raise EvidenceError(
                    f"the evidence has no decisions of the earlier model {name!r}, which a rule refers to",
                    Remedy("pass_reference", name),
                )
        return evidence.with_columns(groups={**evidence.groups, **groups}, costs={**evidence.costs, **costs})

    def columns(self, evidence: RowData, rows: Part, out: Floats) -> Floats:
        """Compute the features of these rows, (n_features, n_rows), write them to `out`, and return it."""
        for k, feature in enumerate(self.features):
            out[k] = feature.column(evidence, rows)
        return out

    @property
    def cost_names(self) -> list[str]:
        """The names of the cost arrays on which features depend."""
        return self._list_names(CostColumn)

    @property
    def reference_names(self) -> list[str]:
        """The names of the earlier models on which features depend."""
        return self._list_names(ReferenceColumn)

    def _list_names(self, kind: type[Source]) -> list[str]:
        sources = [feature.source for feature in self.features]
        return list(dict.fromkeys(source.name for source in sources if isinstance(source, kind)))


def _admit_group(name: str, fitted: Attribute, evidence: RowData) -> Group:
    """Return the group of this evidence with the values of the fit.

    Raise an `EvidenceError` if it is missing or has other values. Known groups may have fewer values.
    """
    group = evidence.groups.get(name)
    if group is None or group.known != fitted.known:
        was = "values" if fitted.known else "probabilities"
        message = f"needs the {was} of {name!r}, as in its fit" if group else f"needs {name!r} to decide"
        remedy = Remedy("pass_groups" if fitted.known else "pass_group_probabilities", name)
        raise EvidenceError(f"the policy {message}", remedy)
    if isinstance(group, KnownGroup):
        return admit_values(name, group, fitted.values)
    _refuse_unseen_values(name, group, fitted.values)
    if missing := set(fitted.values) - set(group.values):
        raise EvidenceError(
            f"the probabilities of {name!r} must have a column for each value of the fit; the columns of "
            f"{sorted(map(str, missing))} are missing"
        )
    return group


def admit_values(name: str, group: KnownGroup, values: tuple[Value, ...]) -> KnownGroup:
    """Return the group with the values of the fit; raise an `EvidenceError` if it has others."""
    _refuse_unseen_values(name, group, values)
    return group.with_values(values)


def _refuse_unseen_values(name: str, group: Group, values: tuple[Value, ...]) -> None:
    if unseen := set(group.values) - set(values):
        raise EvidenceError(
            f"{name} has values that the policy was not fitted on: {sorted(map(str, unseen))}; it was fitted "
            f"on {list(values)}. Fit again with such rows, or map them to a value of the fit"
        )


def evaluate_cost(
    name: str, function: Callable[..., Any] | None, rows: RowData, space: ActionSpace
) -> Floats:
    """Return the cost array of `custom(name)`, (n_rows, n_actions).

    Costs are given, observed, or computed by their function; it is not called if the cost was observed.
    """
    known, observed = rows, False
    if isinstance(rows, ObservedRows):
        known, observed = rows.predicted, name_cost(name) in rows.observed and name in rows.costs
    if function is not None and not observed:
        found, what = function(known), f"custom({name!r})"
        check_alignment({what: found}, rows.index)
        matrix = check_cost(as_matrix(found, what)[0], name, len(rows))
    elif name in rows.costs:
        matrix = rows.costs[name]
    else:
        raise EvidenceError(
            f"the evidence has no costs for custom({name!r}), which a rule refers to",
            Remedy("pass_changes" if name == CHANGED else "pass_costs", name),
        )
    if matrix.shape[1] != len(space.actions):
        raise EvidenceError(
            f"costs[{name!r}] must have one column per action, {list(space.actions)}, got {matrix.shape[1]} "
            "columns"
        )
    return matrix


@dataclass(frozen=True)
class LinearForm:
    """A compiled problem: the coefficients of features and actions in the loss and in each rule."""

    feature_map: FeatureMap
    base: Floats  # (n_features, n_actions): the loss of each action is features' @ base + base_constant
    base_constant: float
    couplings: sparse.csr_array  # (n_rules, n_features * n_actions): the matrices B_j, flattened, one per row
    bounds: Floats  # (n_rules,): the constants b_j
    rules: tuple[ExpandedRule, ...]  # the single rules, each with the statement it is part of
    scales: Floats  # (n_rules,): the units of the rules, by which couplings and bounds are divided
    frequencies: Frequencies = field(default_factory=dict)

    @property
    def action_space(self) -> ActionSpace:
        return self.feature_map.action_space

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The texts of the rules."""
        return tuple(str(found.rule) for found in self.rules)

    @cached_property
    def has_quotients(self) -> bool:
        """Whether some rule bounds a ratio whose denominator depends on the decisions."""
        return not all(found.rule.is_linear for found in self.rules)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The index of the statement in the problem that each rule is part of, (n_rules,)."""
        return np.array([found.place for found in self.rules], dtype=np.int64)

    @cached_property
    def operator(self) -> Matrix:
        """The coefficients of the rules, dense if they are few, for fast products."""
        return compact(self.couplings)

    def prices(self, multipliers: Floats) -> Floats:
        """Return the shadow price of each rule, (n_rules,): the derivative of the cost in its bound."""
        return multipliers / self.scales

    def score_matrix(self, multipliers: Floats) -> Floats:
        """Return coefficients (n_features, n_actions) of the scores -(loss + priced costs of the rules)."""
        return -(self.base + (self.operator.T @ multipliers).reshape(self.base.shape))


def compute_scores(score_matrix: Floats, features: Floats) -> Floats:
    """Return the scores of actions, score_matrix' @ features, (n_actions, n_rows)."""
    if has_few(int(np.count_nonzero(score_matrix)), score_matrix.size):
        return sparse.csr_array(score_matrix.T) @ features
    return score_matrix.T @ features


def has_few(nonzero: int, size: int) -> bool:
    """Return whether a matrix has so few nonzero entries that sparse products are faster (by measurement).

    With many classes most entries are zero, because the score of a label depends on its own probability.
    """
    return size >= 1000 and nonzero * 20 <= size


def compile_problem(
    problem: Problem,
    evidence: RowData,
    frequencies: Frequencies | None = None,
    rules: Sequence[ExpandedRule] | None = None,
    features: Sequence[Feature] = (),
) -> LinearForm:
    """Return the linear form of a problem on these rows.

    For the objective `Worst`, the rate over all rows is compiled instead. By default, the frequencies
    P(event) of the conditions are measured on the evidence, and the problem is expanded into single rules;
    pass `frequencies` or `rules` to use those of another form. `features` come first in the form, even if
    unused.
    """
    if evidence.margins is None and not evidence.row_weights.any():
        raise EvidenceError("the evidence must have at least one row with a positive weight, got none")
    space = problem.action_space(evidence.classes, evidence.options)
    if rules is None and frequencies is None:  # a new problem, not the rules of a fitted policy
        evidence.check_group_sizes(problem.compared_attributes)
    if rules is None:
        rules = problem.expand(evidence.classes, evidence.group_values, space.options)
    compiler = _Compiler(space, evidence.group_values, dict(frequencies or {}), evidence)
    compiler.features = {feature: k for k, feature in enumerate(features)}
    minimized = problem.minimize.rate if isinstance(problem.minimize, Worst) else problem.minimize
    if isinstance(minimized, Ratio) or not minimized.is_linear:
        raise RuleError(
            f"minimize must be linear, got {problem.minimize}; only solve() and frontier() support others"
        )
    base, base_constant = compiler.rate(minimized)
    rows = [compiler.rate(found.excess) for found in rules]
    shape = (len(compiler.features), len(space.actions))
    feature_map = compiler.feature_map(evidence)
    couplings = _stack([entries for entries, _ in rows], shape)
    scales = _scales(feature_map, couplings, evidence) if rules else np.ones(0)
    return LinearForm(
        feature_map=feature_map,
        base=_dense(base, shape),
        base_constant=base_constant,
        couplings=scale_rows(couplings, 1 / scales),
        bounds=np.array([-constant for _, constant in rows]) / scales,
        scales=scales,
        rules=tuple(rules),
        frequencies=compiler.used,
    )


@dataclass(frozen=True)
class RateParts:
    """The rates of the rules as sums of parts, each given one condition, in the rules' own units."""

    couplings: sparse.csr_array  # (n_parts, n_features * n_actions): coefficients of each part
    rules: NDArray[np.int64]  # (n_parts,): the index of the rule of each part
    events: NDArray[np.int64]  # (n_parts,): the index of the condition of each part
    conditions: tuple[Conditions, ...]  # the conditions; the empty one means all rows
    frequencies: Floats  # (n_conditions,): the probability of each condition

    @cached_property
    def operator(self) -> Matrix:
        """The coefficients of the parts, dense if they are few, for fast products."""
        return compact(self.couplings)


def compile_parts(form: LinearForm) -> RateParts:
    """Return the rates of a form's rules as parts, one for each rule and condition."""
    compiler = _Compiler.resume(form.feature_map, form.frequencies)
    parts = [
        (j, condition, compiler.rate(part)[0])
        for j, found in enumerate(form.rules)
        for condition, part in found.excess.by_condition().items()
    ]
    places = {condition: e for e, condition in enumerate(dict.fromkeys(c for _, c, _ in parts))}
    return RateParts(
        couplings=_stack([entries for *_, entries in parts], form.base.shape),
        rules=np.array([j for j, *_ in parts], dtype=np.int64),
        events=np.array([places[condition] for _, condition, _ in parts], dtype=np.int64),
        conditions=tuple(places),
        frequencies=np.array([compiler.frequency(compiler.own(condition)) for condition in places]),
    )


def compile_rates(feature_map: FeatureMap, frequencies: Frequencies, rates: Sequence[Rate]) -> Floats:
    """Return linear rates as coefficients of the features of the map, (n_rates, n_features, n_actions)."""
    compiler = _Compiler.resume(feature_map, frequencies)
    shape = (len(feature_map.features), len(feature_map.action_space.actions))
    return np.array([_dense(compiler.rate(rate)[0], shape) for rate in rates]).reshape(-1, *shape)


def measure_wholes(form: LinearForm, moments: Floats) -> Floats:
    """Return the denominator of the ratio in each rule, (n_rules,), or one for rules without a ratio.

    `moments` E[phi pi'], (n_features, n_actions), are those of a policy.
    """
    wholes = np.ones(len(form.rules))
    if not form.has_quotients:
        return wholes
    for j, found in enumerate(form.rules):
        quotients = [atom for atom, _ in found.rule.excess.terms if atom.is_quotient]
        if quotients:
            wholes[j] = measure_moments(form, Rate(((quotients[0].whole, 1.0),)), moments)
    return wholes


@dataclass(frozen=True)
class LevelSlopes:
    """The derivatives of compiled rules in their levels (the numbers that bound them), for rules on ratios.

    Compiled rules are affine in these levels. The derivatives of other rules are zero.
    """

    couplings: sparse.csr_array  # (n_rules, n_features * n_actions): derivatives of the couplings
    bounds: Floats  # (n_rules,): derivatives of the bounds

    @classmethod
    def of(cls, form: LinearForm, scales: Floats) -> LevelSlopes:
        """Return the derivatives for the rules of a form, divided by the units `scales`, (n_rules,)."""
        compiler = _Compiler.resume(form.feature_map, form.frequencies)
        rows, constants = list[Entries](), np.zeros(len(form.rules))
        for j, found in enumerate(form.rules):
            rows.append({})
            if found.rule.is_about_ratio:
                further = found._replace(rule=found.rule.at(found.rule.level + 1.0))
                (entries, constant), (others, other) = (compiler.rate(one.excess) for one in (found, further))
                keys = {**entries, **others}
                rows[-1] = {key: others.get(key, 0.0) - entries.get(key, 0.0) for key in keys}
                constants[j] = other - constant
        return cls(scale_rows(_stack(rows, form.base.shape), 1 / scales), -constants / scales)

    def move(self, form: LinearForm, shifts: Floats) -> LinearForm:
        """Return the form after adding `shifts`, (n_rules,), to the levels of its rules."""
        couplings = form.couplings + scale_rows(self.couplings, shifts)
        return replace(form, couplings=sparse.csr_array(couplings), bounds=form.bounds + shifts * self.bounds)


def measure_moments(form: LinearForm, rate: Rate, moments: Floats) -> float:
    """Return the value of a linear rate for a policy with moments E[phi pi'] (n_features, n_actions)."""
    entries, constant = _Compiler.resume(form.feature_map, form.frequencies).rate(rate)
    known = {key: c for key, c in entries.items() if key[0] < len(moments)}
    return constant + sum(c * float(moments[key]) for key, c in known.items())


def replace_frequencies(form: LinearForm, parts: RateParts, frequencies: Frequencies) -> LinearForm:
    """Return the form after changing the frequencies of some conditions.

    `parts` are those of the form, compiled with all frequencies equal to one. The objective keeps its
    frequencies.
    """
    known = {**form.frequencies, **frequencies}
    divisors = np.array([known[condition] if condition else 1.0 for condition in parts.conditions])
    entries = parts.couplings.tocoo()
    part = entries.coords[0]
    values = entries.data / (divisors[parts.events[part]] * form.scales[parts.rules[part]])
    where = (parts.rules[part], entries.coords[1])
    couplings = sparse.csr_array((values, where), shape=form.couplings.shape)
    return replace(form, couplings=couplings, frequencies=known)


Entries = dict[tuple[int, int], float]  # (feature, action) -> coefficient


class _Compiler:
    """A compiler of rates to coefficients. It collects the features and frequencies that they use."""

    @classmethod
    def resume(cls, feature_map: FeatureMap, frequencies: Frequencies) -> _Compiler:
        """Return a compiler that begins with the features and frequencies of a form."""
        values = {name: attribute.values for name, attribute in feature_map.attributes.items()}
        compiler = cls(feature_map.action_space, values, dict(frequencies))
        compiler.features = {feature: k for k, feature in enumerate(feature_map.features)}
        return compiler

    def __init__(
        self,
        space: ActionSpace,
        group_values: Mapping[str, Sequence[Value]],
        frequencies: dict[Conditions, float],
        evidence: RowData | None = None,  # rows on which missing frequencies are measured
    ):
        self.space = space
        self.evidence = evidence
        self.frequencies = frequencies
        values = {LABEL: space.classes, **group_values}
        self.values = {name: {value: value for value in found} for name, found in values.items()}
        self.used: dict[Conditions, float] = {}
        self.features: dict[Feature, int] = {}
        self.functions: dict[str, Callable[..., Any] | None] = {}

    def rate(self, rate: Rate) -> tuple[Entries, float]:
        """Return a rate as coefficients of E[feature * pi(action)], and a constant."""
        entries: Entries = {}
        constant = rate.constant
        for atom, factor in rate.resolve(self.space.classes).terms:
            meaning = atom.meaning(self.space)
            constant += factor * meaning.constant
            conditions = self.own(atom.conditions)
            scale = factor / self.frequency(conditions)
            for term in meaning.terms:
                event = add_label(conditions, term.label)
                if event is not None:
                    key = self._feature(atom, term.source, event), self.space.position(term.action)
                    entries[key] = entries.get(key, 0.0) + scale * term.coefficient
        return entries, constant

    def feature_map(self, evidence: RowData) -> FeatureMap:
        names = {name for feature in self.features for name, _ in feature.event if name != LABEL}
        attributes = {
            name: Attribute(group.values, group.known)
            for name, group in evidence.groups.items()
            if name in names
        }
        functions = {name: function for name, function in self.functions.items() if function}
        return FeatureMap(self.space, tuple(self.features), attributes, functions)

    def own(self, conditions: Conditions) -> Conditions:
        """Replace the values in conditions by the equal values of classes and groups: 1 may mean True."""
        return tuple((name, self.values.get(name, {}).get(value, value)) for name, value in conditions)

    def _feature(self, atom: Atom, source: Source | None, event: Conditions) -> int:
        name = source.name if isinstance(source, CostColumn) else None
        if name is not None and self.functions.setdefault(name, atom.function) is not atom.function:
            raise RuleError(
                f"custom({name!r}) must have the same function in all rules, got two; rename one of them"
            )
        return self.features.setdefault(Feature(source, event), len(self.features))

    def frequency(self, conditions: Conditions) -> float:
        """Return P(conditions), as given or else measured on the evidence."""
        if not conditions:
            return 1.0
        if conditions not in self.frequencies:
            assert self.evidence is not None
            self.frequencies[conditions] = measure_frequency(conditions, self.evidence)
        self.used[conditions] = self.frequencies[conditions]
        return self.used[conditions]


def measure_frequency(conditions: Conditions, rows: RowData) -> float:
    """Return P(conditions) on these rows. Raise an `EvidenceError` if it is not positive."""
    frequency = rows.frequency(conditions)
    if frequency > 0:
        return frequency
    if isinstance(rows, ObservedRows) and rows.find_partly_seen(dict(conditions)):
        raise EvidenceError(
            f"a rule refers to rows with {format_conditions(conditions)}, but too few of them were observed: "
            f"their prediction-powered frequency must be positive, got {frequency:.3g}; remove the rule, "
            "merge the group with another, or observe more rows"
        )
    raise EvidenceError(
        f"a rule refers to rows with {format_conditions(conditions)}, but no row of the evidence with a "
        "positive weight satisfies that; remove the rule, merge the group with another, or add rows"
    )


def add_label(conditions: Conditions, label: Value | None) -> Conditions | None:
    """Return the conditions together with this label, or None if they have another label."""
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
    pairs = [pair for row in rows for pair in sorted((k * shape[1] + a, c) for (k, a), c in row.items())]
    places, values = ([pair[i] for pair in pairs] for i in (0, 1))
    entries = np.array(values, dtype=np.float64), np.array(places, dtype=np.int64)
    ends = np.cumsum([0, *map(len, rows)])
    return sparse.csr_array((*entries, ends), shape=(len(rows), shape[0] * shape[1]))


def scale_rows(matrix: sparse.csr_array, factors: Floats) -> sparse.csr_array:
    """Multiply each row of a matrix, (n_rows, n_columns), by its factor, (n_rows,)."""
    data = matrix.data * np.repeat(factors, np.diff(matrix.indptr))
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _scales(feature_map: FeatureMap, couplings: sparse.csr_array, evidence: RowData) -> Floats:
    """Return the unit of each rule, (n_rules,): one for rules of ordinary size, otherwise the typical size.

    So the tolerance of ordinary rules is absolute, and rules in millions or millionths are solved equally
    well.
    """
    features, margins = feature_map.features, evidence.margins
    # Estimate E|phi|, (n_features,), on a few rows or, if rows are not in memory, from sums over them.
    if margins is not None and not len(evidence):
        feature_map.admit(evidence)
        typical = np.array([margins.estimate_size(feature.source, feature.event) for feature in features])
    else:
        rows = min(4096, max(2**19 // len(features), 1))
        sample = feature_map.admit(evidence.rows(slice(None, None, -(-len(evidence) // rows))))
        columns = feature_map.columns(sample, slice(None), np.empty((len(features), len(sample))))
        typical = abs(columns).mean(axis=1)
    entries = couplings.tocoo()
    places = entries.coords[1] // len(feature_map.action_space.actions)
    sizes = np.zeros(len(couplings.indptr) - 1)
    np.maximum.at(sizes, entries.coords[0], abs(entries.data) * typical[places])
    return np.where((sizes > 1e-2) & (sizes < 1e3) | (sizes == 0), 1.0, sizes)


def check_options_cost(minimize: Objective, form: LinearForm, evidence: RowData) -> None:
    """Raise a `RuleError` if an option costs nothing and violates no rule: it would get all rows.

    `form` is the problem with this objective, compiled on these rows; for `Worst`, with any group weights.
    """
    space = form.action_space
    if not minimize.is_probability or any(factor < 0 for _, factor in minimize.terms):
        return  # other actions may have negative costs, less than an option that costs nothing
    for option in space.named_options:  # rejections without a limit are intended
        place = space.position(option)
        if form.base[:, place].any() or _breaks_rules(form, place, evidence):
            continue
        cost: Any = 0.1 * selected(option)
        priced = Worst(minimize.rate + cost, minimize.by) if isinstance(minimize, Worst) else minimize + cost
        raise RuleError(
            f"the option {option!r} costs nothing and no rule limits it, so that it would get all rows: "
            f"add its cost to the objective, such as minimize={priced}, or add a rule that bounds it, such "
            f"as selected({option!r}) <= 0.05"
        )


def check_options_of_ratio(minimize: Objective, forms: Sequence[LinearForm], evidence: RowData) -> None:
    """Raise a `RuleError` if minimizing a ratio treats an option like a label and no rule limits the option.

    `forms` are the problem compiled on these rows with the numerator and with the denominator as objective.
    """
    space, base = forms[0].action_space, np.vstack([form.base for form in forms])
    labels = base[:, [space.position(label) for label in space.classes]]
    for option in space.options:
        place = space.position(option)
        like_a_label = (labels == base[:, [place]]).all(axis=0).any()
        if not like_a_label or _breaks_rules(forms[0], place, evidence):
            continue
        what, rate = "a rejection", "rejected()"
        if option in space.named_options:
            what, rate = f"the option {option!r}", f"selected({option!r})"
        raise RuleError(
            f"{what} costs as little as a label in minimize={minimize} and no rule limits it, so that it "
            f"would be assigned arbitrarily: minimize error() + 0.1 * {rate} subject to a rule on the "
            f"present objective, such as {minimize} <= 0.5, or add a rule such as {rate} <= 0.05"
        )


def _breaks_rules(form: LinearForm, place: int, evidence: RowData) -> bool:
    """Return whether the decision for one action on all rows violates a rule, by more than rounding errors.

    `place` is the index of the action. Rules that depend on other columns than probabilities count as
    violated.
    """
    couplings = form.couplings[:, place :: form.base.shape[1]].tocoo()  # (n_rules, n_features)
    totals: Floats = -form.bounds.copy()
    for j, k, coefficient in zip(*couplings.coords, couplings.data, strict=True):
        source, event = form.feature_map.features[k]
        totals[j] += math.inf if source else coefficient * (evidence.frequency(event) if event else 1.0)
    return bool((totals > 1e-9).any())
