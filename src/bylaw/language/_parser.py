"""The parser of rules: it reads the text that `str(rule)` prints.

`parse` walks Python's syntax tree, accepts only the language of rules, and never evaluates code.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import operator
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

from bylaw.errors import RuleError, RuleSyntaxError
from bylaw.language._expressions import DEFINITIONS, Band, Rate, Ratio, Rule, Worst, as_rate, worst
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
