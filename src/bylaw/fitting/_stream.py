"""Fits on batches of rows that arrive over time, with at most one batch in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bylaw._base import as_scalar, check_positive, check_whole, write_json
from bylaw.errors import EvidenceError, OptionError
from bylaw.fitting import _stream_serialization as stream_serialization
from bylaw.fitting._stream_state import StreamState
from bylaw.language import LABEL, Conditions, Problem
from bylaw.policy import Policy, TableSum, hash_features
from bylaw.program import Dual, Solution, Status, check_options_cost, compile_problem, make_block
from bylaw.reductions import make_guarantee, warn_of_violations
from bylaw.rows import Columns, Evidence, KnownGroup, as_evidence, concatenate
from bylaw.solvers import OPTIMIZERS, compute_theory_beta, resolve_beta

_WARM_UP = 1000


class Stream:
    """A fit on T unlabeled rows that arrive in batches and are processed once, as in the paper.

    The result depends only on the rows and their order, not on how they are divided into batches. `policy`
    warns if rules are violated by more than three standard errors of their rates. These rates are measured on
    about the last half of the rows, each before the optimizer uses it.

    Parameters
    ----------
    problem : Problem
        The objective and the rules.
    rows : int
        T, the number of rows that will arrive; beta and the steps of the paper's optimizers depend on it.
    optimizer : str or Optimizer
        "stochastic" takes Newton steps, which are about as precise as a fit with all rows in memory. "sgd3"
        is the method of the paper, and "acsa" and "sgd" are its baselines. Their objects, such as
        `SGD3(mu=0.01)`, can also be passed.
    beta : float, "auto" or "paper"
        The inverse temperature. "auto" is the value that `solve` chooses or, for the paper's optimizers,
        T / (8 log2 T); "paper" is 0.5 sqrt(T) log sqrt(T).
    frequencies : dict, optional
        P(event) for the conditions of the rules, such as {"sex": {"F": .4, "M": .6}} or, for two attributes,
        {("sex", "label"): {("F", 1): .1, ...}}. By default they are means over the rows so far or, for the
        paper's optimizers, over the warm-up.
    warm_up : int, optional
        The number of rows at the beginning on which sigma^2, the unit of the loss, the values of the groups
        and the first frequencies are estimated; 1,000 by default. These rows are kept until they are
        complete, and then used like all others.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected
    >>> scores = np.random.default_rng(0).random(2000)
    >>> stream = Stream(Problem(error(), [rejected() <= 0.2]), rows=2000)
    >>> for part in np.split(scores, 4):
    ...     stream = stream.partial_fit(Evidence(np.column_stack([1 - part, part])))
    >>> stream.policy().actions
    (0, 1, 'reject')
    """

    def __init__(
        self,
        problem: Problem,
        rows: int,
        *,
        optimizer: Any = "stochastic",
        beta: float | Literal["auto", "paper"] = "auto",
        frequencies: Mapping[Any, Mapping[Any, float]] | None = None,
        warm_up: int | None = None,
    ) -> None:
        rows = check_whole(rows, "rows")
        warm_up = min(_WARM_UP, rows) if warm_up is None else check_whole(warm_up, "warm_up")
        if isinstance(optimizer, str) and optimizer not in OPTIMIZERS:
            raise OptionError(
                f"optimizer must be one of {list(OPTIMIZERS)} or one of their objects, got {optimizer!r}"
            )
        if not isinstance(optimizer, str) and type(optimizer) not in OPTIMIZERS.values():
            raise OptionError(
                f"optimizer must be one of {list(OPTIMIZERS)} or one of their objects, got {optimizer!r}; "
                "pass other optimizers to solve(..., solver=Stochastic(optimizer))"
            )
        if not 1 <= warm_up <= rows:
            raise OptionError(f"warm_up must be between 1 and the {rows} rows of the stream, got {warm_up}")
        if isinstance(problem, Problem) and problem.of_worst_group:
            raise OptionError(
                f"minimize must be a rate over all rows in a stream, got {problem.minimize}; use solve() on "
                "rows in memory for the worst group"
            )
        self.problem = problem
        self.rows = rows
        self.optimizer = OPTIMIZERS[optimizer]() if isinstance(optimizer, str) else optimizer
        chosen_later = beta == "auto" and hasattr(self.optimizer, "choose_beta")
        self._beta = None if chosen_later else resolve_beta(beta, rows, lambda: compute_theory_beta(rows))
        self.warm_up = warm_up
        self.frequencies = _events(frequencies or {})
        self.seen = 0
        self._waiting: list[Evidence] = []
        self._fit: StreamState | None = None

    @property
    def beta(self) -> float | None:
        """The inverse temperature; None before the end of the warm-up if it is estimated there."""
        return self._beta if self._fit is None else self._fit.guarantee.beta

    def partial_fit(self, evidence: Evidence) -> Stream:
        """Continue the fit with the next rows, in their order.

        Parameters
        ----------
        evidence : Evidence
            The next batch.

        Returns
        -------
        Stream
            The stream itself.
        """
        as_evidence(evidence)
        if self.seen + len(evidence) > self.rows:
            raise OptionError(
                f"a stream of rows={self.rows} must get at most that many rows, got {self.seen} and now "
                f"{len(evidence)} more; start a stream with more rows"
            )
        if self._fit is not None:
            self._advance(self._fit, evidence)
        elif self.seen + len(evidence) >= self.warm_up:
            waiting = concatenate([*self._waiting, evidence])
            fit = self._begin(waiting.rows(slice(0, self.warm_up)))
            self._advance(fit, waiting)
            self._fit, self._waiting = fit, []
        else:
            self._waiting.append(evidence)
        self.seen += len(evidence)
        return self

    def fit(self, batches: Iterable[Any], columns: Columns | None = None) -> Stream:
        """Continue the fit with the rows of every batch.

        Parameters
        ----------
        batches : iterable
            Evidence, or frames or Arrow record batches.
        columns : Columns, optional
            The roles of the columns of frames and record batches.

        Returns
        -------
        Stream
            The stream itself.
        """
        for batch in batches:
            if len(batch):
                self.partial_fit(batch if columns is None else columns.evidence(batch))
        return self

    def policy(self) -> Policy:
        """Return the policy that is fitted on the rows so far.

        Returns
        -------
        Policy
            Its gradient mapping is measured on about the last half of the rows, each before the optimizer
            used it.

        Warns
        -----
        ConvergenceWarning
            If rules are violated on these rows by more than three standard errors.
        """
        fit = self._fitted().flush()
        solution = fit.solution()
        if fit.excesses is not None:
            warn_of_violations(fit.form, solution, fit.excesses)
        terms, rows = fit.guarantee, (fit.table.make_fingerprint(),)
        return Policy.from_solution(self.problem, fit.form, solution, terms, fingerprints=rows)

    def save(self, path: str | PathLike[str]) -> None:
        """Save the state as JSON; a loaded stream continues with exactly the same numbers.

        The file contains the features of up to 1,023 rows. If the file is new, only its owner can read it.
        """
        write_json(stream_serialization.to_dict(self, self._fitted()), Path(path), private=True)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Stream:
        """Return the stream of a saved state; raise `PolicyFileError` if the file is not valid."""
        read = stream_serialization.read(Path(path))
        stream = cls(read["problem"], read["rows"], beta=read["beta"], warm_up=read["warm_up"])
        stream.optimizer = read["optimizer"]
        stream.seen = read["seen"]
        stream._fit = StreamState(**{field.name: read[field.name] for field in fields(StreamState)})
        return stream

    def _fitted(self) -> StreamState:
        if self._fit is None:
            raise OptionError(
                f"a stream must get the {self.warm_up} rows of its warm-up before it has a policy, "
                f"got {self.seen}; add more rows"
            )
        return self._fit

    def _begin(self, first: Evidence) -> StreamState:
        if first.weights is not None and not first.weights.any():
            raise EvidenceError(
                "the rows of the warm-up must have a positive weight, got only zeros; increase warm_up"
            )
        first = first.with_columns(groups={n: self._values_of(n, group) for n, group in first.groups.items()})
        form = compile_problem(self.problem, first, self.frequencies)
        check_options_cost(self.problem.minimize, form, first)
        unknown = {name for event in self.frequencies for name, _ in event} - {
            LABEL,
            *form.feature_map.attributes,
        }
        if unknown:
            raise OptionError(
                f"frequencies must be about attributes in rules, got {sorted(unknown)}; leave them out"
            )
        mean_weight = 1.0 if first.weights is None else float(first.weights.mean())
        dual = Dual(form, [make_block(form, form.feature_map.admit(first))], 1.0)
        dual = dual.with_beta(self._beta or self.optimizer.choose_beta(dual))
        start = np.zeros(dual.n_rules)
        events = form.frequencies if getattr(self.optimizer, "follows_frequencies", False) else ()
        followed = tuple(event for event in events if event not in self.frequencies)
        return StreamState(
            form=form,
            mean_weight=mean_weight,
            guarantee=make_guarantee(dual, Solution(start, Status.SAMPLED, 0.0, 0.0, 0)),
            optimizer_state=self.optimizer.begin(dual.sigma2, dual.smoothness, self.rows, start),
            waiting=np.empty((len(form.feature_map.features) + len(followed) + 1, 0)),
            followed=followed,
            followed_mass=float(self.warm_up),
            warm_up=self.warm_up,
        )

    def _values_of(self, name: str, group: Any) -> Any:
        """Return a known group without values that occur neither in the warm-up nor in `frequencies`."""
        if not isinstance(group, KnownGroup):
            return group
        named = {value for event in self.frequencies for other, value in event if other == name}
        return group.seen().with_values(tuple(sorted({*group.seen().values, *named})))

    def _advance(self, fit: StreamState, evidence: Evidence) -> None:
        form = replace(fit.form, feature_map=fit.feature_map)
        block = make_block(form, form.feature_map.admit(evidence))
        fit.table += TableSum.from_hashes(hash_features(block.features[: len(fit.form.feature_map.features)]))
        fit.add(block)


def _events(frequencies: Mapping[Any, Mapping[Any, float]]) -> dict[Conditions, float]:
    """Convert frequencies {"sex": {"F": .4}} to the form {(("sex", "F"),): .4}, and check them."""
    events: dict[Conditions, float] = {}
    for key, table in frequencies.items():
        names = key if isinstance(key, tuple) else (key,)
        for item, frequency in table.items():
            values = item if isinstance(key, tuple) and isinstance(item, tuple) else (item,)
            if len(values) != len(names):
                raise OptionError(
                    f"the frequencies of {key} must have one value for each attribute, got {item!r}"
                )
            share = check_positive(frequency, f"the frequency of {key}={item!r}")
            if share > 1:
                raise OptionError(f"the frequency of {key}={item!r} must be at most 1, got {frequency}")
            event = zip(names, (as_scalar(value, f"a value of {key!r}") for value in values), strict=True)
            events[tuple(sorted(event))] = share
    return events
