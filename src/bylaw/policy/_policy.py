"""The policy: a feature map, a matrix of scores and an inverse temperature, which determine decisions."""

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

# Matrix products of different shapes round differently. Rows are processed in tiles of equal width, so that
# the probabilities of a row are the same, to the last bit, in any batch.
_TILE = 2048  # rows
_TILES = 4  # number of tiles whose features are computed at a time
_APART = 64  # unused columns between rows of an array, see compute_probabilities


@dataclass(frozen=True, eq=False)
class Policy:
    """A randomized decision rule: pi(a | x) = softmax(beta * features(x)' score_matrix).

    If decisions are sets, the probability of each label is a sigmoid. `solve` returns a policy, and
    `Policy.load` reads one from a file.

    Attributes
    ----------
    problem : Problem
        The problem that the policy was fitted for.
    feature_map : FeatureMap
        The features that are computed from evidence.
    score_matrix : array of shape (n_features, n_actions)
        The score of each action for each feature; read-only.
    rule_prices : tuple of RulePrice
        For each single rule: the rule or family as it was written, its own text, its multiplier (price), and
        the margin by which it was tightened.
    solution : Solution
        The status of the solver, the size of the gradient mapping, and the number of steps.
    guarantee : Guarantee
        The terms of the paper's bounds on the fitted rows and on new ones.
    certificate : Certificate or None
        The certificate that the rules are satisfied on new rows, if the fit had a guarantee.
    fitted_rates : FittedRates or None
        The observed rates of the rules on the fitted rows, and the probability that the rules are satisfied
        on new rows, if labels, groups or a margin were given.
    card : Card
        The date, versions and columns of the fit, and the audits of the policy.
    calibration : Calibration or None
        The calibration of the model's probabilities, which the policy applies to all rows.
    group_rates : tuple of GroupRate
        If the objective is the worst rate of a group, the weight and rate of each group on the fitted rows.
    hard : HardDecisions or None
        The cost of not randomizing, if the policy is deterministic (`solve(..., deterministic=True)`).
    vacuous : tuple of str
        The single rules that are satisfied on the fitted rows only because the denominator of their rate is
        zero, such as a lower bound on the precision of a label that is never decided. Their prices have no
        meaning.

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
    rounded: bool = False  # True if frequencies and prices are rounded, as in a file
    fingerprints: Fingerprints = ()  # digests of the rows that the policy was fitted on
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
        """Make a policy from the solution of a problem.

        `prices` (M,) are the shadow prices of the rules, by default derived from the multipliers. They are
        multiplied by `wholes` (M,), the denominators of rules on ratios, to become prices of the bounds as
        they were written.
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
        """Inverse temperature: with a larger value, fewer decisions are random."""
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
        """Price (Lagrange multiplier) of each single rule.

        It is the decrease of the cost, in percentage points, if the bound is loosened by one percentage
        point.
        """
        return {price.rule: price.multiplier for price in self.rule_prices}

    @property
    def prices(self) -> dict[str, float]:
        """Shadow price of each rule or family as it was written: the sum of the prices of its single rules.

        It is the decrease of the cost, in percentage points, if the bounds are loosened by one percentage
        point, or by one unit if the rule is not about a share of the rows.
        """
        totals: dict[str, float] = {}
        for price in self.rule_prices:
            totals[price.statement] = totals.get(price.statement, 0.0) + price.multiplier
        return totals

    @property
    def vacuous_statements(self) -> frozenset[str]:
        """The rules and families, as they were written, of the single rules in `vacuous`."""
        return frozenset(price.statement for price in self.rule_prices if price.rule in self.vacuous)

    @property
    def tightened(self) -> dict[str, float]:
        """Margin by which each single rule was tightened on predicted rates, relative to its bound.

        Negative if the rule was loosened.
        """
        return {price.rule: price.tightened for price in self.rule_prices}

    @property
    def observed(self) -> dict[str, float]:
        """Observed excess of each single rule on the fitted rows: its observed rate minus its bound.

        A rule with an excess below zero is satisfied. Empty if neither labels nor groups nor a margin were
        given.
        """
        return {} if self.fitted_rates is None else {one.rule: one.excess for one in self.fitted_rates.rules}

    @property
    def expanded_rules(self) -> list[ExpandedRule]:
        """The single rules of the policy, for the classes and the groups of the fitted rows."""
        values = {name: attribute.values for name, attribute in self.feature_map.attributes.items()}
        return self.problem.expand(self.action_space.classes, values, self.action_space.options)

    @property
    def linear_problem(self) -> Problem:
        """Problem with a linear objective that has the same optimum.

        If the objective is the worst rate of a group, it is replaced by a weighted sum of the rates of
        groups.
        """
        if not isinstance(self.problem.minimize, Worst):
            return self.problem
        weights = {found.group: found.weight for found in self.group_rates}
        return self.problem.with_objective(self.problem.minimize.weigh(weights))

    @property
    def deterministic(self) -> bool:
        """True if each row gets the action with the largest score, so that no decision is random."""
        return self.hard is not None

    @property
    def entropy_cost(self) -> float:
        """Upper bound on the cost of randomization.

        It is log(n_actions) / beta or, if decisions are sets, n_labels log(2) / beta.
        """
        return self.action_space.entropy / self.beta

    def calibrate(self, evidence: Evidence) -> Evidence:
        """Return the rows with calibrated probabilities, if the policy has a calibration.

        Parameters
        ----------
        evidence : Evidence
            Rows with the model's own probabilities. Rows that this policy has calibrated are not changed.

        Returns
        -------
        Evidence
            The rows as the policy reads them.

        Examples
        --------
        >>> from bylaw import Evidence, Problem, error, rejected, solve
        >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6]])
        >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
        >>> policy.calibrate(evidence) is evidence  # the policy has no calibration
        True
        """
        rows = as_evidence(evidence)
        return rows if self.calibration is None else self.calibration.apply(rows)

    def probabilities(self, evidence: Any, *, columns: Columns | None = None) -> Any:
        """Return the probability of each action on each row.

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
            The probabilities; if decisions are sets, those of including each label, (n_rows, n_classes). For
            out-of-memory rows, a lazy frame of the same kind with the column `columns.id`, if it is given,
            and the columns "p_<action>". Rows that would raise an error in memory are null in Spark.

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
        """Return one decision per row, sampled with the probabilities of `probabilities`.

        Parameters
        ----------
        evidence : Evidence, Scan or frame
            The rows to decide. Out-of-memory rows are a `Scan`, or a frame of Dask, Spark or Polars with its
            `columns`.
        rng : Generator or int, optional
            A generator or a seed, for "sample" and "systematic". A deterministic policy needs neither
            `rng` nor `ids`.
        ids : array of shape (n_rows,), optional
            One id per row (text or whole numbers), for "sample": decisions are drawn by a hash of the id, so
            the same row gets the same decision in any batch and on any machine. For out-of-memory rows, the
            name of the column of ids, by default `columns.id`.
        method : {"sample", "systematic", "argmax"}
            "sample" draws each row independently. "systematic" draws all rows together (pivotal sampling),
            so that counts are within a few units of their expectation. "argmax" takes the most probable
            action, which the guarantee does not cover.
        key : str, optional
            With ids, the key of the hash; by default the digest of the policy. Use the same key for all
            releases of a policy, so that few decisions change. The digest is public: if the persons whom the
            decisions concern can choose or change their ids, pass a secret key of at least 32 random
            characters, so that they cannot search for an id with the decision that they want.
        columns : Columns, optional
            The roles of the columns of a frame.

        Returns
        -------
        array of shape (n_rows,)
            The decisions; if these are sets, membership as booleans, (n_rows, n_classes). For out-of-memory
            rows, a lazy frame of the same kind with the column of ids and "decision", or "in_<label>" for
            sets. In it, actions of several types, such as 0, 1 and "reject", are text, and rows that would
            raise an error in memory are null in Spark.

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
                raise OptionError(
                    "decisions on out-of-memory rows are drawn by id: leave out rng= and method="
                )
            return answer_rows(self, evidence, columns, decides=True, ids=ids, key=key)
        sampler = self._make_sampler(rng, ids, method, key)
        return self.action_space.name_decisions(self._sample(evidence, ids, sampler))

    def decide_positions(self, evidence: Evidence, *, ids: Any, key: str | None = None) -> NDArray[Any]:
        """Return the decisions of `decide` as indices of `actions`, which are faster to write to a table.

        Parameters
        ----------
        evidence : Evidence
            The rows to decide.
        ids : array of shape (n_rows,)
            One id per row.
        key : str, optional
            The key of the hash, as in `decide`.

        Returns
        -------
        array of shape (n_rows,)
            Indices; if decisions are sets, membership as booleans, (n_rows, n_classes).

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
        """Return the rows with a cost of 1 for each action that differs from the decision of this policy.

        The decision itself has the cost 0. Rules of a later policy can bound this cost by
        `custom("changed")`.

        Parameters
        ----------
        evidence : Evidence
            The rows.
        ids : array of shape (n_rows,), optional
            The ids by which this policy drew its decisions; by default, the most probable decisions are used.
        key : str, optional
            With ids, the key of the hash, as in `decide`.

        Returns
        -------
        Evidence
            The rows with the additional cost "changed".

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
                "mark_changes requires one decision per row, got sets; use omits(reference) for sets"
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
        """Return a function from probabilities (n_actions, n_rows) to action indices (n_rows,)."""
        if self.deterministic and method in ("sample", "argmax"):
            if key is not None:
                check_key(key)
            return lambda parts, _: (part.argmax(axis=0) for part in parts)
        if method == "argmax":
            if rng is not None or ids is not None or key is not None:
                raise OptionError(
                    "rng, ids and key have no effect with method='argmax', which is deterministic: "
                    "leave them out"
                )
            warnings.warn(
                "method='argmax' gives deterministic decisions, but only the randomized policy was fitted to "
                "satisfy the rules: audit these decisions, or fit with deterministic=True",
                GuaranteeWarning,
                stacklevel=find_stack_level(),
            )
            return lambda parts, _: (part.argmax(axis=0) for part in parts)
        if method not in ("sample", "systematic"):
            raise OptionError(f"method must be 'sample', 'systematic' or 'argmax', got {method!r}")
        if (rng is None) == (ids is None) or (key is not None and ids is None):
            raise OptionError("pass either rng= (a generator or a seed), or ids= with an optional key=")
        if ids is not None:
            if method == "systematic":
                raise OptionError("method='systematic' draws all rows together: pass rng= instead of ids=")
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
        """Compute the expected rate of this policy on these rows, averaged over the random decisions.

        Parameters
        ----------
        rate : Rate, Ratio, Worst or str
            A rate such as `error()`, or its text, "error()". For `worst(error(), by="race")`, the result is
            the largest rate of the groups that have rows.
        evidence : Evidence or ObservedRows
            The rows. If they have labels or true groups, the result is the observed rate, and otherwise the
            predicted rate.
        labels, groups : optional
            Observed labels (n_rows,) and true groups {name: values}, if they are not in the evidence.
        probabilities : array of shape (n_rows, n_actions), optional
            Probabilities of the actions to use instead of those of this policy; needed for `ObservedRows`.

        Returns
        -------
        float
            The expected rate.

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
        """Hash of all that decisions depend on: policies with equal digests make the same decisions.

        It does not depend on the rules, the certificate, the card and the audits; `file_digest` does.
        """
        rule = serialization.decision_rule_to_dict(
            self.feature_map, self.score_matrix, self.beta, self.calibration
        )
        return serialization.compute_digest(rule)

    @property
    def file_digest(self) -> str:
        """SHA-256 of the file that `save` would write now, equal to the output of `sha256sum policy.json`.

        Compare it to check that a file is the one that was approved.
        """
        return hashlib.sha256(format_json(serialization.to_dict(self)).encode()).hexdigest()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy to a JSON file. An older file is kept until the new one is complete.

        Parameters
        ----------
        path : str or path
            The path of the file.

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
        """Read a policy from a file that `save` wrote.

        Parameters
        ----------
        path : str or path
            The path of the file.

        Returns
        -------
        Policy
            The policy.

        Raises
        ------
        PolicyFileError
            If the file is damaged, was changed after it was saved, or has a version that cannot be read.
        """
        return cls(**serialization.read(Path(path)))

    def __repr__(self) -> str:
        return format_policy(self)

    def _repr_html_(self) -> str:
        return make_policy_card(self).to_html()


def _is_out_of_memory(evidence: Any, columns: Columns | None) -> bool:
    """Return True if the evidence is out of memory: a `Scan`, or a frame with `columns`."""
    return columns is not None or type(evidence).__name__ == "Scan"


def compute_probabilities(
    feature_map: FeatureMap, score_matrix: Floats, beta: float, evidence: Evidence
) -> Floats:
    """Compute the probabilities of actions, (n_actions, n_rows).

    They are softmax(beta * features' score_matrix) or, if decisions are sets, a sigmoid for each label.
    """
    evidence = feature_map.admit(as_evidence(evidence))
    scale = beta * score_matrix
    # If rows of the array are a power of two apart, entries of a column compete for one line of the cache.
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
        raise EvidenceError("the scores of some rows overflow: check their costs and references")
    return probabilities
