"""bylaw demo: all steps on real mortgage files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from bylaw.cli.commands.audit import run_audit
from bylaw.cli.commands.decide import run_decide
from bylaw.cli.commands.fit import run_fit
from bylaw.cli.console import tell

RULES = """\
minimize = "error()"
rules = [
  "demographic_parity('race', tol=0.02)",
  "rejected() <= 0.1",
]

[columns]
probabilities = "p_*"
groups = ["race"]
label = "outcome"
id = "id"
"""


def run_demo(
    folder: Annotated[
        Path, typer.Argument(help="For the files of the demo; made if it is not there.")
    ] = Path("out"),
) -> None:
    """Fit, decide, audit and report, on 1,989 real mortgage files.

    [bold]Example[/bold]

      bylaw demo out
    """
    write_inputs(folder)
    rules, scores, new = folder / "rules.toml", folder / "scores.parquet", folder / "new.parquet"
    policy, report, decisions = folder / "policy.json", folder / "report.html", folder / "decisions.parquet"
    _announce(f"bylaw fit {scores} --rules {rules} -o {policy} --report {report} --held-out {new}")
    run_fit(scores, policy, rules=rules, report=report, held_out=new)
    _announce(f"bylaw decide {policy} {new} --id-column id -o {decisions}")
    run_decide(policy, new, decisions, id_column="id")
    _announce(f"bylaw audit {policy} {new} --label outcome")
    with contextlib.suppress(typer.Exit):
        run_audit(policy, new, label="outcome")
    tell(f"\nNow open {report}")


def write_inputs(folder: Path) -> None:
    """The rules, unless they are there, and two tables."""
    import pyarrow

    from bylaw._base.atomic_files import write_text
    from bylaw.data.table_files import write_table
    from bylaw.datasets import mortgages

    tables = mortgages()
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "rules.toml"
    if rules.exists():
        tell(f"{rules} is there already, and stays")
    else:
        write_text(rules, RULES)
    for name in ("scores", "new"):
        write_table(folder / f"{name}.parquet", pyarrow.Table.from_pandas(tables[name], preserve_index=False))
    tell(
        "1,989 real mortgage files: a third has trained a model, a third chooses the policy "
        "(scores.parquet), a third is new (new.parquet)"
    )


def _announce(command: str) -> None:
    tell(f"\n$ {command}", style="bold")
