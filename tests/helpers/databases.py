"""Databases that run what was exported: DuckDB in this process, PostgreSQL in one of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pandas
import psycopg
from psycopg import sql

from helpers.absent import skip_for_want_of

_TYPES = {"f": "double precision", "i": "bigint", "b": "boolean"}


def in_duckdb(statement: str, frame: pandas.DataFrame, *before: str) -> pandas.DataFrame:
    with duckdb.connect() as connection:
        for preparation in before:
            connection.execute(preparation)
        connection.register("rows", frame)
        return as_frame(connection.execute(statement))


def in_postgres(connection: psycopg.Connection, statement: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    fill_postgres(connection, "rows", frame)
    return as_frame(connection.execute(statement))


def fill_postgres(connection: psycopg.Connection, table: str, frame: pandas.DataFrame) -> None:
    """A new table with the rows of a frame."""
    names = sql.SQL(", ").join(map(sql.Identifier, frame.columns))
    types = [sql.SQL(_TYPES.get(dtype.kind, "text")) for dtype in frame.dtypes]
    fields = [
        sql.SQL("{} {}").format(sql.Identifier(n), t) for n, t in zip(frame.columns, types, strict=True)
    ]
    name = sql.Identifier(*table.split("."))
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(fields)))
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(name, names)) as copy:
            for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None):
                copy.write_row(row)


def as_frame(cursor) -> pandas.DataFrame:
    names = [column[0] for column in cursor.description]
    return pandas.DataFrame(cursor.fetchall(), columns=names, dtype=object)


@contextmanager
def postgres_server(*settings: str) -> Iterator[psycopg.Connection]:
    """A new PostgreSQL that nobody else can reach, as long as it takes; with settings such as "jit=off"."""
    programs = _programs()
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="bylaw-"))  # short: the path of a socket has a limit
    try:
        if account:
            shutil.chown(folder, account)
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                folder / "data",
                "-U",
                "bylaw",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "-N",
            ],
            check=True,
            capture_output=True,
            user=account,
            cwd=folder,
        )
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", folder]
        options += [option for setting in settings for option in ("-c", setting)]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", *options],
                stdout=log,
                stderr=log,
                user=account,
                cwd=folder,
            )
        try:
            with _connect(folder, server) as connection:
                yield connection
        finally:
            server.send_signal(signal.SIGINT)  # disconnect everybody and stop
            server.wait(timeout=30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        skip_for_want_of("PostgreSQL", "apt-get install postgresql")
    return found[-1].parent


def _account() -> str | None:
    """PostgreSQL refuses to run as root: then its own account, which its package creates."""
    if os.geteuid() != 0:
        return None
    return pwd.getpwnam("postgres").pw_name


def _connect(folder: Path, server: subprocess.Popen) -> psycopg.Connection:
    for _ in range(300):
        try:
            return psycopg.connect(host=str(folder), user="bylaw", dbname="postgres", autocommit=True)
        except psycopg.OperationalError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
