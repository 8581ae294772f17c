"""Problems and the parser of rules: the objective to minimize and the rules to satisfy, without rows."""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn

from bylaw._base import Value, as_scalar
from bylaw.errors import OptionError, RuleError, RuleSyntaxError
from bylaw.language._action_space import (
    ActionSpace,
    Kind,
    LabelSpace,
    OptionSpace,
    RejectSpace,
    SetSpace,
    check_options,
    make_action_space,
)
from bylaw.language._expressions import (
    DEFINITIONS,
    LABEL,
    Atom,
    Band,
    Groups,
    Objective,
    Rate,
    Ratio,
    Rule,
    Worst,
    as_rate,
    worst,
)
from bylaw.language._families import FAMILIES, Family
from bylaw.language._rates import ABBREVIATIONS

Statement = Rule | Band | Family
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
}
_LONGEST = 100_000  # characters of the text of a rule


def list_words() -> dict[str, Callable[..., Any]]:
    """Return the public functions of all rates, families and objectives, by name."""
    rates, families = (
        {name: found.constructor for name, found in part.items()} for part in (DEFINITIONS, FAMILIES)
    )
    return {**rates, **ABBREVIATIONS, **families, "worst": worst}


class Word(NamedTuple):
    """A rate, family or objective with its signature and a short description."""

    name: str
    signature: str  # such as "selected(label)"
    help: str  # the first paragraph of the docstring, without "Return"
    kind: Literal["rate", "family", "objective"]  # an objective can only be minimized


def describe_words() -> list[Word]:
    """Return all rates, families and objectives of the language with their descriptions."""
    words = []
    for name, word in list_words().items():
        text = " ".join((word.__doc__ or "").partition("\n\n")[0].split()).removeprefix("Return ")
        is_rate = name in ABBREVIATIONS or (name in DEFINITIONS and DEFINITIONS[name].factors is None)
        kind = "family" if name in FAMILIES else "rate" if is_rate else "objective"
        signature = f"{name}({', '.join(inspect.signature(word).parameters)})"
        words.append(Word(name, signature, text[:1].upper() + text[1:], kind))
    return words


def parse(text: str) -> Rate | Ratio | Worst | Statement:
    """Convert the text of a rate, rule, family or objective into its object, without evaluating code.

    Parameters
    ----------
    text : str
        The text, as `str(rule)` prints it.

    Returns
    -------
    Rate, Ratio, Rule, Band, Family or Worst

    Raises
    ------
    RuleSyntaxError
        If the text is not in the language of rules. The message shows the line and column.

    Examples
    --------
    >>> parse("rejected()<=.1")
    rejected() <= 0.1
    >>> parse("demographic_parity('sex', tol=0.02)").expand(["no", "yes"], {"sex": ("F", "M")})[0]
    selected('no').given(sex='F') - selected('no') <= 0.02
    """
    if not isinstance(text, str):
        raise RuleError(f"text must be a string, got {text!r}")
    if len(text) > _LONGEST:
        raise RuleSyntaxError(f"a rule must have at most {_LONGEST} characters, got {len(text)}", text[:60])
    text = text.encode("utf-8", "backslashreplace").decode()  # halves of characters are in no file
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as problem:
        line, column = getattr(problem, "lineno", 1) or 1, getattr(problem, "offset", 1) or 1
        hint = "; write 0.1 for 10 %" if "%" in text else ""
        raise RuleSyntaxError(
            f"the text is not a rule: {problem.args[0]}{hint}", text.strip(), line, column - 1
        ) from None
    except (RecursionError, MemoryError):
        raise RuleSyntaxError("a rule must not be nested this deeply", text[:60]) from None
    try:
        reader = _Reader(text.strip())
        value = reader.read(tree.body)
        if isinstance(value, int | float) and not isinstance(value, bool):  # a number alone is a rate
            value = reader.call(tree.body, as_rate, value)
    except RecursionError:
        raise RuleSyntaxError("a rule must not be nested this deeply", text[:60]) from None
    if not isinstance(value, Rate | Ratio | Rule | Band | Family | Worst):
        raise RuleSyntaxError("the text must be a rate or a rule", text.strip())
    return value


def renew_text(text: str) -> str:
    """Return the text of a rule as this version prints it: earlier ones printed 1 - f1(1) as -f1(1) + 1."""
    return str(parse(text)) if re.search(r"\+ [\d.]", text) else text


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return self._literal(node)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._apply(node, op, left, right)
            case ast.Compare():
                self._refuse(node, "write a <= rate <= b as two rules")
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(node, op, left, right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.call(node, operator.neg, self.read(operand))
            case ast.Call():
                return self._read_call(node)
            case ast.Name(id=word) if word in list_words():
                self._refuse(node, f"a rate must have parentheses; write {word}()")
        self._refuse(node, "this syntax is not part of the language of rules")

    def _read_call(self, node: ast.Call) -> Any:
        match node.func:
            case ast.Name(id="abs"):
                rate = self.read(node.args[0]) if len(node.args) == 1 and not node.keywords else None
                if not isinstance(rate, Rate):
                    self._refuse(node, "abs() must get one rate")
                return abs(rate)
            case ast.Name(id="worst"):
                keywords = self._keywords(node)
                if len(node.args) != 1 or keywords.keys() != {"by"}:
                    self._refuse(node, "write worst(rate, by='race'), with one rate and the groups")
                return self.call(node, worst, self.read(node.args[0]), **keywords)
            case ast.Name(id=word):
                words = list_words()
                if word not in words:
                    near = difflib.get_close_matches(word, words, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"the words are {', '.join(words)}"
                    self._refuse(node, f"unknown word {word!r}; {hint}")
                args, keywords = [self._literal(arg) for arg in node.args], self._keywords(node)
                signature = inspect.signature(words[word])
                try:
                    signature.bind(*args, **keywords)
                except TypeError as problem:
                    self._refuse(node, f"{word}({', '.join(signature.parameters)}): {problem}")
                return self.call(node, words[word], *args, **keywords)
            case ast.Attribute(value=value, attr="given") if not node.args:
                rate = self.read(value)
                if not isinstance(rate, Rate | Ratio):
                    self._refuse(node, "given() must follow a rate")
                return self.call(node, rate.given, **self._keywords(node))
        self._refuse(node, "only rates, families, abs() and .given() can be called")

    def _apply(self, node: ast.expr, op: ast.AST, left: ast.expr, right: ast.expr) -> Any:
        if type(op) not in _OPERATORS:
            self._refuse(node, "rules must use <= or >=, and rates +, -, * or /")
        a, b = self.read(left), self.read(right)
        for side, value in ((left, a), (right, b)):
            if isinstance(value, Worst):
                self._refuse(side, "worst() must be minimized alone: it cannot be part of a rule or a sum")
            if isinstance(value, str | bool) or value is None:
                self._refuse(side, "this must be a rate or a number")
        return self.call(node, _OPERATORS[type(op)], a, b)

    def _keywords(self, node: ast.Call) -> dict[str, Any]:
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._literal(keyword.value)
            named = value if keyword.arg is None else {keyword.arg: value}
            if not isinstance(named, dict) or not all(isinstance(name, str) for name in named):
                self._refuse(keyword.value, "** must be followed by a dict with names as keys")
            if repeated := set(named) & set(keywords):
                self._refuse(keyword.value, f"{sorted(repeated)} is given twice")
            keywords |= named
        return keywords

    def _literal(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value) if isinstance(value, str | bool | int | float) or value is None:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(
                value, int | float
            ):
                return -value
            case ast.List(elts=items):
                return [self._literal(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self._literal(item) for item in items)
            case ast.Dict(keys=keys, values=values):
                refuse = self._refuse
                plain = [
                    self._literal(key) if key else refuse(node, "** cannot be used in a dict") for key in keys
                ]
                try:
                    repeated = len(set(plain)) < len(plain)
                except TypeError:
                    refuse(node, "the keys of a dict must be plain values or tuples of these")
                if repeated:
                    refuse(node, "the keys of a dict must differ from each other")
                return dict(zip(plain, map(self._literal, values), strict=True))
        if isinstance(node, ast.Name):
            self._refuse(node, f"text must be in quotes: write {node.id!r}")
        self._refuse(node, "arguments must be plain values: text, numbers, lists or dicts")

    def call(self, node: ast.expr, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call an operation on rates; convert an error to one with the line and column in the text."""
        try:
            return function(*args, **kwargs)
        except RuleSyntaxError:
            raise
        except RuleError as problem:
            self._refuse(node, str(problem))
        except (TypeError, OverflowError, ZeroDivisionError) as problem:
            self._refuse(node, f"this operation is not possible: {problem}")

    def _refuse(self, node: ast.expr, message: str) -> NoReturn:
        line = self.text.splitlines()[node.lineno - 1]
        column = len(line.encode()[: node.col_offset].decode(errors="ignore"))  # offsets count bytes
        raise RuleSyntaxError(message, self.text, node.lineno, column)


class ExpandedRule(NamedTuple):
    """A single rule, and the rule or family of the problem from which it was made."""

    rule: Rule
    statement: Statement
    place: int  # the index of the statement among the problem's rules
    classes: tuple[Value, ...]

    @property
    def excess(self) -> Rate:
        """The linear rate that is at most zero if and only if the rule is satisfied."""
        excess = self.rule.excess.resolve(self.classes)
        return excess if self.rule.is_linear else excess.multiply_out()

    @property
    def tolerance(self) -> float:
        """The largest difference between the rates of different rows that the rule allows.

        Infinite if the rule does not compare different rows, or allows no difference.
        """
        excess = self.excess
        compares = self.rule.is_linear and len(excess.by_condition()) > 1
        return (abs(excess.constant) or math.inf) if compares else math.inf


@dataclass(frozen=True, repr=False)
class Problem:
    """An objective to minimize and rules to satisfy, independent of data and immutable.

    Parameters
    ----------
    minimize : Rate, Ratio, Worst or str
        The objective: a rate such as `error()` or `1 - f1("fraud")`, a ratio of two rates, `worst(rate,
        by=...)`, or the text of one of these.
    rules : Rule, Band, Family, str, or list of these
        Rules and families of rules, or their texts; None for no rules.
    classes : list, optional
        The labels. If given, the evidence must have the same.
    decisions : {"auto", "labels", "reject", "sets"} or list
        The kind of decisions: one label per row, a label or a rejection, or a set of labels; "auto" infers it
        from the rates. A list contains all labels and also options: decisions that are not labels, such as
        experts, queues or models to call. The objective should give each option a cost, or a rule should
        bound its rate.
    reject : str, int, float or bool
        The name of a rejection among the decisions.

    Raises
    ------
    RuleError
        If the objective or a rule is not valid, or they refer to different kinds of decisions.

    Examples
    --------
    >>> from bylaw import demographic_parity, error, rejected
    >>> Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1])
    minimize error()
    subject to
      demographic_parity('sex', tol=0.02)
      rejected() <= 0.1

    Send cases to two experts beside the model. A case costs as much as 0.1 or 0.3 errors, and the senior
    expert can take 5 % of the cases:

    >>> from bylaw import selected
    >>> problem = Problem(
    ...     error() + 0.1 * selected("junior") + 0.3 * selected("senior"),
    ...     [selected("senior") <= 0.05],
    ...     decisions=["approve", "deny", "junior", "senior"],
    ... )
    >>> problem.action_space(("deny", "approve")).actions
    ('deny', 'approve', 'junior', 'senior')
    """

    minimize: Objective
    rules: tuple[Statement, ...] = ()
    classes: tuple[Value, ...] | None = None
    decisions: Kind | Literal["auto"] | tuple[Value, ...] = "auto"
    reject: Value = "reject"

    def __init__(
        self,
        minimize: Objective | str,
        rules: Sequence[Statement | str] | Statement | str | None = (),
        classes: Sequence[Any] | None = None,
        decisions: Kind | Literal["auto"] | Sequence[Any] = "auto",
        reject: Any = "reject",
    ) -> None:
        objective = parse(minimize) if isinstance(minimize, str) else minimize
        if not isinstance(objective, Rate | Ratio | Worst) or not objective.terms:
            raise RuleError(f"minimize must be a rate such as error(), or worst(rate, by=), got {minimize!r}")
        if isinstance(rules, Rule | Band | Family | str):
            rules = [rules]
        if rules is not None and not isinstance(rules, Iterable):
            raise RuleError(f"rules must be a rule, a family, a text or a list of these, got {rules!r}")
        statements = []
        for i, rule in enumerate(() if rules is None else rules):
            statement = parse(rule) if isinstance(rule, str) else rule
            if isinstance(statement, bool):
                raise RuleError(
                    f"rules[{i}] must be a rule, got {statement}: == is not allowed; write abs(rate - "
                    "value) <= 0"
                )
            if not isinstance(statement, Rule | Band | Family):
                raise RuleError(
                    f"rules[{i}] must be a rule such as rejected() <= 0.1, or a family such as "
                    f"demographic_parity('sex', tol=0.02), got {rule!r}"
                )
            statements.append(statement)
        set_field = object.__setattr__
        set_field(self, "minimize", objective)
        set_field(self, "rules", tuple(statements))
        set_field(
            self, "classes", None if classes is None else tuple(as_scalar(c, "a class") for c in classes)
        )
        set_field(self, "decisions", decisions if isinstance(decisions, str) else _list_decisions(decisions))
        set_field(self, "reject", as_scalar(reject, "the label of a rejection"))
        _ = self.kind  # raise now if the rates imply different kinds of decisions
        if self.classes is not None and not isinstance(self.decisions, str):
            self.action_space(self.classes)

    @property
    def kind(self) -> Kind:
        """The kind of decisions, given or implied by the rates: "labels", "reject", "options" or "sets"."""
        return self._space_type.kind

    @property
    def _space_type(self) -> type[ActionSpace]:
        if not isinstance(self.decisions, str):
            return OptionSpace
        if self.decisions == OptionSpace.kind:
            raise RuleError("decisions must list the labels and the options, got 'options'")
        if self.decisions != "auto":
            return type(make_action_space(self.decisions, ()))  # raise if the kind is unknown
        implied = {atom.implies: atom.name for atom in self._atoms() if atom.implies}
        if len(implied) > 1:
            raise RuleError(
                f"a problem must have one kind of decisions, got {implied[RejectSpace]}(), which requires "
                f"rejections, and {implied[SetSpace]}(), which requires sets of labels"
            )
        return next(iter(implied), LabelSpace)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes, such as "sex", that the rules and the objective refer to."""
        named = [*self.compared_attributes]
        named += [name for atom in self._atoms() for name, _ in atom.conditions if name != LABEL]
        return tuple(dict.fromkeys(named))

    @property
    def compared_attributes(self) -> tuple[str, ...]:
        """The attributes whose groups are all compared, by a family of rules or by a `worst` objective."""
        families = [rule for rule in self.rules if isinstance(rule, Family)]
        named = [name for family in families for part in family.attributes for name in part]
        if isinstance(self.minimize, Worst):
            named += [name for name in self.minimize.by if name != LABEL]
        return tuple(dict.fromkeys(named))

    @property
    def references(self) -> tuple[str, ...]:
        """The names of the earlier models that the rules and the objective refer to."""
        return self._list_columns("reference")

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the cost arrays that the rules and the objective read."""
        return self._list_columns("cost")

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the costs that Python functions compute."""
        return self._list_columns("cost", computed=True)

    def _list_columns(self, kind: Literal["reference", "cost"], computed: bool = False) -> tuple[str, ...]:
        names = [atom.reads(kind) for atom in self._atoms() if (atom.function is not None) is computed]
        return tuple(dict.fromkeys(name for name in names if name is not None))

    @property
    def of_worst_group(self) -> bool:
        """Whether the objective is the rate of the worst group."""
        return isinstance(self.minimize, Worst)

    @property
    def is_linear(self) -> bool:
        """Whether the objective and all rules are linear after ratios are multiplied out."""
        compares = any(isinstance(rule, Family) and rule.compares_quotients for rule in self.rules)
        return self.minimize.is_linear and not compares

    def _atoms(self) -> list[Atom]:
        return [atom for atom, _ in self.minimize.terms] + [a for rule in self.rules for a in rule.atoms()]

    def action_space(self, classes: tuple[Value, ...], options: tuple[Value, ...] = ()) -> ActionSpace:
        """Return the action space for the classes and options of the evidence.

        Raises
        ------
        RuleError
            If the classes or options contradict those of the problem.
        """
        if self.classes is not None and self.classes != classes:
            raise RuleError(
                f"the classes of the evidence must be those of the problem, {list(self.classes)}, got "
                f"{list(classes)}"
            )
        if not isinstance(self.decisions, str):
            # Listed decisions: those that are not classes are options.
            if left_out := [label for label in classes if label not in self.decisions]:
                raise RuleError(
                    f"decisions must contain all classes {list(classes)}, got {list(self.decisions)} without "
                    f"{left_out[0]!r}. To never decide {left_out[0]!r}, list it and add the rule "
                    f"selected({left_out[0]!r}) <= 0"
                )
            stated = self.list_options(classes)
            if options and stated != options:
                raise RuleError(
                    f"the options of the evidence must be those of decisions, {list(stated)}, in this "
                    "order, got "
                    f"{list(options)}"
                )
            kind = OptionSpace.kind if stated else LabelSpace.kind
            return make_action_space(kind, classes, self.reject, stated)
        if options and self.decisions not in ("auto", RejectSpace.kind):
            raise RuleError(
                f"decisions={self.decisions!r} contradicts the options {list(options)} of the evidence; "
                "leave out "
                "decisions=, or leave out options= in the evidence"
            )
        kind = OptionSpace.kind if options else self.kind
        return make_action_space(kind, classes, self.reject, options)

    def list_options(self, classes: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the listed decisions that are not classes."""
        listed = () if isinstance(self.decisions, str) else self.decisions
        return tuple(action for action in listed if action not in classes)

    def find(self, statement: Statement | str) -> int:
        """Return the index of a rule or family among the problem's rules.

        Parameters
        ----------
        statement : Rule, Band, Family or str
            The rule or family, or its text.

        Returns
        -------
        int

        Raises
        ------
        OptionError
            If the problem has no such rule.
        """
        wanted: Any = statement
        if isinstance(statement, str):
            with suppress(RuleError):
                wanted = parse(statement)
        if wanted not in self.rules:
            raise OptionError(
                f"the problem has no rule {str(wanted)!r}; its rules are {[str(rule) for rule in self.rules]}"
            )
        return self.rules.index(wanted)

    def with_objective(self, minimize: Rate, rules: Sequence[Statement] = ()) -> Problem:
        """Return a problem with another objective and the same kind of decisions.

        Parameters
        ----------
        minimize : Rate
            The new objective.
        rules : list
            Rules and families to add.

        Returns
        -------
        Problem
        """
        return self._state(minimize, [*self.rules, *rules])

    def with_rules(self, rules: Sequence[Statement]) -> Problem:
        """Return a problem with other rules and the same objective and kind of decisions.

        Parameters
        ----------
        rules : list
            Rules and families that replace the present ones.

        Returns
        -------
        Problem
        """
        return self._state(self.minimize, rules)

    def _state(self, minimize: Objective, rules: Sequence[Statement]) -> Problem:
        """Return a problem with this objective and these rules, and the same kind of decisions as `self`."""
        found = Problem(minimize, rules, self.classes, self.decisions, self.reject)
        if found.kind == self.kind:
            return found
        return Problem(minimize, rules, self.classes, self.kind, self.reject)

    def expand(
        self, classes: Sequence[Value], groups: Groups, options: Sequence[Value] = ()
    ) -> list[ExpandedRule]:
        """Return the single rules of all rules and families, for these classes, groups and options."""
        expanded: dict[Rule, ExpandedRule] = {}
        for place, statement in enumerate(self.rules):
            for rule in statement.expand(classes, groups, options):
                if rule in expanded:
                    raise RuleError(
                        f"the rules of a problem must differ from each other, got {rule} twice; remove one"
                    )
                if rule.excess.highest < 0:
                    raise RuleError(
                        f"the rule {rule} can never be violated: rates are fractions, so write 0.1 for 10 %"
                    )
                if rule.excess.lowest > 0 and not rule.is_linear:
                    raise RuleError(
                        f"the rule {rule} can be satisfied only if its decision is never taken: rates are "
                        "fractions, so write 0.9 for 90 %"
                    )
                expanded[rule] = ExpandedRule(rule, statement, place, tuple(classes))
        return list(expanded.values())

    def __str__(self) -> str:
        rules = "".join(f"\n  {rule}" for rule in self.rules)
        return f"minimize {self.minimize}" + (f"\nsubject to{rules}" if rules else "")

    __repr__ = __str__


def _list_decisions(decisions: Any) -> tuple[Value, ...]:
    if not isinstance(decisions, Iterable) or isinstance(decisions, Set | Mapping):
        raise RuleError(
            "decisions must be 'labels', 'reject' or 'sets', or a list of labels and options, got "
            f"{decisions!r}"
        )
    listed = tuple(as_scalar(action, "a decision") for action in decisions)
    check_options(listed, (), RuleError)
    if len(listed) < 2:
        raise RuleError(f"decisions must list two or more, got {list(listed)}")
    return listed
