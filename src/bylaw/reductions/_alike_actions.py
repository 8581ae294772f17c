"""Actions that neither the objective nor the rules tell apart: chance decides between them, which is said.

Under `1 - f1("fraud")`, all labels but "fraud" are alike, and so is a rejection. A rule that tells two of
them apart, such as rejected() <= 0.1, is then met by rows drawn by lot, at next to no price.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from bylaw._base.runtime import find_stack_level
from bylaw._base.typing import Floats, Value
from bylaw.errors import GuaranteeWarning
from bylaw.language.expressions import Rate, Worst
from bylaw.policy.policy import Policy
from bylaw.program.linear_form import compile_problem
from bylaw.rows.evidence import Evidence

_ODDS = 7.0  # the largest logarithm of the odds on any row: one in a thousand is drawn, or more
_TIE = 1e-6  # of the unit of the loss, without chance
_SAMPLE = 1000  # rows that show how large features are
_LARGE = 1e100
_LISTED = 4  # actions in the warning
_SLACK = 0.005  # relative, of a rule on what was minimised
_ROUNDING = 1e-12  # relative error of a projection


def warn_of_alike_actions(policy: Policy, evidence: Evidence) -> None:
    """Names the actions between which chance decides, and a problem that decides between them.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence
        the fitted rows, or a sample of them.
    """
    alike = find_alike_actions(policy, evidence)
    if not alike:
        return
    first, *others = alike[:_LISTED]
    names = ", ".join(map(repr, [first, *others[:-1]])) + f" and {others[-1]!r}"
    more = f" ({len(alike) - _LISTED} more are like them)" if len(alike) > _LISTED else ""
    how = "the first is always taken of" if policy.deterministic else "chance decides between"
    message = (
        f"{how} {names}{more}: minimize={policy.problem.minimize} does not tell them apart, and no rule with "
        f"a price does. {_advise(policy, evidence, alike)}"
    )
    warnings.warn(message, GuaranteeWarning, stacklevel=find_stack_level())


def find_alike_actions(policy: Policy, evidence: Evidence) -> tuple[Value, ...]:
    """Actions with the same part in the objective, whose scores are alike on all rows; none of sets."""
    rates = _list_objectives(policy)
    if not policy.action_space.rivals or not rates:
        return ()
    losses = np.vstack([_compile(policy, rate, evidence) for rate in rates])  # (F', A)
    weights = policy.score_matrix * _measure_features(policy, evidence)[:, None]  # (F, A)
    tolerance = max(_ODDS / policy.beta, _TIE * policy.guarantee.alpha if policy.deterministic else 0.0)
    # Projections with factors of at most one are no further apart than columns are: few need be compared.
    shadows = np.array([np.cos(np.arange(len(part))) @ part for part in (losses, weights)])  # (2, A)
    slack = tolerance + _ROUNDING * abs(shadows).max()
    for k, action in enumerate(policy.action_space.rivals):
        near = np.flatnonzero((abs(shadows - shadows[:, [k]]) <= slack).all(axis=0))
        same = (losses[:, near] == losses[:, [k]]).all(axis=0)
        same &= abs(weights[:, near] - weights[:, [k]]).sum(axis=0) <= tolerance
        if same.sum() > 1:
            return (action, *(policy.actions[j] for j in near[same] if j != k))
    return ()


def _list_objectives(policy: Policy) -> list[Rate]:
    """The linear rates of which the objective is made; none where it is a product."""
    minimize = policy.problem.minimize
    if isinstance(minimize, Worst):
        return [minimize.rate]
    resolved = minimize.resolve(policy.action_space.classes)
    ratio = resolved.split()
    if ratio is not None:
        return [ratio.numerator, ratio.denominator]
    return [resolved] if isinstance(resolved, Rate) and resolved.is_linear else []


def _compile(policy: Policy, rate: Rate, evidence: Evidence) -> Floats:
    """(F', A): what the actions add to a rate, by its own features."""
    problem = policy.problem.with_objective(rate)
    return compile_problem(problem, evidence, policy.frequencies, rules=()).base


def _measure_features(policy: Policy, evidence: Evidence) -> Floats:
    """(F,): the largest size of each on some rows; without rows, probabilities are at most one, and a column
    may be of any size."""
    features = policy.feature_map.features
    if not len(evidence):
        return np.array([1.0 if feature.source is None else _LARGE for feature in features])
    rows = policy.feature_map.admit(evidence.rows(slice(None, None, math.ceil(len(evidence) / _SAMPLE))))
    columns = policy.feature_map.columns(rows, slice(None), np.empty((len(features), len(rows))))
    return abs(columns).max(axis=1)


def _advise(policy: Policy, evidence: Evidence, alike: tuple[Value, ...]) -> str:
    """The same problem by other means: errors are minimised, and a rule holds what was minimised."""
    minimize = policy.problem.minimize
    if isinstance(minimize, Worst) or not set(alike).intersection(policy.action_space.classes):
        return "Minimise a sum in which each has a cost of its own, or leave all but one out"
    if evidence.margins is not None:  # most rows are elsewhere
        return f"To decide by errors, minimise {minimize} + 0.1 * error()"
    value = policy.expected(minimize, evidence)
    level = _round_up(value + _SLACK * abs(value))
    rules = "its rules and " if policy.problem.rules else ""
    return f"To decide by errors, minimise error() subject to {rules}{minimize} <= {level:g}"


def _round_up(value: float) -> float:
    """To three digits, as numbers of the warning are written."""
    if value == 0:
        return 0.001
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return math.ceil(value / unit) * unit
