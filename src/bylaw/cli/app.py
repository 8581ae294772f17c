"""The commands, and what becomes of errors."""

from __future__ import annotations

import signal
import traceback
from typing import Annotated, Any

import typer

from bylaw.cli.commands import frontier as study
from bylaw.cli.commands.audit import audited
from bylaw.cli.commands.decide import decide
from bylaw.cli.commands.demo import demo
from bylaw.cli.commands.explain import explained
from bylaw.cli.commands.export import export
from bylaw.cli.commands.fit import fit
from bylaw.cli.commands.report import reported
from bylaw.cli.commands.rules import rules
from bylaw.cli.commands.show import show
from bylaw.cli.console import fail, tell, warnings_aside
from bylaw.errors import BylawError, InfeasibleRulesError, UncertifiedError
from bylaw.policy.provenance import versions

app = typer.Typer(
    name="bylaw",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make any trained classifier obey system-level rules, without retraining it.",
)
app.command()(fit)
app.command()(decide)
app.command("audit")(audited)
app.command("report")(reported)
app.command("frontier")(study.frontier_of)
app.command("diagnose")(study.diagnosed)
app.command("explain")(explained)
app.command()(show)
app.command()(rules)
app.command()(demo)
app.add_typer(export, name="export")


def run() -> int:
    """The exit code."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        with warnings_aside():
            app()
    except (InfeasibleRulesError, UncertifiedError) as problem:
        fail(str(problem))
        return 1
    except FileNotFoundError as problem:
        fail(f"there is no file {problem.filename}" if problem.filename else str(problem))
        return 2
    except (BylawError, OSError) as problem:
        fail(str(problem))
        return 2
    except Exception:  # 1 would say that a rule is violated
        fail(f"this is a fault in bylaw; please report it\n{traceback.format_exc()}")
        return 3
    return 0


def _stop(*_: Any) -> None:
    """End as after control-C, so that what is half written is removed."""
    raise KeyboardInterrupt


def _version(asked: bool) -> None:
    if asked:
        tell(f"bylaw {versions()['bylaw']}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Which bylaw this is.")
    ] = False,
) -> None:
    """Make any trained classifier obey system-level rules, without retraining it."""
