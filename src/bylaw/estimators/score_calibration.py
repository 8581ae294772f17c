"""Calibration given the scores: a policy sees of a row only the models' probabilities, its scores.

So what it needs is P(label | scores) and P(group | scores). Both are learned from log-ratios of the models'
out-of-fold probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.estimators.cross_fitting import align_columns, clone_unfitted, ensure_probabilities
from bylaw.estimators.group_models import HiddenGroup
from bylaw.estimators.joint import expand_cells

_LEAST = 1e-6  # smaller probabilities count as this one


@dataclass(frozen=True)
class Calibration:
    """Models of the label and of each hidden group's cells, given the scores of all."""

    label_model: Any
    group_models: tuple[Any, ...]
    hidden: tuple[HiddenGroup, ...]
    classes: NDArray[Any]

    def __call__(self, probabilities: Floats, cells: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
        """Calibrated probabilities of the labels and of the cells, given the scores."""
        scores = _compute_log_ratios(probabilities, cells)
        labels = align_columns(
            self.label_model.predict_proba(scores), self.label_model.classes_, self.classes, "the calibrator"
        )
        groups = zip(self.hidden, self.group_models, strict=True)
        return labels, [expand_cells(m.predict_proba(scores), m.classes_, h.shape) for h, m in groups]


def calibrate(
    calibrator: Any,
    probabilities: Floats,
    cells: Sequence[Floats],
    labels: NDArray[Any],
    targets: Sequence[NDArray[np.int64]],
    hidden: tuple[HiddenGroup, ...],
    classes: NDArray[Any],
    params: Mapping[str, Any],
) -> Calibration:
    """A calibration that is learned from labels and from cells (targets) of the same rows."""
    model = ensure_probabilities(calibrator, "calibrator")
    scores = _compute_log_ratios(probabilities, cells)
    label_model, *group_models = (
        clone_unfitted(model).fit(scores, target, **params) for target in (labels, *targets)
    )
    return Calibration(label_model, tuple(group_models), hidden, classes)


def _compute_log_ratios(probabilities: Floats, cells: Sequence[Floats]) -> Floats:
    """Log-ratios to the last class or cell, (n_rows, n_scores)."""
    tables = [np.log(np.maximum(p.reshape(len(p), -1), _LEAST)) for p in (probabilities, *cells)]
    return np.concatenate([table[:, :-1] - table[:, -1:] for table in tables], axis=1)
