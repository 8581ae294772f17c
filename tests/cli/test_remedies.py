"""What to do about an error, in the words of the command line: flags and keys of the rules file."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest

from bylaw.cli.console import describe_problem, word_for_shell
from bylaw.errors import IN_PYTHON, ConvergenceWarning, EvidenceError, Remedy, RuleSyntaxError
from bylaw.policy import compute_digest

IN_SHELL = {
    Remedy("pass_labels"): "name their column with --label COLUMN",
    Remedy("pass_groups", "sex"): "name its column with --group sex=COLUMN",
    Remedy("pass_group_probabilities", "sex"): "name the columns of its probabilities with "
    "--group-probabilities 'sex=PATTERN', such as 'sex_*'",
    Remedy("pass_true_groups", "sex"): "name the column of its observed values with --true-group sex=COLUMN",
    Remedy("pass_combinations", choices=("sex", "race")): "name the column of one of them with "
    "--group NAME=COLUMN; only the Python library takes probabilities of combinations",
    Remedy("pass_joint", "sex"): 'name its columns in the rules file of the fit with joint = { sex = "'
    'sex_*_label_*" } under [columns], or give its values with --group sex=COLUMN',
    Remedy("drop_copies"): "give each row once",
    Remedy("pass_largest_weight"): "state it with --largest-weight NUMBER",
    Remedy("pass_limits", "visit"): "state its range with --limit visit=LEAST:MOST",
    Remedy("pass_outcomes", "visit"): "name the columns of its observed values with "
    "--outcomes 'visit=PATTERN', or pass --outcomes visit=known if it does not depend on the outcome",
    Remedy("pass_reference", "old"): "name the column of its labels with --reference old=COLUMN",
    Remedy("pass_costs", "visit"): 'name its columns in the rules file with costs = { visit = "visit_*" } '
    "under [columns]",
    Remedy("pass_decisions"): "name the column of the decisions that were taken with --decisions COLUMN, or "
    "use --method betting",
    Remedy("choose_method", "betting"): "use --method betting",
    Remedy("choose_solver", "auto"): 'otherwise set solver = "auto" under [solve] in the rules file',
    Remedy("choose_decisions", "sets"): 'for other decisions set decisions = "sets" at the top of the rules '
    "file",
    Remedy("pass_changes", "changed"): "give the policy that decided before with --previous POLICY",
    Remedy("choose_reject"): 'choose another name with reject = "refer" at the top of the rules file',
    Remedy("choose_probabilities"): "name them with --scores 'p_*' or --scores COLUMN,COLUMN; or one, with "
    "--scores COLUMN --positive CLASS",
    Remedy("choose_scores"): "name it with --scores COLUMN",
    Remedy("choose_positive"): "name it with --positive CLASS",
    Remedy("name_classes", "yes"): "name both with --classes OTHER,yes, or the column of true labels with "
    "--label",
    Remedy("state_delimiter"): "pass --delimiter ';'",
    Remedy("choose_group", "race"): "pass --group race or --group-probabilities 'race=race_*'",
    Remedy("choose_column", "label", ("y", "outcome")): "pass --label y, for instance",
    Remedy("choose_column", "weight", ("w", "v")): "pass --weight w, for instance",
    Remedy("choose_column", "id", ("id", "key")): "pass --id-column id, for instance",
    Remedy("list_columns"): "name the columns one by one, in the order of the classes, with "
    "--scores COLUMN,COLUMN",
    Remedy("normalize"): "correct it, or pass --normalize to divide each row by its sum",
    Remedy("align_rows", "labels", ("X",)): "give both as columns of one table",
    Remedy("read_all_rows"): "pass --in-memory, with a part of the rows if they are too many",
    Remedy(
        "estimate_fitted_rows"
    ): "give rows that were held out; `bylaw audit --fitted-rows estimate` gives "
    "an estimate without a certificate",
    Remedy("plan_looks", "0.975", ("2",)): "audit once, on all rows together; for looks that are planned "
    "beforehand, divide the error by their number: --confidence 0.975 for 2",
    Remedy("add_steps"): "raise tol or lower beta under [solve] in the rules file",
    Remedy("loosen_tolerance"): "raise tol or lower beta under [solve] in the rules file",
    Remedy("refit"): "fit it again with `bylaw fit`",
}


@pytest.mark.parametrize("remedy", IN_SHELL, ids=lambda remedy: f"{remedy.action}-{remedy.subject}")
def test_a_remedy_in_the_words_of_the_shell(remedy):
    assert word_for_shell(remedy) == IN_SHELL[remedy]


def test_every_action_has_words():
    assert {remedy.action for remedy in IN_SHELL} == set(IN_PYTHON)


def test_problems_are_described_with_remedy_and_notes():
    problem = EvidenceError("no labels", Remedy("pass_labels"))
    problem.add_note("These are the loosest levels.")
    assert describe_problem(problem) == (
        "no labels; name their column with --label COLUMN\nThese are the loosest levels."
    )
    off = ConvergenceWarning("off by 0.1", Remedy("add_steps"))
    assert describe_problem(off) == "off by 0.1; raise tol or lower beta under [solve] in the rules file"
    assert describe_problem(RuleSyntaxError("unknown word", "rejectd()")) == "unknown word\n  rejectd()\n  ^"
    assert describe_problem(OSError("disk full")) == "disk full"


def make_rows(n=600, seed=0, **columns):
    """Two classes, a group that is known by its probabilities too, and an earlier model."""
    rng = np.random.default_rng(seed)
    yes, female = rng.random(n), rng.choice([0.2, 0.9], n)
    given = {"id": np.arange(n), "p_no": 1 - yes, "p_yes": yes, "sex_F": female, "sex_M": 1 - female}
    return pyarrow.table({**given, **columns})


@pytest.fixture
def rows(folder):
    parquet.write_table(make_rows(), "rows.parquet")
    parquet.write_table(make_rows(6000, seed=1), "others.parquet")
    return folder


def fit(bylaw, *rules, file="", table="rows.parquet"):
    """What a fit prints on standard error."""
    given = [part for rule in rules for part in ("--rule", rule)]
    if file:
        with open("r.toml", "w", encoding="utf-8") as target:  # noqa: PTH123
            target.write(file)
        given += ["--rules", "r.toml"]
    return bylaw("fit", table, *given, "-o", "p.json")


@pytest.mark.parametrize(
    ("rule", "advice"),
    [
        ("demographic_parity('age', tol=0.1)", "; name its column with --group age=COLUMN"),
        ("disagreement('old') <= 0.1", "; name the column of its labels with --reference old=COLUMN"),
        ("custom('visit') <= 0.1", 'with costs = { visit = "visit_*" } under [columns]'),
        ("equalized_odds('sex', tol=0.1)", 'with joint = { sex = "sex_*_label_*" } under [columns]'),
    ],
)
def test_what_a_rule_needs_is_asked_for(rule, advice, rows, bylaw):
    answer = fit(bylaw, rule)
    assert answer.code == 2
    assert advice in answer.err
    assert "pass " not in answer.err


def test_unknown_groups_that_only_go_together_are_for_python(rows, bylaw):
    both = make_rows(race_a=np.full(600, 0.4), race_b=np.full(600, 0.6))
    parquet.write_table(both, "both.parquet")
    answer = fit(bylaw, "demographic_parity(('sex', 'race'), tol=0.1)", table="both.parquet")
    assert answer.code == 2
    assert "only the Python library takes probabilities of combinations" in answer.err


def test_columns_that_are_not_obvious_are_asked_for(rows, bylaw):
    parquet.write_table(make_rows().rename_columns(["id", "a", "b", "sex_F", "sex_M"]), "odd.parquet")
    assert "name them with --scores 'p_*'" in fit(bylaw, "rejected() <= 0.1", table="odd.parquet").err
    labels = make_rows(y=["no"] * 600, outcome=["yes"] * 600)
    parquet.write_table(labels, "labels.parquet")
    assert "; pass --label y, for instance" in fit(bylaw, "rejected() <= 0.1", table="labels.parquet").err
    known = make_rows(sex=["F"] * 600)
    parquet.write_table(known, "known.parquet")
    answer = fit(bylaw, "demographic_parity('sex', tol=0.1)", table="known.parquet")
    assert "; pass --group sex or --group-probabilities 'sex=sex_*'" in answer.err
    file = 'rules = "rejected() <= 0.1"\n[columns]\nclasses = ["si", "non"]\nprobabilities = "p_*"\n'
    assert "in the order of the classes, with --scores COLUMN,COLUMN" in fit(bylaw, file=file).err


@pytest.mark.parametrize(
    ("file", "advice"),
    [
        ('rules = "rejected() <= 0.1"\ndecisions = "labels"\n', 'set decisions = "reject" at the top'),
        (
            'rules = "rejected() <= 0.1"\n[solve]\nsolver = "sgd3"\nbeta = 0.5\n',
            'otherwise set solver = "full_batch" under [solve] in the rules file',
        ),
        ('rules = "rejected() <= 0.1"\nreject = "yes"\n', 'with reject = "refer" at the top'),
    ],
)
def test_what_the_rules_file_can_change_is_named_as_its_keys(file, advice, rows, bylaw):
    answer = fit(bylaw, file=file)
    assert answer.code == 2
    assert advice in answer.err


def test_warnings_have_the_words_of_the_shell_too(rows, bylaw):
    rules = 'rules = ["demographic_parity(\'sex\', tol=0.001)", "rejected() <= 0.1"]\n'
    answer = fit(bylaw, file=f"{rules}[solve]\ntol = 1e-300\n")
    assert answer.code == 0
    assert answer.err.count("warning: the gradient mapping is") == 1
    assert "; raise tol or lower beta under [solve] in the rules file" in answer.err


def test_rules_that_were_not_judged_say_which_flags_would_help(rows, bylaw):
    assert fit(bylaw, "demographic_parity('sex', tol=0.3)", "error() <= 0.9").code == 0
    answer = bylaw("audit", "p.json", "others.parquet")
    assert answer.code == 4
    assert "error() <= 0.9: not judged (it refers to labels; name their column with --label" in answer.out
    advice = "only probabilities are given; name the column of its observed values with --true-group sex=COL"
    assert advice in answer.out
    found = json.loads(bylaw("audit", "p.json", "others.parquet", "--json").out)
    assert {"action": "pass_labels", "subject": "", "choices": []} in [r["remedy"] for r in found["rules"]]


@pytest.mark.slow
def test_a_group_of_another_kind_than_in_the_fit(rows, bylaw):
    assert fit(bylaw, "demographic_parity('sex', tol=0.3)").code == 0
    parquet.write_table(make_rows(sex=["F", "M"] * 300), "known.parquet")
    answer = bylaw("decide", "p.json", "known.parquet", "--group", "sex", "-o", "d.csv")
    assert answer.code == 2
    assert "--group-probabilities 'sex=PATTERN'" in answer.err


@pytest.mark.slow
def test_methods_that_do_not_serve(rows, bylaw):
    assert fit(bylaw, "rejected() <= 0.1").code == 0
    answer = bylaw("audit", "p.json", "others.parquet", "--method", "clopper_pearson")
    assert answer.code == 2
    assert "--decisions COLUMN, or use --method betting" in answer.err
    parquet.write_table(make_rows(6000, seed=1, w=np.linspace(1, 2, 6000)), "heavy.parquet")
    heavy = ("audit", "p.json", "heavy.parquet", "--weight", "w")
    answer = bylaw(*heavy)
    assert answer.code == 4
    assert "is not known; state it with --largest-weight NUMBER" in answer.out
    assert "not judged" not in bylaw(*heavy, "--largest-weight", "2").out
    answer = bylaw(*heavy, "--largest-weight", "2", "--method", "hoeffding_bentkus")
    assert answer.code == 2
    assert "does not support weights; use --method betting" in answer.err


def test_held_out_rows_that_are_none(rows, bylaw):
    assert fit(bylaw, "rejected() <= 0.1").code == 0
    answer = bylaw("audit", "p.json", "rows.parquet")
    assert answer.code == 4
    assert "; give rows that were held out; `bylaw audit --fitted-rows estimate`" in answer.err


def test_held_out_rows_that_cannot_certify_ask_for_labels(rows, bylaw):
    answer = bylaw(
        "fit", "rows.parquet", "--rule", "error() <= 0.9", "--certify", "others.parquet", "-o", "p.json"
    )
    assert answer.code == 2
    assert "the held-out rows cannot test 'error() <= 0.9': it refers to labels; name their" in answer.err


@pytest.mark.slow
def test_a_card_of_nonsense_asks_for_another_fit(policy, bylaw):
    content = json.loads(policy.read_text())
    content["card"]["columns"] = {"x": 1}
    content["checksum"] = compute_digest({k: v for k, v in content.items() if k != "checksum"})
    policy.write_text(json.dumps(content))
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "d.csv")
    assert (
        "must name the columns that it reads, got none or invalid ones; fit it again with `bylaw fit`"
        in answer.err
    )


@pytest.mark.slow
def test_notes_of_a_conflict_are_shown(folder, bylaw):
    """Labels are observed here, so the note tells that the conflict is about predicted rates."""
    rules = ["--rule", "rejected() <= 0", "--rule", "error() <= 0.01"]
    answer = bylaw("fit", "scores.parquet", *rules, "-o", "p.json")
    assert answer.code == 1
    assert "The numbers are predicted rates" in answer.err
