"""Rules in TOML: what is read, and where errors point."""

from __future__ import annotations

import pytest

from bylaw import demographic_parity, error, rejected
from bylaw.cli.commands.demo import EXAMPLES, FILE
from bylaw.cli.rules_file import RulesFile
from bylaw.errors import OptionError, RuleError
from bylaw.language import parse


def read(tmp_path, text):
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return RulesFile.read(path)


def test_a_rules_file_is_a_problem_and_roles(tmp_path):
    file = read(tmp_path, FILE)
    assert file.problem.minimize == error()
    assert file.problem.rules == (demographic_parity("race", tol=0.02), rejected() <= 0.1)
    assert file.columns == {"probabilities": "p_*", "groups": ["race"], "label": "outcome", "id": "id"}
    assert read(tmp_path, "rules = 'rejected() <= 0.1'\nreject = 'Ann'\n[solve]\nmargin = 1").solve == {
        "margin": 1
    }


def test_every_example_of_the_language_is_in_it():
    for words in EXAMPLES.values():
        for text in words:
            parse(text)


def test_an_error_points_to_the_place(tmp_path):
    with pytest.raises(RuleError) as caught:
        read(tmp_path, 'rules = [\n  "rejected() <= 0.1",\n  "rejected() <= errror()",\n]\n')
    first, shown, caret = str(caught.value).split("\n")
    assert "rules.toml, line 3: unknown word 'errror'; did you mean 'error'?" in first
    assert shown == '    "rejected() <= errror()",'
    assert shown[caret.index("^") :].startswith("errror")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules = [", "must be valid TOML"),
        ("rule = 'rejected() <= 0.1'", "unknown key 'rule'; did you mean 'rules'"),
        ("[columns]\nprobs = 'p_*'", r"\[columns\]: unknown key 'probs'"),
        ("[solve]\nseed = 1", r"\[solve\]: unknown key 'seed'"),
        ("columns = 3", r"\[columns\]"),
        ("rules = 5", "rules must be text, or a list"),
        ("rules = [5]", "rules must be text, or a list"),
        ("[columns]\nprobabilities = 5", "probabilities must be"),
        ("[columns]\ngroups = 5", "groups must be"),
        ("[columns]\nclasses = 5", "classes must be a list"),
        ("[columns]\njoint = 5", "joint must be a table"),
        ("[columns]\nnormalize = 'no'", "normalize must be true or false"),
        ("[solve]\nsolver = 5", "solver must be text"),
        ("a = " + "[" * 5000, "must be valid TOML"),
    ],
)
def test_what_is_not_understood_is_named(text, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        read(tmp_path, text)


def test_columns_may_be_nested_as_deep_as_their_role_needs(tmp_path):
    nested = {
        "joint": {"race": [["a", "b"], ["c", "d"]]},
        "references": {"old": {"no": "a", "yes": "b"}},
        "costs": {"visit": ["a", "b"]},
        "group_probabilities": {"race": {"black": "a", "white": "b"}},
        "true_groups": {"race": "race"},
    }
    lines = [
        'joint = { race = [["a", "b"], ["c", "d"]] }',
        'references = { old = { no = "a", yes = "b" } }',
        'costs = { visit = ["a", "b"] }',
        'group_probabilities = { race = { black = "a", white = "b" } }',
        'true_groups = { race = "race" }',
    ]
    assert read(tmp_path, "\n".join(["[columns]", *lines])).columns == nested
    for deeper in ("references = { old = [['a']] }", "groups = [['a']]", "joint = { race = [[['a']]] }"):
        with pytest.raises(OptionError, match=f"{deeper.split()[0]} must be"):
            read(tmp_path, f"[columns]\n{deeper}")


@pytest.mark.parametrize(
    "rule",
    [
        "__import__('os').system('touch hacked')",
        "(lambda: open('hacked', 'w'))()",
        "error().__class__",
        "[x for x in ().__class__.__bases__]",
        "exec('1')",
    ],
)
def test_a_rules_file_cannot_run_code(rule, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuleError, match=r"rules.toml, line 1"):
        read(tmp_path, f'rules = ["""{rule}"""]')
    assert not (tmp_path / "hacked").exists()


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(OptionError, match="does not exist"):
        RulesFile.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"rules = '\xff'")
    with pytest.raises(OptionError, match="cannot be read"):
        RulesFile.read(tmp_path / "bad.toml")


def test_a_truth_value_is_no_whole_number(tmp_path):
    with pytest.raises(OptionError, match="reject must be text or a whole number, got True"):
        read(tmp_path, "reject = true")
