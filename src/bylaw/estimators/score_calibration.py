"""Probabilities given the scores: a policy sees of a row only what the models say of it.

So what it needs is P(label | scores) and P(group | scores), whatever the models claim. Both are learned
from log-ratios of the models' probabilities, of rows that these were not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.typing import Floats
from bylaw.estimators.cross_fitting import aligned, fresh, with_probabilities
from bylaw.estimators.group_models import HiddenGroup
from bylaw.estimators.joint import spread

_LEAST = 1e-6  # a probability below this is as good as none


@dataclass(frozen=True)
class Calibration:
    """Models of the label and of each hidden group's cells, given the scores of all."""

    label_model: Any
    group_models: tuple[Any, ...]
    hidden: tuple[HiddenGroup, ...]
    classes: NDArray[Any]

    def __call__(self, probabilities: Floats, cells: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
        """The same, given the scores."""
        scores = _scores(probabilities, cells)
        labels = aligned(
            self.label_model.predict_proba(scores), self.label_model.classes_, self.classes, "the calibrator"
        )
        groups = zip(self.hidden, self.group_models, strict=True)
        return labels, [spread(m.predict_proba(scores), m.classes_, h.shape) for h, m in groups]


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
    model = with_probabilities(calibrator, "calibrator")
    scores = _scores(probabilities, cells)
    label_model, *group_models = (fresh(model).fit(scores, target, **params) for target in (labels, *targets))
    return Calibration(label_model, tuple(group_models), hidden, classes)


def _scores(probabilities: Floats, cells: Sequence[Floats]) -> Floats:
    """Log-ratios to the last class or cell, (n_rows, n_scores)."""
    tables = [np.log(np.maximum(p.reshape(len(p), -1), _LEAST)) for p in (probabilities, *cells)]
    return np.concatenate([table[:, :-1] - table[:, -1:] for table in tables], axis=1)
