"""bylaw rules: the language, with examples."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bylaw.cli.console import Grid, make_plain, write_result

EXAMPLES = {
    "Rates, of all rows": {
        "error()": "wrong answers",
        "rejected()": "cases left to a human",
        "accepted()": "the others",
        "selected('approve')": "cases that get this answer",
        "selected('senior')": "cases that go to this option, such as an expert or a model to call",
        "cost([[0, 5], [1, 0]])": "a cost for each true label (row) and answer (column)",
        "disagreement('old')": "answers that differ from an earlier model's",
        "miscoverage()": "sets of labels without the true one",
        "size()": "labels in a set, on average",
        "omits('old')": "sets without the earlier model's answer",
        "custom('visit')": "a cost of your own, one column per action",
    },
    "Rates, of some rows": {
        "selected('approve').given(race='black')": "among one group",
        "error().given(label='deny')": "among those whose true label this is",
        "error().given(decision='approve')": "among those that are decided so; also with a group",
        "precision('fraud')": "decisions for a label that are right",
        "recall('fraud')": "cases with a label that are decided so",
        "f1('fraud')": "the harmonic mean of the two",
        "balanced_error()": "wrong answers, averaged over the true labels",
    },
    "To minimise": {
        "error() + 0.2 * rejected()": "any sum of rates",
        "1 - f1('fraud')": "the F1 score is maximised",
        "1 - g_mean()": "the geometric mean of all recalls",
        "error() / accepted()": "any rate over another that cannot vanish",
    },
    "Rules": {
        "rejected() <= 0.1": "at most 10 % of the cases",
        "selected('senior') <= 0.05": "the senior expert has time for 5 % of the cases",
        "custom('usd') <= 0.002": "a budget in money, per case on average",
        "error() <= 0.05 * accepted()": "at most 5 % of the answers are wrong",
        "selected('yes').given(sex='F') >= 0.8 * selected('yes').given(sex='M')": "the four-fifths rule",
        "abs(error().given(sex='F') - error()) <= 0.02": "within two points of each other",
    },
    "What to minimise, beside rates": {
        "worst(error(), by='race')": "the rate of the group where it is largest",
        "worst(error(), by=('sex', 'race'))": "of intersections; 'label' for the true label",
    },
    "Families: one rule for each group, label and side": {
        "demographic_parity('sex', tol=0.02)": "each answer as often in every group as overall",
        "demographic_parity(['sex', 'race'], tol=0.02)": "of each attribute; a tuple for intersections",
        "equalized_odds('sex', tol=0.02)": "the same among those with the same true label",
        "equal_opportunity('sex', tol=0.02)": "among those who deserve it",
        "disparate_impact('sex', ratio=0.8)": "no group's rate below 0.8 of another's",
        "error_parity('sex', tol=0.02)": "wrong answers",
        "predictive_parity('sex', tol=0.05)": "decisions for each label that are right",
        "rejection_parity('sex', tol=0.02)": "cases left to a human",
        "coverage_parity('sex', tol=0.02)": "sets that contain the true label",
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

[columns]                       # what is obvious may be left out
probabilities = "p_*"           # or a list; the star is the class
groups = ["race"]               # known when a decision is made
label = "outcome"               # the true labels: rules then hold as observed
id = "id"
# weight = "w"
# references = { old = "old_label" }
# group_probabilities = { race = "race_*" }   # unknown: P(race | x)
# true_groups = { race = "race" }             # observed values, for fits and audits
# joint = { race = "race_*_label_*" }         # P(race, label | x), for rules on both
# costs = { visit = "visit_*" }               # for custom('visit')
# normalize = true                            # probabilities were rounded: divide by their sum

# [solve]
# margin = 1.0                  # standard errors to spare, for new rows
# deterministic = true               # decisions without chance
"""


def run_rules(
    example: Annotated[bool, typer.Option("--example", help="Only a rules file to begin with.")] = False,
) -> None:
    """List the language of rules, with examples.

    [bold]Example[/bold]

      bylaw rules --example > rules.toml
    """
    from bylaw.language.parser import describe_words

    words = {word.signature: word.help for word in describe_words()}
    text: list[Any] = []
    for title, meanings in {"Words: rates and families": words, **EXAMPLES}.items():
        text += [Grid(("", ""), [(f"  {call}", meaning) for call, meaning in meanings.items()], title), ""]
    text += [make_plain("A rules file", "bold"), FILE]
    write_result({}, [FILE.rstrip()] if example else text, as_json=False)
