"""bylaw demo: the whole way on real mortgage files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import pyarrow
import typer

from bylaw._base.atomic_files import write_text
from bylaw.cli.commands.audit import audited
from bylaw.cli.commands.decide import decide
from bylaw.cli.commands.fit import fit
from bylaw.cli.console import tell
from bylaw.data.table_files import write_table

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


def demo(
    folder: Annotated[
        Path, typer.Argument(help="For the files of the demo; made if it is not there.")
    ] = Path("out"),
) -> None:
    """Fit, decide, audit and report, on 1,989 real mortgage files.

    [bold]Example[/bold]

      bylaw demo out
    """
    from bylaw.datasets import mortgages

    tables = mortgages()
    folder.mkdir(parents=True, exist_ok=True)
    rules, scores, new, policy = (
        folder / name for name in ("rules.toml", "scores.parquet", "new.parquet", "policy.json")
    )
    if rules.exists():
        tell(f"{rules} is there already, and stays")
    else:
        write_text(rules, RULES)
    for path, frame in ((scores, tables["scores"]), (new, tables["new"])):
        write_table(path, pyarrow.Table.from_pandas(frame, preserve_index=False))
    tell(
        "1,989 real mortgage files: a third has trained a model, a third chooses the policy "
        f"({scores.name}), a third is new ({new.name})"
    )
    report, decisions = folder / "report.html", folder / "decisions.parquet"
    _announce(f"bylaw fit {scores} --rules {rules} -o {policy} --report {report} --held-out {new}")
    fit(scores, policy, rules=rules, report=report, held_out=new)
    _announce(f"bylaw decide {policy} {new} --id-column id -o {decisions}")
    decide(policy, new, decisions, id_column="id")
    _announce(f"bylaw audit {policy} {new} --label outcome")
    with contextlib.suppress(typer.Exit):
        audited(policy, new, label="outcome")
    tell(f"\nNow open {report}")


def _announce(command: str) -> None:
    tell(f"\n$ {command}", style="bold")
