"""Errors: a message, a remedy that each interface words, and what survives a copy."""

from __future__ import annotations

import pickle

import pytest

import bylaw
from bylaw.errors import (
    BylawError,
    ConvergenceWarning,
    EvidenceError,
    Remedy,
    RuleError,
    RuleSyntaxError,
    UncertifiedError,
    join_remedy,
    word_for_python,
)

IN_PYTHON = {
    Remedy("pass_labels"): "pass labels=",
    Remedy("pass_groups", "sex"): "pass groups={'sex': ...}",
    Remedy("pass_group_probabilities", "sex"): "pass groups={'sex': {value: its probabilities, ...}}",
    Remedy("pass_true_groups", "sex"): "pass the observed values, groups={'sex': ...}",
    Remedy("pass_combinations", choices=("sex", "race")): "pass the probabilities of their combinations, "
    "groups={('sex', 'race'): {...}}",
    Remedy("pass_joint", "sex"): "pass joint={'sex': ...}, or give 'sex' at decision time",
    Remedy("drop_copies"): "pass each row once",
    Remedy("pass_largest_weight"): "pass largest_weight= to audit() or Evidence()",
    Remedy(
        "pass_limits", "visit"
    ): "pass limits={'visit': (least, most)} to audit(), Evidence() or Monitor()",
    Remedy("pass_outcomes", "visit"): "pass outcomes={'visit': an array} to audit() or Evidence(), or "
    "{'visit': 'known'} if it does not depend on the outcome",
    Remedy("pass_reference", "old"): "pass references={'old': its labels}",
    Remedy("pass_costs", "visit"): "pass costs={'visit': an array}",
    Remedy("pass_decisions"): "pass the decisions that were taken, decisions=, or use method='betting'",
    Remedy("choose_method", "betting"): "use method='betting'",
    Remedy("choose_solver", "auto"): "otherwise use solver='auto'",
    Remedy("choose_decisions", "sets"): "for other decisions use Problem(decisions='sets')",
    Remedy("choose_reject"): "choose another name with reject=",
    Remedy("choose_probabilities"): "pass probabilities='p_*', or a list of columns, one for each class",
    Remedy("choose_scores"): "pass probabilities='score'",
    Remedy("choose_positive"): "pass positive=",
    Remedy("name_classes", "yes"): "pass classes=['another', 'yes']",
    Remedy("state_delimiter"): "write it with commas, or read it into a frame first",
    Remedy("choose_group", "race"): "pass groups=['race'] or group_probabilities={'race': 'race_*'}",
    Remedy("choose_column", "label", ("y", "outcome")): "pass label='y', for instance",
    Remedy(
        "pass_changes", "changed"
    ): "pass earlier.mark_changes(evidence), where earlier is the policy that decided before",
    Remedy("list_columns"): "give the columns as a list, in the order of the classes",
    Remedy("normalize"): "correct it, or pass normalize=True to divide each row by its sum",
    Remedy("align_rows", "labels", ("X",)): "if both have the same rows in the same order, pass them with "
    ".reset_index(drop=True); otherwise bring labels into the order of X with .reindex(...)",
    Remedy("read_all_rows"): "solve with a sample, rows.sample(1_000_000).evidence",
    Remedy("estimate_fitted_rows"): "pass rows that were held out, or fitted_rows='estimate' for an estimate "
    "without a certificate",
    Remedy("plan_looks", "0.975", ("2",)): "audit once, on all rows together; for looks that are planned "
    "beforehand, divide the error by their number: confidence=0.975 for 2",
    Remedy("add_steps"): "raise max_steps, raise tol, or lower beta",
    Remedy("loosen_tolerance"): "raise tol or lower beta",
    Remedy("refit"): "fit it again",
}


@pytest.mark.parametrize("remedy", IN_PYTHON, ids=lambda remedy: remedy.action)
def test_a_remedy_in_the_words_of_python(remedy):
    assert word_for_python(remedy) == IN_PYTHON[remedy]


def test_every_action_has_words():
    assert {remedy.action for remedy in IN_PYTHON} == set(bylaw.errors.IN_PYTHON)


def test_an_error_is_its_message_and_its_remedy():
    plain, advised = BylawError("too few rows"), EvidenceError("no labels", Remedy("pass_labels"))
    assert (str(plain), plain.remedy) == ("too few rows", None)
    assert (str(advised), advised.message) == ("no labels; pass labels=", "no labels")
    assert advised.describe(lambda remedy: remedy.action.upper()) == "no labels; PASS_LABELS"


def test_a_question_is_followed_by_a_sentence():
    assert join_remedy("which column?", Remedy("pass_labels")) == "which column? Pass labels="
    assert join_remedy("which column?", None) == "which column?"


def test_the_place_goes_before_the_message_and_the_remedy_stays():
    problem = EvidenceError("no labels", Remedy("pass_labels"))
    problem.add_place("rows.csv")
    assert str(problem) == "rows.csv: no labels; pass labels="


def test_a_syntax_error_shows_its_place():
    problem = RuleSyntaxError("unknown word", "a\nrejectd()", 2, 3)
    assert (problem.message, problem.line, problem.column) == ("unknown word", 2, 3)
    assert str(problem) == "unknown word\n  rejectd()\n     ^"


@pytest.mark.parametrize(
    "problem",
    [
        RuleError("no such class", Remedy("choose_reject")),
        RuleSyntaxError("unknown word", "rejectd()", 1, 3),
        UncertifiedError("rejected() <= 0.1", 0.2, 900.0, 300, 0.95),
        ConvergenceWarning("off by 0.1", Remedy("add_steps")),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_copies_are_alike(problem):
    """As where a fit runs in another process."""
    copy = pickle.loads(pickle.dumps(problem))
    assert (type(copy), str(copy), vars(copy)) == (type(problem), str(problem), vars(problem))


def test_held_out_rows_that_do_not_suffice():
    assert "About 900 held-out rows would be enough" in str(UncertifiedError("r", 0.2, 900.0, 300, 0.95))


@pytest.mark.parametrize(
    ("missing", "kind", "message"),
    [("sklearn", ImportError, "solve needs scikit-learn"), ("scipy", ModuleNotFoundError, "named 'scipy'")],
)
def test_scikit_learn_is_named_only_where_it_is_what_is_missing(monkeypatch, missing, kind, message):
    def fail(_):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(bylaw, "_find_name", fail)
    with pytest.raises(ImportError, match=message) as caught:
        bylaw.__getattr__("solve")
    assert caught.type is kind
