"""How five databases write names, text, numbers, types and hashes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from bylaw._base.typing import Value
from bylaw._base.validation import check_choice, check_text
from bylaw.errors import OptionError

DialectName = Literal["duckdb", "postgres", "bigquery", "snowflake", "spark"]
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NO_COLUMN_OF_BIGQUERY = re.compile(r"[!\"$()*,./;?@\[\\\]^`{}~\x00-\x1f]")


@dataclass(frozen=True)
class Dialect:
    """The syntax of one database.

    Templates have {} for what they are applied to; that of `integer` turns hex digits into a number.
    """

    title: str
    double: str  # the type of 64-bit floats
    text: str
    write_number: Callable[[str], str]  # a float, from its shortest exact digits
    sha256: str  # of a text, as lower-case hex digits
    integer: str
    escape_name: Callable[[str], str]  # an identifier, with its quotes
    escape_text: Callable[[str], str]  # a text, with its quotes
    make_alias: Callable[[str], str] = str  # a name that a column of the result may have
    longest_name: int | None = None  # in bytes
    fence: str = ""  # ends a subselect whose columns are to be computed once

    def quote_name(self, text: str) -> str:
        """A quoted identifier."""
        if not isinstance(text, str) or not text or "\0" in text:
            raise OptionError(f"a column or table is named by a text that is not empty, not {text!r}")
        check_text(text, "the name of a column or table")
        if self.longest_name is not None and len(text.encode()) > self.longest_name:
            raise OptionError(
                f"{self.title} cuts names after {self.longest_name} bytes, and {text!r} is longer; rename it"
            )
        return self.escape_name(text)

    def write_literal(self, value: Value) -> str:
        """A value, as its type is written."""
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            if "\0" in value:
                raise OptionError(f"{value!r} has a zero character, which databases cannot hold; rename it")
            return self.escape_text(check_text(value, "the text"))
        return str(value) if isinstance(value, int) else self.write_float(value)

    def write_float(self, value: float) -> str:
        """A finite number, exact to the last bit."""
        assert math.isfinite(value)
        return self.write_number(repr(float(value)))

    def cast(self, expression: str, to: str) -> str:
        return f"CAST({expression} AS {to})"


def _make_quoter(mark: str) -> Callable[[str], str]:
    """Puts text between marks, and doubles those within."""
    return lambda text: f"{mark}{text.replace(mark, 2 * mark)}{mark}"


def _escape_postgres_text(text: str) -> str:
    plain = _make_quoter("'")(text)
    return f"E{plain.replace(chr(92), 2 * chr(92))}" if "\\" in text else plain


def _escape_text(text: str) -> str:
    return f"'{''.join(_ESCAPES.get(character, character) for character in text)}'"


def _escape_spark_text(text: str) -> str:
    return _escape_text(text).replace("${", "\\u0024{")  # which Spark would replace by a variable


def _escape_spark_name(text: str) -> str:
    if "${" in text:
        raise OptionError(f"Spark would replace the variable in {text!r}; rename it")
    return _make_quoter("`")(text)


def _escape_bigquery_name(text: str) -> str:
    return f"`{''.join({'`': chr(92) + '`'}.get(c, _ESCAPES.get(c, c)) for c in text)}`"


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
        escape_text=_escape_postgres_text,
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
        escape_name=_escape_bigquery_name,
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
        escape_text=_escape_spark_text,
        make_alias=lambda name: name.replace("${", "_{"),
    ),
}


def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name; raise an `OptionError` that lists all, if there is none."""
    return DIALECTS[check_choice(name, "dialect", DIALECTS)]
