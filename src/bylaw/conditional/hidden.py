"""Groups that are unknown when a decision is made: models of P(s | x) and of P(s, y | x)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw.algebra import LABEL, Value
from bylaw.conditional.beside import check_known
from bylaw.conditional.crossfit import is_frozen, with_probabilities
from bylaw.conditional.joint import spread
from bylaw.decisions import Floats
from bylaw.errors import EvidenceError, OptionError
from bylaw.groups import KnownGroup
from bylaw.problem import Problem

Names = tuple[str, ...]  # attributes that are modelled together


@dataclass(frozen=True)
class HiddenGroup:
    """A model of some attributes together, and of the label with them where rules need it."""

    names: Names
    values: tuple[tuple[Value, ...], ...]  # of each attribute
    n_classes: int
    with_label: bool
    product: bool  # the label and the group taken as independent given x, because the caller says so
    model: Any  # a classifier of cells, not fitted unless it is frozen

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = tuple(map(len, self.values))
        return (*sizes, self.n_classes) if self.with_label and not self.product else sizes

    def target(self, groups: Mapping[str, KnownGroup], label_codes: Any) -> Any:
        """Each row's cell as one number."""
        codes = [groups[name].codes for name in self.names]
        if self.with_label and not self.product:
            if label_codes is None:
                raise EvidenceError(
                    f"a rule speaks of {' x '.join(self.names)} and the label together: pass y, from which "
                    "a model of both is learned, or joint='product' if they are independent given X"
                )
            codes.append(label_codes)
        return np.ravel_multi_index(codes, self.shape)

    def columns(self, cells: Floats, probabilities: Floats) -> tuple[dict[Any, Any], dict[Any, Floats]]:
        """Groups and joint for `Evidence`, from probabilities of the cells and of the labels."""
        joint = {}
        if not self.with_label:
            group = cells.reshape(len(cells), -1)
        elif self.product:
            joint[self.key] = cells.reshape(len(cells), -1, 1) * probabilities[:, None, :]
            group = cells.reshape(len(cells), -1)
        else:
            joint[self.key] = _given_label(cells.reshape(len(cells), -1, self.n_classes), probabilities)
            group = joint[self.key].sum(axis=2)
        return {self.key: dict(zip(self.combinations, group.T, strict=True))}, joint

    @property
    def key(self) -> Any:
        return self.names[0] if len(self.names) == 1 else self.names

    @property
    def combinations(self) -> list[Any]:
        """The values in the order of the cells, tuples where attributes go together."""
        if len(self.names) == 1:
            return list(self.values[0])
        sizes = tuple(map(len, self.values))
        return [tuple(v[i] for v, i in zip(self.values, place, strict=True)) for place in np.ndindex(sizes)]

    def predict(self, model: Any, X: Any) -> Floats:
        """(n_rows, *shape) from a fitted model: ours knows cells, a frozen one the values themselves."""
        if not is_frozen(self.model):
            return spread(model.predict_proba(X), model.classes_, self.shape)
        if hasattr(model, "predict_joint"):
            joint = model.predict_joint(X)
            if joint.shape[1:] == self.shape:
                return joint
        elif len(self.shape) == 1:
            return spread(
                model.predict_proba(X), np.array(_places(model.classes_, self.values[0])), self.shape
            )
        raise OptionError(
            f"the frozen group_estimator for {' x '.join(self.names)} must be a JointClassifier fitted on "
            f"{' and '.join([*self.names, LABEL] if self.with_label else self.names)} together, in this order"
        )

    def gathered(self, parts: Sequence[tuple[Floats, Any]]) -> Floats:
        """Predictions of several models, each of the cells it has seen, (n_rows, *shape)."""
        return np.concatenate([spread(p, present, self.shape) for p, present in parts])


def _given_label(cells: Floats, probabilities: Floats) -> Floats:
    """P(s, y | x) = P(s | x, y) P(y | x): the pair model says how groups go with labels, the
    classifier how likely the labels are, so that both agree."""
    total = cells.sum(axis=1, keepdims=True)
    overall = cells.mean(axis=0)
    fallback = overall / np.maximum(overall.sum(axis=0, keepdims=True), np.finfo(float).tiny)
    given = np.where(total > 0, cells / np.where(total > 0, total, 1.0), fallback)
    return given * probabilities[:, None, :]


def _places(present: Any, values: Sequence[Value]) -> NDArray[np.int64]:
    return np.array([values.index(value) for value in np.asarray(present).tolist()])


def hidden_groups(
    estimators: Any,
    problem: Problem,
    classes: Sequence[Value],
    groups: Mapping[str, KnownGroup],
    product: bool,
) -> tuple[HiddenGroup, ...]:
    """The models that the rules need: of each hidden attribute, and of those that go together."""
    hidden = _hidden_names(estimators, problem)
    check_known(problem.attributes, {*groups, *hidden})
    values = {name: _values(name, estimators, groups) for name in hidden}
    known = {name: group.values for name, group in groups.items()}
    rates = [rule.excess for rule, _ in problem.expand(classes, {**known, **values})]
    wanted: dict[Names, bool] = {}
    for atom in [atom for rate in (problem.minimize, *rates) for atom, _ in rate.terms]:
        named = dict(atom.conditions)
        if names := tuple(name for name in hidden if name in named):
            wanted[names] = wanted.get(names, False) or atom.needs_label(problem.kind, classes)
    return tuple(
        HiddenGroup(
            names=names,
            values=tuple(values[name] for name in names),
            n_classes=len(classes),
            with_label=with_label,
            product=product,
            model=_model(estimators, names),
        )
        for names, with_label in wanted.items()
    )


def _hidden_names(estimators: Any, problem: Problem) -> list[str]:
    if estimators is None:
        return []
    if not isinstance(estimators, Mapping):
        return list(problem.attributes)
    names = [name for key in estimators for name in (key if isinstance(key, tuple) else (key,))]
    if unknown := set(names) - set(problem.attributes):
        raise OptionError(
            f"group_estimator has a model for {sorted(unknown)}, of which no rule speaks; "
            f"the rules speak of {list(problem.attributes)}"
        )
    return list(dict.fromkeys(names))


def _values(name: str, estimators: Any, groups: Mapping[str, KnownGroup]) -> tuple[Value, ...]:
    if name in groups:
        return groups[name].values
    model = _chosen(estimators, (name,))
    if is_frozen(model) and hasattr(model, "classes_"):
        return tuple(np.asarray(model.classes_).tolist())
    raise EvidenceError(
        f"the rules speak of {name!r}: pass sensitive_features with this column to fit, from which the "
        "group_estimator learns to guess it"
    )


def key_of(estimators: Any, names: Names) -> Any:
    """Where a dict has the model for some attributes; None where one model serves all."""
    if not isinstance(estimators, Mapping):
        return None
    together = names[0] if len(names) == 1 else names
    return together if together in estimators else names[0]


def _chosen(estimators: Any, names: Names) -> Any:
    key = key_of(estimators, names)
    return estimators if key is None else estimators[key]


def _model(estimators: Any, names: Names) -> Any:
    return with_probabilities(_chosen(estimators, names), f"the group_estimator for {' x '.join(names)}")
