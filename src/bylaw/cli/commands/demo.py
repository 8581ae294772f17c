"""The commands to start with: demo, which runs all steps on real data, and rules, which lists examples."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from bylaw.cli.console import make_plain, tell, write_result

EXAMPLES = {
    "Rates, of all rows": {
        "error()": "wrong answers",
        "rejected()": "cases left to a human",
        "accepted()": "cases that are not left to a human",
        "selected('approve')": "cases that get this answer",
        "selected('senior')": "cases that go to this option, such as an expert or a model to call",
        "cost([[0, 5], [1, 0]])": "a cost for each true label (row) and answer (column)",
        "disagreement('old')": "answers that differ from an earlier model's",
        "miscoverage()": "sets of labels without the true one",
        "size()": "labels in a set, on average",
        "omits('old')": "sets without the earlier model's answer",
        "custom('visit')": "your own cost, one column per action",
    },
    "Rates, of some rows": {
        "selected('approve').given(race='black')": "among one group",
        "error().given(label='deny')": "among cases with this true label",
        "error().given(decision='approve')": "among cases with this decision; also in a group",
        "precision('fraud')": "correct decisions, among cases with this decision",
        "recall('fraud')": "correct decisions, among cases with this true label",
        "f1('fraud')": "the harmonic mean of precision and recall",
        "balanced_error()": "wrong answers, averaged over the true labels",
    },
    "To minimize": {
        "error() + 0.2 * rejected()": "any sum of rates",
        "1 - f1('fraud')": "the F1 score is maximized",
        "1 - g_mean()": "the geometric mean of all recalls",
        "error() / accepted()": "any rate over another that cannot be zero",
    },
    "Rules": {
        "rejected() <= 0.1": "at most 10 % of the cases",
        "selected('senior') <= 0.05": "the senior expert has time for 5 % of the cases",
        "custom('usd') <= 0.002": "a budget in money, per case on average",
        "error() <= 0.05 * accepted()": "at most 5 % of the answers are wrong",
        "selected('yes').given(sex='F') >= 0.8 * selected('yes').given(sex='M')": "the four-fifths rule",
        "abs(error().given(sex='F') - error()) <= 0.02": "an error rate within two points of the overall one",
    },
    "To minimize, beside rates": {
        "worst(error(), by='race')": "the rate of the group where it is largest",
        "worst(error(), by=('sex', 'race'))": "the same for intersections; 'label' is the true label",
    },
    "Families: one rule for each group, label and side": {
        "demographic_parity('sex', tol=0.02)": "each answer as often in every group as overall",
        "demographic_parity(['sex', 'race'], tol=0.02)": "for each attribute; a tuple for intersections",
        "equalized_odds('sex', tol=0.02)": "the same among cases with the same true label",
        "equal_opportunity('sex', tol=0.02)": "the same among cases with the positive label",
        "disparate_impact('sex', ratio=0.8)": "no group's rate below 0.8 of another's",
        "error_parity('sex', tol=0.02)": "error rates that differ by at most two points from the overall one",
        "predictive_parity('sex', tol=0.05)": "the same for the precision of each label",
        "rejection_parity('sex', tol=0.02)": "the same for the rate of cases left to a human",
        "coverage_parity('sex', tol=0.02)": "the same for sets that contain the true label",
    },
}
FILE = """\
minimize = "error()"
rules = [
  "demographic_parity('race', tol=0.02)",
  "rejected() <= 0.1",
]
# reject = "refer"              # what a rejection is called, where "reject" is a class
# decisions = "sets"            # labels, reject or sets, where the rules leave it open
# decisions = ["approve", "deny", "junior", "senior"]   # or all labels, and options beside them; without
                                                        # columns of probabilities, options alone

[columns]                       # columns with conventional names may be left out
probabilities = "p_*"           # or a list; the star is the class
groups = ["race"]               # known when a decision is made
label = "outcome"               # the true labels: rules are then about observed rates
id = "id"
# weight = "w"
# references = { old = "old_label" }
# group_probabilities = { race = "race_*" }   # unknown: P(race | x)
# true_groups = { race = "race" }             # observed values, for fits and audits
# joint = { race = "race_*_label_*" }         # P(race, label | x), for rules on both
# costs = { visit = "visit_*" }               # for custom('visit')
# normalize = true                            # probabilities were rounded: divide by their sum

# [solve]
# margin = 1.0                  # in standard errors, for new rows
# deterministic = true          # no random draws
"""


def run_demo(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="The folder for the files of the demo; made if missing.")
    ] = Path("out"),
) -> None:
    """Fit, decide, audit and report on 1,989 real mortgage applications.

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
    """Write two tables, and a rules file unless it exists."""
    import pyarrow

    from bylaw._base import write_text
    from bylaw.datasets import mortgages
    from bylaw.rows import write_table

    tables = mortgages()
    folder.mkdir(parents=True, exist_ok=True)
    rules = folder / "rules.toml"
    if rules.exists():
        tell(f"{rules} exists already, and is kept")
    else:
        write_text(rules, FILE)
    for name in ("scores", "new"):
        write_table(folder / f"{name}.parquet", pyarrow.Table.from_pandas(tables[name], preserve_index=False))
    tell(
        "1,989 real mortgage applications: one third trains a model, one third is for the fit of the policy "
        "(scores.parquet), and one third is new (new.parquet)"
    )


def run_rules(
    example: Annotated[
        bool, typer.Option("--example", help="Print only a rules file to start from.")
    ] = False,
) -> None:
    """List the language of rules, with examples.

    [bold]Example[/bold]

      bylaw rules --example > rules.toml
    """
    from bylaw.language import describe_words
    from bylaw.view import Table

    words = {word.signature: word.help for word in describe_words()}
    text: list[Any] = []
    for title, meanings in {"Words: rates and families": words, **EXAMPLES}.items():
        rows = [(f"  {call}", meaning) for call, meaning in meanings.items()]
        text += [make_plain(title, "bold"), Table(("", ""), rows), ""]
    text += [make_plain("A rules file", "bold"), FILE]
    write_result({}, [FILE.rstrip()] if example else text, as_json=False)
