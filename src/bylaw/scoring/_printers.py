"""Printers that write expressions as text, in Python-like languages and in the SQL of five databases."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from bylaw._base import Value, check_choice, check_text, make_visible
from bylaw.errors import OptionError
from bylaw.rows import REJECTED
from bylaw.scoring._columns import get_column, is_complement
from bylaw.scoring._program import Features
from bylaw.scoring._vectors import Vector, sort_steps

_PER_SUM = 100  # terms in one sum; databases and Python limit the nesting of expressions
_PER_LINE = 4  # terms in one line
# The precedence of operators: those with a higher level bind more tightly; others need no brackets.
_LEVELS = {
    operator: level
    for level, operators in enumerate(
        (("case",), ("all", "and"), ("in", "between", "<", "<=", "="), ("+", "-"), ("*", "/"))
    )
    for operator in operators
}
_ATOM = 5


class TextPrinter(ABC):
    """A printer that writes the entries of vectors as expressions of a language.

    Parameters
    ----------
    sources : dict
        {key of a column: its expression in the language}.
    """

    # Templates of operations, in which {} stands for the entry of an argument.
    templates: ClassVar[dict[str, str]] = {
        sign: f"{{}} {sign} {{}}" for sign in ("+", "-", "*", "/", "<", "<=")
    }
    joiners: ClassVar[Mapping[str, str]]  # text between the entries of "greatest", "least" and "all"

    def __init__(self, sources: Mapping[Any, str]) -> None:
        self.sources = dict(sources)
        self._names: dict[Vector, str] = {}
        self._users: dict[
            tuple[Vector, int], set[Vector | None]
        ] = {}  # {entry of a step: the steps that use it}
        self._writing: Vector | None = None

    @abstractmethod
    def write_constant(self, value: Any) -> str:
        """Write a constant value."""

    @abstractmethod
    def write_case(self, conditions: list[str], values: list[str]) -> str:
        """Write an expression for the value of the first true condition; an extra value is the default."""

    @abstractmethod
    def write_membership(self, vector: Vector, i: int) -> str:
        """Write the condition that an entry is one of the values in `vector.detail`."""

    def write(self, vector: Vector, i: int = 0, level: int = 0) -> str:
        """Write entry `i` of a vector, in brackets if its operator binds less tightly than `level`."""
        vector, i = vector.find_entry(i)
        operator, arguments = vector.operator, vector.arguments
        own = _LEVELS.get(operator, _ATOM)
        match operator:
            case "constant":
                text = self.write_constant(vector.detail[i])
            case "read":
                text = self.sources[vector.detail[i]]
            case "step":
                self._users.setdefault((vector, i), set()).add(self._writing)
                text = self.name_entry(vector, i)
            case "in":
                text = self.write_membership(vector, i)
            case "linear":
                (entries,), (weights, bias) = arguments, vector.detail
                terms = [self.write_constant(float(bias[i]))] if bias[i] else []
                for j in np.flatnonzero(weights[:, i]).tolist():
                    weight = self.write_constant(float(weights[j, i]))
                    if _is_one(entries, j):
                        terms.append(weight)
                    elif weights[j, i] == 1:
                        terms.append(self.write(entries, j, 3))
                    else:
                        terms.append(f"{weight} * {self.write(entries, j, 5)}")
                text, own = write_sum(terms or [self.write_constant(0.0)]), 3 if len(terms) > 1 else 4
            case "case":
                last = len(arguments) // 2 * 2  # an argument after these is the value if no condition is true
                values = [self.write(value, i, 1) for value in (*arguments[1:last:2], *arguments[last:])]
                if arguments[last:] and len(set(values)) == 1:  # as where groups have the same weights
                    return self.write(arguments[last], i, level)
                conditions = [self.write(condition, i) for condition in arguments[:last:2]]
                text = self.write_case(conditions, values)
            case "greatest" | "least" | "all":
                inner = 2 if operator == "all" else 0
                entries = [self.write(arguments[0], j, inner) for j in range(arguments[0].width)]
                joined = self.joiners[operator].join(entries)
                text = self.templates.get(operator, "{}").format(joined) if len(entries) > 1 else entries[0]
            case "*" if any(ones := [_is_one(argument, i) for argument in arguments]):
                return self.write(arguments[1 - ones.index(True)], i, level)
            case _:
                inner = (own, own + 1) if own < _ATOM else (0, 0)
                entries = [self.write(argument, i, inner[j > 0]) for j, argument in enumerate(arguments)]
                text = self.templates.get(operator, operator).format(*entries)
        return f"({text})" if own < level else text

    def name_entry(self, step: Vector, i: int) -> str:
        """Return the name under which an entry of a step is written."""
        return f"{self._names[step]}_{i}" if step.width > 1 else self._names[step]

    def write_steps(self, results: Sequence[Vector]) -> tuple[list[str], dict[tuple[Vector, int], str]]:
        """Write the results and all named steps that they depend on.

        Return the expressions of the results, and a dict {(step, entry): expression}, in which each entry
        comes after those that it refers to.
        """
        steps = sorted(sort_steps(results), key=lambda step: bool(step.arguments))
        for step in steps:
            name, same = step.detail[0], sum(other.detail[0] == step.detail[0] for other in self._names)
            self._names[step] = f"{name}{same + 1}" if same and step.arguments else name
        texts = [self.write(vector, i) for vector in results for i in range(vector.width)]
        written = {}
        for step in reversed(steps):
            self._writing = step
            for i in reversed(range(step.width if step.arguments else 0)):
                if (step, i) in self._users:
                    written[step, i] = self.write(step.arguments[0], i)
        return texts, dict(reversed(written.items()))


def _is_one(vector: Vector, i: int) -> bool:
    """Return True if an entry is the constant one on every row."""
    source, place = vector.find_entry(i)
    return source.operator == "constant" and source.detail[place] == 1


def write_sum(terms: Sequence[str]) -> str:
    """Write a sum, with a few terms per line; a long sum is nested in brackets."""
    if len(terms) > _PER_SUM:
        parts = [terms[i : i + _PER_SUM] for i in range(0, len(terms), _PER_SUM)]
        return write_sum([f"({write_sum(part)})" for part in parts])
    lines = [" + ".join(terms[i : i + _PER_LINE]) for i in range(0, len(terms), _PER_LINE)]
    return join_lines(lines[0], *(f"+ {line}" for line in lines[1:])) if lines else ""


def write_comment(text: str, mark: str = "--") -> str:
    """Write text as one line of comment, safe for any characters in the text."""
    line = make_visible(" ".join(text.replace("\0", " ").split())).replace("${", "$ {")
    return f"{mark} {line}".rstrip(" \\")  # Spark reads on after a backslash


def join_lines(*lines: str, indent: str = "  ") -> str:
    """Join the lines of one expression with line breaks and an indent.

    No other function adds line breaks, because text of a user, such as a name, may contain line breaks
    itself.
    """
    return f"\n    {indent}".join(lines)


DialectName = Literal["duckdb", "postgres", "bigquery", "snowflake", "spark"]
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_NO_COLUMN_OF_BIGQUERY = re.compile(r"[!\"$()*,./;?@\[\\\]^`{}~\x00-\x1f]")


@dataclass(frozen=True)
class Dialect:
    """Syntax of the SQL of one database.

    Templates contain {} for their argument; the template `integer` converts hex digits to a number.
    """

    title: str
    double: str  # the type of 64-bit floats
    text: str  # the type of text
    write_number: Callable[[str], str]  # writes a float, given its shortest exact digits
    sha256: str  # template: SHA-256 of a text, as lower-case hex digits
    integer: str  # template: hex digits as a number
    escape_name: Callable[[str], str]  # quotes an identifier
    escape_text: Callable[[str], str]  # quotes a text
    make_alias: Callable[[str], str] = str  # replaces characters that names of columns must not have
    longest_name: int | None = None  # the longest name, in bytes
    fence: str = ""  # the end of a subselect whose columns the database must compute only once

    def quote_name(self, text: str) -> str:
        """Return a name as a quoted identifier; raise an `OptionError` if it cannot be one."""
        if not isinstance(text, str) or not text or "\0" in text:
            raise OptionError(f"the name of a column or table must be text that is not empty, got {text!r}")
        check_text(text, "the name of a column or table")
        if self.longest_name is not None and len(text.encode()) > self.longest_name:
            raise OptionError(
                f"a name in {self.title} must have at most {self.longest_name} bytes, got {text!r}; rename it"
            )
        return self.escape_name(text)

    def write_literal(self, value: Value) -> str:
        """Write a value as a literal of its type; numbers are exact to the last bit."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            if "\0" in value:
                raise OptionError(
                    f"text must not have a zero character, which databases refuse, got {value!r}"
                )
            return self.escape_text(check_text(value, "the text"))
        if isinstance(value, int):
            return str(value)
        assert math.isfinite(value)
        return self.write_number(repr(float(value)))

    def cast(self, expression: str, to: str) -> str:
        return f"CAST({expression} AS {to})"


def _make_quoter(mark: str) -> Callable[[str], str]:
    """Return a function that puts text between quotation marks and doubles those in the text."""
    return lambda text: f"{mark}{text.replace(mark, 2 * mark)}{mark}"


def _escape_text(text: str) -> str:
    return f"'{text.translate(_ESCAPES)}'"


def _escape_spark_name(text: str) -> str:
    if "${" in text:
        raise OptionError(f"a name in Spark must not have a variable ${{...}}, got {text!r}; rename it")
    return _make_quoter("`")(text)


DIALECTS: Mapping[str, Dialect] = {
    "duckdb": Dialect(
        title="DuckDB",
        double="DOUBLE",
        text="VARCHAR",
        write_number=lambda digits: digits if "e" in digits else f"{digits}e0",  # else it would be a decimal
        sha256="sha256({})",
        integer="CAST('0x' || {} AS BIGINT)",
        escape_name=_make_quoter('"'),
        escape_text=_make_quoter("'"),
    ),
    "postgres": Dialect(
        title="PostgreSQL",
        double="DOUBLE PRECISION",
        text="TEXT",
        write_number="float8 '{}'".format,
        sha256="encode(sha256(convert_to({}, 'UTF8')), 'hex')",
        integer="CAST(CAST('x000' || {} AS BIT(64)) AS BIGINT)",
        escape_name=_make_quoter('"'),
        escape_text=lambda text: (
            f"E{_make_quoter(chr(39))(text).replace(chr(92), 2 * chr(92))}"
            if "\\" in text
            else _make_quoter("'")(text)
        ),
        longest_name=63,
        fence="OFFSET 0",
    ),
    "bigquery": Dialect(
        title="BigQuery",
        double="FLOAT64",
        text="STRING",
        write_number=str,
        sha256="TO_HEX(SHA256({}))",
        integer="CAST('0x' || {} AS INT64)",
        escape_name=lambda name: f"`{name.translate(_ESCAPES | {ord('`'): chr(92) + '`'})}`",
        escape_text=_escape_text,
        make_alias=lambda name: _NO_COLUMN_OF_BIGQUERY.sub("_", name),
        longest_name=300,
    ),
    "snowflake": Dialect(
        title="Snowflake",
        double="FLOAT",
        text="VARCHAR",
        write_number="'{}'::FLOAT".format,
        sha256="SHA2({}, 256)",
        integer="TO_NUMBER({}, 'XXXXXXXXXXXXX')",
        escape_name=_make_quoter('"'),
        escape_text=_escape_text,
        longest_name=255,
    ),
    "spark": Dialect(
        title="Spark",
        double="DOUBLE",
        text="STRING",
        write_number="{}D".format,
        sha256="sha2({}, 256)",
        integer="CAST(conv({}, 16, 10) AS BIGINT)",
        escape_name=_escape_spark_name,
        escape_text=lambda text: _escape_text(text).replace("${", "\\u0024{"),  # else a variable of Spark's
        make_alias=lambda name: name.replace("${", "_{"),
    ),
}


def get_dialect(name: str) -> Dialect:
    """Return the dialect with this name; raise an `OptionError` with all names if it does not exist."""
    return DIALECTS[check_choice(name, "dialect", DIALECTS)]


class SqlPrinter(TextPrinter):
    """A printer that writes vectors in the SQL of a database.

    Parameters
    ----------
    dialect : Dialect
        The syntax of the database.
    features : Features, optional
        Features whose cells are read from the columns of a table. If the columns include weights, these have
        the key "weight".
    sources : dict, optional
        {key: expression} of further columns.
    """

    templates: ClassVar[dict[str, str]] = TextPrinter.templates | {
        "=": "{} = {}",
        "between": "{} BETWEEN {} AND {}",
        "and": "{} AND {}",
        "max": "GREATEST({}, {})",
        "min": "LEAST({}, {})",
        "abs": "ABS({})",
        "exp": "EXP({})",
        "log": "LN({})",
        "sqrt": "SQRT({})",
        "greatest": "GREATEST({})",
        "least": "LEAST({})",
    }
    joiners: ClassVar[Mapping[str, str]] = {"greatest": ", ", "least": ", ", "all": "\n      AND "}

    def __init__(
        self, dialect: Dialect, features: Features | None = None, sources: Mapping[Any, str] | None = None
    ) -> None:
        super().__init__(sources or {})
        self.dialect = dialect
        self.texts = set() if features is None else features.texts
        if features is not None:
            columns = features.columns
            for cell in features.cells:
                name = get_column(columns, *cell)
                if cell not in features.known:
                    text = self._read_number(name)
                    whole = f"{self.write_constant(1.0)} - "
                    self.sources[cell] = (
                        whole + text if is_complement(columns, cell.part, cell.place) else text
                    )
                elif cell in features.texts:
                    self.sources[cell] = dialect.cast(dialect.quote_name(name), dialect.text)
                else:
                    self.sources[cell] = dialect.quote_name(name)
            if columns.weights is not None:
                self.sources["weight"] = self._read_number(columns.weights)

    def _read_number(self, name: str) -> str:
        return self.dialect.cast(self.dialect.quote_name(name), self.dialect.double)

    def write_constant(self, value: Any) -> str:
        return self.dialect.write_literal(value)

    def write_case(self, conditions: list[str], values: list[str]) -> str:
        cases = [f"WHEN {c} THEN {value}" for c, value in zip(conditions, values, strict=False)]
        lines = [*cases, " ".join([*(f"ELSE {value}" for value in values[len(cases) :]), "END"])]
        return f"CASE {' '.join(lines)}" if len(cases) == 1 else join_lines("CASE", *lines)

    def write_membership(self, vector: Vector, i: int) -> str:
        source, place = vector.arguments[0].find_entry(i)
        key = source.arguments[0].detail[place] if source.arguments else source.detail[place]
        values = vector.detail
        if key in self.texts:
            whole = [f"{value}.0" for value in values if type(value) is int]  # as in a column of floats
            values = [*map(str, values), *whole]
        elif not all(isinstance(value, str) for value in values):
            values = [value for value in values if value != REJECTED]  # which these columns cannot hold
        texts = ", ".join(map(self.dialect.write_literal, values))
        return f"{self.write(vector.arguments[0], i)} IN ({texts})"

    def lay_out(self, results: Sequence[Vector]) -> tuple[list[str], list[tuple[str, list[str]]]]:
        """Return the expressions of all entries of the results, and the layers of SELECTs before them.

        A layer is a name and the columns of a SELECT over the rows of the layer before. Each column is
        computed once, as early as possible, and kept as long as a later layer uses it.
        """
        texts, written = self.write_steps(results)
        depths: dict[Vector | None, int] = {step: 0 for step, _ in self._users if not step.arguments}
        for step in dict.fromkeys(step for step, _ in written):
            inner = [depths[other] for (other, _), users in self._users.items() if step in users]
            depths[step] = max(inner, default=0) + 1
        depths[None] = max(depths.values(), default=0) + 1
        ends = {entry: max(depths[user] for user in users) for entry, users in self._users.items()}
        entries = [*(entry for entry in self._users if entry not in written), *written]
        layers = []
        for depth in range(1, depths[None]):
            columns = [self.name_entry(*e) for e in entries if depths[e[0]] < depth < ends[e]]
            new = [entry for entry in entries if depths[entry[0]] == depth]
            for step, i in new:
                line, notes = f"{written[step, i]} AS {self.name_entry(step, i)}", step.detail[1]
                columns.append(join_lines(write_comment(notes[i]), line, indent="") if notes else line)
            layers.append((f"bylaw_{self._names[new[0][0]]}", columns))
        return texts, layers

    def write_statement(self, results: Sequence[Vector], names: Sequence[str], source: str) -> str:
        """Write a SELECT statement over `source` with the results as columns, and a WITH clause per layer."""
        texts, layers = self.lay_out(results)
        parts = []
        for name, columns in layers:
            parts.append(f"{name} AS (\n{_write_select(columns, source, '  ', self.dialect.fence)}\n)")
            source = name
        columns = [f"{t} AS {self.dialect.quote_name(name)}" for t, name in zip(texts, names, strict=True)]
        return f"WITH {', '.join(parts)}\n{_write_select(columns, source)}"

    def nest(self, results: Iterable[Vector], source: str) -> tuple[list[str], str]:
        """Return the expressions of results, and the table or nested SELECT that they are computed from."""
        texts, layers = self.lay_out(list(results))
        for name, columns in layers:
            source = f"({_write_select(columns, source, '', self.dialect.fence)}) AS {name}"
        return texts, source

    def sum_up(self, text: str) -> str:
        """Write the sum of an expression over rows."""
        return "COUNT(*)" if text == self.write_constant(1.0) else f"SUM({text})"


def _write_select(columns: Sequence[str], source: str, indent: str = "", fence: str = "") -> str:
    inner = f",\n{indent}  ".join(columns)
    end = f"\n{indent}{fence}" if fence else ""
    return f"{indent}SELECT\n{indent}  {inner}\n{indent}FROM {source}{end}"
