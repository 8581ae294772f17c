"""The models of a constrained classifier: cross-fitted to choose the policy, then trained for use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from bylaw._base.typing import Floats
from bylaw.errors import OptionError
from bylaw.estimators.cross_fitting import (
    RowIndices,
    align_columns,
    clone_unfitted,
    ensure_probabilities,
    is_frozen,
    make_splits,
    predict_out_of_fold,
)
from bylaw.estimators.group_models import HiddenGroup
from bylaw.estimators.inputs import FitRows
from bylaw.estimators.joint import expand_cells
from bylaw.policy.policy import Policy
from bylaw.policy.recognition import Fingerprints, hash_evidence
from bylaw.rows.evidence import Evidence
from bylaw.rows.groups import KnownGroup

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """Rows, and the models that are trained on them unless they are frozen."""

    rows: FitRows
    model: Any  # of the labels
    hidden: tuple[HiddenGroup, ...]  # models of groups
    classes: NDArray[Any]
    cv: Any
    random_state: Any
    n_jobs: int | None
    calibrator: Any  # of labels and groups given all scores, or None
    params: Params  # for the fit of the model,
    group_params: Sequence[Params]  # of each model of groups,
    calibrator_params: Params  # and of the calibrator
    split_params: Params  # for the splitter

    def select_rows(self, rows: RowIndices) -> Training:
        """Return the same models on some of the rows."""

        def select(params: Params) -> Params:
            return _check_method_params(self.rows.X, params=dict(params), indices=rows)

        return replace(
            self,
            rows=self.rows.select(rows),
            params=select(self.params),
            group_params=[select(params) for params in self.group_params],
            calibrator_params=select(self.calibrator_params),
            split_params=select(self.split_params),
        )

    @cached_property
    def splits(self) -> list[tuple[RowIndices, RowIndices]]:
        """Rows to train on and rows to predict, in each fold; none if all models are frozen."""
        if is_frozen(self.model) and all(is_frozen(group.model) for group in self.hidden):
            return []
        codes, labels, labeled = self.rows.codes, None, None
        if codes is not None:
            labels, labeled = self.classes[codes], codes >= 0
        labeled = None if labeled is None or labeled.all() else labeled
        return make_splits(self.cv, self.rows.X, labels, self.random_state, self.split_params, labeled)

    @cached_property
    def policy_rows(self) -> FitRows:
        """The rows on which the policy is chosen: those with out-of-fold predictions, or all."""
        return self.rows.select(self._policy_indices) if self.splits else self.rows

    @cached_property
    def _policy_indices(self) -> RowIndices:
        if not self.splits:
            return np.arange(len(self.rows))
        return np.concatenate([test for _, test in self.splits])

    @cached_property
    def _cells(self) -> list[NDArray[np.int64] | None]:
        """The target of each model of groups, (n_rows,); None if it is frozen and needs none."""
        return [
            h.encode_cells(self.rows.groups, self.rows.codes)
            if self.calibrator is not None or not is_frozen(h.model)
            else None
            for h in self.hidden
        ]

    def count_observed(self, names: Iterable[str]) -> int:
        """Return the number of the policy's rows on which all of these attributes are observed."""
        groups = self.policy_rows.groups
        masks = [groups[name].codes >= 0 for name in names if name in groups]
        return int(np.logical_and.reduce(masks).sum()) if masks else len(self.policy_rows)

    def fingerprint_rows(self, trained: TrainedModels, policy: Policy) -> Fingerprints:
        """Return the policy's fingerprints, and those of the rows as the trained models predict them."""
        if not self.splits:
            return policy.fingerprints
        rows = self.rows
        evidence = trained.make_evidence(rows.X, rows.groups, rows.references)
        return hash_evidence(policy.feature_map, policy.calibrate(evidence)).join(policy.fingerprints)

    def make_evidence(self) -> Evidence:
        """Return the policy's rows with out-of-fold predictions, observed labels and true groups."""
        models, predictions = self._models, self._predictions
        return models.observe(models.assemble(*predictions, self.policy_rows), self.policy_rows)

    @cached_property
    def _models(self) -> TrainedModels:
        """The models as they are before the last training, with the calibration."""
        return TrainedModels(self.model, self.hidden, (), self.classes, self._calibration)

    @cached_property
    def _predictions(self) -> tuple[Floats, list[Floats]]:
        """Probabilities of the labels and of each hidden group's cells, for the policy's rows."""
        X = self.policy_rows.X
        if is_frozen(self.model):
            labels = align_columns(
                self.model.predict_proba(X), self.model.classes_, self.classes, "the estimator"
            )
        else:
            what = "the estimator, in one of the folds,"
            parts = self._predict_out_of_fold(self.model, self.rows.codes, self.classes, self.params)
            labels = np.concatenate([align_columns(p, seen, self.classes, what) for p, seen in parts])
        cells = []
        for h, target, params in zip(self.hidden, self._cells, self.group_params, strict=True):
            if is_frozen(h.model):
                cells.append(h.predict(h.model, X))
            else:
                parts = self._predict_out_of_fold(h.model, target, None, params)
                cells.append(np.concatenate([expand_cells(p, seen, h.shape) for p, seen in parts]))
        return labels, cells

    def _predict_out_of_fold(self, model: Any, codes: Any, values: Any, params: Params) -> list[Any]:
        """Predict each fold by a model that is trained on the other rows with an observed target."""
        splits = [(train[codes[train] >= 0], test) for train, test in self.splits]
        target = codes if values is None else values[codes]
        return predict_out_of_fold(model, self.rows.X, target, splits, params=params, n_jobs=self.n_jobs)

    @cached_property
    def _calibration(self) -> ScoreCalibration | None:
        if self.calibrator is None:
            return None
        if self.rows.codes is None:
            raise OptionError("a calibrator learns from labels: pass y, or leave out calibrator")
        if unknown := [name for h in self.hidden for name in h.names if name not in self.rows.groups]:
            raise OptionError(f"a calibrator learns from groups: pass sensitive_features with {unknown}")
        # Train on the rows with all labels and groups.
        columns = [self.rows.codes, *(cells for cells in self._cells if cells is not None)]
        observed = np.logical_and.reduce([column[self._policy_indices] >= 0 for column in columns])
        rows, (labels, cells) = self._policy_indices[observed], self._predictions
        params = _check_method_params(self.rows.X, params=dict(self.calibrator_params), indices=rows)
        scores = compute_log_ratios(labels[observed], [part[observed] for part in cells])
        model = ensure_probabilities(self.calibrator, "calibrator")
        label_model, *group_models = (
            clone_unfitted(model).fit(scores, target, **params)
            for target in (self.classes[self.rows.codes[rows]], *(column[rows] for column in columns[1:]))
        )
        return ScoreCalibration(label_model, tuple(group_models))

    def train_models(self) -> TrainedModels:
        """Return models for new rows: trained on all rows or, with one split, on its first part."""
        model = self.model
        if not is_frozen(model):
            model = self._train(model, self.rows.codes, self.classes, self.params)
        groups = [
            h.model if is_frozen(h.model) else self._train(h.model, cells, None, params)
            for h, cells, params in zip(self.hidden, self._cells, self.group_params, strict=True)
        ]
        return replace(self._models, model=model, group_models=tuple(groups))

    def _train(self, model: Any, codes: Any, values: Any, params: Params) -> Any:
        X, target = self.rows.X, codes if values is None else values[codes]
        if len(self.splits) != 1 and (codes >= 0).all():
            return clone_unfitted(model).fit(X, target, **params)
        rows = self.splits[0][0] if len(self.splits) == 1 else np.arange(len(self.rows))
        rows = rows[codes[rows] >= 0]
        own = _check_method_params(X, params=dict(params), indices=rows)
        return clone_unfitted(model).fit(_safe_indexing(X, rows), _safe_indexing(target, rows), **own)


@dataclass(frozen=True)
class ScoreCalibration:
    """Models of the label and of each hidden group's cells, given the scores.

    The policy reads the models' probabilities of a row, its scores, so that it needs P(label | scores) and
    P(group | scores). Both are learned from log-ratios of the out-of-fold probabilities.
    """

    label_model: Any
    group_models: tuple[Any, ...]


@dataclass(frozen=True)
class TrainedModels:
    """Models that are ready for new rows."""

    model: Any  # of the labels
    hidden: tuple[HiddenGroup, ...]
    group_models: tuple[Any, ...]  # one for each hidden group
    classes: NDArray[Any]
    calibration: ScoreCalibration | None

    def make_evidence(
        self, X: Any, groups: Mapping[str, KnownGroup], references: Mapping[str, NDArray[Any]]
    ) -> Evidence:
        """Return evidence of new rows."""
        model = self.model
        labels = align_columns(model.predict_proba(X), model.classes_, self.classes, "the estimator")
        cells = [h.predict(model, X) for h, model in zip(self.hidden, self.group_models, strict=True)]
        return self.assemble(labels, cells, FitRows(X, None, groups, references))

    def assemble(self, labels: Floats, cells: Sequence[Floats], rows: FitRows) -> Evidence:
        """Return evidence from predictions, in which hidden groups have only probabilities."""
        if self.calibration is not None:
            scores, models = compute_log_ratios(labels, cells), self.calibration.group_models
            labels = align_columns(
                self.calibration.label_model.predict_proba(scores),
                self.calibration.label_model.classes_,
                self.classes,
                "the calibrator",
            )
            cells = [
                expand_cells(model.predict_proba(scores), model.classes_, h.shape)
                for h, model in zip(self.hidden, models, strict=True)
            ]
        unknown = {name for group in self.hidden for name in group.names}
        columns: dict[Any, Any] = {name: group for name, group in rows.groups.items() if name not in unknown}
        joint: dict[Any, Floats] = {}
        for group, predicted in zip(self.hidden, cells, strict=True):
            marginal, with_label = group.make_columns(predicted, labels, rows.groups)
            columns |= marginal
            joint |= with_label
        return Evidence(
            labels,
            classes=self.classes.tolist(),
            groups=columns,
            joint=joint,
            references=rows.references,
            weights=rows.weights,
            normalize=True,
        )

    def observe(self, evidence: Evidence, rows: FitRows, largest_weight: float | None = None) -> Evidence:
        """Return evidence with the labels and the true groups that are observed on its rows."""
        names = [name for group in self.hidden for name in group.names if name in rows.groups]
        codes, weights = rows.codes, rows.propensity_weights
        labels = None if codes is None else np.ma.MaskedArray(self.classes[codes], mask=codes < 0)
        return evidence.with_observed(
            labels=labels.data if labels is not None and not labels.mask.any() else labels,
            true_groups={name: rows.groups[name] for name in names} or None,
            propensity_weights=weights if rows.incomplete else None,
            largest_weight=largest_weight,
        )


def compute_log_ratios(labels: Floats, cells: Sequence[Floats]) -> Floats:
    """Return log-ratios of probabilities to those of the last class or cell, (n_rows, n_scores)."""
    tables = [np.log(np.maximum(p.reshape(len(p), -1), 1e-6)) for p in (labels, *cells)]
    return np.concatenate([table[:, :-1] - table[:, -1:] for table in tables], axis=1)
