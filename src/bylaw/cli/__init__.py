"""The command line program `bylaw`, which needs the packages of the extra "cli"."""

from __future__ import annotations

import sys

from bylaw.errors import install_extra


def main() -> None:
    """Run the command line; the process ends with one of the exit codes of `bylaw.cli.console.ExitCode`."""
    try:
        from bylaw.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.split(".")[0] in ("typer", "rich"):
            sys.stderr.write(
                f"the command line needs {missing.name}; install it with: {install_extra('cli')}\n"
            )
            sys.exit(2)
        raise
    sys.exit(run())
