"""The list of commands, and the report of their errors.

Commands import what they need when they run, so that help is fast: their modules must not import numpy,
pyarrow, scipy or matplotlib.
"""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Annotated, Any

import typer

from bylaw.cli.commands.audit import run_audit, run_watch
from bylaw.cli.commands.decide import run_decide, run_explain
from bylaw.cli.commands.demo import run_demo, run_rules
from bylaw.cli.commands.export import export
from bylaw.cli.commands.fit import run_fit, run_refit, run_show
from bylaw.cli.commands.report import run_diagnose, run_frontier, run_report, run_studio
from bylaw.cli.console import MEANINGS, ExitCode, describe_problem, redirect_warnings, tell, write_failure
from bylaw.cli.options import SharingCommand
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
for _command in (
    run_fit,
    run_decide,
    run_audit,
    run_watch,
    run_refit,
    run_report,
    run_frontier,
    run_diagnose,
    run_studio,
    run_explain,
    run_show,
    run_rules,
    run_demo,
):
    app.command(_command.__name__.removeprefix("run_"), cls=SharingCommand)(_command)
app.add_typer(export, name="export")


def run() -> int:
    """Run the command in `sys.argv`, and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as control-C: partial files are removed
    as_json = "--json" in sys.argv[1:]  # then also errors in arguments are written as JSON
    try:
        with redirect_warnings():
            return int(app(standalone_mode=False) or ExitCode.SUCCESS)
    except Exception as problem:
        return write_failure(problem, *_describe_failure(problem), as_json)


def _describe_failure(problem: Any) -> tuple[str, ExitCode]:
    """Return the message and the exit code of an error."""
    if isinstance(problem, InfeasibleRulesError | UncertifiedError):
        return describe_problem(problem), ExitCode.BROKEN
    if hasattr(problem, "format_message"):  # wrong arguments
        if getattr(problem, "option_name", "") == "--probabilities":
            problem.message += "; for columns of scores use --scores, as in --scores 'p_*'"
        text = problem.format_message()
    elif isinstance(problem, FileNotFoundError) and problem.filename:
        text = f"the file {problem.filename} does not exist"
    elif isinstance(problem, BylawError | OSError):
        text = describe_problem(problem)
    elif isinstance(problem, MemoryError):
        text = "the memory is not enough for these rows; use fewer rows, such as a sample"
    elif isinstance(problem, ModuleNotFoundError) and problem.name == "pyarrow":
        text = f"the command line needs pyarrow; install it with: {install_extra('cli')}"
    else:  # not 1, which would mean that a rule is violated
        fault = f"an internal error of bylaw occurred; please report it\n{traceback.format_exc()}"
        return fault, ExitCode.FAULT
    return text, ExitCode.TROUBLE


def _show_version(asked: bool) -> None:
    if asked:
        from bylaw.policy import versions

        tell(f"bylaw {versions()['bylaw']}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options that the program has without a command, such as --version."""
