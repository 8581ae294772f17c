"""The rates of the language. Each is a public function, followed by the private function that defines it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bylaw._base import Value, as_name, as_scalar, check_number
from bylaw.errors import Remedy, RuleError
from bylaw.language._action_space import ActionSpace, LabelSpace, OptionSpace, RejectSpace, SetSpace
from bylaw.language._expressions import (
    DEFINITIONS,
    Atom,
    CostColumn,
    Definition,
    Meaning,
    Rate,
    ReferenceColumn,
    Term,
    shorten,
)

_SINGLE = (LabelSpace, OptionSpace)


def make_rate(name: str, *arguments: Any, function: Callable[..., Any] | None = None) -> Rate:
    """Return the rate with this name and these arguments, from its definition in `DEFINITIONS`."""
    return Rate(((Atom(name, arguments, function=function), 1.0),))


def define_rate(
    constructor: Callable[..., Rate], **properties: Any
) -> Callable[[Callable[..., Meaning]], Callable[..., Meaning]]:
    """Return a decorator that registers a function as the meaning of a rate.

    Parameters
    ----------
    constructor : callable
        The public function. The name of the rate is the name of this function.
    **properties
        The other parameters of `Definition`, such as `phrase`.
    """

    def register(meaning: Callable[..., Meaning]) -> Callable[..., Meaning]:
        DEFINITIONS[constructor.__name__] = Definition(constructor, meaning, **properties)
        return meaning

    return register


def error() -> Rate:
    """Return the error rate, P(decision is a label other than Y), where Y is the true label.

    Rejections and other options do not count as errors.

    Returns
    -------
    Rate

    Examples
    --------
    >>> error() <= 0.05
    error() <= 0.05
    >>> error().given(sex="Female") - error()
    error().given(sex='Female') - error()
    """
    return make_rate("error")


@define_rate(
    error,
    spaces=_SINGLE,
    instead="use miscoverage(), the probability that the set does not contain the true label",
    phrase="are answered wrongly",
    saving="of error",
    part_phrases={"accepted": "get a wrong one"},
)
def _error(*, space: ActionSpace) -> Meaning:
    _check_classes(space, "error()")
    return Meaning([t for a in space.classes for t in (Term(a, 1.0), Term(a, -1.0, label=a))])


def rejected() -> Rate:
    """Return the rejection (abstention, referral) rate, P(decision is a rejection).

    Returns
    -------
    Rate

    Examples
    --------
    >>> rejected() <= 0.1
    rejected() <= 0.1
    """
    return make_rate("rejected")


@define_rate(
    rejected,
    spaces=(OptionSpace,),
    implies=RejectSpace,
    instead="use size() for sets",
    phrase="are referred",
    saving="of referrals",
)
def _rejected(*, space: ActionSpace) -> Meaning:
    if space.reject_position is None:
        raise RuleError(
            f"the options must contain {space.reject!r} for rejected(), got {list(space.options)}; "
            "list it in "
            "decisions, or use selected(option)"
        )
    return Meaning([Term(space.reject, 1.0)])


def accepted() -> Rate:
    """Return the rate of answers (coverage in selective classification), P(decision is a label).

    Returns
    -------
    Rate

    Examples
    --------
    Bound the selective error, the error rate among the rows that get an answer:

    >>> error() <= 0.05 * accepted()
    error() <= 0.05 * accepted()
    """
    return make_rate("accepted")


@define_rate(
    accepted,
    spaces=(OptionSpace,),
    implies=RejectSpace,
    instead="use size() for sets",
    phrase="get an answer",
)
def _accepted(*, space: ActionSpace) -> Meaning:
    _check_classes(space, "accepted()")
    return Meaning([Term(a, 1.0) for a in space.classes])


def selected(label: Value) -> Rate:
    """Return the selection rate, P(decision == label); for sets, P(label in the set).

    Parameters
    ----------
    label : str, int, float or bool
        One of the classes, or an option such as an expert, a queue or a model to call.

    Returns
    -------
    Rate

    Examples
    --------
    >>> selected("approve").given(sex="F") >= 0.8 * selected("approve").given(sex="M")
    selected('approve').given(sex='F') >= 0.8 * selected('approve').given(sex='M')
    """
    return make_rate("selected", as_scalar(label, "the label of selected()"))


@define_rate(selected, phrase="get the decision {0}", set_phrase="get a set that contains {0}")
def _selected(label: Value, *, space: ActionSpace) -> Meaning:
    options = space.named_options
    if label not in space.classes and label not in options:
        beside = f" and the options {list(options)}" if options else ""
        raise RuleError(
            f"the label of selected() must be one of the classes {list(space.classes)}{beside}, got {label!r}"
            f"{_hint_at_type(label, space)}. For rejections use rejected()"
        )
    return Meaning([Term(label, 1.0)])


def recall(label: Value) -> Rate:
    """Return the recall (sensitivity, true positive rate), P(decision == label | Y == label).

    Y is the true label. The rate is short for `selected(label).given(label=label)`.

    Parameters
    ----------
    label : str, int, float or bool
        One of the classes.

    Returns
    -------
    Rate

    Examples
    --------
    >>> recall("fraud") >= 0.8
    recall('fraud') >= 0.8
    """
    (atom, _), *_ = selected(label).given(label=label).terms
    return Rate(((replace(atom, abbreviation="recall"), 1.0),))


def precision(label: Value) -> Rate:
    """Return the precision (positive predictive value), P(Y == label | decision == label).

    Y is the true label. For sets, it is P(Y == label | label in the set). It is the ratio of P(Y == label and
    decision == label) and P(decision == label). A bound on it is multiplied out to an equivalent linear rule.
    If the label is never assigned, the ratio is 0/0, and the rule is satisfied.

    Parameters
    ----------
    label : str, int, float or bool
        One of the classes.

    Returns
    -------
    Rate

    Examples
    --------
    >>> precision("fraud") >= 0.9
    precision('fraud') >= 0.9
    >>> precision("fraud").given(country="FR") >= 0.8
    precision('fraud').given(country='FR') >= 0.8
    """
    return make_rate("precision", as_scalar(label, "the label of precision()"))


@define_rate(
    precision,
    phrase="have the true label {0}",
    saving="of precision",
    decided=lambda label: label,
)
def _precision(label: Value, *, space: ActionSpace) -> Meaning:
    _check_class("precision", label, space)
    return Meaning([Term(label, 1.0, label=label)])


def f1(label: Value) -> Rate:
    """Return the F1 score of a label, the harmonic mean of its precision and recall.

    It is the ratio 2 P(Y == label and decision == label) / (P(Y == label) + P(decision == label)). Bound it,
    as in `f1("fraud") >= 0.6`, or maximize it by `minimize=1 - f1("fraud")`.

    Parameters
    ----------
    label : str, int, float or bool
        One of the classes.

    Returns
    -------
    Rate

    Examples
    --------
    >>> 1 - f1("fraud")
    1 - f1('fraud')
    """
    return make_rate("f1", as_scalar(label, "the label of f1()"))


def _f1_whole(label: Value, *, space: ActionSpace) -> Meaning:
    """Return the denominator P(decision == label) + P(Y == label); the latter as a sum over all actions."""
    _check_class("f1", label, space)
    return Meaning([Term(label, 1.0), *(Term(action, 1.0, label=label) for action in space.actions)])


@define_rate(
    f1,
    spaces=_SINGLE,
    instead="bound precision(label) and recall(label)",
    probability=False,
    phrase="the F1 score of {0}",
    whole=_f1_whole,
)
def _f1(label: Value, *, space: ActionSpace) -> Meaning:
    _check_class("f1", label, space)
    return Meaning([Term(label, 2.0, label=label)])


def balanced_error() -> Rate:
    """Return the balanced error, the mean over classes of P(decision is a wrong label | Y == class).

    Y is the true label.

    Returns
    -------
    Rate

    Examples
    --------
    >>> balanced_error() <= 0.2
    balanced_error() <= 0.2
    """
    return make_rate("balanced_error")


def g_mean() -> Rate:
    """Return the geometric mean of the recalls of all classes.

    It is not linear and rules cannot bound it. Maximize it by `minimize=1 - g_mean()`.

    Returns
    -------
    Rate

    Examples
    --------
    >>> 1 - g_mean()
    1 - g_mean()
    """
    return make_rate("g_mean")


@define_rate(
    balanced_error,
    spaces=_SINGLE,
    instead="use miscoverage().given(label=...)",
    phrase="the average over the classes of the share of cases that are answered wrongly",
    probability=False,
    saving="of balanced error",
    derived=lambda classes: sum((error().given(label=y) for y in classes), Rate(())) / len(classes),
)
@define_rate(
    g_mean,
    spaces=_SINGLE,
    probability=False,
    phrase="the geometric mean of the recalls of all classes",
    factors=lambda classes: [recall(label) for label in classes],
)
def _made_of_others(*, space: ActionSpace) -> Meaning:
    """Raise, since these rates are compiled from the rates that define them."""
    raise AssertionError(space)


def cost(matrix: Sequence[Sequence[float]]) -> Rate:
    """Return the expected cost, E[matrix[Y, decision]], where Y is the true label.

    Parameters
    ----------
    matrix : array-like of shape (n_classes, n_classes) or (n_classes, n_actions)
        One row per true class and one column per action: the labels, then "reject" or the options, which cost
        nothing if they have no columns. For sets, the cost is the sum over the labels in the set.

    Returns
    -------
    Rate

    Examples
    --------
    A missed fraud costs 20, a false alarm 1, a referral 0.5:

    >>> cost([[0, 1, 0.5], [20, 0, 0.5]])
    cost([[0, 1, 0.5], [20, 0, 0.5]])
    """
    if hasattr(matrix, "to_numpy"):  # a frame iterates over its columns' names
        matrix = matrix.to_numpy()  # type: ignore[attr-defined]
    rows = tuple(
        tuple(check_number(entry, "an entry of cost()", RuleError) for entry in row) for row in matrix
    )
    if len({len(row) for row in rows}) != 1 or len(rows[0]) < len(rows):
        raise RuleError(
            "matrix in cost() must have one row per class and one column per class, and optionally one for "
            f"'reject' or for each option, got rows with {[len(row) for row in rows]} entries"
        )
    return make_rate("cost", rows)


@define_rate(
    cost,
    implies=lambda matrix: RejectSpace if len(matrix[0]) == len(matrix) + 1 else None,
    probability=False,
    phrase="the average cost by the given table of costs",
    saving="of cost",
)
def _cost(matrix: tuple[tuple[float, ...], ...], *, space: ActionSpace) -> Meaning:
    classes, width = space.classes, len(matrix[0])
    _check_classes(space, "cost()")
    if len(matrix) != len(classes):
        raise RuleError(
            f"matrix in cost() must have one row for each of the {len(classes)} classes, got {len(matrix)}"
        )
    if width == len(classes) + 1 and not space.options:
        raise RuleError(
            f"matrix in cost() has a column for 'reject', but a decision is {space.description}; drop the "
            "last column",
            Remedy("choose_decisions", RejectSpace.kind),
        )
    if width not in (len(classes), len(space.actions)):
        raise RuleError(
            f"matrix in cost() must have one column per class, or one for each of {list(space.actions)}, got "
            f"{width} columns"
        )
    return Meaning(
        [
            Term(action, entry, label=label)
            for label, row in zip(classes, matrix, strict=True)
            for action, entry in zip(space.actions, row, strict=False)
            if entry
        ]
    )


def disagreement(reference: str) -> Rate:
    """Return the churn, P(decision differs from the reference model's).

    A rejection always differs. Another option differs unless the reference model chose the same option.

    Parameters
    ----------
    reference : str
        The name of a model in `Evidence(references=...)`.

    Returns
    -------
    Rate

    Examples
    --------
    >>> disagreement("last release") <= 0.05
    disagreement('last release') <= 0.05
    """
    return make_rate("disagreement", _column_name(reference, "disagreement"))


def omits(reference: str) -> Rate:
    """Return the churn of sets, P(the reference model's label is not in the set).

    Parameters
    ----------
    reference : str
        The name of a model in `Evidence(references=...)`.

    Returns
    -------
    Rate

    Examples
    --------
    >>> omits("old") <= 0.02
    omits('old') <= 0.02
    """
    return make_rate("omits", _column_name(reference, "omits"))


@define_rate(
    disagreement,
    spaces=_SINGLE,
    instead="use omits(reference), the probability that the set lacks the reference's label",
    reads="reference",
    phrase="get another decision than from {0}",
    saving="of changed decisions",
)
@define_rate(
    omits,
    spaces=(SetSpace,),
    implies=SetSpace,
    instead="use disagreement(reference)",
    reads="reference",
    phrase="get a set without the answer of {0}",
    saving="of sets without the earlier answer",
)
def _disagreement(reference: str, *, space: ActionSpace) -> Meaning:
    same = [Term(a, -1.0, source=ReferenceColumn(reference, a)) for a in space.reference_actions]
    return Meaning(same, 1.0)


def miscoverage() -> Rate:
    """Return the miscoverage of prediction sets, P(Y not in the set), where Y is the true label.

    Returns
    -------
    Rate

    Examples
    --------
    >>> miscoverage().given(label=3) <= 0.1
    miscoverage().given(label=3) <= 0.1
    """
    return make_rate("miscoverage")


@define_rate(
    miscoverage,
    spaces=(SetSpace,),
    implies=SetSpace,
    instead="use error()",
    phrase="get a set that misses the true label",
    saving="of missed labels",
)
def _miscoverage(*, space: ActionSpace) -> Meaning:
    return Meaning([Term(a, -1.0, label=a) for a in space.classes], 1.0)


def size() -> Rate:
    """Return the mean size of prediction sets, E[number of labels in the set].

    Returns
    -------
    Rate

    Examples
    --------
    >>> size() <= 2
    size() <= 2
    """
    return make_rate("size")


@define_rate(
    size,
    spaces=(SetSpace,),
    implies=SetSpace,
    probability=False,
    instead="use accepted() or rejected() to state how often there is an answer",
    phrase="the average number of labels in a set",
    saving="labels per set",
)
def _size(*, space: ActionSpace) -> Meaning:
    return Meaning([Term(a, 1.0) for a in space.classes])


def custom(column: str | Callable[..., Any], name: str | None = None) -> Rate:
    """Return the expected value E[c(x, decision)] of any cost c.

    Parameters
    ----------
    column : str or callable
        The name of an (n_rows, n_actions) array in `Evidence(costs=...)`, or a function of the evidence that
        returns such an array. Functions are not saved in files: a loaded policy or a parsed rule reads the
        array `costs[name]` instead.
    name : str, optional
        The name of the cost, if `column` is a function; by default the name of the function.

    Returns
    -------
    Rate

    Examples
    --------
    >>> custom("visit") <= 0.2
    custom('visit') <= 0.2
    """
    if isinstance(column, str):
        if name is not None:
            raise RuleError(
                f"name in custom() must be None if column is a name, got {name!r}; it is for functions"
            )
        return make_rate("custom", _column_name(column, "custom"))
    if not callable(column):
        raise RuleError(f"column in custom() must be the name of a cost or a function, got {column!r}")
    name = name or getattr(column, "__name__", None)
    if name is None or name == "<lambda>":
        raise RuleError(
            "a function in custom() must have a name for reports and files; write custom(f, name='visit')"
        )
    return make_rate("custom", _column_name(name, "custom"), function=column)


@define_rate(custom, probability=False, reads="cost", phrase="the average {0}")
def _custom(name: str, *, space: ActionSpace) -> Meaning:
    return Meaning([Term(a, 1.0, source=CostColumn(name, i)) for i, a in enumerate(space.actions)])


def _check_classes(space: ActionSpace, rate: str) -> None:
    if not space.classes:
        raise RuleError(
            f"{rate} requires classes, but the problem has only the options {list(space.options)}; "
            "pass the cost "
            "of each option on each row as an array, Evidence(costs={'wrong': ...}), and use custom('wrong')"
        )


def _check_class(word: str, label: Value, space: ActionSpace) -> None:
    if label not in space.classes:
        raise RuleError(
            f"the label of {word}() must be one of the classes {shorten(space.classes)}, got {label!r}"
            f"{_hint_at_type(label, space)}"
        )


def _hint_at_type(label: Value, space: ActionSpace) -> str:
    """Return a hint if a class differs from the label only in type, such as 'True' and True."""
    alike = [name for name in space.classes if str(name).lower() == str(label).lower()]
    return f"; write {alike[0]!r}, not {label!r}" if alike else ""


# Rates that are short forms of other rates.
ABBREVIATIONS: dict[str, Callable[..., Rate]] = {"recall": recall}


def _column_name(name: Any, word: str) -> str:
    return as_name(name, f"the name of a column in {word}()")
