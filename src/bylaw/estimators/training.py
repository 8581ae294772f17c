"""The models behind a constrained classifier: predicted out of sample, then trained for use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params, _num_samples

from bylaw._base.typing import Floats
from bylaw.data.evidence import Evidence
from bylaw.data.groups import KnownGroup
from bylaw.data.outcomes import HeldOut
from bylaw.errors import OptionError
from bylaw.estimators.cross_fitting import Rows, aligned, fresh, is_frozen, out_of_sample, splits_of
from bylaw.estimators.group_models import HiddenGroup
from bylaw.estimators.score_calibration import Calibration, calibrate
from bylaw.policy.fingerprint import Fingerprints, fingerprint_evidence
from bylaw.policy.policy import Policy

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

    def rows(self, part: Rows) -> Training:
        """With some of the rows alone."""

        def own(params: Params) -> Params:
            return _check_method_params(self.X, params=dict(params), indices=part)

        return replace(
            self,
            X=_safe_indexing(self.X, part),
            labels=None if self.labels is None else self.labels[part],
            label_codes=None if self.label_codes is None else self.label_codes[part],
            groups={name: group.rows(part) for name, group in self.groups.items()},
            weights=None if self.weights is None else self.weights[part],
            split_params=own(self.split_params),
            calibrator_params=own(self.calibrator_params),
            params=own(self.params),
            group_params=[own(params) for params in self.group_params],
        )

    @cached_property
    def splits(self) -> list[tuple[Rows, Rows]]:
        """No splits where nothing is to be trained."""
        if is_frozen(self.model) and all(is_frozen(group.model) for group in self.hidden):
            return []
        return splits_of(self.cv, self.X, self.labels, self.random_state, self.split_params)

    @cached_property
    def _targets(self) -> list[NDArray[np.int64] | None]:
        return [None if is_frozen(h.model) else h.target(self.groups, self.label_codes) for h in self.hidden]

    @cached_property
    def part(self) -> Rows:
        """The rows that are predicted out of sample, and on which the policy is chosen."""
        if not self.splits:
            return np.arange(_num_samples(self.X))
        return np.concatenate([test for _, test in self.splits])

    @property
    def chosen_labels(self) -> NDArray[Any] | None:
        """Of the rows of `part`."""
        return None if self.labels is None else self.labels[self.part]

    @property
    def hidden_seen(self) -> dict[str, KnownGroup]:
        """The true values of hidden groups, where they are known now, of the rows of `part`."""
        names = [name for group in self.hidden for name in group.names if name in self.groups]
        return {name: self.groups[name].rows(self.part) for name in names}

    def looked_at(
        self, trained: Trained, policy: Policy, references: Mapping[str, NDArray[Any]]
    ) -> Fingerprints:
        """Of all rows, as the models that were trained on them see them now."""
        if not self.splits:
            return ()
        evidence = trained.evidence(self.X, self.groups, references)
        return (fingerprint_evidence(policy.feature_map, evidence),)

    def evidence(self, references: Mapping[str, NDArray[Any]]) -> Evidence:
        """Of the rows of `part`."""
        predicted = self._predicted if self._calibration is None else self._calibration(*self._predicted)
        return assemble(
            *predicted,
            classes=self.classes,
            hidden=self.hidden,
            groups={name: group.rows(self.part) for name, group in self.groups.items()},
            references={name: column[self.part] for name, column in references.items()},
            weights=None if self.weights is None else self.weights[self.part],
        )

    @cached_property
    def _predicted(self) -> tuple[Floats, list[Floats]]:
        """Probabilities of the labels and of each hidden group's cells, for the rows of `part`."""
        here = _safe_indexing(self.X, self.part) if self.splits else self.X
        if is_frozen(self.model):
            labels = _label_probabilities(self.model, here, self.classes)
        else:
            parts = self._out_of_sample(self.model, self.labels, self.params)
            labels = np.concatenate(
                [aligned(p, seen, self.classes, "the estimator, trained on a fold,") for p, seen in parts]
            )
        cells = [
            h.predict(h.model, here)
            if target is None
            else h.gathered(self._out_of_sample(h.model, target, params))
            for h, target, params in zip(self.hidden, self._targets, self.group_params, strict=True)
        ]
        return labels, cells

    @cached_property
    def _calibration(self) -> Calibration | None:
        if self.calibrator is None:
            return None
        if self.labels is None:
            raise OptionError("a calibrator learns from labels: pass y, or calibrator=None")
        if unseen := [name for h in self.hidden for name in h.names if name not in self.groups]:
            raise OptionError(f"a calibrator learns from groups: pass sensitive_features with {unseen}")
        targets = [h.target(self.groups, self.label_codes)[self.part] for h in self.hidden]
        params = _check_method_params(self.X, params=dict(self.calibrator_params), indices=self.part)
        labels = self.labels[self.part]
        return calibrate(
            self.calibrator, *self._predicted, labels, targets, self.hidden, self.classes, params
        )

    def _out_of_sample(self, model: Any, target: Any, params: Params) -> list[tuple[Floats, Any]]:
        return out_of_sample(model, self.X, target, self.splits, params=params, n_jobs=self.n_jobs)

    def trained(self) -> Trained:
        """The models for use: trained on all rows after folds, on the other part after one split."""
        groups = [
            h.model if target is None else self._trained(h.model, target, params)
            for h, target, params in zip(self.hidden, self._targets, self.group_params, strict=True)
        ]
        frozen = is_frozen(self.model)
        model = self.model if frozen else self._trained(self.model, self.labels, self.params)
        return Trained(model, self.hidden, tuple(groups), self.classes, self._calibration)

    def _trained(self, model: Any, target: Any, params: Params) -> Any:
        if len(self.splits) != 1:
            return fresh(model).fit(self.X, target, **params)
        rows = self.splits[0][0]
        own = _check_method_params(self.X, params=dict(params), indices=rows)
        return fresh(model).fit(_safe_indexing(self.X, rows), _safe_indexing(target, rows), **own)


@dataclass(frozen=True)
class Trained:
    """Models that are ready for new rows."""

    model: Any  # of the labels
    hidden: tuple[HiddenGroup, ...]
    group_models: tuple[Any, ...]  # one for each hidden group
    classes: NDArray[Any]
    calibration: Calibration | None

    def evidence(
        self, X: Any, groups: Mapping[str, KnownGroup], references: Mapping[str, NDArray[Any]]
    ) -> Evidence:
        """Of new rows."""
        labels = _label_probabilities(self.model, X, self.classes)
        cells = [h.predict(model, X) for h, model in zip(self.hidden, self.group_models, strict=True)]
        if self.calibration is not None:
            labels, cells = self.calibration(labels, cells)
        return assemble(
            labels,
            cells,
            classes=self.classes,
            hidden=self.hidden,
            groups=groups,
            references=references,
        )

    def held_out(self, rows: Training, references: Mapping[str, NDArray[Any]]) -> HeldOut:
        """Rows that were kept from the models, with what is known of them."""
        evidence = self.evidence(rows.X, rows.groups, references).with_columns(weights=rows.weights)
        hidden = {name for group in self.hidden for name in group.names}
        seen = {name: group for name, group in rows.groups.items() if name in hidden}
        return HeldOut(evidence, rows.labels, seen or None)


def assemble(
    probabilities: Floats,
    cells: Sequence[Floats],
    *,
    classes: NDArray[Any],
    hidden: Sequence[HiddenGroup],
    groups: Mapping[str, KnownGroup],
    references: Mapping[str, NDArray[Any]],
    weights: Floats | None = None,
) -> Evidence:
    """Evidence that knows of hidden groups only what their models say."""
    unknown = {name for group in hidden for name in group.names}
    columns: dict[Any, Any] = {name: group for name, group in groups.items() if name not in unknown}
    joint: dict[Any, Floats] = {}
    for group, chances in zip(hidden, cells, strict=True):
        alone, with_label = group.columns(chances, probabilities, groups)
        columns |= alone
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


def _label_probabilities(model: Any, X: Any, classes: NDArray[Any]) -> Floats:
    return aligned(model.predict_proba(X), model.classes_, classes, "the estimator")
