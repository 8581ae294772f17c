"""The commands, and what becomes of errors.

Commands import what they need when they run, so that help is quick: their modules must not import numpy,
pyarrow, scipy or matplotlib.
"""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Annotated, Any

import typer

from bylaw.cli.commands.audit import run_audit
from bylaw.cli.commands.decide import run_decide
from bylaw.cli.commands.demo import run_demo
from bylaw.cli.commands.diagnose import run_diagnose
from bylaw.cli.commands.explain import run_explain
from bylaw.cli.commands.export import export
from bylaw.cli.commands.fit import run_fit
from bylaw.cli.commands.frontier import run_frontier
from bylaw.cli.commands.refit import run_refit
from bylaw.cli.commands.report import run_report
from bylaw.cli.commands.rules import run_rules
from bylaw.cli.commands.show import run_show
from bylaw.cli.commands.studio import run_studio
from bylaw.cli.commands.watch import run_watch
from bylaw.cli.console import MEANINGS, ExitCode, redirect_warnings, tell, write_failure
from bylaw.cli.remedies import describe_problem
from bylaw.errors import BylawError, InfeasibleRulesError, UncertifiedError, install_extra

app = typer.Typer(
    name="bylaw",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make any trained classifier satisfy system-level rules, without retraining it.",
    epilog="\n\n".join(["[bold]Exit codes[/bold]", *(f"{int(c)}  {text}" for c, text in MEANINGS.items())]),
)
app.command("fit")(run_fit)
app.command("decide")(run_decide)
app.command("audit")(run_audit)
app.command("watch")(run_watch)
app.command("refit")(run_refit)
app.command("report")(run_report)
app.command("frontier")(run_frontier)
app.command("diagnose")(run_diagnose)
app.command("studio")(run_studio)
app.command("explain")(run_explain)
app.command("show")(run_show)
app.command("rules")(run_rules)
app.command("demo")(run_demo)
app.add_typer(export, name="export")


def run() -> int:
    """Run the command of `sys.argv`, and return its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    as_json = "--json" in sys.argv[1:]  # what is wrong with the arguments is written as JSON, too
    try:
        with redirect_warnings():
            return int(app(standalone_mode=False) or ExitCode.SUCCESS)
    except Exception as problem:
        return write_failure(problem, *_describe_failure(problem), as_json)


def _describe_failure(problem: Any) -> tuple[str, ExitCode]:
    """Return what is wrong, in words, and the exit code."""
    if isinstance(problem, InfeasibleRulesError | UncertifiedError):
        return describe_problem(problem), ExitCode.BROKEN
    if isinstance(problem, FileNotFoundError):
        return f"there is no file {problem.filename}" if problem.filename else str(problem), ExitCode.TROUBLE
    if isinstance(problem, BylawError | OSError):
        return describe_problem(problem), ExitCode.TROUBLE
    if isinstance(problem, MemoryError):
        return "there is not enough memory for these rows; give fewer, such as a sample", ExitCode.TROUBLE
    if isinstance(problem, ModuleNotFoundError) and problem.name == "pyarrow":
        return f"the command line needs pyarrow: {install_extra('cli')}", ExitCode.TROUBLE
    wrong_arguments: Any = problem if hasattr(problem, "format_message") else None
    if wrong_arguments is not None:
        if getattr(problem, "option_name", "") == "--probabilities":
            wrong_arguments.message += "; for columns of scores use --scores, as in --scores 'p_*'"
        return wrong_arguments.format_message(), ExitCode.TROUBLE
    # Not 1, which would mean that a rule is violated.
    return f"this is a fault in bylaw; please report it\n{traceback.format_exc()}", ExitCode.FAULT


def _stop(*_: Any) -> None:
    """End as after control-C, so that what is half written is removed."""
    raise KeyboardInterrupt


def _show_version(asked: bool) -> None:
    if asked:
        from bylaw.policy.provenance import versions

        tell(f"bylaw {versions()['bylaw']}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Which bylaw this is.")
    ] = False,
) -> None:
    """Run the program itself, for options without a command."""
