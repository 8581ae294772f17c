"""The digest of the whole file covers what the digest of the decisions does not."""

import hashlib
import json

import numpy as np
import pytest

from bylaw import Evidence, Policy, Problem, error, rejected, solve
from bylaw.policy import compute_digest
from bylaw.report import report


def fit():
    chance = np.linspace(0.02, 0.98, 49)
    evidence = Evidence(np.column_stack([1 - chance, chance]))
    return solve(Problem(error(), [rejected() <= 0.1]), evidence), evidence


def test_the_file_digest_is_that_of_the_saved_file(tmp_path):
    policy, _ = fit()
    path = tmp_path / "policy.json"
    policy.save(path)
    assert policy.file_digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert Policy.load(path).file_digest == policy.file_digest


def test_a_forged_rule_changes_the_file_digest_alone(tmp_path):
    policy, _ = fit()
    path = tmp_path / "policy.json"
    policy.save(path)
    content = json.loads(path.read_text())
    content["rules"] = ["rejected() <= 0.01"]
    del content["checksum"]
    path.write_text(json.dumps({**content, "checksum": compute_digest(content)}))
    forged = Policy.load(path)
    assert forged.digest == policy.digest
    assert forged.file_digest != policy.file_digest


@pytest.mark.slow
def test_the_command_line_and_the_report_state_it(bylaw, tmp_path):
    table, path, page = (tmp_path / name for name in ("rows.csv", "policy.json", "report.html"))
    table.write_text("p_a,p_b\n" + "\n".join(f"{x / 40},{1 - x / 40}" for x in range(1, 40)))
    fitted = bylaw("fit", table, "--rule", "rejected() <= 0.1", "-o", path, "--report", page)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"file sha256: {digest}" in fitted.out
    assert page.read_text().count(digest) == 2  # in the fingerprint and in the statement
    assert digest in bylaw("show", path).out
    assert json.loads(bylaw("show", path, "--json").out)["file_sha256"] == digest
    assert bylaw("report", path, table, "-o", page).code == 0
    assert digest in page.read_text()


def test_a_report_names_the_digest_that_it_is_given():
    policy, evidence = fit()
    assert "0123abc" in report(policy, evidence, levels=0, file_digest="0123abc").html
