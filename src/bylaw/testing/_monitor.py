"""The monitor of a policy in production: all rules, tested row by row."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bylaw._base import MIN_CELL, Value, as_name, as_scalar, check_fraction, check_positive
from bylaw.errors import EvidenceError, OptionError, Remedy
from bylaw.language import ExpandedRule, Problem, Statement
from bylaw.policy import Policy, hash_ids
from bylaw.rows import Evidence, Limits, as_evidence, as_vector, check_alignment, make_frame
from bylaw.testing._costs import add_changes
from bylaw.testing._formatting import list_shown, make_monitor_card, plot_monitor
from bylaw.testing._hypotheses import DecidedRows, check_limits
from bylaw.testing._verdicts import to_plain
from bylaw.testing._watched_rows import (
    UNKNOWN,
    Ids,
    WatchedColumns,
    WatchedRows,
    join_rows,
    warn_of_sorted_rows,
)
from bylaw.testing._watched_rule import AlarmLimits, Point, RuleWatch, Watch, merge_copies

RUN_LENGTHS = {"rows": 100_000.0, "batches": 1000.0}  # default of `run_length` for each unit
_MOST_BATCHES = 400  # the most batches whose names are kept
_MOST_LOOKS = 200  # the most updates in the log
_RANDOM_ROWS = 64  # random rows for each value of an attribute, to find rules that are the same


class Update(NamedTuple):
    """An entry of a monitor's log of updates."""

    time: str  # UTC, as ISO 8601
    rows: int  # number of rows that the monitor had seen after it
    alarm: bool  # whether there was an alarm


class Monitor:
    """A monitor that tests the rules of a policy on rows as they arrive, and may be read at any time.

    If all rules are satisfied, the probability that one is ever called broken is at most `ever`, regardless
    of the number of rows and of how often the monitor is read. The average run length of the change detector,
    which is the mean number of rows until a false alarm, is at least `run_length`. Both are for all rules
    together.

    Parameters
    ----------
    policy : Policy
        The policy whose rules are monitored.
    ever : float
        The largest probability that a rule is ever called broken if all are satisfied.
    run_length : float, optional
        The smallest mean number of rows until a rule is called changed if all are satisfied, 100,000 by
        default; if the unit is "batches", the number of batches, 1,000 by default.
    rules : list of rules, families or texts, optional
        Rules to monitor instead of the policy's own. A policy is often at its bounds: use looser ones.
    limits : dict, optional
        {name: (least, most)}: the range of the costs in `custom(name)`.
    groups : dict, optional
        {name: its values}, for groups that rules refer to and that the policy does not know.
    unit : {"rows", "batches"}
        The unit that is independent. With "rows", the error rates assume that rows are independent and that
        rules are satisfied at all times. With "batches", each call of `update` is a batch with one bet on its
        mean: the error rates assume that rules are satisfied on average over future batches, given the
        earlier ones. Choose it if rates vary at random from day to day; alarms come later.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Monitor, Problem, error, rejected, solve
    >>> chance = np.linspace(0.01, 0.99, 400)
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), Evidence(np.column_stack([1 - chance, chance])))
    >>> monitor = Monitor(policy, rules=["rejected() <= 0.25"])
    >>> rng = np.random.default_rng(0)
    >>> for day in range(10):  # as before
    ...     score = rng.uniform(size=500)
    ...     monitor.update(Evidence(np.column_stack([1 - score, score])))
    >>> monitor.alarm
    False
    >>> for day in range(3):  # the model is less sure than it was
    ...     score = rng.uniform(0.2, 0.8, size=500)
    ...     monitor.update(Evidence(np.column_stack([1 - score, score])))
    >>> [(one.rule, str(one.status)) for one in monitor.status]
    [('rejected() <= 0.25', 'broken')]
    """

    def __init__(
        self,
        policy: Policy,
        *,
        ever: float = 0.05,
        run_length: float | None = None,
        rules: Sequence[Statement | str] | Statement | str | None = None,
        limits: Limits | None = None,
        groups: Mapping[str, Sequence[Any]] | None = None,
        unit: str = "rows",
    ) -> None:
        if not isinstance(policy, Policy):
            raise OptionError(f"policy must be a Policy, got {type(policy).__name__}")
        self.policy = policy
        self.ever = check_fraction(ever, "ever", 0.05)
        if unit not in RUN_LENGTHS:
            raise OptionError(f"unit must be one of {list(RUN_LENGTHS)}, got {unit!r}")
        self.unit = unit
        self.run_length = check_positive(
            RUN_LENGTHS[unit] if run_length is None else run_length, "run_length"
        )
        space = policy.action_space
        blank = Evidence.without_rows(space.classes, {}, options=space.named_options)
        self.limits = check_limits({} if limits is None else limits, blank)
        self.problem = policy.problem
        if rules is not None:
            self.problem = Problem(policy.problem.minimize, rules, None, space.decisions, space.reject)
        # Expand the rules to the values of their groups.
        known = {name: attribute.values for name, attribute in policy.feature_map.attributes.items()}
        values = {**known, **_read_values(groups)}
        if unknown := [name for name in self.problem.attributes if name not in values]:
            raise OptionError(
                f"groups must have the values of {unknown[0]!r}, to which a rule refers and which the policy "
                "does not know: pass "
                f"groups={{{unknown[0]!r}: [...]}}"
            )
        self.expanded = self.problem.expand(space.classes, values, space.named_options)
        if not self.expanded:
            raise OptionError("the policy must have rules, or pass rules= to monitor")
        self.groups = {name: tuple(values[name]) for name in self.problem.attributes}
        # List the other columns that the rules need.
        atoms = [atom for found in self.expanded for atom, _ in found.rule.excess.terms]
        costs = {name: atom.function for atom in atoms if (name := atom.reads("cost")) is not None}
        self.limits, _ = add_changes(costs, self.limits, None)
        if missing := [name for name in costs if name not in self.limits]:
            raise OptionError(
                f"limits must have the range of custom({missing[0]!r}), to which a rule refers",
                Remedy("pass_limits", missing[0]),
            )
        references = [name for atom in atoms if (name := atom.reads("reference")) is not None]
        self.columns = WatchedColumns(policy, self.groups, tuple(dict.fromkeys(references)), costs)
        single = [found.rule for found in self.expanded]
        self.watched = merge_copies(single, self._sample(self._make_random_rows()), unit == "batches")
        self.alarm_limits = AlarmLimits.of(self.ever, self.run_length, [rule.events for rule in self.watched])
        self.needs = frozenset[str]().union(*(rule.hypothesis.needs for rule in self.watched))
        self.states = [rule.begin() for rule in self.watched]
        self.seen_ids = np.empty(0, np.uint64)  # hashes of all ids so far, sorted
        self.waiting_ids = np.empty(0, np.uint64)  # of rows that wait for labels, groups or outcomes
        self.waiting_rows: WatchedRows | None = None
        self.rows = 0
        self.decided: bool | None = None  # whether rows were passed with decisions; None without rows
        self.batches: tuple[str, ...] = ()
        self.log: tuple[Update, ...] = ()
        self._lock = threading.RLock()  # threads may share a monitor

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def _make_random_rows(self) -> WatchedRows:
        """Return random rows with all columns that the rules need, some of which meet each condition."""
        rng, space = np.random.default_rng(0), self.policy.action_space
        n_classes, n_actions = len(space.classes), len(space.actions)
        n = _RANDOM_ROWS * max([n_classes, *(len(values) for values in self.groups.values())])
        costs = {
            f"costs/{name}": rng.uniform(*self.limits[name], (n, n_actions)) for name in self.columns.costs
        }
        chances = rng.normal(size=(n_actions, n))
        space.to_probabilities(chances)
        columns = {"decisions": chances.T, "labels": rng.integers(max(n_classes, 1), size=n)}
        for name, values in self.groups.items():
            columns[f"groups/{name}"] = rng.integers(len(values), size=n)
        for name in self.columns.references:
            columns[f"references/{name}"] = rng.integers(n_classes + len(space.named_options), size=n)
        return WatchedRows({**columns, **costs})

    def _sample(self, rows: WatchedRows) -> DecidedRows:
        observed, decided = self.columns.observe(rows), rows.columns["decisions"]
        return DecidedRows(observed, decided, self.policy.action_space, labelled=True, limits=self.limits)

    # Rows.

    def update(
        self,
        evidence: Any = None,
        *,
        labels: Any = None,
        groups: Any = None,
        ids: Any = None,
        decisions: Any = None,
        outcomes: Mapping[str, Any] | None = None,
        batch: str | None = None,
    ) -> None:
        """Count new rows in their order, or values that were observed later for earlier rows.

        Groups are compared within rounds of a few rows. The rows of a named batch are first put into a random
        order, which the name and the policy determine: each round then represents the whole batch, and rates
        may vary within it, such as during a day. Rows without a name are taken in their order, and the result
        does not depend on how they are split into calls. If any row is invalid, no row is counted. Several
        threads may share a monitor.

        Parameters
        ----------
        evidence : Evidence, optional
            New rows, as for the policy. Without it, `ids` are those of earlier rows whose `labels`, `groups`
            or `outcomes` were observed since.
        labels : array of shape (n_rows,), optional
            The true labels; missing (None, NaN, NA, null) if they are not known yet. A rule counts a row
            once all values that the rule refers to are known.
        groups : dict or frame, optional
            {name: one value per row}, the true groups, of attributes for which the policy has only
            probabilities or nothing. They may be missing, too.
        ids : array of shape (n_rows,), optional
            A unique id for each row, needed if labels are passed later. No id is counted twice: rows with
            missing values are completed, and other rows with the same id are refused. If all rows were
            counted before, nothing happens.
        decisions : array, optional
            The decisions that were taken, as in `audit`; by default, the policy's probabilities are used.
        outcomes : dict, optional
            The observed costs in `custom(name)`, as in `audit`.
        batch : str, optional
            A name for these rows, such as a date; they are compared with each other. A batch with the name of
            an earlier one is not counted again.

        Warns
        -----
        GuaranteeWarning
            If rows without a batch name are sorted by a group, the label or the decision, because adjacent
            rows are compared.
        """
        with self._lock:
            if batch is not None and as_name(batch, "batch", OptionError) in self.batches:
                return
            fresh = self._read(evidence, labels, groups, ids, decisions, outcomes)
            if ids is None:
                self._count(fresh, fresh, np.full(len(fresh), UNKNOWN, np.int64), batch)
            elif not self._count_with_ids(fresh, self._hash(ids), batch, new=evidence is not None):
                return
            if evidence is not None:
                self.decided = decisions is not None
            if batch is not None:
                self.batches = (*self.batches, batch)[-_MOST_BATCHES:]
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.log = (*self.log, Update(now, self.rows, self.alarm))[-_MOST_LOOKS:]
            if batch is None and self.unit == "rows":
                warn_of_sorted_rows(fresh)

    def _read(
        self, evidence: Any, labels: Any, groups: Any, ids: Any, decisions: Any, outcomes: Any
    ) -> WatchedRows:
        """Validate the arguments of `update` and return them as columns."""
        if unknown := [name for name in outcomes or () if name not in self.columns.costs]:
            raise OptionError(
                f"outcomes must be of costs that a monitored rule uses, {sorted(self.columns.costs)}, got "
                f"{unknown[0]!r}"
            )
        given = {"ids": ids, "labels": labels, "groups": groups, "decisions": decisions, "outcomes": outcomes}
        check_alignment(given, None if evidence is None else as_evidence(evidence).index)
        _, outcomes = add_changes(() if evidence is None else self.columns.costs, {}, outcomes)
        observed = {"labels": labels, "true_groups": groups, "outcomes": outcomes}
        if evidence is None:
            if ids is None:
                raise OptionError(
                    "update() must have evidence of new rows, or ids= of earlier rows, got neither"
                )
            if decisions is not None:
                raise OptionError(
                    "decisions must be passed with evidence of new rows, not with later labels: leave it out"
                )
            fresh = self.columns.read_late(len(self._hash(ids)), observed)
        else:
            if self.decided is not None and self.decided != (decisions is not None):
                ways = ("decisions", "probabilities")
                earlier, now = ways if self.decided else ways[::-1]
                raise OptionError(
                    f"decisions must be passed always or never: earlier rows were counted by {earlier}, "
                    f"these would be counted by {now}"
                )
            fresh = self.columns.read(evidence, observed, decisions)
        for name, cost in fresh.select("costs").items():
            low, high = self.limits[name]
            if (cost < low).any() or (cost > high).any():
                raise EvidenceError(
                    f"outcomes[{name!r}] must be within limits[{name!r}]={(low, high)!r}, got "
                    f"{np.nanmin(cost):g} to {np.nanmax(cost):g}"
                )
        return fresh

    def _hash(self, ids: Any) -> Ids:
        vector = as_vector(ids, "ids")
        hashed = hash_ids(vector, f"{self.policy.digest}/", "")[:, 0]
        _, first, counts = np.unique(hashed, return_index=True, return_counts=True)
        if len(first) < len(hashed):
            twice = vector[first[counts > 1][0]]
            raise EvidenceError(f"ids must be unique, got {twice!r} more than once")
        return hashed

    def _count_with_ids(self, fresh: WatchedRows, ids: Ids, batch: str | None, new: bool) -> bool:
        """Count rows with ids, new ones or completed ones, and return whether there were any."""
        if len(ids) != len(fresh):
            raise EvidenceError(f"ids must have one id for each of the {len(fresh):,} rows, got {len(ids):,}")
        # Find the rows among earlier ones, and their positions among those that wait for values.
        seen, places = _find_places(self.seen_ids, ids) != UNKNOWN, _find_places(self.waiting_ids, ids)
        late = places != UNKNOWN
        if not new:
            if not seen.all():
                first = int(np.flatnonzero(~seen)[0])
                raise EvidenceError(
                    f"ids must be of earlier rows, got {int((~seen).sum()):,} new ids, the first in row "
                    f"{first}: pass evidence of these rows, before or with their labels"
                )
            fresh, ids, places = fresh.take(np.flatnonzero(late)), ids[late], places[late]
            late, seen = late[late], seen[late]
        # Complete the rows that wait for values. Other earlier rows must not be passed again.
        before = fresh
        if late.any():
            assert self.waiting_rows is not None
            waited = self.waiting_rows.take(places[late])
            filled = waited.fill(fresh.take(np.flatnonzero(late)))
            before, fresh = (fresh.put(part, late) if new else part for part in (waited, filled))
        told = np.zeros(len(fresh), dtype=bool)
        for name in self.needs:
            told |= fresh.find_shown(frozenset({name})) & ~before.find_shown(frozenset({name}))
        stale = seen & ~(late & told)
        if stale.all():
            return False
        if new and stale.any():
            first = int(np.flatnonzero(stale)[0])
            raise EvidenceError(
                f"{int(stale.sum()):,} of {len(ids):,} rows were counted before and have no new values, the "
                f"first of them in row {first}: leave them out"
            )
        self._count(fresh, before, places, batch)
        # Remember the ids, and the rows that are not complete yet.
        added = np.sort(ids[~seen])
        self.seen_ids = np.insert(self.seen_ids, np.searchsorted(self.seen_ids, added), added)
        open_rows = ~fresh.find_shown(self.needs)
        parts, names = [fresh.take(np.flatnonzero(open_rows))], [ids[open_rows]]
        if self.waiting_rows is not None:
            kept = np.delete(np.arange(len(self.waiting_ids)), places[late])
            parts, names = [self.waiting_rows.take(kept), *parts], [self.waiting_ids[kept], *names]
        self.waiting_rows, self.waiting_ids = join_rows(parts), np.concatenate(names)
        return True

    def _count(
        self, rows: WatchedRows, before: WatchedRows, places: NDArray[np.int64], batch: str | None
    ) -> None:
        """Bet on the rows where the values that a rule refers to are observed now and were not in `before`.

        `places` are the positions of the rows among those that wait, and `UNKNOWN` for new rows.
        """
        order = np.arange(len(rows))
        if batch is not None:  # the same random order whenever the batch is repeated
            seed = hashlib.sha256(f"{self.policy.digest}/{batch}".encode()).digest()
            order = np.random.default_rng(int.from_bytes(seed, "big")).permutation(len(rows))
        new = (places == UNKNOWN)[order]
        numbers = self.rows + np.cumsum(new)
        states = list(self.states)
        for needs in dict.fromkeys(rule.hypothesis.needs for rule in self.watched):
            due = rows.find_shown(needs)[order] & (new | ~before.find_shown(needs)[order])
            chosen = np.flatnonzero(due)
            if not len(chosen):
                continue
            in_order = batch is None and len(chosen) == len(rows)
            sample = self._sample(rows if in_order else rows.take(order[chosen]))
            for place, rule in enumerate(self.watched):
                if rule.hypothesis.needs == needs:
                    columns, inside = rule.read(sample)
                    counted = numbers[chosen[inside]]
                    states[place] = rule.advance(states[place], columns, counted, self.alarm_limits)
        self.states = states
        self.rows += int(new.sum())

    # Results.

    @property
    def alarm(self) -> bool:
        """True if a rule was found broken or changed."""
        return any(state.broken_at is not None or state.changed_at is not None for state in self.states)

    @property
    def waiting(self) -> int:
        """Number of rows that wait for labels, groups or outcomes."""
        return len(self.waiting_ids)

    @property
    def status(self) -> tuple[RuleWatch, ...]:
        """The current state of every single rule, in the order of the problem."""
        with self._lock:
            return tuple(self._describe(one) for one in self.expanded)

    def _describe(self, one: ExpandedRule) -> RuleWatch:
        place = next(i for i, rule in enumerate(self.watched) if str(one.rule) in rule.copies)
        watched, state, limits = self.watched[place], self.states[place], self.alarm_limits
        (estimate,), (lower,), (upper,) = watched.measure(state.sums[:, None], limits.level)
        target, sign = one.rule.bound, 1.0 if one.rule.sense == "<=" else -1.0

        def convert(excess: float, least: float, most: float) -> tuple[float, float, float]:
            """Convert an excess and its bounds to the rate that the rule bounds."""
            ends = sorted((target + sign * least, target + sign * most))
            return target + sign * excess, ends[0], ends[1]

        status, reason = Watch.QUIET, ""
        if not state.rows:
            status, reason = Watch.UNSEEN, "no row has been counted yet"
            known = self.policy.feature_map.attributes
            shown = {name for name in self.groups if name in known and known[name].known}
            hidden = sorted(watched.hypothesis.needs - shown)
            if self.rows:
                reason = "no row is in the groups that it compares"
                reason = f"no row with {' and '.join(hidden)} has been observed yet" if hidden else reason
        if state.broken_at is not None or state.changed_at is not None:
            status = Watch.CHANGED if state.broken_at is None else Watch.BROKEN
        shares = state.log_ever / limits.log_ever, state.log_change / limits.log_change
        return RuleWatch(
            str(one.rule),
            str(one.statement),
            one.rule.sense,
            target,
            *convert(float(estimate), float(lower), float(upper)),
            state.rows,
            _exponentiate(state.log_ever),
            _exponentiate(state.log_change),
            max(*shares, 0.0),
            status,
            min((at for at in (state.broken_at, state.changed_at) if at is not None), default=None),
            reason,
            tuple(Point(at.row, *convert(*at[1:4]), at.ever, at.change) for at in state.history),
            1 - self.ever,
        )

    @property
    def e_limit(self) -> float:
        """The value of the e-process at which a rule is called broken."""
        return _exponentiate(self.alarm_limits.log_ever)

    @property
    def detector_limit(self) -> float:
        """The value of the e-detector at which a rule is called changed."""
        return _exponentiate(self.alarm_limits.log_change)

    def restart(self) -> None:
        """Reset alarms and evidence after an alarm was investigated; rates, history and ids stay.

        The error probabilities start anew, so call this when the cause was found, not to silence an alarm.
        """
        with self._lock:
            self.states = [state.restart() for state in self.states]

    def to_frame(self, like: Any = None) -> Any:
        """Return a table with one line per single rule.

        The columns are rule, target, estimate, lower, upper, rows, e_value, detector, evidence, status and
        since.

        Parameters
        ----------
        like : frame, optional
            The result is a frame of the same library; by default, of the first installed of pandas, polars
            and pyarrow.
        """
        names = ["rule", "target", "estimate", "lower", "upper", "rows", "e_value", "detector", "evidence"]
        status = self.status
        columns: dict[str, Any] = {name: [getattr(one, name) for one in status] for name in names}
        columns["status"] = [str(one.status) for one in status]
        columns["since"] = [UNKNOWN if one.since is None else one.since for one in status]
        return make_frame(columns, like)

    def to_dict(self, min_cell: int = MIN_CELL) -> dict[str, Any]:
        """Return plain values for JSON; unknown numbers become None.

        Numbers about groups with fewer than `min_cell` observed rows become None, too.

        Parameters
        ----------
        min_cell : int
            The number of rows that a group must have for its numbers to be shown; 0 shows all groups.
        """
        with self._lock:
            rules = []
            for one in list_shown(self, min_cell):
                line = {**vars(one), "status": str(one.status)}
                line |= {"rows": None, "evidence": None} if one.hidden else {}
                rules.append({name: value for name, value in line.items() if name != "history"})
            plain = {
                "alarm": self.alarm,
                "rows": self.rows,
                "waiting": self.waiting,
                "ever": self.ever,
                "run_length": self.run_length,
                "unit": self.unit,
                "e_limit": self.e_limit,
                "detector_limit": self.detector_limit,
                "rules": rules,
            }
            return to_plain(plain)

    def plot(self, rules: Sequence[str] | None = None, *, min_cell: int = MIN_CELL) -> Any:
        """Plot rates with their confidence sequences, and the evidence against each rule, over the rows.

        Parameters
        ----------
        rules : list of str, optional
            The texts of the rules to draw; by default, those with the most evidence, four at most.
        min_cell : int
            The number of rows that a group must have for its rules to be drawn; 0 draws all.

        Returns
        -------
        matplotlib Figure
        """
        return plot_monitor(self, rules, min_cell)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a JSON file, and rows that have ids to a file beside it."""
        from bylaw.testing._state_files import save_state

        with self._lock:
            save_state(self, Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str], policy: Policy) -> Monitor:
        """Load a monitor that `save` wrote for this policy.

        Raises
        ------
        PolicyFileError
            If the file is damaged, or belongs to another policy.
        """
        from bylaw.testing._state_files import load_state

        return load_state(Path(path), policy)

    def __repr__(self) -> str:
        return make_monitor_card(self).to_text()

    def _repr_html_(self) -> str:
        return make_monitor_card(self).to_html()


def _exponentiate(log: float) -> float:
    return math.exp(min(log, 700.0))  # a larger exponential is no longer a number


def _find_places(known: Ids, ids: Ids) -> NDArray[np.int64]:
    """Return the position of each id in the array of known ids, or `UNKNOWN`."""
    if not len(known):
        return np.full(len(ids), UNKNOWN, np.int64)
    order = np.argsort(known, kind="stable")
    places = order[np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)]
    return np.where(known[places] == ids, places, UNKNOWN)


def _read_values(groups: Mapping[str, Sequence[Any]] | None) -> dict[str, tuple[Value, ...]]:
    """Validate and return the values of groups that the policy does not know."""
    if groups is None:
        return {}
    if not isinstance(groups, Mapping):
        raise OptionError(f"groups must be a dict {{name: its values}}, got {groups!r}")
    read = {}
    for name, values in groups.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise OptionError(f"groups[{name!r}] must be a list of its values, got {values!r}")
        found = tuple(as_scalar(value, f"a value of {name}") for value in values)
        if not found or len(set(found)) < len(found):
            raise OptionError(
                f"groups[{name!r}] must have at least one value and no value twice, got {list(found)}"
            )
        read[as_name(name, "a group")] = found
    return read
