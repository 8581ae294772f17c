"""What the constructor of a classifier was given, checked when it is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bylaw._base.validation import check_fraction
from bylaw.errors import OptionError
from bylaw.language.expressions import Rate
from bylaw.language.problem import Problem


class Settings:
    """The part of `ConstrainedClassifier` that reads its parameters."""

    minimize: Rate | str
    rules: Any
    decisions: str
    reject: Any
    guarantee: str | None
    certificate: float
    random_state: Any

    def _problem(self, classes: NDArray[Any] | None = None) -> Problem:
        reject = self.reject
        if isinstance(reject, str) and reject == "auto":
            reject = "reject"
            if classes is not None and classes.dtype.kind in "iuf":
                least = classes.min().item()
                reject = type(least)(min(-1, least - 1))
        problem = Problem(self.minimize, self.rules, decisions=self.decisions, reject=reject)  # type: ignore[arg-type]
        if problem.arrays:
            raise OptionError(
                f"custom({problem.arrays[0]!r}) reads an array of Evidence(costs=...), and there is none "
                "here: pass a function of the evidence instead, custom(f)"
            )
        return problem

    def _check_options(self) -> None:
        for name, allowed in (
            ("joint", ("model", "product")),
            ("method", ("sample", "systematic", "argmax")),
            ("correction", (True, False)),
            ("guarantee", (None, "high_probability")),
        ):
            if getattr(self, name) not in allowed:
                raise OptionError(f"{name} must be one of {list(allowed)}, not {getattr(self, name)!r}")

    def _seed(self) -> Any:
        """What scikit-learn's splitters take."""
        state = self.random_state
        return int(state.integers(2**31)) if isinstance(state, np.random.Generator) else state

    def _generator(self) -> np.random.Generator:
        """The same draws for the same whole number, others at each call otherwise."""
        state = self.random_state
        return np.random.default_rng(state.randint(2**31) if hasattr(state, "randint") else state)

    def _parts(self, n_rows: int) -> tuple[NDArray[np.intp], NDArray[np.intp] | None]:
        """The rows that choose, and those that certify, if any."""
        if self.guarantee is None:
            return np.arange(n_rows), None
        share = check_fraction(self.certificate, "certificate", example=0.3)
        order = self._generator().permutation(n_rows)
        n_kept = round(share * n_rows)
        if not 0 < n_kept < n_rows:
            raise OptionError(f"certificate={share} of {n_rows} rows leaves none for one of the two parts")
        return np.sort(order[n_kept:]), np.sort(order[:n_kept])
