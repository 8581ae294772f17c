"""Rates are printed as people write them, and their text reads back to the same rate."""

import json

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, error, f1, g_mean, parse, precision, recall, selected, solve
from bylaw.policy import compute_digest


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (recall("x"), "recall('x')"),
        (1 - recall("x"), "1 - recall('x')"),
        (recall("x").given(sex="F") - recall("x"), "recall('x').given(sex='F') - recall('x')"),
        (1 - precision("x"), "1 - precision('x')"),
        (1 - f1("x"), "1 - f1('x')"),
        (1 - g_mean(), "1 - g_mean()"),
        (0.5 - 2 * error() + recall("x"), "0.5 - 2 * error() + recall('x')"),
        (error() - 0.5, "error() - 0.5"),
        (-error() - 0.5, "-error() - 0.5"),
        (selected("x").given(label="x"), "selected('x').given(label='x')"),
        ((1 - error()) / selected("x"), "(1 - error()) / selected('x')"),
        (abs(1 - recall("x")) <= 0.2, "abs(1 - recall('x')) <= 0.2"),
    ],
)
def test_the_text_is_as_written_and_reads_back_to_the_same_rate(rate, text):
    assert str(rate) == text
    assert parse(text) == rate


def test_recall_equals_what_it_abbreviates():
    assert recall("x") == selected("x").given(label="x")
    assert len((recall("x") + selected("x").given(label="x")).terms) == 1


def test_a_policy_saved_with_the_earlier_text_has_the_prices_of_its_rules(tmp_path):
    scores = np.linspace(0.05, 0.95, 40)
    evidence = Evidence(np.column_stack([1 - scores, scores]))
    policy = solve(Problem(error(), [1 - recall(1) <= 0.1]), evidence)
    path = tmp_path / "policy.json"
    policy.save(path)
    content = json.loads(path.read_text())
    content["rules"] = ["-selected(1).given(label=1) + 1 <= 0.1"]
    for entry in content["multipliers"]:
        entry["statement"] = entry["rule"] = content["rules"][0]
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": compute_digest(content)}))
    loaded = Policy.load(path)
    assert list(loaded.prices) == [str(rule) for rule in loaded.problem.rules]
    policy.save(path)  # with the same digits
    assert list(loaded.prices.values()) == list(Policy.load(path).prices.values())
