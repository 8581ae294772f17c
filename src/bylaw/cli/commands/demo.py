"""bylaw demo: all steps on real mortgage files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from bylaw.cli.console import make_plain, tell

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
    context: typer.Context,
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
    for command in (
        ["fit", scores, "--rules", rules, "-o", policy, "--report", report, "--held-out", new],
        ["decide", policy, new, "--id-column", "id", "-o", decisions],
        ["audit", policy, new, "--label", "outcome"],
    ):
        arguments = list(map(str, command))
        tell(make_plain(f"\n$ bylaw {shlex.join(arguments)}", "bold"))
        context.find_root().command.main(arguments, standalone_mode=False)
    tell(f"\nNow open {report}")


def write_inputs(folder: Path) -> None:
    """Write the rules, unless they are there, and two tables."""
    import pyarrow

    from bylaw._base.files import write_text
    from bylaw.datasets import mortgages
    from bylaw.rows.table_files import write_table

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
