"""A trained model, for peers that want one: its features are the probabilities themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class Given(ClassifierMixin, BaseEstimator):
    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.n_classes)

    def fit(self, X: Any, y: Any) -> Given:
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(X)

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X).argmax(axis=1)

    def __sklearn_is_fitted__(self) -> bool:
        return True
