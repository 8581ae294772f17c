"""How five databases spell names, text, numbers, types and hashes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bylaw._base.typing import Value
from bylaw.errors import OptionError

DialectName = Literal["duckdb", "postgres", "bigquery", "snowflake", "spark"]
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NO_COLUMN_OF_BIGQUERY = re.compile(r"[!\"$()*,./;?@\[\\\]^`{}~\x00-\x1f]")


@dataclass(frozen=True)
class Dialect:
    """The spelling of one database.

    Templates have {} for what they are applied to; that of `integer` turns hex digits into a number.
    """

    title: str
    double: str  # the type of 64-bit floats
    text: str
    number: Callable[[str], str]  # a float, from its shortest exact spelling
    sha256: str  # of a text, as lower-case hex digits
    integer: str
    quoted: Callable[[str], str]  # an identifier
    spelled: Callable[[str], str]  # a text
    alias: Callable[[str], str] = str  # a name that a column of the result may have
    longest_name: int | None = None  # in bytes
    with_hint: str = ""  # between AS and (: each step is computed once

    def name(self, text: str) -> str:
        """A quoted identifier."""
        if not isinstance(text, str) or not text or "\0" in text:
            raise OptionError(f"a column or table is named by a text that is not empty, not {text!r}")
        if self.longest_name is not None and len(text.encode()) > self.longest_name:
            raise OptionError(
                f"{self.title} cuts names after {self.longest_name} bytes, and {text!r} is longer; rename it"
            )
        return self.quoted(text)

    def literal(self, value: Value) -> str:
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            if "\0" in value:
                raise OptionError(f"{value!r} has a zero character, which databases cannot hold; rename it")
            return self.spelled(value)
        return str(value) if isinstance(value, int) else self.float(value)

    def float(self, value: float) -> str:
        assert math.isfinite(value)
        return self.number(repr(float(value)))

    def cast(self, expression: str, to: str) -> str:
        return f"CAST({expression} AS {to})"


def comment(text: str) -> str:
    """One line of comment, whatever is in the text."""
    line = " ".join(text.replace("\0", " ").split()).replace("${", "$ {")
    return f"-- {line}".rstrip(" \\")  # Spark reads on after a backslash


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda text: f"{mark}{text.replace(mark, 2 * mark)}{mark}"


def _postgres_text(text: str) -> str:
    plain = _doubled("'")(text)
    return f"E{plain.replace(chr(92), 2 * chr(92))}" if "\\" in text else plain


def _escaped(text: str) -> str:
    return f"'{''.join(_ESCAPES.get(character, character) for character in text)}'"


def _spark_text(text: str) -> str:
    return _escaped(text).replace("${", "\\u0024{")  # which Spark would replace by a variable


def _spark_name(text: str) -> str:
    if "${" in text:
        raise OptionError(f"Spark would replace the variable in {text!r}; rename it")
    return _doubled("`")(text)


def _bigquery_name(text: str) -> str:
    return f"`{''.join({'`': chr(92) + '`'}.get(c, _ESCAPES.get(c, c)) for c in text)}`"


DIALECTS: Mapping[str, Dialect] = {
    "duckdb": Dialect(
        title="DuckDB",
        double="DOUBLE",
        text="VARCHAR",
        number=lambda digits: digits if "e" in digits else f"{digits}e0",  # else it would be a decimal
        sha256="sha256({})",
        integer="CAST('0x' || {} AS BIGINT)",
        quoted=_doubled('"'),
        spelled=_doubled("'"),
    ),
    "postgres": Dialect(
        title="PostgreSQL",
        double="DOUBLE PRECISION",
        text="TEXT",
        number="float8 '{}'".format,
        sha256="encode(sha256(convert_to({}, 'UTF8')), 'hex')",
        integer="CAST(CAST('x000' || {} AS BIT(64)) AS BIGINT)",
        quoted=_doubled('"'),
        spelled=_postgres_text,
        longest_name=63,
        with_hint="MATERIALIZED ",
    ),
    "bigquery": Dialect(
        title="BigQuery",
        double="FLOAT64",
        text="STRING",
        number=str,
        sha256="TO_HEX(SHA256({}))",
        integer="CAST('0x' || {} AS INT64)",
        quoted=_bigquery_name,
        spelled=_escaped,
        alias=lambda name: _NO_COLUMN_OF_BIGQUERY.sub("_", name),
        longest_name=300,
    ),
    "snowflake": Dialect(
        title="Snowflake",
        double="FLOAT",
        text="VARCHAR",
        number="'{}'::FLOAT".format,
        sha256="SHA2({}, 256)",
        integer="TO_NUMBER({}, 'XXXXXXXXXXXXX')",
        quoted=_doubled('"'),
        spelled=_escaped,
        longest_name=255,
    ),
    "spark": Dialect(
        title="Spark",
        double="DOUBLE",
        text="STRING",
        number="{}D".format,
        sha256="sha2({}, 256)",
        integer="CAST(conv({}, 16, 10) AS BIGINT)",
        quoted=_spark_name,
        spelled=_spark_text,
        alias=lambda name: name.replace("${", "_{"),
    ),
}


def dialect_of(name: str) -> Dialect:
    if name not in DIALECTS:
        raise OptionError(f"dialect must be one of {list(DIALECTS)}, not {name!r}")
    return DIALECTS[name]
