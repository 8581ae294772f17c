"""The key of draws by id: from the command line, where others may see it, or from a file that is secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

import typer

from bylaw.cli.console import warn
from bylaw.errors import OptionError

LEAST_BYTES = 16
_HOW = "make one with: openssl rand -hex 32"
Key = Annotated[
    str | None,
    typer.Option("--key", help="Of the random draws; by default the policy's hash. Keep one over releases."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="A file with a secret key, where people may choose their ids."),
]


def read_key(key: str | None, path: Path | None) -> str | None:
    """The key that was given, if any; the end of the last line is no part of a file's."""
    if path is None:
        return key
    if key is not None:
        raise OptionError("give either --key or --key-file")
    if path.is_dir():
        raise OptionError(f"--key-file: {path} is a folder; {_HOW}")
    content = path.read_bytes()
    secret = content.removesuffix(b"\n").removesuffix(b"\r")
    if len(secret) < LEAST_BYTES:
        raise OptionError(
            f"--key-file: {path} has {len(secret)} bytes, and a secret has {LEAST_BYTES} at least; {_HOW}"
        )
    if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
        warn(f"--key-file: everybody on this machine can read {path}; chmod 600 it")
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise OptionError(f"--key-file: {path} is no text (UTF-8), as databases take it; {_HOW}") from None
