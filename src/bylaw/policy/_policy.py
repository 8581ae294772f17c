"""A policy: a feature map, a small matrix of scores and an inverse temperature, which decide rows."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bylaw._base import Floats, Value, check_key, find_stack_level, format_json, write_json
from bylaw.calibration import Calibration
from bylaw.errors import EvidenceError, GuaranteeWarning, OptionError, RuleError
from bylaw.language import (
    CHANGED,
    ActionSpace,
    ExpandedRule,
    Objective,
    Problem,
    Rate,
    Ratio,
    Sampler,
    Worst,
    parse,
)
from bylaw.policy import _serialization as serialization
from bylaw.policy._formatting import format_policy, make_policy_card
from bylaw.policy._provenance import Card, Fingerprints
from bylaw.policy._sampling import sample_actions, sample_by_id, sample_pivotal
from bylaw.program import (
    Certificate,
    FeatureMap,
    FittedRates,
    GroupRate,
    Guarantee,
    HardDecisions,
    LinearForm,
    RulePrice,
    Solution,
    compute_group_rates,
    compute_scores,
    measure_rate,
    warn_of_missing_groups,
)
from bylaw.rows import Columns, Evidence, RowData, as_evidence, check_alignment, observe, own

# Matrix products of different shapes round differently: rows go in tiles of one width, so that
# a row's answer is the same, to the last bit, in any batch.
_TILE = 2048
_TILES = 4  # whose features are computed at a time
_APART = 64


@dataclass(frozen=True, eq=False)
class Policy:
    """A randomized decision rule: pi(a | x) = softmax(beta * features(x)' score_matrix).

    For sets, each label has a sigmoid. Policies are made by `solve`, and read from a file by `Policy.load`.

    Attributes
    ----------
    problem : Problem
        The problem that it was fitted for.
    feature_map : FeatureMap
        The features that are computed from evidence.
    score_matrix : array of shape (n_features, n_actions)
        The score of each action for each feature; read-only.
    rule_prices : tuple of RulePrice
        For each single rule its statement, text, multiplier, and by how much it was tightened.
    solution : Solution
        The status, gradient mapping and steps of the solver.
    guarantee : Guarantee
        The terms of the paper's bounds on the fitted rows and on new ones.
    certificate : Certificate or None
        The certificate that the rules hold on new rows, if one was asked for.
    fitted_rates : FittedRates or None
        The rules as observed on the fitted rows, and the probability that they hold on others, if labels,
        groups or a margin were given.
    card : Card
        The date, versions and columns with which the policy was made, and its audits.
    calibration : Calibration or None
        The calibration of the model's probabilities, which the policy applies to all rows.
    group_rates : tuple of GroupRate
        If the worst group's rate is minimized, each group's weight and rate on the fitted rows.
    hard : HardDecisions or None
        Of a deterministic policy (`solve(..., deterministic=True)`), the cost of not randomizing.
    vacuous : tuple of str
        The single rules that hold on the fitted rows only because their denominator is zero, such as a floor
        on precision if the label is never decided. Their rates are 0/0, and their prices have no meaning.

    Examples
    --------
    >>> import numpy as np
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> scores = np.linspace(0.05, 0.95, 19)
    >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
    >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
    >>> policy.actions
    (0, 1, 'reject')
    >>> round(policy.expected(rejected(), evidence), 4)
    0.1
    >>> policy.decide(evidence, ids=range(19))[:3]
    array([0, 0, 0], dtype=object)
    """

    problem: Problem
    feature_map: FeatureMap
    score_matrix: Floats
    rule_prices: tuple[RulePrice, ...]
    solution: Solution
    guarantee: Guarantee
    frequencies: Mapping[Any, float] = field(default_factory=dict)
    rounded: bool = False  # whether frequencies and prices are rounded, as in a file
    fingerprints: Fingerprints = ()  # of the rows that it was fitted on
    certificate: Certificate | None = None
    fitted_rates: FittedRates | None = None
    card: Card = field(default_factory=Card.today)
    calibration: Calibration | None = None
    group_rates: tuple[GroupRate, ...] = ()
    hard: HardDecisions | None = None
    vacuous: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "score_matrix", own(self.score_matrix, self.score_matrix))

    @classmethod
    def from_solution(
        cls,
        problem: Problem,
        form: LinearForm,
        solution: Solution,
        guarantee: Guarantee,
        tightened: Floats | None = None,
        fingerprints: Fingerprints = (),
        fitted_rates: FittedRates | None = None,
        wholes: Floats | float = 1.0,
        group_rates: tuple[GroupRate, ...] = (),
        prices: Floats | None = None,
    ) -> Policy:
        """Return the policy of a solution.

        `wholes` (M,) are the denominators of quotients in rules, so that prices are those of their levels;
        `prices` (M,), before that, are by default those of the multipliers.
        """
        prices = (form.prices(solution.multipliers) if prices is None else prices) * wholes
        shifts = np.zeros(len(prices)) if tightened is None else tightened
        statements = [str(found.statement) for found in form.rules]
        rows = zip(statements, form.names, prices.tolist(), shifts.tolist(), strict=True)
        return cls(
            problem=problem,
            feature_map=form.feature_map,
            score_matrix=form.score_matrix(solution.multipliers),
            rule_prices=tuple(RulePrice(*row) for row in rows),
            solution=solution,
            guarantee=guarantee,
            frequencies=form.frequencies,
            fingerprints=fingerprints,
            fitted_rates=fitted_rates,
            group_rates=group_rates,
        )

    @property
    def beta(self) -> float:
        """Inverse temperature; a larger one randomizes fewer decisions."""
        return self.guarantee.beta

    @property
    def action_space(self) -> ActionSpace:
        return self.feature_map.action_space

    @property
    def actions(self) -> tuple[Value, ...]:
        """The labels, then the label of a rejection or the options, if there are any."""
        return self.action_space.actions

    @property
    def multipliers(self) -> dict[str, float]:
        """Price of each single rule, its Lagrange multiplier: the saving per point of slack, in points."""
        return {price.rule: price.multiplier for price in self.rule_prices}

    @property
    def prices(self) -> dict[str, float]:
        """Shadow price of each rule or family as stated: the saving per point of slack, in points.

        The unit of a rule that is not on a share is one.
        """
        totals: dict[str, float] = {}
        for price in self.rule_prices:
            totals[price.statement] = totals.get(price.statement, 0.0) + price.multiplier
        return totals

    @property
    def vacuous_statements(self) -> frozenset[str]:
        """The rules and families as stated that have a rule in `vacuous`."""
        return frozenset(price.statement for price in self.rule_prices if price.rule in self.vacuous)

    @property
    def tightened(self) -> dict[str, float]:
        """How much tighter than stated each single rule was held on predicted rates; negative if it was
        loosened.
        """
        return {price.rule: price.tightened for price in self.rule_prices}

    @property
    def observed(self) -> dict[str, float]:
        """Observed excess of each single rule on the fitted rows; below zero, it holds.

        Empty if neither labels nor groups nor a margin were given.
        """
        return {} if self.fitted_rates is None else {one.rule: one.excess for one in self.fitted_rates.rules}

    @property
    def expanded_rules(self) -> list[ExpandedRule]:
        """The single rules that it was fitted for, with the classes and the groups of the fit."""
        values = {name: attribute.values for name, attribute in self.feature_map.attributes.items()}
        return self.problem.expand(self.action_space.classes, values, self.action_space.options)

    @property
    def linear_problem(self) -> Problem:
        """Problem with a linear objective and the same optimum: that of the worst group is weighted."""
        if not isinstance(self.problem.minimize, Worst):
            return self.problem
        weights = {found.group: found.weight for found in self.group_rates}
        return self.problem.with_objective(self.problem.minimize.weigh(weights))

    @property
    def deterministic(self) -> bool:
        """Whether each row gets the action of largest score, so that no decision is random."""
        return self.hard is not None

    @property
    def entropy_cost(self) -> float:
        """Largest cost of the randomization, log|A|/beta."""
        return self.action_space.entropy / self.beta

    def calibrate(self, evidence: Evidence) -> Evidence:
        """Return the rows as the policy reads them: with calibrated probabilities, if it has a calibration.

        Parameters
        ----------
        evidence : Evidence
            Rows with the model's own probabilities. Rows that this policy has calibrated are not changed.

        Returns
        -------
        Evidence

        Examples
        --------
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6]])
        >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
        >>> policy.calibrate(evidence) is evidence  # there was nothing to calibrate with
        True
        """
        rows = as_evidence(evidence)
        return rows if self.calibration is None else self.calibration.apply(rows)

    def probabilities(self, evidence: Any, *, columns: Columns | None = None) -> Any:
        """Return the probabilities of each action on each row.

        Parameters
        ----------
        evidence : Evidence, Scan or frame
            The rows, with the columns that the policy was fitted on and the model's own probabilities.
            Out-of-memory rows are a `Scan`, or a frame of Dask, Spark or Polars with its `columns`.
        columns : Columns, optional
            The roles of the columns of a frame.

        Returns
        -------
        array of shape (n_rows, n_actions)
            For sets, the probability that each label is included, (n_rows, n_classes). For out-of-memory
            rows, a lazy frame of the same kind with the columns "p_<action>", after the column `columns.id`
            if it is given. Rows that raise an error in memory are null in Spark.

        Raises
        ------
        EvidenceError
            If a column is missing, or a group has a value that the policy was not fitted on.

        Examples
        --------
        >>> import numpy as np
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> scores = np.linspace(0.05, 0.95, 19)
        >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
        >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
        >>> policy.probabilities(evidence).shape
        (19, 3)
        """
        if _is_out_of_memory(evidence, columns):
            from bylaw.policy._row_maps import answer_rows

            return answer_rows(self, evidence, columns, decides=False)
        rows = self.calibrate(evidence)
        found = compute_probabilities(self.feature_map, self.score_matrix, self.beta, rows)
        return self.action_space.harden(found).T if self.deterministic else found.T

    def decide(
        self,
        evidence: Any,
        *,
        rng: np.random.Generator | int | None = None,
        ids: Any = None,
        method: Literal["sample", "systematic", "argmax"] = "sample",
        key: str | None = None,
        columns: Columns | None = None,
    ) -> Any:
        """Return one decision per row, sampled from `probabilities`.

        Parameters
        ----------
        evidence : Evidence, Scan or frame
            The rows to decide. Out-of-memory rows are a `Scan`, or a frame of Dask, Spark or Polars with its
            `columns`.
        rng : Generator or int, optional
            A generator or a seed, for "sample" and "systematic". A deterministic policy draws nothing, and
            needs neither `rng` nor `ids`.
        ids : array of shape (n_rows,), optional
            One id per row, strings or whole numbers, for "sample": the same id and policy give the same
            decision in any batch and on any machine. For out-of-memory rows, the name of their column of ids,
            by default `columns.id`.
        method : {"sample", "systematic", "argmax"}
            "sample" draws each row independently. "systematic" draws all rows together (pivotal sampling),
            so that counts are within a few units of their expectation. "argmax" takes the likeliest action,
            which the guarantee does not cover.
        key : str, optional
            With ids, the key of the hash; by default the digest of the policy. Use one key for all releases
            of a policy to keep their draws alike. The digest is public: if the subjects of decisions can
            choose or change their ids, pass a secret of 32 random characters or more, so that they cannot
            search for an id with the decision that they want.
        columns : Columns, optional
            The roles of the columns of a frame.

        Returns
        -------
        array of shape (n_rows,)
            For sets, membership as booleans, (n_rows, n_classes). For out-of-memory rows, a lazy frame of the
            same kind with the columns of ids and "decision", or for sets "in_<label>"; actions of several
            types, such as 0, 1 and "reject", are text. Rows that raise an error in memory are null in Spark.

        Examples
        --------
        >>> import numpy as np
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> scores = np.linspace(0.05, 0.95, 19)
        >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
        >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
        >>> (policy.decide(evidence, ids=range(19)) == policy.decide(evidence, ids=range(19))).all()
        np.True_
        """
        if _is_out_of_memory(evidence, columns):
            from bylaw.policy._row_maps import answer_rows

            if rng is not None or method != "sample":
                raise OptionError("out-of-memory rows are decided by id: leave out rng= and method=")
            return answer_rows(self, evidence, columns, decides=True, ids=ids, key=key)
        sampler = self._make_sampler(rng, ids, method, key)
        return self.action_space.name_decisions(self._sample(evidence, ids, sampler))

    def decide_positions(self, evidence: Evidence, *, ids: Any, key: str | None = None) -> NDArray[Any]:
        """Return the decisions of `decide` as positions in `actions`, which are faster to write to a table.

        Parameters
        ----------
        evidence : Evidence
        ids : array of shape (n_rows,)
        key : str, optional
            As in `decide`.

        Returns
        -------
        array of shape (n_rows,)
            For sets, membership as booleans, (n_rows, n_classes).

        Examples
        --------
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6]])
        >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
        >>> policy.decide_positions(evidence, ids=["ann", "bob"], key="2026")
        array([0, 2])
        """
        return self._sample(evidence, ids, self._make_sampler(None, ids, "sample", key))

    def mark_changes(self, evidence: Evidence, *, ids: Any = None, key: str | None = None) -> Evidence:
        """Return the rows with the cost of decisions that differ from this policy, for `custom("changed")`.

        The cost is 0 for the decision of this policy, and 1 for any other. Rules of a later policy can refer
        to it.

        Parameters
        ----------
        evidence : Evidence
        ids : array of shape (n_rows,), optional
            The ids by which this policy drew its decisions; by default, the likeliest decisions are used.
        key : str, optional
            With ids, as in `decide`.

        Returns
        -------
        Evidence

        Examples
        --------
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6]])
        >>> policy = solve(Problem(error(), [rejected() <= 0]), evidence)
        >>> policy.mark_changes(evidence).costs["changed"]
        array([[0., 1., 1.],
               [1., 0., 1.]])
        """
        space = self.action_space
        if not space.rivals:
            raise OptionError(
                "changes are counted where each row has one decision; for sets, use omits(reference)"
            )
        if ids is None:
            taken = self.probabilities(evidence).argmax(axis=1)
        else:
            taken = self.decide_positions(evidence, ids=ids, key=key)
        changed = (taken[:, None] != np.arange(len(space.actions))).astype(np.float64)
        return evidence.with_columns(costs={**evidence.costs, CHANGED: changed})

    def _sample(self, evidence: Evidence, ids: Any, sampler: Sampler) -> NDArray[Any]:
        check_alignment({"ids": ids}, as_evidence(evidence).index)
        return self.action_space.sample(self.probabilities(evidence).T, sampler)

    def _make_sampler(self, rng: Any, ids: Any, method: str, key: str | None) -> Sampler:
        """Return a function from probabilities (n_actions, n_rows) to positions of actions, (n_rows,)."""
        if self.deterministic and method in ("sample", "argmax"):
            if key is not None:
                check_key(key)
            return lambda parts, _: (part.argmax(axis=0) for part in parts)
        if method == "argmax":
            if rng is not None or ids is not None or key is not None:
                raise OptionError("method='argmax' draws nothing; leave out rng, ids and key")
            warnings.warn(
                "argmax decisions are not random, and the rules hold for the randomized policy only: "
                "audit these decisions by themselves",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )
            return lambda parts, _: (part.argmax(axis=0) for part in parts)
        if method not in ("sample", "systematic"):
            raise OptionError(f"method must be 'sample', 'systematic' or 'argmax', not {method!r}")
        if (rng is None) == (ids is None) or (key is not None and ids is None):
            raise OptionError("pass either rng= (a generator or a seed) or ids= (and then key=, if you like)")
        if ids is not None:
            if method == "systematic":
                raise OptionError(
                    "method='systematic' depends on the whole batch, so it takes rng=, not ids="
                )
            name = self.digest if key is None else check_key(key)
            return lambda parts, suffix: sample_by_id(parts, ids, name, suffix)
        generator = np.random.default_rng(rng)
        if method == "systematic":
            return lambda parts, _: (sample_pivotal(part, generator) for part in parts)
        return lambda parts, _: (sample_actions(part, generator.random(part.shape[1])) for part in parts)

    def expected(
        self,
        rate: Objective | str,
        evidence: RowData,
        *,
        labels: Any = None,
        groups: Any = None,
        probabilities: Floats | None = None,
    ) -> float:
        """Compute the expected rate of this policy on these rows, with the randomness integrated out.

        Parameters
        ----------
        rate : Rate, Ratio, Worst or str
            A rate such as `error()`, or its text, "error()". For `worst(error(), by="race")`, the rate of the
            worst group that has rows.
        evidence : Evidence or ObservedRows
            The rows. The rate is the observed one if they have labels or true groups, and otherwise the
            predicted one.
        labels, groups : optional
            True labels (n_rows,) and groups {name: values}, if they are not columns of the evidence.
        probabilities : array of shape (n_rows, n_actions), optional
            The probabilities of the actions, if they are known already or are those of other decisions;
            needed for `ObservedRows`.

        Returns
        -------
        float

        Examples
        --------
        >>> import numpy as np
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> scores = np.linspace(0.05, 0.95, 19)
        >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
        >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
        >>> round(policy.expected(rejected(), evidence), 4)
        0.1
        >>> round(policy.expected(error(), evidence, labels=(scores > 0.5).astype(int)), 4)
        0.0
        """
        stated = parse(rate) if isinstance(rate, str) else rate
        if not isinstance(stated, Rate | Ratio | Worst):
            raise RuleError(f"rate must be a rate such as error(), got {stated!r}: write it without <= or >=")
        chances = (
            self.probabilities(as_evidence(evidence)) if probabilities is None else np.asarray(probabilities)
        )
        check_alignment({"probabilities": probabilities}, evidence.index)
        if labels is not None or groups is not None:
            evidence = as_evidence(evidence).with_observed(labels=labels, true_groups=groups)
        if isinstance(evidence, Evidence):
            evidence = self.calibrate(evidence)
            if evidence.has_observed:
                evidence = observe(self.feature_map.admit(evidence))
        if isinstance(stated, Worst):
            rates = compute_group_rates(stated, evidence, chances, self.action_space)
            warn_of_missing_groups(stated, rates, self.feature_map)
            return max(rates.values())
        return measure_rate(stated, evidence, chances, self.action_space)

    @cached_property
    def digest(self) -> str:
        """Hash of what decisions depend on: policies with equal digests decide alike.

        It does not depend on the rules, the certificate, the card and the audits; `file_digest` does.
        """
        rule = serialization.decision_rule_to_dict(
            self.feature_map, self.score_matrix, self.beta, self.calibration
        )
        return serialization.compute_digest(rule)

    @property
    def file_digest(self) -> str:
        """SHA-256 of the whole file that `save` writes now, as `sha256sum policy.json` prints it.

        Compare it to make sure that a file is the one that was approved.
        """
        return hashlib.sha256(format_json(serialization.to_dict(self)).encode()).hexdigest()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy as JSON. An older file stays until the new one is complete.

        Parameters
        ----------
        path : str or path

        Examples
        --------
        >>> import numpy as np
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> scores = np.linspace(0.05, 0.95, 19)
        >>> evidence = Evidence(np.column_stack([1 - scores, scores]))
        >>> policy = solve(Problem(error(), [rejected() <= 0.1]), evidence)
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "policy.json"
        >>> policy.save(path)
        >>> Policy.load(path).digest == policy.digest
        True
        """
        write_json(serialization.to_dict(self), Path(path))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Policy:
        """Read a policy that `save` wrote.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        Policy

        Raises
        ------
        PolicyFileError
            If the file is damaged, was changed, or is of another version.
        """
        return cls(**serialization.read(Path(path)))

    def __repr__(self) -> str:
        return format_policy(self)

    def _repr_html_(self) -> str:
        return make_policy_card(self).to_html()


def _is_out_of_memory(evidence: Any, columns: Columns | None) -> bool:
    """Return whether these are a frame or a scan, which need more packages than a policy."""
    return columns is not None or type(evidence).__name__ == "Scan"


def compute_probabilities(
    feature_map: FeatureMap, score_matrix: Floats, beta: float, evidence: Evidence
) -> Floats:
    """Compute softmax(beta * features' score_matrix), or sigmoids for sets, (n_actions, n_rows)."""
    evidence = feature_map.admit(as_evidence(evidence))
    scale = beta * score_matrix
    # Not a power of two apart, or the columns of a row compete for one place in the cache.
    features = np.zeros((len(scale), _TILES * _TILE + _APART))[:, :-_APART]
    scores = np.zeros((scale.shape[1], _TILES * _TILE))
    probabilities = np.empty((scale.shape[1], len(evidence)))
    finite = True
    for first in range(0, len(evidence), _TILES * _TILE):
        rows = slice(first, min(first + _TILES * _TILE, len(evidence)))
        width = rows.stop - first
        feature_map.columns(evidence, rows, features[:, :width])
        for start in range(0, width, _TILE):
            tile = slice(start, start + _TILE)
            scores[:, tile] = compute_scores(scale, features[:, tile])
        feature_map.action_space.normalize(scores[:, :width], probabilities[:, rows])
        finite &= not np.isnan(probabilities[:, rows].min())  # the least of what has a NaN is NaN
    if not finite:
        raise EvidenceError("the scores of some rows overflow; are their costs or references in order?")
    return probabilities
