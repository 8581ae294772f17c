"""Exported files, run by an interpreter that has nothing but the standard library."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas
import pytest

from bylaw import Columns, Evidence, OptionError, Problem, custom, error, rejected, selected, solve
from bylaw.export import to_python
from helpers.export_cases import AWKWARD_CASES, REAL_CASES, check

RUN = """
import importlib.util, json, sys
assert importlib.util.find_spec("numpy") is None
sys.path.insert(0, sys.argv[1])
import policy
asked = json.load(sys.stdin)
distribution = [policy.probabilities(row) for row in asked["rows"]]
decisions = [policy.decide(row, row["id"], **asked["options"]) for row in asked["rows"]]
print(json.dumps([distribution, decisions, policy.ACTIONS, policy.DIGEST]))
"""


def run(folder, source, rows, **options):
    """(distribution, decisions, actions, digest), by a bare interpreter."""
    (folder / "policy.py").write_text(source, encoding="utf-8")
    asked = json.dumps({"rows": rows, "options": options})
    bare = subprocess.run(
        [sys.executable, "-I", "-S", "-c", RUN, str(folder)],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert bare.returncode == 0, bare.stderr
    return json.loads(bare.stdout)


def as_decided(case, decisions):
    if case.policy.action_space.kind == "sets":
        return np.array([[label in chosen for label in case.policy.actions] for chosen in decisions])
    if len({type(action) for action in case.policy.actions}) == 1:
        return np.array(decisions)
    return np.array(decisions, dtype=object)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*AWKWARD_CASES, *REAL_CASES])
def test_the_law_and_every_decision_are_the_policys(name, tmp_path):
    case = {**AWKWARD_CASES, **REAL_CASES}[name]()
    source = to_python(case.policy, case.columns)
    distribution, decisions, actions, digest = run(tmp_path, source, case.frame.to_dict("records"))
    check(case, np.array(distribution), as_decided(case, decisions))
    assert tuple(actions) == case.policy.actions
    assert digest == case.policy.digest


def test_another_key(tmp_path):
    case = AWKWARD_CASES["everything"]()
    rows = case.frame.to_dict("records")
    distribution, decisions, _, _ = run(
        tmp_path, to_python(case.policy, case.columns), rows, key="release 'ü'"
    )
    check(case, np.array(distribution), as_decided(case, decisions), "release 'ü'")


@pytest.mark.slow
@pytest.mark.parametrize("name", AWKWARD_CASES)
def test_only_the_standard_library_is_imported(name):
    case = AWKWARD_CASES[name]()
    tree = ast.parse(to_python(case.policy, case.columns))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "hashlib", "itertools", "math", "typing"}


def module(source):
    namespace = {}
    exec(compile(source, "policy.py", "exec"), namespace)
    return namespace


def test_default_names_of_columns():
    case = AWKWARD_CASES["everything"]()
    exported = module(to_python(case.policy))
    names = dict(
        zip(exported["COLUMNS"], module(to_python(case.policy, case.columns))["COLUMNS"], strict=True)
    )
    assert list(names)[:7] == ["0", "1", "2", "race=b", "race=w", "race=b, label=0", "race=b, label=1"]
    assert {"sex", "dept", "old", "visit: 0", "visit: reject"} <= set(names)
    rows = [{name: row[mine] for name, mine in names.items()} for row in case.frame.to_dict("records")]
    check(case, np.array([exported["probabilities"](row) for row in rows]), case.decisions())


BROKEN = [
    ("sex", "X", r"'sex' must be one of \['F', 'M'\], got 'X'"),
    ("sex", None, "must have a value for 'sex'"),
    ("old", 9, "'old' must be one of .*, got 9"),
    ("p1", None, "must have a value for 'p1'"),
    ("p1", float("nan"), "must be a finite number"),
    ("p1", "much", "'p1' must be a finite number, got 'much'"),
    ("p0", -0.01, "'p0' must be a probability, got -0.01"),
    ("p2", 0.99999, "sum to"),
    ("j01", 0.99999, "sum to"),
    ("c2", float("inf"), "'c2' must be a finite number, got inf"),
]


@pytest.mark.parametrize(("column", "value", "message"), BROKEN)
def test_rows_that_the_policy_refuses_are_refused_by_name(column, value, message):
    case = AWKWARD_CASES["everything"]()
    exported = module(to_python(case.policy, case.columns))
    row = case.frame.to_dict("records")[5]
    exported["decide"](row, 5)
    with pytest.raises(ValueError, match=message):
        exported["decide"]({**row, column: value}, 5)
    if value is None:
        with pytest.raises(ValueError, match=message):
            exported["probabilities"]({name: cell for name, cell in row.items() if name != column})


@pytest.mark.parametrize("bad", [1.5, None, True, b"a"])
def test_ids_have_one_spelling(bad):
    case = AWKWARD_CASES["decided"]()
    exported = module(to_python(case.policy, case.columns))
    with pytest.raises(ValueError, match="text or a whole number"):
        exported["decide"](case.frame.to_dict("records")[0], bad)


def test_scores_that_overflow_are_refused():
    case = AWKWARD_CASES["everything"]()
    exported = module(to_python(case.policy, case.columns))
    row = case.frame.to_dict("records")[0] | {"c0": 1e308, "c1": -1e308, "c2": 1e308, "c3": -1e308}
    with pytest.raises(ValueError, match="overflow"):
        exported["probabilities"](row)


def test_the_file_says_what_it_is():
    case = AWKWARD_CASES["everything"]()
    source = to_python(case.policy, case.columns)
    assert f"# digest {case.policy.digest}" in source
    assert "# subject to rejected() <= 0.1" in source


def test_names_must_differ():
    evidence = Evidence([[0.5, 0.5]] * 4, classes=["sex", "b"], groups={"sex": ["F", "M"] * 2})
    policy = solve(Problem(error(), [selected("b").given(sex="F") <= 0.4]), evidence)
    with pytest.raises(OptionError, match=r"names of columns must differ, got several columns \['sex'\]"):
        to_python(policy)


def test_functions_stay_in_python():
    evidence = Evidence([[0.2, 0.8]] * 3)
    policy = solve(Problem(error() + custom(lambda rows: rows.probabilities, name="f")), evidence)
    with pytest.raises(OptionError, match="cannot be exported"):
        to_python(policy)


def test_combinations_of_unknown_groups_need_columns():
    case = AWKWARD_CASES["unknown_together"]()
    with pytest.raises(OptionError, match="depends jointly on race and sex"):
        to_python(case.policy)


def test_earlier_models_with_numbers_may_reject(tmp_path):
    """Then their column is of text."""
    case = AWKWARD_CASES["everything"]()
    old = case.frame["old"].astype(object)
    old[::3] = "reject"
    rows = case.frame.assign(old=old.astype(str))
    evidence = case.evidence.with_columns(
        references=Evidence(
            case.evidence.probabilities, references={"old": rows["old"].to_numpy()}
        ).references
    )
    distribution, *_ = run(tmp_path, to_python(case.policy, case.columns), rows.to_dict("records"))
    np.testing.assert_allclose(distribution, case.policy.probabilities(evidence), atol=1e-9)


def test_a_column_in_two_roles_must_serve_both():
    """What an earlier model said is a group here, too; the group was never "b"."""
    P = np.random.default_rng(0).dirichlet([1, 1], 60)
    columns = Columns(["p", "q"], ["a", "b"], groups={"said": "old"}, references={"old": "old"})
    rows = pandas.DataFrame({"p": P[:, 0], "q": P[:, 1], "old": np.where(P[:, 0] > 0.5, "a", "reject")})
    rules = ["disagreement('old') <= 0.9", "selected('a').given(said='a') >= 0.9"]
    policy = solve(Problem(error(), rules), columns.evidence(rows))
    module: dict = {}
    exec(to_python(policy, columns), module)
    assert module["KNOWN"] == {"old": ("a", "reject")}
    with pytest.raises(ValueError, match=r"'old' must be one of .*, got 'b'"):
        module["probabilities"]({"p": 0.5, "q": 0.5, "old": "b"})


def test_policies_without_weights_are_fair_coins():
    evidence = Evidence([[0.2, 0.8]] * 3)
    policy = solve(Problem(error()), evidence)
    still = replace(policy, score_matrix=0 * policy.score_matrix)
    exported = module(to_python(still, Columns(["a", "b"], classes=[0, 1])))
    assert exported["probabilities"]({"a": 0.2, "b": 0.8}) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("row", "accepted"),
    [
        ([0.7, 0.3 - 9e-5], True),
        ([0.7, 0.3 + 9e-5], True),
        ([0.7, 0.3 - 2e-4], False),
        ([1.0, -1e-10], True),
        ([1.0 + 1e-6, -1e-6], False),
    ],
)
def test_probabilities_are_admitted_as_evidence_admits_them(row, accepted):
    policy = solve(Problem(error(), [rejected() <= 0.5]), Evidence([[0.7, 0.3], [0.2, 0.8]]))
    exported: dict = {}
    exec(to_python(policy, Columns(["a", "b"], classes=[0, 1])), exported)
    for decide in (lambda: Evidence([row]), lambda: exported["probabilities"]({"a": row[0], "b": row[1]})):
        if accepted:
            assert decide() is not None
        else:
            with pytest.raises(ValueError, match=r"sum|outside|probability"):
                decide()


def test_calibrated_probabilities_get_names_that_no_column_has():
    rng = np.random.default_rng(4)
    yes, sex = rng.beta(1, 2, 400), rng.choice(["F", "M"], 400)
    frame = pandas.DataFrame({"p": 1 - yes, "q": yes, "calibrated p": sex})
    columns = Columns(["p", "q"], ["no", "yes"], groups={"sex": "calibrated p"})
    labels = np.where(rng.random(400) < yes**2, "yes", "no")
    problem = Problem(error(), [selected("yes").given(sex="F") >= 0.4])
    policy = solve(problem, columns.evidence(frame), labels=labels, calibrate="temperature")
    exported = module(to_python(policy, columns))
    found = [exported["probabilities"](row) for row in frame.to_dict("records")]
    np.testing.assert_allclose(found, policy.probabilities(columns.evidence(frame)), atol=1e-9)
