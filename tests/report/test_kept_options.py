"""A policy keeps what it was chosen with, so that a later report computes its curves in the same way."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, error, rejected, solve
from bylaw.policy import compute_digest
from bylaw.report import report


def fit(margin, with_labels=True):
    rng = np.random.default_rng(5)
    chance = rng.uniform(size=300)
    labels = (rng.random(300) < chance).astype(int)
    evidence = Evidence(np.column_stack([1 - chance, chance]))
    problem = Problem(rejected(), [error() <= 0.15])
    policy = solve(problem, evidence, labels=labels if with_labels else None, margin=margin)
    return policy, evidence, labels


@pytest.mark.slow
def test_a_later_report_keeps_the_margin_of_the_fit(tmp_path):
    policy, evidence, labels = fit("auto")
    policy.save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.card.options == {"margin": "auto", "labels": True, "groups": [], "calibrate": "auto"}
    untold = replace(loaded, card=replace(loaded.card, options={}))
    pages = [
        report(one, evidence, labels=labels, levels=3, created="today", **given).html
        for one, given in ((loaded, {}), (untold, {"margin": "auto"}), (untold, {"margin": 0.0}))
    ]
    pages = [re.sub(r"[0-9a-f]{64}", "a hash", page) for page in pages]  # the card is a part of the file
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


def test_a_file_without_options_is_read_and_reported_without_a_margin(tmp_path):
    policy, evidence, labels = fit(1.0)
    path = tmp_path / "policy.json"
    policy.save(path)
    content = json.loads(path.read_text())
    assert content["card"].pop("options")["margin"] == 1.0
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": compute_digest(content)}))
    loaded = Policy.load(path)
    assert loaded.card.options == {}
    pages = [
        report(one, evidence, labels=labels, levels=3, created="today", **given).html
        for one, given in ((loaded, {}), (loaded, {"margin": 0.0}))
    ]
    assert pages[0] == pages[1]


def test_curves_of_a_policy_chosen_with_a_margin_alone_do_not_use_labels():
    policy, evidence, labels = fit(1.0, with_labels=False)
    html = report(policy, evidence, labels=labels, levels=3).html
    assert "The curves below were computed without" not in html
