"""The commands, and the exit codes of errors.

Commands import what they need when they run, so that help is quick: their modules must not import numpy,
pyarrow, scipy or matplotlib.
"""

from __future__ import annotations

import signal
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
from bylaw.cli.console import fail, redirect_warnings, tell
from bylaw.cli.remedies import describe_problem
from bylaw.errors import BylawError, InfeasibleRulesError, UncertifiedError

_PURPOSE = "Make any trained classifier satisfy system-level rules, without retraining it."
app = typer.Typer(
    name="bylaw",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=_PURPOSE,
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
    """Run the command of `sys.argv`; the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        with redirect_warnings():
            app()
    except (InfeasibleRulesError, UncertifiedError) as problem:
        fail(describe_problem(problem))
        return 1
    except FileNotFoundError as problem:
        fail(f"there is no file {problem.filename}" if problem.filename else str(problem))
        return 2
    except (BylawError, OSError) as problem:
        fail(describe_problem(problem))
        return 2
    except ModuleNotFoundError as missing:
        if missing.name != "pyarrow":
            return _report_fault()
        fail("the command line needs pyarrow: pip install 'bylaw[cli]'")
        return 2
    except Exception:  # 1 would mean that a rule is violated
        return _report_fault()
    return 0


def _report_fault() -> int:
    fail(f"this is a fault in bylaw; please report it\n{traceback.format_exc()}")
    return 3


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
    """The program itself, for options without a command."""
