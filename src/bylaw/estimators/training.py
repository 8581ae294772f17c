"""The models behind a constrained classifier: cross-fitted to choose the policy, then trained for use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params, _num_samples

from bylaw._base.typing import Floats, Mask
from bylaw.errors import OptionError
from bylaw.estimators.cross_fitting import (
    RowIndices,
    align_columns,
    clone_unfitted,
    is_frozen,
    make_splits,
    predict_out_of_fold,
)
from bylaw.estimators.group_models import HiddenGroup
from bylaw.estimators.score_calibration import Calibration, calibrate
from bylaw.language.expressions import LABEL
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import Fingerprints, hash_evidence
from bylaw.rows.evidence import Evidence
from bylaw.rows.groups import MISSING, KnownGroup

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """Rows, and the models that are trained on them unless they are frozen."""

    model: Any  # of the labels
    hidden: tuple[HiddenGroup, ...]  # models of groups
    X: Any
    labels: NDArray[Any] | None  # (n_rows,)
    label_codes: NDArray[np.int64] | None  # (n_rows,): positions in the classes
    classes: NDArray[Any]
    groups: Mapping[str, KnownGroup]
    seen: Mapping[str, Mask]  # where labels and groups that some rows lack are shown, (n_rows,) each
    propensity_weights: Floats | None  # (n_rows,): 1 / P(seen | x)
    cv: Any
    split_params: Params  # for the splitter
    random_state: Any
    n_jobs: int | None
    calibrator: Any  # of labels and groups given all scores, or None
    calibrator_params: Params
    weights: Floats | None
    params: Params  # for the model's fit
    group_params: Sequence[Params]  # for each group model's

    def __len__(self) -> int:
        return _num_samples(self.X)

    def select_rows(self, rows: RowIndices) -> Training:
        """With some of the rows only."""

        def select(params: Params) -> Params:
            return _check_method_params(self.X, params=dict(params), indices=rows)

        return replace(
            self,
            X=_safe_indexing(self.X, rows),
            labels=None if self.labels is None else self.labels[rows],
            label_codes=None if self.label_codes is None else self.label_codes[rows],
            groups={name: group.rows(rows) for name, group in self.groups.items()},
            seen={name: shown[rows] for name, shown in self.seen.items()},
            propensity_weights=None if self.propensity_weights is None else self.propensity_weights[rows],
            weights=None if self.weights is None else self.weights[rows],
            split_params=select(self.split_params),
            calibrator_params=select(self.calibrator_params),
            params=select(self.params),
            group_params=[select(params) for params in self.group_params],
        )

    @cached_property
    def splits(self) -> list[tuple[RowIndices, RowIndices]]:
        """Empty where nothing is to be trained."""
        if is_frozen(self.model) and all(is_frozen(group.model) for group in self.hidden):
            return []
        return make_splits(
            self.cv, self.X, self.labels, self.random_state, self.split_params, self.seen.get(LABEL)
        )

    @cached_property
    def _targets(self) -> list[NDArray[np.int64] | None]:
        """What each model of groups learns; None if it is frozen."""
        return [
            None if is_frozen(h.model) else h.encode_cells(self.groups, self.label_codes) for h in self.hidden
        ]

    @cached_property
    def policy_rows(self) -> RowIndices:
        """The rows on which the policy is chosen: those with out-of-fold predictions, or all."""
        if not self.splits:
            return np.arange(_num_samples(self.X))
        return np.concatenate([test for _, test in self.splits])

    def list_observed(self, rows: RowIndices) -> dict[str, Any]:
        """Return what `fit` observes of some rows, as observed columns of evidence."""
        labels, weights = self.labels, self.propensity_weights
        if labels is not None and LABEL in self.seen:
            labels = np.ma.MaskedArray(labels, mask=~self.seen[LABEL])
        groups = {}
        for name in [name for group in self.hidden for name in group.names if name in self.groups]:
            group = self.groups[name]
            codes = np.where(self.seen[name], group.codes, MISSING) if name in self.seen else group.codes
            groups[name] = KnownGroup(group.values, codes[rows])
        partly = any(0 < shown[rows].mean() < 1 for shown in self.seen.values())
        return {
            "labels": None if labels is None else labels[rows],
            "true_groups": groups or None,
            "propensity_weights": weights[rows] if partly and weights is not None else None,
        }

    def count_seen(self, names: Iterable[str]) -> int:
        """How many of the policy's rows show all of these attributes."""
        masks = [self.seen[name][self.policy_rows] for name in names if name in self.seen]
        return int(np.logical_and.reduce(masks).sum()) if masks else len(self.policy_rows)

    def fingerprint_rows(
        self, trained: TrainedModels, policy: Policy, references: Mapping[str, NDArray[Any]]
    ) -> Fingerprints:
        """Return the policy's fingerprints, and that of all rows with the probabilities that the models in
        use give."""
        if not self.splits:
            return policy.fingerprints
        evidence = trained.make_evidence(self.X, self.groups, references)
        return hash_evidence(policy.feature_map, policy.calibrate(evidence)).join(policy.fingerprints)

    def make_evidence(self, references: Mapping[str, NDArray[Any]]) -> Evidence:
        """Return the policy's rows, with out-of-fold predictions and what `fit` observes of them."""
        predictions = (
            self._predictions if self._calibration is None else self._calibration(*self._predictions)
        )
        return assemble_evidence(
            *predictions,
            classes=self.classes,
            hidden=self.hidden,
            groups={name: group.rows(self.policy_rows) for name, group in self.groups.items()},
            references={name: column[self.policy_rows] for name, column in references.items()},
            weights=None if self.weights is None else self.weights[self.policy_rows],
        ).with_observed(**self.list_observed(self.policy_rows))

    @cached_property
    def _predictions(self) -> tuple[Floats, list[Floats]]:
        """Probabilities of the labels and of each hidden group's cells, for the policy's rows."""
        X = _safe_indexing(self.X, self.policy_rows) if self.splits else self.X
        if is_frozen(self.model):
            labels = _predict_labels(self.model, X, self.classes)
        else:
            parts = self._predict_out_of_fold(self.model, self.labels, self.params, self.seen.get(LABEL))
            labels = np.concatenate(
                [
                    align_columns(p, present, self.classes, "the estimator, in one of the folds,")
                    for p, present in parts
                ]
            )
        cells = [
            h.predict(h.model, X)
            if target is None
            else h.stack_predictions(
                self._predict_out_of_fold(h.model, target, params, h.find_seen(self.seen))
            )
            for h, target, params in zip(self.hidden, self._targets, self.group_params, strict=True)
        ]
        return labels, cells

    @cached_property
    def _calibration(self) -> Calibration | None:
        if self.calibrator is None:
            return None
        if self.labels is None:
            raise OptionError("a calibrator learns from labels: pass y, or leave out calibrator")
        if unseen := [name for h in self.hidden for name in h.names if name not in self.groups]:
            raise OptionError(f"a calibrator learns from groups: pass sensitive_features with {unseen}")
        shown = np.ones(len(self.policy_rows), dtype=bool)  # those with all labels and groups
        for mask in self.seen.values():
            shown &= mask[self.policy_rows]
        rows, (chances, cells) = self.policy_rows[shown], self._predictions
        targets = [h.encode_cells(self.groups, self.label_codes)[rows] for h in self.hidden]
        params = _check_method_params(self.X, params=dict(self.calibrator_params), indices=rows)
        learned = chances[shown], [part[shown] for part in cells], self.labels[rows]
        return calibrate(self.calibrator, *learned, targets, self.hidden, self.classes, params)

    def _predict_out_of_fold(
        self, model: Any, target: Any, params: Params, seen: Mask | None
    ) -> list[tuple[Floats, Any]]:
        """By models that are trained on the rows that show their target."""
        splits = [(train if seen is None else train[seen[train]], test) for train, test in self.splits]
        return predict_out_of_fold(model, self.X, target, splits, params=params, n_jobs=self.n_jobs)

    def train_models(self) -> TrainedModels:
        """The models in use: trained on all rows after folds, on the training part after one split."""
        groups = [
            h.model if target is None else self._train(h.model, target, params, h.find_seen(self.seen))
            for h, target, params in zip(self.hidden, self._targets, self.group_params, strict=True)
        ]
        frozen = is_frozen(self.model)
        seen = self.seen.get(LABEL)
        model = self.model if frozen else self._train(self.model, self.labels, self.params, seen)
        return TrainedModels(model, self.hidden, tuple(groups), self.classes, self._calibration)

    def _train(self, model: Any, target: Any, params: Params, seen: Mask | None) -> Any:
        """On the rows that show their target."""
        if len(self.splits) != 1 and seen is None:
            return clone_unfitted(model).fit(self.X, target, **params)
        rows = self.splits[0][0] if len(self.splits) == 1 else np.arange(len(self))
        rows = rows if seen is None else rows[seen[rows]]
        own = _check_method_params(self.X, params=dict(params), indices=rows)
        return clone_unfitted(model).fit(_safe_indexing(self.X, rows), _safe_indexing(target, rows), **own)


@dataclass(frozen=True)
class TrainedModels:
    """Models that are ready for new rows."""

    model: Any  # of the labels
    hidden: tuple[HiddenGroup, ...]
    group_models: tuple[Any, ...]  # one for each hidden group
    classes: NDArray[Any]
    calibration: Calibration | None

    def make_evidence(
        self, X: Any, groups: Mapping[str, KnownGroup], references: Mapping[str, NDArray[Any]]
    ) -> Evidence:
        """Of new rows."""
        labels = _predict_labels(self.model, X, self.classes)
        cells = [h.predict(model, X) for h, model in zip(self.hidden, self.group_models, strict=True)]
        if self.calibration is not None:
            labels, cells = self.calibration(labels, cells)
        return assemble_evidence(
            labels,
            cells,
            classes=self.classes,
            hidden=self.hidden,
            groups=groups,
            references=references,
        )

    def make_held_out(
        self, rows: Training, references: Mapping[str, NDArray[Any]], largest_weight: float | None
    ) -> Evidence:
        """Return rows that no model was trained on, with their true labels and groups."""
        evidence = self.make_evidence(rows.X, rows.groups, references).with_columns(weights=rows.weights)
        observed = rows.list_observed(np.arange(len(rows)))
        return evidence.with_observed(**observed, largest_weight=largest_weight)


def assemble_evidence(
    probabilities: Floats,
    cells: Sequence[Floats],
    *,
    classes: NDArray[Any],
    hidden: Sequence[HiddenGroup],
    groups: Mapping[str, KnownGroup],
    references: Mapping[str, NDArray[Any]],
    weights: Floats | None = None,
) -> Evidence:
    """Evidence in which hidden groups are known only as their models' probabilities."""
    unknown = {name for group in hidden for name in group.names}
    columns: dict[Any, Any] = {name: group for name, group in groups.items() if name not in unknown}
    joint: dict[Any, Floats] = {}
    for group, predicted in zip(hidden, cells, strict=True):
        marginal, with_label = group.make_columns(predicted, probabilities, groups)
        columns |= marginal
        joint |= with_label
    return Evidence(
        probabilities,
        classes=classes.tolist(),
        groups=columns,
        joint=joint,
        references=references,
        weights=weights,
        normalize=True,
    )


def _predict_labels(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    return align_columns(model.predict_proba(X), model.classes_, classes, "the estimator")
