"""Values on their way through files: types that a CSV file does not have, decisions that come back."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

from bylaw import Policy


def scores(rows=600, seed=0, **columns):
    """Three classes."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet([1, 1, 1], rows)
    given = {f"p_{k}": chances[:, k] for k in range(3)}
    return pyarrow.table({"id": np.arange(rows), **given, **columns})


def written(table, name):
    """As Parquet and as CSV."""
    parquet.write_table(table, f"{name}.parquet")
    pyarrow.csv.write_csv(table, f"{name}.csv")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_codes_keep_their_zeros(ending, folder, bylaw):
    """01 and 1 are two branches."""
    branch = np.array(["01", "1", "2"])[np.arange(600) % 3].tolist()
    written(scores(branch=branch), "t")
    rule = ["--rule", "selected(0).given(branch='01') >= 0.4"]
    assert bylaw("fit", f"t.{ending}", *rule, "-o", "p.json").code == 0
    assert Policy.load("p.json").feature_map.attributes["branch"].values == ("01", "1", "2")
    for other in ("csv", "parquet"):
        assert bylaw("decide", "p.json", f"t.{other}", "-o", f"d.{other}.parquet").code == 0
    assert (
        parquet.read_table("d.csv.parquet")["decision"] == parquet.read_table("d.parquet.parquet")["decision"]
    )


def test_a_batch_with_some_of_the_values_is_read_like_the_fit(folder, bylaw):
    """Groups and labels of text are text, also where a file has only those that look like numbers."""
    group = np.array(["1", "2", "X"])[np.arange(600) % 3].tolist()
    written(scores(group=group), "t")
    assert bylaw("fit", "t.csv", "--rule", "demographic_parity('group', tol=0.05)", "-o", "p.json").code == 0
    written(scores(group=["1", "2"] * 300, seed=1), "new")
    assert bylaw("decide", "p.json", "new.csv", "-o", "d.csv").code == 0, "1 and 2 are known"
    table = scores().rename_columns(["id", "p_1", "p_2+", "p_none"])
    written(table.append_column("label", pyarrow.array(["1"] * 600)), "labels")
    answer = bylaw("fit", "labels.csv", "--rule", "rejected() <= 0.1", "-o", "q.json")
    assert answer.code == 0, answer.err


def test_what_was_decided_is_the_reference_of_the_next_release(folder, bylaw):
    written(scores(), "t")
    assert bylaw("fit", "t.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json").code == 0
    for ending in ("csv", "parquet"):
        assert bylaw("decide", "p.json", f"t.{ending}", "-o", f"last.{ending}").code == 0
        read = pyarrow.csv.read_csv if ending == "csv" else parquet.read_table
        table = scores().append_column("last", read(f"last.{ending}")["decision"])
        written(table, "next")
        rules = ["--rule", "disagreement('last') <= 0.15", "--rule", "rejected() <= 0.1"]
        assert bylaw("fit", f"next.{ending}", *rules, "-o", "q.json").code == 0


@pytest.mark.parametrize(
    ("names", "classes"),
    [(["p_True", "p_False"], None), (["p_a", "p_b"], [1.0, 0.5]), (["p_0", "p_1"], None)],
)
def test_decisions_come_back_from_csv(names, classes, folder, bylaw):
    yes = np.random.default_rng(0).random(600)
    table = pyarrow.table({"id": np.arange(600), names[0]: yes, names[1]: 1 - yes})
    written(table, "t")
    columns = "" if classes is None else f"probabilities = {json.dumps(names)}\nclasses = {classes}\n"
    (folder / "r.toml").write_text(f'rules = ["error() <= 0.4"]\n[columns]\n{columns}')
    assert bylaw("fit", "t.parquet", "--rules", "r.toml", "-o", "p.json").code == 0
    assert bylaw("decide", "p.json", "t.parquet", "-o", "d.csv").code == 0
    log = table.append_column("decision", pyarrow.csv.read_csv("d.csv")["decision"])
    pyarrow.csv.write_csv(log, "log.csv")
    rule = ["--rule", f"selected({Policy.load('p.json').actions[0]!r}) >= 0.1"]
    answer = bylaw(
        "audit", "p.json", "log.csv", "--decisions", "decision", *rule, "--fitted-rows", "estimate"
    )
    assert answer.code in (0, 4), answer.err
    assert "estimate 0." in answer.out, answer.err


def test_sets_that_are_missing_or_cannot_be_told_apart(folder, bylaw):
    table = scores().rename_columns(["id", "p_a", "p_b", "p_a;b"])
    parquet.write_table(table, "t.parquet")
    sets = ["--minimize", "miscoverage()", "--rule", "size() <= 1.5"]
    assert bylaw("fit", "t.parquet", *sets, "-o", "p.json").code == 0
    answer = bylaw("decide", "p.json", "t.parquet", "-o", "d.csv")
    assert answer.code == 2
    assert "semicolon" in answer.err
    assert not (folder / "d.csv").exists()
    assert bylaw("decide", "p.json", "t.parquet", "-o", "d.parquet").code == 0
    decided = parquet.read_table("d.parquet")["decision"].to_pylist()
    new = scores(seed=0).rename_columns(["id", "p_a", "p_b", "p_a;b"])
    audit = [
        "audit",
        "p.json",
        "log.parquet",
        "--decisions",
        "decision",
        "--fitted-rows",
        "estimate",
        "--json",
    ]
    parquet.write_table(new.append_column("decision", pyarrow.array(decided)), "log.parquet")
    whole = json.loads(bylaw(*audit).out)["rules"][0]["estimate"]
    assert whole == pytest.approx(np.mean([len(row) for row in decided]))
    missing = [None, *decided[1:]]
    parquet.write_table(new.append_column("decision", pyarrow.array(missing)), "log.parquet")
    answer = bylaw(*audit)
    assert answer.code == 2
    assert "every row must have a decision, got none in row 0" in answer.err


def test_new_rows_need_no_truth_and_nobody_asks_for_it(policy, folder, bylaw):
    parquet.write_table(parquet.read_table("new.parquet").drop(["outcome"]), "bare.parquet")
    answer = bylaw("decide", "policy.json", "bare.parquet", "-o", "d.parquet")
    assert (answer.code, answer.err) == (0, "")


@pytest.mark.slow
def test_weights_are_not_needed_to_decide(folder, bylaw):
    weighted = scores(weight=np.linspace(1, 2, 600))
    written(weighted, "t")
    assert bylaw("fit", "t.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json").code == 0
    parquet.write_table(scores(weight=np.zeros(600)), "zero.parquet")
    answer = bylaw("decide", "p.json", "zero.parquet", "-o", "d.parquet")
    assert (answer.code, answer.err) == (0, "")
    row = '{"p_0": 0.2, "p_1": 0.5, "p_2": 0.3}'
    assert bylaw("explain", "p.json", "--row", row).code == 0


def test_the_command_line_says_whether_a_group_is_known(folder, bylaw):
    sex = np.array(["F", "M"])[np.arange(600) % 2]
    chance = np.where(sex == "F", 0.9, 0.2)
    written(scores(sex=sex.tolist(), sex_F=chance, sex_M=1 - chance), "t")
    (folder / "r.toml").write_text(
        "rules = [\"demographic_parity('sex', tol=0.05)\"]\n[columns]\n"
        "group_probabilities = { sex = 'sex_*' }\ntrue_groups = ['sex']\n"
    )
    assert bylaw("fit", "t.parquet", "--rules", "r.toml", "-o", "hidden.json").code == 0
    assert not Policy.load("hidden.json").feature_map.attributes["sex"].known
    assert bylaw("fit", "t.parquet", "--rules", "r.toml", "--group", "sex", "-o", "known.json").code == 0
    assert Policy.load("known.json").feature_map.attributes["sex"].known
    answer = bylaw("fit", "t.parquet", "--rule", "demographic_parity('sex', tol=0.05)", "-o", "x.json")
    assert answer.code == 2
    assert "--group sex or --group-probabilities" in answer.err


def test_advice_is_that_of_the_command(folder, bylaw):
    rounded = scores().set_column(1, "p_0", pyarrow.array(np.full(600, 0.5)))
    parquet.write_table(scores(), "t.parquet")
    parquet.write_table(rounded, "rounded.parquet")
    assert bylaw("fit", "t.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json").code == 0
    answer = bylaw("decide", "p.json", "rounded.parquet", "-o", "d.csv")
    assert "pass --normalize" in answer.err
    assert bylaw("decide", "p.json", "rounded.parquet", "-o", "d.csv", "--normalize").code == 0
    answer = bylaw("report", "p.json", "t.parquet", "--held-out", "t.parquet", "-o", "r.html")
    assert "`bylaw audit --fitted-rows estimate`" in answer.err


def test_limits_of_a_custom_cost_are_said(folder, bylaw):
    costs = {f"visit_{a}": np.linspace(0, 1, 600) for a in (0, 1, 2, "reject")}
    parquet.write_table(scores(**costs), "t.parquet")
    rules = ["--rule", "custom('visit') <= 0.9", "--rule", "rejected() <= 0.1"]
    assert bylaw("fit", "t.parquet", *rules, "-o", "p.json").code == 0
    parquet.write_table(
        scores(6000, seed=1, **{n: np.resize(c, 6000) for n, c in costs.items()}), "n.parquet"
    )
    answer = bylaw("audit", "p.json", "n.parquet", "--rule", "custom('visit') <= 0.9")
    assert answer.code == 4
    assert "--outcomes 'visit=PATTERN'" in answer.out
    assert "estimate 0.5000 as predicted" in answer.out
    known = ["audit", "p.json", "n.parquet", "--rule", "custom('visit') <= 0.9", "--outcomes", "visit=known"]
    answer = bylaw(*known)
    assert answer.code == 4
    assert "--limit visit=LEAST:MOST" in answer.out
    assert bylaw(*known, "--limit", "visit=0:1").code == 0
    assert "NAME=LEAST:MOST" in bylaw("audit", "p.json", "n.parquet", "--limit", "visit=0").err


@pytest.mark.slow
def test_costs_are_judged_by_what_they_turned_out_to_be(folder, bylaw):
    """Predicted to be 0.5, they were 1 for every action, where they were seen at all."""
    names = (0, 1, 2, "reject")
    costs = {f"visit_{a}": np.full(600, 0.5) for a in names}
    parquet.write_table(scores(**costs), "t.parquet")
    assert (
        bylaw(
            "fit",
            "t.parquet",
            "--rule",
            "custom('visit') <= 0.9",
            "--rule",
            "rejected() <= 0.1",
            "-o",
            "p.json",
        ).code
        == 0
    )
    turned_out = np.where(np.arange(6000) % 3, 1.0, np.nan)
    more = {
        **{f"visit_{a}": np.full(6000, 0.5) for a in names},
        **{f"seen_{a}_visit": turned_out for a in names},
    }
    parquet.write_table(scores(6000, seed=1, **more), "n.parquet")
    judge = ["audit", "p.json", "n.parquet", "--rule", "custom('visit') <= 0.9", "--limit", "visit=0:1"]
    for columns in ("seen_*_visit", "seen_0_visit,seen_1_visit,seen_2_visit,seen_reject_visit"):
        answer = bylaw(*judge, "--outcomes", f"visit={columns}")
        assert answer.code == 1, answer.err
        assert "estimate 1.0000, 95 % bounds" in answer.out
        assert "custom('visit') is observed on 4,000 of 6,000 rows" in answer.out
    for wrong, message in {
        "vist=seen_*_visit": "no rule uses custom('vist')",
        "visit=seen_*": "must have a column for 0",
        "visit=seen_0_visit,seen_1_visit": "must have 4 columns",
        "visit=": "--outcomes must be NAME=COLUMN",
    }.items():
        answer = bylaw(*judge, "--outcomes", wrong)
        assert answer.code == 2
        assert message in answer.err
    fit = ["fit", "t.parquet", "--rule", "custom('visit') <= 0.9", "-o", "q.json"]
    assert "--outcomes has no effect without" in bylaw(*fit, "--outcomes", "visit=known").err


def test_exports_to_standard_output(policy, bylaw):
    assert bylaw("export", "python", "policy.json", "-o", "-").out.startswith('"""A policy')
    assert not policy.with_name("-").exists()
    answer = bylaw("export", "python", "policy.json", "-o", "/dev/stdout")
    assert answer.code == 2
    assert "not a regular file" in answer.err


def test_onnx_knows_how_the_policy_was_fitted(folder, bylaw):
    onnx = pytest.importorskip("onnx")
    old = {f"old_{k}": scores(seed=3)[f"p_{k}"] for k in range(3)}
    parquet.write_table(scores(**old), "t.parquet")
    assert bylaw("fit", "t.parquet", "--rule", "disagreement('old') <= 0.5", "-o", "p.json").code == 0
    assert bylaw("export", "onnx", "p.json", "-o", "p.onnx").code == 0
    inputs = {i.name: len(i.type.tensor_type.shape.dim) for i in onnx.load("p.onnx").graph.input}
    assert inputs == {"probabilities": 2, "reference_old": 2}
    rules = ["--rule", "rejected() <= 0.1"]
    assert bylaw("fit", "t.parquet", *rules, "-o", "q.json", "--normalize").code == 0
    answer = bylaw("export", "onnx", "q.json", "-o", "q.onnx")
    assert answer.code == 2
    assert "divide them by their sum" in answer.err


@pytest.mark.parametrize(
    "columns",
    [
        "probabilities = []",
        "group_probabilities = { sex = 5 }",
        "references = { old = 5 }",
        "costs = { visit = [1, 2] }",
        "joint = { sex = [[1]] }",
    ],
)
def test_nonsense_in_a_rules_file_is_no_fault_of_bylaw(columns, folder, bylaw):
    (folder / "odd.toml").write_text(f'rules = ["rejected() <= 0.1"]\n[columns]\n{columns}\n')
    answer = bylaw("fit", "scores.parquet", "--rules", "odd.toml", "-o", "p.json")
    assert answer.code == 2, answer.err
    assert columns.split()[0] in answer.err


def test_a_rules_file_with_a_byte_order_mark(folder, bylaw):
    (folder / "bom.toml").write_text('rules = ["rejected() <= 0.1"]\n', encoding="utf-8-sig")
    assert bylaw("fit", "scores.parquet", "--rules", "bom.toml", "-o", "p.json").code == 0


def test_a_link_that_leads_nowhere(folder, bylaw):
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    answer = bylaw("fit", "scores.parquet", "--rule", "rejected() <= 0.1", "-o", "a")
    assert answer.code == 2
    assert "broken link" in answer.err


@pytest.mark.slow
def test_a_value_may_be_said_in_another_type_that_equals_it(folder, bylaw):
    """Otherwise a policy is written that no command can read."""
    written(scores(g=np.array([1.5, 2.0])[np.arange(600) % 2], flag=[True, False] * 300), "t")
    for rule in (
        "selected(0).given(g=2) <= 0.5",
        "selected(0).given(flag=1) <= 0.5",
        "error().given(label=1.0) <= 0.9",
    ):
        assert bylaw("fit", "t.csv", "--rule", rule, "-o", "p.json").code == 0
        answer = bylaw("decide", "p.json", "t.csv", "-o", "d.csv")
        assert answer.code == 0, answer.err


def test_true_groups_of_a_csv_are_those_of_the_probabilities(folder, bylaw):
    truth = np.array(["1", "2"])[np.arange(600) % 2]
    chance = np.where(truth == "1", 0.8, 0.3)
    written(scores(race_1=chance, race_2=1 - chance, truth=truth.tolist()), "t")
    (folder / "r.toml").write_text(
        "rules = [\"demographic_parity('race', tol=0.05)\"]\n[columns]\n"
        "group_probabilities = { race = { '1' = 'race_1', '2' = 'race_2' } }\n"
        "true_groups = { race = 'truth' }\n"
    )
    for ending in ("csv", "parquet"):
        assert bylaw("fit", f"t.{ending}", "--rules", "r.toml", "-o", f"{ending}.json").code == 0
    assert Policy.load("csv.json").digest == Policy.load("parquet.json").digest


def test_an_inline_row_takes_flags_and_what_it_does_not_need(folder, bylaw):
    parquet.write_table(scores(), "t.parquet")
    assert bylaw("fit", "t.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json").code == 0
    row = {"q_0": 0.2, "q_1": 0.5, "q_2": 0.4, "id": 10**30, "extra": [1, "a"], "huge": 10**30}
    explain = ["explain", "p.json", "--row", json.dumps(row), "--scores", "q_0,q_1,q_2", "--json"]
    assert "pass --normalize" in bylaw(*explain).err
    answer = json.loads(bylaw(*explain, "--normalize").out)
    assert answer["id"] == 10**30
    assert answer["decision"] in (0, 1, 2, "reject")


@pytest.mark.slow
def test_roles_that_do_not_count_are_not_asked_for(folder, bylaw):
    table = scores(sex=["F", "M"] * 300)
    parquet.write_table(table, "t.parquet")
    rule = ["--rule", "demographic_parity('sex', tol=0.2)"]
    assert bylaw("fit", "t.parquet", *rule, "-o", "p.json").code == 0
    odd = scores(4000, seed=1, sex=["F", "M"] * 2000, weight=np.ones(4000), weights=np.ones(4000))
    parquet.write_table(odd, "weights.parquet")
    answer = bylaw("audit", "p.json", "weights.parquet")
    assert answer.code == 0, answer.err
    assert "weight" not in answer.err
    truth = pyarrow.array([0, 1, 2] * 200)
    two = table.append_column("y", truth).append_column("label", truth)
    parquet.write_table(two, "labels.parquet")
    for command in (["frontier", "labels.parquet", "--levels", "0.1,0.2"], ["diagnose", "labels.parquet"]):
        assert "the column of the label must be chosen from label and y" in bylaw(*command, *rule).err
        assert bylaw(*command, *rule, "--label", "y").code == 0


def test_rules_of_another_file_bring_their_columns(policy, folder, bylaw):
    held = parquet.read_table("held.parquet")
    parquet.write_table(held.append_column("before", held["outcome"]), "log.parquet")
    (folder / "other.toml").write_text(
        "rules = [\"disagreement('old') <= 0.9\"]\n[columns]\nreferences = { old = 'before' }\n"
    )
    answer = bylaw("audit", "policy.json", "log.parquet", "--rules", "other.toml")
    assert answer.code == 0, answer.err
    assert "disagreement('old') <= 0.9: certified" in answer.out
    (folder / "none.toml").write_text("rules = []\n")
    answer = bylaw("audit", "policy.json", "log.parquet", "--rules", "none.toml")
    assert answer.code == 2
    assert "must have rules to test" in answer.err


def test_flags_that_contradict_each_other(folder, bylaw):
    flags = [
        "--group",
        "sex",
        "--group-probabilities",
        "sex=p_*",
        "--rule",
        "demographic_parity('sex', tol=0.1)",
    ]
    answer = bylaw("fit", "scores.parquet", *flags, "-o", "p.json")
    assert answer.code == 2
    assert "known (--group) or unknown" in answer.err
    fit = ["fit", "scores.parquet", "--rule", "rejected() <= 0.1", "--certify", "held.parquet"]
    answer = bylaw(*fit, "--limit", "visit=0:1", "-o", "p.json")
    assert answer.code == 2
    assert "no rule uses custom('visit')" in answer.err
