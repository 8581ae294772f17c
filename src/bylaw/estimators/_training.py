"""Training of the models of a constrained classifier.

Cross-fitting predicts each row with a model that was not trained on it, by folds or by one split. The policy
is chosen on these predictions, and then the models are trained for new rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from bylaw._base import Floats
from bylaw.errors import EvidenceError, OptionError
from bylaw.estimators._group_models import HiddenGroup
from bylaw.estimators._inputs import FitRows, RowIndices
from bylaw.estimators._joint import expand_cells
from bylaw.estimators._sklearn_contract import clone_unfitted, ensure_probabilities, is_fraction, is_frozen
from bylaw.language import shorten
from bylaw.rows import Evidence

Params = Mapping[str, Any]


@dataclass(frozen=True)
class TrainedModels:
    """Trained models that predict new rows."""

    model: Any  # the model of the labels
    hidden: tuple[HiddenGroup, ...]
    group_models: tuple[Any, ...]  # a fitted model for each of `hidden`
    classes: NDArray[Any]
    # Models of the label and of the cells of each hidden group, given log-ratios of all probabilities. The
    # policy reads only these probabilities: it needs P(label | probabilities) and P(group | probabilities).
    calibrators: tuple[Any, ...] = ()

    def make_evidence(self, rows: FitRows, largest_weight: float | None = None) -> Evidence:
        """Return the evidence of rows: predictions of the models and observed columns."""
        labels = predict_labels(self.model, rows.X, self.classes, "the estimator")
        cells = [h.predict(model, rows.X) for h, model in zip(self.hidden, self.group_models, strict=True)]
        return self.assemble(labels, cells, rows, largest_weight)

    def assemble(
        self, labels: Floats, cells: Sequence[Floats], rows: FitRows, largest_weight: float | None = None
    ) -> Evidence:
        """Return evidence made of predictions and observed columns.

        `labels` (n_rows, n_classes) are the predicted probabilities of labels, and `cells` the predictions of
        each group model. Unknown groups become probabilities, and their observed values become true groups.
        """
        if self.calibrators:
            scores, (label_model, *group_models) = compute_log_ratios(labels, cells), self.calibrators
            labels = predict_labels(label_model, scores, self.classes, "the calibrator")
            cells = [
                expand_cells(model.predict_proba(scores), model.classes_, h.shape)
                for h, model in zip(self.hidden, group_models, strict=True)
            ]
        unknown = [name for group in self.hidden for name in group.names]
        columns: dict[Any, Any] = {name: group for name, group in rows.groups.items() if name not in unknown}
        joint: dict[Any, Floats] = {}
        for group, predicted in zip(self.hidden, cells, strict=True):
            marginal, with_label = group.make_columns(predicted, labels, rows.groups)
            columns |= marginal
            joint |= with_label
        observed = None
        if rows.codes is not None:
            missing = rows.codes < 0
            observed = self.classes[rows.codes]
            observed = np.ma.MaskedArray(observed, mask=missing) if missing.any() else observed
        return Evidence(
            labels,
            classes=self.classes.tolist(),
            groups=columns,
            joint=joint,
            references=rows.references,
            weights=rows.weights,
            normalize=True,
        ).with_observed(
            labels=observed,
            true_groups={name: rows.groups[name] for name in unknown if name in rows.groups} or None,
            propensity_weights=rows.propensity_weights if rows.incomplete else None,
            largest_weight=largest_weight,
        )


@dataclass(frozen=True)
class Training:
    """Rows, and the models to train on them; frozen models are not trained."""

    rows: FitRows
    model: Any  # the model of the labels
    hidden: tuple[HiddenGroup, ...]  # the models of groups
    classes: NDArray[Any]
    cv: Any
    random_state: Any
    n_jobs: int | None
    calibrator: Any  # a classifier of labels and groups given the log-ratios, or None
    params: Params  # arguments of the fit of the model of the labels
    group_params: Sequence[Params]  # arguments of the fit of each model of groups
    calibrator_params: Params  # arguments of the fit of the calibrator
    split_params: Params  # arguments of the splitter

    def select_rows(self, rows: RowIndices) -> Training:
        """Return a copy with only the rows of these indices."""

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
        """Pairs of row indices, to train on and to predict, for each fold; empty if all models are frozen."""
        if is_frozen(self.model) and all(is_frozen(group.model) for group in self.hidden):
            return []
        codes, labels, labeled = self.rows.codes, None, None
        if codes is not None:
            labels, labeled = self.classes[codes], codes >= 0
        labeled = None if labeled is None or labeled.all() else labeled
        return make_splits(self.cv, self.rows.X, labels, self.random_state, self.split_params, labeled)

    @cached_property
    def policy_rows(self) -> FitRows:
        """The rows that the policy is chosen on: those with out-of-fold predictions, or all rows."""
        return self.rows.select(self._chosen) if self.splits else self.rows

    @cached_property
    def _chosen(self) -> RowIndices:
        """Indices of the rows that the policy is chosen on."""
        return np.concatenate([test for _, test in self.splits]) if self.splits else np.arange(len(self.rows))

    def cross_fit(self) -> tuple[Evidence, TrainedModels]:
        """Return the evidence with out-of-fold predictions, and the models trained for new rows.

        The models are trained on all rows or, with one split, on its training part.
        """
        if self.calibrator is not None:
            if self.rows.codes is None:
                raise OptionError("a classifier as calibrator needs labels: pass y, or leave out calibrator")
            if unknown := [name for h in self.hidden for name in h.names if name not in self.rows.groups]:
                raise OptionError(
                    f"a classifier as calibrator needs groups: pass sensitive_features with {unknown}"
                )
        X, codes = self.policy_rows.X, self.rows.codes
        if is_frozen(self.model):
            labels = predict_labels(self.model, X, self.classes, "the estimator")
        else:
            what = "in one of the folds, the estimator"
            parts = self._predict_out_of_fold(self.model, codes, self.classes, self.params)
            labels = np.concatenate([align_columns(p, seen, self.classes, what) for p, seen in parts])
        targets = [
            h.encode_cells(self.rows.groups, codes)
            if self.calibrator is not None or not is_frozen(h.model)
            else None
            for h in self.hidden
        ]
        tasks = list(zip(self.hidden, targets, self.group_params, strict=True))
        cells = []
        for h, target, params in tasks:
            if is_frozen(h.model):
                cells.append(h.predict(h.model, X))
            else:
                parts = self._predict_out_of_fold(h.model, target, None, params)
                cells.append(np.concatenate([expand_cells(p, seen, h.shape) for p, seen in parts]))
        calibrators = () if self.calibrator is None else self._fit_calibrators(labels, cells, targets)
        model = self._train(self.model, codes, self.classes, self.params)
        group_models = tuple(self._train(h.model, target, None, params) for h, target, params in tasks)
        trained = TrainedModels(model, self.hidden, group_models, self.classes, calibrators)
        return trained.assemble(labels, cells, self.policy_rows), trained

    def _predict_out_of_fold(
        self, model: Any, codes: Any, values: Any, params: Params
    ) -> list[tuple[Floats, Any]]:
        """Return the predicted probabilities and the classes of the model of each split.

        Models are trained on the rows whose target is observed.
        """
        target, parallel = codes if values is None else values[codes], Parallel(n_jobs=self.n_jobs)
        return parallel(  # type: ignore[return-value]
            delayed(_fit_and_predict)(
                clone_unfitted(model), self.rows.X, target, train[codes[train] >= 0], test, params
            )
            for train, test in self.splits
        )

    def _fit_calibrators(
        self, labels: Floats, cells: Sequence[Floats], targets: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Fit one calibrator of the label and one of each group model, and return them.

        They are trained on the out-of-fold predictions for rows whose label and groups are all observed.
        """
        columns: list[Any] = [self.rows.codes, *targets]
        observed = np.logical_and.reduce([column[self._chosen] >= 0 for column in columns])
        rows = self._chosen[observed]
        params = _check_method_params(self.rows.X, params=dict(self.calibrator_params), indices=rows)
        scores = compute_log_ratios(labels[observed], [part[observed] for part in cells])
        model = ensure_probabilities(self.calibrator, "calibrator")
        wanted = [self.classes[columns[0][rows]], *(column[rows] for column in targets)]
        return tuple(clone_unfitted(model).fit(scores, target, **params) for target in wanted)

    def _train(self, model: Any, codes: Any, values: Any, params: Params) -> Any:
        """Return the model trained on the rows with an observed target, or a frozen model unchanged."""
        if is_frozen(model):
            return model
        X, target = self.rows.X, codes if values is None else values[codes]
        if len(self.splits) != 1 and (codes >= 0).all():
            return clone_unfitted(model).fit(X, target, **params)
        rows = self.splits[0][0] if len(self.splits) == 1 else np.arange(len(self.rows))
        return fit_on(clone_unfitted(model), X, target, rows[codes[rows] >= 0], params)


def _fit_and_predict(
    model: Any, X: Any, target: Any, train: RowIndices, test: RowIndices, params: Params
) -> tuple[Floats, Any]:
    model = fit_on(model, X, target, train, params)
    return model.predict_proba(_safe_indexing(X, test)), model.classes_


def fit_on(model: Any, X: Any, target: Any, rows: RowIndices, params: Params) -> Any:
    """Fit a model on the rows with these indices."""
    own = _check_method_params(X, params=dict(params), indices=rows)
    return model.fit(_safe_indexing(X, rows), _safe_indexing(target, rows), **own)


def predict_labels(model: Any, X: Any, classes: Any, what: str) -> Floats:
    """Return the probabilities that a fitted model predicts for these classes, in this order."""
    return align_columns(model.predict_proba(X), model.classes_, classes, what)


def align_columns(probabilities: Any, present: Any, classes: Any, what: str) -> Floats:
    """Return the columns of probabilities in the order of `classes`.

    Raise an error if one of them is not in `present`, the classes that the model was trained on.
    """
    positions = {label: i for i, label in enumerate(np.asarray(present).tolist())}
    wanted = np.asarray(classes).tolist()
    if missing := [label for label in wanted if label not in positions]:
        raise EvidenceError(
            f"{what} was trained without any row of {shorten(missing)}: add rows, merge it with another "
            "class, or pass a smaller cv"
        )
    return np.asarray(probabilities, dtype=np.float64)[:, [positions[label] for label in wanted]]


def compute_log_ratios(labels: Floats, cells: Sequence[Floats]) -> Floats:
    """Return the log of each probability divided by that of the last class or cell, (n_rows, n_scores)."""
    tables = [np.log(np.maximum(p.reshape(len(p), -1), 1e-6)) for p in (labels, *cells)]
    return np.concatenate([table[:, :-1] - table[:, -1:] for table in tables], axis=1)


def split_held_out(n_rows: int, fraction: float, rng: np.random.Generator) -> tuple[RowIndices, RowIndices]:
    """Split row indices at random: those that choose the policy, and those that certify it."""
    n_held_out = round(fraction * n_rows)
    if not 0 < n_held_out < n_rows:
        raise OptionError(
            f"held_out={fraction} of {n_rows} rows leaves no row to choose the policy or to certify it: pass "
            "more rows, or another fraction"
        )
    order = rng.permutation(n_rows)
    return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


def make_splits(
    cv: Any,
    X: Any,
    labels: NDArray[Any] | None,
    random_state: Any,
    params: Params,
    labeled: NDArray[np.bool_] | None = None,
) -> list[tuple[RowIndices, RowIndices]]:
    """Return pairs of row indices, to train on and to predict, stratified by the labels.

    There is one pair for each fold if `cv` is a number or a splitter, and one in all if it is a fraction.
    `labeled` (n_rows,) marks the rows with a label; None if all have one. Each unlabeled row is predicted by
    the model of one fold, as each labeled row is, so that the errors on labeled rows represent those on all
    rows. With a fraction, the models are trained on labeled rows only.
    """
    splitter = _make_splitter(cv, labels if labeled is None else labels[labeled], random_state)  # type: ignore[index]
    strata: Any = labels
    if labeled is not None:
        strata = np.unique(labels, return_inverse=True)[1]  # type: ignore[call-overload]
        if (~labeled).sum() >= 100:  # enough unlabeled rows for a stratum of their own
            strata = np.where(labeled, strata, -1)
    splits: list[Any] = [
        [np.flatnonzero(rows) if np.asarray(rows).dtype == bool else np.asarray(rows) for rows in pair]
        for pair in splitter.split(X, strata, **params)
    ]
    if not splits:
        raise OptionError(f"cv must give at least one split, got none from cv={cv!r}")
    predicted = np.concatenate([test for _, test in splits])
    if len(np.unique(predicted)) < len(predicted):
        raise OptionError(f"the test parts of cv must not overlap, got a row in several parts of cv={cv!r}")
    if any(np.isin(test, train).any() for train, test in splits):
        raise OptionError(f"cv must not predict rows that it trains on, got such rows from cv={cv!r}")
    if labeled is not None and is_fraction(cv):
        train, test = splits[0]
        splits = [(train[labeled[train]], np.sort(np.concatenate([test, train[~labeled[train]]])))]
    return splits


def _make_splitter(cv: Any, labels: NDArray[Any] | None, random_state: Any) -> Any:
    if is_fraction(cv):
        if not 0 < float(cv) < 1:
            raise OptionError(f"cv as a fraction must be between 0 and 1, got {cv!r}")
        split, least = ShuffleSplit if labels is None else StratifiedShuffleSplit, 2
        splitter = split(1, test_size=float(cv), random_state=random_state)
    elif cv is None or isinstance(cv, Integral):
        if cv is None:  # five folds, or as many as the rarest class has rows
            rarest = 5 if labels is None else int(np.unique(labels, return_counts=True)[1].min())
            least = max(2, min(5, rarest))
        elif (least := int(cv)) < 2:
            raise OptionError(f"cv must be at least 2 folds, or a fraction such as 0.5, got {cv!r}")
        fold = KFold if labels is None else StratifiedKFold
        splitter = fold(least, shuffle=True, random_state=random_state)
    else:
        try:
            return check_cv(cv, labels, classifier=True)
        except ValueError:
            raise OptionError(
                f"cv must be a number of folds, a fraction such as 0.5, or a splitter, got {cv!r}"
            ) from None
    if labels is not None:
        present, counts = np.unique(labels, return_counts=True)
        if (rare := counts < least).any():
            lower = "lower cv, " if least > 2 else ""
            raise EvidenceError(
                f"every class must have at least {least} rows if cv={cv!r}, got {int(counts[rare].min())} "
                f"for {shorten(present[rare].tolist())}: add rows, {lower}or merge or drop the class"
            )
    return splitter
