"""What `fit` gets of each row, and rows without labels that join them: the policy is chosen on both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import _is_arraylike, _num_samples

from bylaw._base.typing import Floats, Mask
from bylaw.errors import EvidenceError, OptionError
from bylaw.estimators.fit_inputs import read_partial_groups, read_references
from bylaw.language.expressions import LABEL
from bylaw.language.problem import Problem
from bylaw.rows.groups import KnownGroup, PartlyKnownGroup, concatenate_groups

_APPEND = "append the rows to X instead, with missing labels in y"


@dataclass(frozen=True)
class FitInputs:
    """What `fit` gets, one value for each row."""

    X: Any
    labels: NDArray[Any] | None  # those that mean nothing where they are not seen
    labelled: Mask | None  # None: all rows show their label, or none does
    groups: Mapping[str, PartlyKnownGroup]
    references: Mapping[str, NDArray[Any]]
    propensity_weights: Floats | None

    @property
    def seen(self) -> dict[str, Mask]:
        """Where labels and groups are shown, for those that some rows lack."""
        found = {name: group.seen for name, group in self.groups.items() if not group.seen.all()}
        return found if self.labelled is None else {LABEL: self.labelled, **found}

    def join(
        self,
        more: Any,
        sensitive_features: Any,
        problem: Problem,
        hidden: Collection[str],
        sources: Mapping[str, Any],
    ) -> FitInputs:
        """With rows that have no labels; `sources` are the earlier models, which predict them."""
        n_rows, n_more = _num_samples(self.X), _num_samples(more)
        called, names = "unlabelled_sensitive_features", problem.attributes
        others = read_partial_groups(sensitive_features, names, more, hidden, called)
        labelled = np.ones(n_rows, dtype=bool) if self.labelled is None else self.labelled
        labels, weights = self.labels, self.propensity_weights
        if labels is not None:
            labels = np.concatenate([labels, np.full(n_more, labels[0], dtype=labels.dtype)])
        predicted = read_references(sources, problem.references, more, sensitive_features, names)
        return FitInputs(
            X=stack_rows(self.X, more),
            labels=labels,
            labelled=None if labels is None else np.concatenate([labelled, np.zeros(n_more, dtype=bool)]),
            groups=_join_groups(self.groups, others, hidden, n_rows, n_more),
            references={
                name: np.concatenate([column, predicted[name]]) for name, column in self.references.items()
            },
            propensity_weights=None if weights is None else np.concatenate([weights, np.ones(n_more)]),
        )


def stack_rows(X: Any, more: Any) -> Any:
    """The rows of both, in a container of the same kind."""
    if sparse.issparse(X) or sparse.issparse(more):
        return sparse.vstack([X, more], format="csr")
    frames = [nw.from_native(rows, pass_through=True) for rows in (X, more)]
    if all(isinstance(frame, nw.DataFrame) for frame in frames):
        first, second = frames
        if first.implementation is second.implementation:
            return nw.concat([first, second.select(first.columns)]).to_native()
    if any(isinstance(frame, nw.DataFrame) for frame in frames):
        raise EvidenceError(
            f"unlabelled must be of the same kind as X: {type(X).__name__}, not {type(more).__name__}"
        )
    return np.concatenate([np.asarray(X), np.asarray(more)])


def _join_groups(
    groups: Mapping[str, PartlyKnownGroup],
    others: Mapping[str, PartlyKnownGroup],
    hidden: Collection[str],
    n_rows: int,
    n_more: int,
) -> dict[str, PartlyKnownGroup]:
    """Of labelled and unlabelled rows; hidden groups may be known of one of the two only."""
    joined = {}
    for name in [*groups, *(name for name in others if name not in groups)]:
        if name not in others and name not in hidden:
            raise EvidenceError(
                f"the rules refer to {name!r}, which must be known to decide: pass "
                f"unlabelled_sensitive_features with this column"
            )
        first, second = groups.get(name), others.get(name)
        first = _make_unseen(second, n_rows) if first is None else first
        second = _make_unseen(first, n_more) if second is None else second
        known = concatenate_groups([first.group, second.group])
        assert isinstance(known, KnownGroup)
        joined[name] = PartlyKnownGroup(known, np.concatenate([first.seen, second.seen]))
    return joined


def _make_unseen(like: PartlyKnownGroup | None, n_rows: int) -> PartlyKnownGroup:
    assert like is not None
    codes = np.zeros(n_rows, dtype=np.int64)
    return PartlyKnownGroup(KnownGroup(like.group.values, codes), np.zeros(n_rows, dtype=bool))


def check_row_parameters(
    X: Any,
    weights: Any,
    sources: Mapping[str, Any],
    models: Mapping[str, Any],
    params: Mapping[str, Any],
    cv: Any,
) -> None:
    """Nothing that has one value for each row of X and none for the unlabelled rows."""
    if weights is not None:
        raise OptionError(f"sample_weight has no weights of the unlabelled rows: {_APPEND}")
    if labels := [name for name in sources if name not in models]:
        raise OptionError(
            f"reference {labels[0]!r} has no labels of the unlabelled rows: pass the fitted model, or "
            f"{_APPEND}"
        )
    n_rows = _num_samples(X)
    if aligned := [n for n, v in params.items() if _is_arraylike(v) and _num_samples(v) == n_rows]:
        raise OptionError(f"{aligned[0]!r} has no values of the unlabelled rows: {_APPEND}")
    if cv is not None and not isinstance(cv, int | float | np.number) and not hasattr(cv, "split"):
        raise OptionError(f"cv lists rows of X, and not the unlabelled ones: {_APPEND}")
