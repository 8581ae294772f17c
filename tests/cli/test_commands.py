"""Every command, as somebody with a table of scores would call it."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest

from bylaw import Columns, Evidence, Policy, Problem, explain, rejected, solve
from bylaw.cli.commands import demo
from bylaw.errors import EvidenceError, Remedy
from bylaw.language import DEFINITIONS
from bylaw.language._problem import list_words
from bylaw.rows import TableFile
from bylaw.rows._table_files import open_writer


def evidence(path):
    rows = parquet.read_table(path)
    scores = np.column_stack([rows["p_no"], rows["p_yes"]])
    return Evidence(scores, classes=["no", "yes"], groups={"sex": rows["sex"].to_pylist()})


def test_fit_is_solve(policy, folder):
    saved, rows = Policy.load(policy), parquet.read_table("scores.parquet")
    problem = Problem("error()", ["demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"])
    same = solve(problem, evidence("scores.parquet"), labels=rows["outcome"].to_pylist())
    np.testing.assert_allclose(saved.score_matrix, same.score_matrix, atol=1e-9)
    assert saved.card.source == "scores.parquet"
    assert saved.card.columns["probabilities"] == ["p_no", "p_yes"]


def test_fit_says_what_it_guessed_and_what_came_out(folder, bylaw):
    answer = bylaw("fit", "scores.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json")
    assert answer.code == 0
    assert "probabilities are p_*: the columns p_no, p_yes" in answer.err
    assert "label is the column outcome" in answer.err
    assert "3,000 rows: error(), observed, is" in answer.out
    assert "rejected() <= 0.1" in answer.out


@pytest.mark.slow
def test_fit_for_machines(folder, bylaw):
    answer = bylaw(
        "fit",
        "scores.parquet",
        "--rules",
        "rules.toml",
        "-o",
        "p.json",
        "--certify",
        "held.parquet",
        "--json",
    )
    found = json.loads(answer.out)
    assert found["hash"] == Policy.load("p.json").digest
    assert found["cost_after"] < found["cost_before"]
    assert found["certificate"]["confidence"] == 0.95
    assert found["certificate"]["rows"] == 40_000
    assert set(found["prices"]) == {"demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"}


def test_decisions_are_those_of_the_policy(policy, bylaw):
    answer = bylaw("decide", "policy.json", "new.parquet", "-o", "decisions.parquet", "--probabilities")
    assert answer.code == 0
    assert answer.out == "2,000 decisions: decisions.parquet\n"
    decided, chosen = parquet.read_table("decisions.parquet"), Policy.load(policy)
    assert decided.column_names == [
        "id",
        "decision",
        *(f"decision_p_{action}" for action in ("no", "yes", "reject")),
    ]
    rows = evidence("new.parquet")
    assert decided["decision"].to_pylist() == chosen.decide(rows, ids=range(2000)).tolist()
    distribution = np.column_stack([decided[name] for name in decided.column_names[2:]])
    np.testing.assert_array_equal(distribution, chosen.probabilities(rows))


@pytest.mark.parametrize("ending", ["csv", "arrow", "jsonl"])
def test_decisions_do_not_depend_on_the_format_or_the_order(ending, policy, bylaw):
    bylaw("decide", "policy.json", "new.parquet", "-o", "decisions.parquet")
    expected = parquet.read_table("decisions.parquet")
    rows = parquet.read_table("new.parquet").take(np.arange(1999, -1, -1))
    source, target = policy.with_name(f"rows.{ending}"), policy.with_name(f"out.{ending}")
    with open_writer(source, rows.schema) as write:
        for batch in rows.to_batches(max_chunksize=300):
            write(batch)
    assert bylaw("decide", "policy.json", source, "--id-column", "id", "-o", target).code == 0
    found = TableFile(target).read().sort_by("id")
    assert found.to_pydict() == expected.to_pydict()


def test_a_key_of_ones_own(policy, bylaw):
    for key, name in (("a", "one"), ("a", "two"), ("b", "three")):
        bylaw("decide", "policy.json", "new.parquet", "-o", f"{name}.csv", "--key", key)
    one, two, three = (policy.with_name(f"{name}.csv").read_text() for name in ("one", "two", "three"))
    assert one == two != three


@pytest.mark.slow
def test_audit_exit_codes_are_a_gate(policy, folder, bylaw):
    certified = bylaw("audit", "policy.json", "held.parquet", "--rule", "rejected() <= 0.15")
    violated = bylaw("audit", "policy.json", "held.parquet", "--rule", "rejected() <= 0.05")
    undecided = bylaw("audit", "policy.json", "held.parquet", "--rule", "rejected() <= 0.1")
    assert [certified.code, violated.code, undecided.code] == [0, 1, 4]
    assert "all rules together: certified" in certified.out
    assert re.search(r"about [\d,]+ rows would decide it", undecided.out)
    assert "would decide" not in certified.out
    fitted = bylaw("audit", "policy.json", "scores.parquet")
    assert fitted.code == 4
    assert "cannot certify it" in fitted.err
    estimate = bylaw("audit", "policy.json", "scores.parquet", "--fitted-rows", "estimate", "--json")
    assert (estimate.code, json.loads(estimate.out)["verdict"]) == (4, "estimated to hold")


@pytest.mark.slow
def test_what_was_decided_can_be_judged(policy, bylaw):
    bylaw("decide", "policy.json", "held.parquet", "-o", "decisions.parquet")
    rows = parquet.read_table("held.parquet")
    log = rows.append_column("decision", parquet.read_table("decisions.parquet")["decision"])
    parquet.write_table(log, "log.parquet")
    rule = ["--rule", "rejected() <= 0.15"]
    answer = bylaw("audit", "policy.json", "log.parquet", "--decisions", "decision", *rule, "--json")
    share = np.mean(np.array(log["decision"].to_pylist()) == "reject")
    assert answer.code == 0
    assert json.loads(answer.out)["rules"][0]["estimate"] == pytest.approx(share)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "ending"), [("numbers", "csv"), ("sets", "parquet"), ("sets", "jsonl")])
def test_an_audit_reads_what_decide_writes(kind, ending, folder, bylaw):
    rows = parquet.read_table("held.parquet").rename_columns(["id", "p_0", "p_1", "sex", "outcome"])
    rows = rows.set_column(
        4, "outcome", pyarrow.array([int(v == "yes") for v in rows["outcome"].to_pylist()])
    )
    parquet.write_table(rows, "numbers.parquet")
    rules = ["--rule", "rejected() <= 0.1"]
    if kind == "sets":
        rules = ["--minimize", "miscoverage()", "--rule", "size() <= 1.2"]
    parquet.write_table(rows.slice(0, 5000), "few.parquet")
    assert bylaw("fit", "few.parquet", *rules, "-o", "p.json").code == 0
    parquet.write_table(rows.slice(5000), "rest.parquet")
    assert bylaw("decide", "p.json", "rest.parquet", "-o", f"d.{ending}").code == 0
    taken = TableFile(folder / f"d.{ending}").read()["decision"]
    log = rows.slice(5000).append_column("decision", taken)
    with open_writer(folder / f"log.{ending}", log.schema) as write:
        for batch in log.combine_chunks().to_batches():
            write(batch)
    answer = bylaw("audit", "p.json", f"log.{ending}", "--decisions", "decision", "--json")
    (rule,) = json.loads(answer.out)["rules"]
    values = taken.to_pylist()
    if kind == "sets":
        counts = [
            len([v for v in row.split(";") if v]) if isinstance(row, str) else len(row or ())
            for row in values
        ]
        assert rule["estimate"] == pytest.approx(np.mean(counts))
    else:
        assert rule["estimate"] == pytest.approx(np.mean([str(v) == "reject" for v in values]))


@pytest.mark.slow
def test_a_certified_policy_gets_its_report(folder, bylaw):
    arguments = [
        "fit",
        "scores.parquet",
        "--rules",
        "rules.toml",
        "-o",
        "p.json",
        "--certify",
        "held.parquet",
    ]
    answer = bylaw(*arguments, "--report", "r.html", "--held-out", "new.parquet")
    assert answer.code == 0, answer.err
    page = (folder / "r.html").read_text()
    assert re.search(r"2,000\s+held-out cases, which had no part in choosing", page)
    assert bylaw(*arguments, "--report", "r.html").code == 0
    assert bylaw("report", "p.json", "scores.parquet", "-o", "s.html", "--title", "For <Ann>").code == 0
    assert "For &lt;Ann&gt;" in (folder / "s.html").read_text()


@pytest.mark.slow
def test_a_report_names_its_owner_model_and_tables(folder, bylaw):
    names = ["--title", "Loans", "--owner", "Credit risk", "--model-version", "2.3"]
    fit = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json"]
    answer = bylaw(*fit, "--report", "r.html", "--held-out", "new.parquet", *names)
    assert answer.code == 0, answer.err
    again = bylaw("report", "p.json", "scores.parquet", "--held-out", "new.parquet", "-o", "s.html", *names)
    assert again.code == 0, again.err
    for name in ("r.html", "s.html"):
        page = (folder / name).read_text()
        assert "<h1>Loans</h1>" in page
        for words in ("owned by Credit risk,", "model version “2.3”", "“scores.parquet”", "“new.parquet”"):
            assert words in page.split('id="sign"')[1], (name, words)


@pytest.mark.parametrize("flag", ["--title", "--owner", "--model-version"])
def test_names_of_a_report_need_a_report(flag, folder, bylaw):
    answer = bylaw("fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", flag, "x")
    assert answer.code == 2
    assert f"{flag} has no effect without --report" in answer.err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ZeroDivisionError("a chart"), "its report failed with an internal error of bylaw; please report it"),
        (
            EvidenceError("no labels", Remedy("pass_labels")),
            "no labels; name their column with --label COLUMN",
        ),
        (PermissionError("r.html is locked"), "its report failed: r.html is locked"),
    ],
)
def test_a_report_that_fails_does_not_lose_the_policy(fault, message, folder, bylaw, monkeypatch):
    def fail(*_, **__):
        raise fault

    monkeypatch.setattr("bylaw.report.report", fail)
    answer = bylaw(
        "fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--report", "r.html", "--json"
    )
    assert answer.code == json.loads(answer.out)["exit_code"] == 2
    assert "the policy is saved as p.json, but its report failed" in answer.err
    assert message in answer.err
    assert ("Traceback" in answer.err) == isinstance(fault, ZeroDivisionError)
    assert Policy.load("p.json").card.source == "scores.parquet"
    assert not (folder / "r.html").exists()


@pytest.mark.slow
def test_frontier_costs_less_where_more_is_allowed(folder, bylaw):
    pytest.importorskip("matplotlib")
    answer = bylaw(
        "frontier", "scores.parquet", "--rules", "rules.toml", "--sweep", "rejected()<=0.1",
        "--levels", "0:0.2:5", "-o", "frontier.csv", "--plot", "frontier.png", "--json",
    )  # fmt: skip
    costs = [point["cost"] for point in json.loads(answer.out)]
    assert answer.code == 0
    assert len(costs) == 5
    assert costs == sorted(costs, reverse=True)
    assert pyarrow.csv.read_csv("frontier.csv")["cost"].to_pylist() == costs
    assert (folder / "frontier.png").stat().st_size > 5000
    assert (
        "--sweep: the problem has no rule 'x'"
        in bylaw("frontier", "scores.parquet", "--rules", "rules.toml", "--sweep", "x").err
    )
    assert (
        "first:last:count"
        in bylaw("frontier", "scores.parquet", "--rules", "rules.toml", "--levels", "a").err
    )


@pytest.mark.slow
def test_diagnose_names_a_conflict(folder, bylaw):
    assert bylaw("diagnose", "scores.parquet", "--rules", "rules.toml").code == 0
    answer = bylaw(
        "diagnose", "scores.parquet", "--rule", "rejected() <= 0", "--rule", "error() <= 0.01", "--json"
    )
    found = json.loads(answer.out)
    assert answer.code == 1
    assert not found["feasible"]
    assert set(found["conflict"]) == {"rejected() <= 0", "error() <= 0.01"}
    fit = bylaw(
        "fit", "scores.parquet", "--rule", "rejected() <= 0", "--rule", "error() <= 0.01", "-o", "p.json"
    )
    assert fit.code == 1
    assert "conflict" in fit.err
    assert not (folder / "p.json").exists()


def test_explain_adds_up(policy, bylaw):
    by_number = json.loads(bylaw("explain", "policy.json", "new.parquet", "--row", 7, "--json").out)
    by_id = json.loads(bylaw("explain", "policy.json", "new.parquet", "--id", 7, "--json").out)
    row = parquet.read_table("new.parquet").slice(7, 1).to_pylist()[0]
    inline = json.loads(bylaw("explain", "policy.json", "--row", json.dumps(row), "--json").out)
    assert by_number == by_id == inline
    chosen = Policy.load(policy)
    distribution = chosen.probabilities(evidence("new.parquet"))[7]
    assert by_number["decision"] == chosen.decide(evidence("new.parquet"), ids=range(2000))[7]
    assert [line["probability"] for line in by_number["actions"]] == pytest.approx(distribution)
    for line in by_number["actions"]:
        rest = [v for k, v in line.items() if k not in ("row", "action", "probability", "score")]
        assert sum(rest) == pytest.approx(line["score"])
    text = bylaw("explain", "policy.json", "new.parquet", "--row", 7).out
    assert "the best decision" in text
    assert f"The id 7 draws: {by_number['decision']}" in text
    assert "(1)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new.parquet"], "one of --row NUMBER"),
        (["new.parquet", "--row", "-1"], "from 0"),
        (["--row", "{}", "--id", "5"], "a row must be given"),
        (["--row", "[" * 9000], "as JSON"),
        (["new.parquet", "--row", "9999"], "the number of rows of new.parquet, 2,000, got 9999"),
        (["new.parquet", "--id", "nobody"], "--id must be an id in new.parquet"),
        (["--row", "[1]"], "as JSON"),
        ([], "a row must be given"),
    ],
)
def test_explain_asks_for_a_row(arguments, message, policy, bylaw):
    answer = bylaw("explain", "policy.json", *arguments)
    assert answer.code == 2
    assert message in answer.err


def test_show_is_the_card(policy, bylaw):
    text, found = bylaw("show", "policy.json").out, json.loads(bylaw("show", "policy.json", "--json").out)
    assert f"on new rows, the paper's bound for all rules together adds {found['sampling']:.2g}" in text
    assert 0 < found["sampling"] < 1
    assert found["hash"] == Policy.load(policy).digest
    assert (found["source"], found["rows"]) == ("scores.parquet", [3000])
    assert found["actions"] == ["no", "yes", "reject"]
    for part in (found["hash"], "scores.parquet, 3,000 rows", "rejected() <= 0.1", "numpy", "certificate"):
        assert part in text


def test_exports_are_those_of_the_library(policy, folder, bylaw):
    from bylaw.export import to_sql

    for command, name in (
        (["sql", "--dialect", "duckdb", "--table", "rows"], "policy.sql"),
        (["python"], "policy.py"),
        (["onnx"], "policy.onnx"),
    ):
        answer = bylaw("export", command[0], "policy.json", *command[1:], "-o", name)
        assert (answer.code, answer.out) == (0, f"written: {name}\n")
    chosen = Policy.load(policy)
    columns = Columns(["p_no", "p_yes"], ["no", "yes"], groups={"sex": "sex"})
    statement = to_sql(chosen, columns, dialect="duckdb", table="rows", id_column="id")
    assert (folder / "policy.sql").read_text() == statement
    code = runpy.run_path("policy.py")
    first = parquet.read_table("new.parquet").to_pylist()[:50]
    expected = chosen.decide(evidence("new.parquet"), ids=range(2000))[:50]
    assert [code["decide"](row, row["id"]) for row in first] == expected.tolist()
    assert (folder / "policy.onnx").stat().st_size > 500
    assert bylaw("export", "sql", "policy.json", "--dialect", "oracle", "-o", "x.sql").code == 2


def test_rules_is_the_language(bylaw, folder):
    text = bylaw("rules").out
    assert "four-fifths" in text
    assert "probabilities = " in text
    (folder / "mine.toml").write_text(bylaw("rules", "--example").out.replace("race", "sex"))
    assert bylaw("fit", "scores.parquet", "--rules", "mine.toml", "-o", "p.json").code == 0


def test_a_new_rate_is_listed_by_itself(bylaw, monkeypatch):
    def surprised(column):
        """P(the decision surprises
        whoever reads `column`).

        More about it.
        """

    invented = replace(DEFINITIONS["error"], constructor=surprised)
    monkeypatch.setitem(DEFINITIONS, "surprised", invented)
    text = bylaw("rules").out
    read = re.sub(r"\s+", " ", text)  # wrapped at the width of the terminal
    assert "surprised(column) P(the decision surprises whoever reads `column`). " in read
    for word in list_words():
        assert f"  {word}(" in text


def test_sets_are_lists_of_labels(folder, bylaw):
    rules = ["--minimize", "miscoverage()", "--rule", "size() <= 1.2"]
    assert bylaw("fit", "scores.parquet", *rules, "-o", "p.json").code == 0
    bylaw("decide", "p.json", "new.parquet", "-o", "sets.parquet")
    bylaw("decide", "p.json", "new.parquet", "-o", "sets.csv")
    lists = parquet.read_table("sets.parquet")["decision"].to_pylist()
    expected = Policy.load("p.json").decide(evidence("new.parquet").with_columns(groups={}), ids=range(2000))
    assert [len(row) for row in lists] == expected.sum(axis=1).tolist()
    text = pyarrow.csv.read_csv(
        "sets.csv", convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=False)
    )
    assert text["decision"].to_pylist() == [";".join(row) for row in lists]


@pytest.mark.slow
def test_help_has_an_example_for_each_command(bylaw):
    commands = (
        "fit",
        "decide",
        "audit",
        "report",
        "frontier",
        "diagnose",
        "explain",
        "show",
        "rules",
        "demo",
    )
    for command in commands:
        answer = bylaw(command, "--help")
        assert answer.code == 0
        assert f"bylaw {command}" in answer.out
        assert "Example" in answer.out


def test_numbers_beside_a_rejection_are_text(folder, bylaw):
    rows = parquet.read_table("scores.parquet").rename_columns(["id", "p_0", "p_1", "sex", "outcome"])
    parquet.write_table(rows.drop(["outcome"]), "numbers.parquet")
    bylaw("fit", "numbers.parquet", "--rule", str(rejected() <= 0.1), "-o", "p.json")
    bylaw("decide", "p.json", "numbers.parquet", "-o", "d.parquet")
    assert set(parquet.read_table("d.parquet")["decision"].to_pylist()) == {"0", "1", "reject"}


def test_an_export_without_columns_of_both_asks_for_a_fit(folder, bylaw):
    """A policy of Python that reads P(group, label | x), whose columns have no obvious names."""
    rows = parquet.read_table("scores.parquet")
    yes, female = np.array(rows["p_yes"]), np.where(np.array(rows["sex"]) == "F", 0.8, 0.3)
    scores, groups = np.column_stack([1 - yes, yes]), np.column_stack([female, 1 - female])
    unknown = Evidence(
        scores,
        classes=["no", "yes"],
        groups={"sex": {"F": female, "M": 1 - female}},
        joint={"sex": groups[:, :, None] * scores[:, None, :]},
    )
    solve(Problem("error()", ["equalized_odds('sex', tol=0.1)"]), unknown).save("api.json")
    answer = bylaw("export", "python", "api.json", "-o", "policy.py")
    assert answer.code == 2
    assert "must name the columns that it reads, got none; fit it with `bylaw fit`" in answer.err
    solve(Problem("error()", ["demographic_parity('sex', tol=0.1)"]), unknown).save("api.json")
    answer = bylaw("export", "python", "api.json", "-o", "policy.py")
    assert answer.code == 0
    assert "the export reads ['p_no', 'p_yes', 'sex_F', 'sex_M']" in answer.err


@pytest.mark.slow
def test_confidence_reaches_the_certificate_and_the_report(folder, bylaw):
    fit = ["fit", "scores.parquet", "--rule", "rejected() <= 0.1", "-o", "p.json", "--confidence", "0.87"]
    assert bylaw(*fit, "--certify", "held.parquet").code == 0
    assert Policy.load("p.json").certificate.confidence == 0.87
    assert bylaw(*fit, "--report", "r.html", "--held-out", "new.parquet").code == 0
    assert "87 %" in (folder / "r.html").read_text().replace("\u202f", " ").replace("\xa0", " ")
    report = ["report", "p.json", "scores.parquet", "--held-out", "held.parquet", "-o", "s.html"]
    assert bylaw(*report, "--confidence", "0.83").code == 0
    assert "83 %" in (folder / "s.html").read_text().replace("\u202f", " ").replace("\xa0", " ")


@pytest.mark.slow
def test_limits_reach_the_certificate_and_the_report(folder, bylaw):
    for name in ("scores", "held"):
        rows = parquet.read_table(f"{name}.parquet")
        for label in ("no", "yes"):
            rows = rows.append_column(f"visit_{label}", rows[f"p_{label}"])
        parquet.write_table(rows, f"{name}.parquet")
    limit = ["--limit", "visit=0:1", "--outcomes", "visit=known"]
    fit = ["fit", "scores.parquet", "--rule", "custom('visit') <= 0.9", "-o", "p.json"]
    assert bylaw(*fit, "--certify", "held.parquet", *limit).code == 0
    assert bylaw(*fit).code == 0
    report = ["report", "p.json", "scores.parquet", "--held-out", "held.parquet", "-o", "r.html"]
    for options, unjudged in ([], True), (limit, False):
        assert bylaw(*report, *options).code == 0
        assert ("Not judged" in (folder / "r.html").read_text()) == unjudged


def test_an_estimate_that_a_rule_is_broken_is_a_failure(policy, bylaw):
    rule = ["--rule", "rejected() <= 0.01", "--fitted-rows", "estimate"]
    answer = bylaw("audit", "policy.json", "scores.parquet", *rule)
    assert answer.code == 1
    assert "all rules together: estimated to be broken" in answer.out


def test_missing_outcomes_are_counted(folder, bylaw):
    rows = parquet.read_table("scores.parquet")
    labels = [None if i == 7 else label for i, label in enumerate(rows["outcome"].to_pylist())]
    parquet.write_table(rows.set_column(4, "outcome", pyarrow.array(labels)), "gaps.parquet")
    answer = bylaw("fit", "gaps.parquet", "--rules", "rules.toml", "-o", "p.json")
    assert answer.code == 0
    assert f"outcome is observed on {len(rows) - 1:,} of them" in answer.out


def test_a_group_stated_as_known_needs_no_joint(folder, bylaw):
    """Of the rules file, which is for tables where it is unknown."""
    (folder / "hidden.toml").write_text(
        "rules = [\"equalized_odds('sex', tol=0.1)\"]\n[columns]\nlabel = 'outcome'\n"
        "joint = { sex = 'j_*_*' }\ngroup_probabilities = { sex = 'sex_*' }\n"
    )
    fit = ["fit", "scores.parquet", "--rules", "hidden.toml", "-o", "p.json"]
    assert bylaw(*fit).code == 2
    assert bylaw(*fit, "--group", "sex").code == 0


def test_show_has_the_largest_tightening_of_a_family(folder, bylaw):
    fit = ["fit", "scores.parquet", "--rules", "rules.toml", "-o", "p.json", "--margin", "1"]
    assert bylaw(*fit).code == 0
    largest = max(p.tightened for p in Policy.load("p.json").rule_prices if "parity" in p.statement)
    lines = [line for line in bylaw("show", "p.json").out.splitlines() if "parity" in line]
    assert lines[-1].split()[-1] == f"{largest:.4f}"
    assert largest > min(p.tightened for p in Policy.load("p.json").rule_prices if "parity" in p.statement)


def test_explain_tells_whether_the_rules_changed_the_decision(policy, bylaw):
    rows = evidence("new.parquet")
    why = explain(Policy.load(policy), rows)
    changed, same = int(np.flatnonzero(why.moved)[0]), int(np.flatnonzero(~why.moved)[0])
    before, after = (why.actions[part[changed]] for part in (why.before, why.after))
    text = bylaw("explain", "policy.json", "new.parquet", "--row", changed).out
    shares = why.pulls[changed, :, why.after[changed]] - why.pulls[changed, :, why.before[changed]]
    parity = sum(share for rule, share in zip(why.rules, shares, strict=True) if "sex" in rule)
    most = f"Most of that is ({1 if parity > 0 else 2}).\n" if parity > 0 or shares.max() > 0 else ""
    assert f"The rules changed the best decision from {before} to {after}.\n{most}" in text
    value, chance = (
        rows.groups["sex"].values[rows.groups["sex"].codes[changed]],
        rows.probabilities[changed].max(),
    )
    assert f"sex is {value}; the model says {chance:.1%} " in text
    assert "The rules did not change" in bylaw("explain", "policy.json", "new.parquet", "--row", same).out


def test_explain_lists_the_labels_of_a_set(folder, bylaw):
    rules = ["--minimize", "miscoverage()", "--rule", "size() <= 1.2"]
    assert bylaw("fit", "scores.parquet", *rules, "-o", "p.json").code == 0
    bylaw("decide", "p.json", "new.parquet", "-o", "sets.parquet")
    drawn = parquet.read_table("sets.parquet")["decision"].to_pylist()
    for row in (0, 1, 2):
        answer = bylaw("explain", "p.json", "new.parquet", "--row", row, "--json")
        assert json.loads(answer.out)["decision"] == drawn[row]
    why = explain(Policy.load("p.json"), evidence("new.parquet").with_columns(groups={}))
    row = int(np.flatnonzero(why.moved)[0])
    text = bylaw("explain", "p.json", "new.parquet", "--row", row).out
    assert re.search(r"from \['no', 'yes'\] to \['(no|yes)'\]\.", text)


def test_a_frontier_keeps_the_margin_of_the_rules_file(folder, bylaw):
    costs = []
    for margin in (0, 1):
        (folder / "margin.toml").write_text(f'rules = "rejected() <= 0.1"\n[solve]\nmargin = {margin}\n')
        call = ("--rules", "margin.toml", "--json")
        (point,) = json.loads(bylaw("frontier", "scores.parquet", *call, "--levels", "0.1").out)
        fitted = json.loads(bylaw("fit", "scores.parquet", *call, "-o", "p.json").out)
        assert point["cost"] == pytest.approx(fitted["cost_after"], abs=1e-4)
        costs.append(point["cost"])
    assert costs[1] > costs[0] + 1e-4


def test_the_demo_keeps_rules_that_are_there(folder, monkeypatch, capsys):
    frame = pyarrow.parquet.read_table("scores.parquet").to_pandas()
    monkeypatch.setattr("bylaw.datasets.mortgages", lambda: {"scores": frame, "new": frame.head(10)})
    demo.write_inputs(folder / "out")
    assert (folder / "out" / "rules.toml").read_text() == demo.FILE
    assert parquet.read_table("out/new.parquet").num_rows == 10
    (folder / "out" / "rules.toml").write_text("rules = []")
    demo.write_inputs(folder / "out")
    assert (folder / "out" / "rules.toml").read_text() == "rules = []"
    assert "rules.toml exists already, and is kept" in capsys.readouterr().out


def test_a_policy_that_is_fitted_again_knows_its_columns(policy, folder, bylaw):
    assert bylaw("refit", "policy.json", "new.parquet", "-o", "again.json").code == 0
    earlier, again = (Policy.load(folder / name).card for name in ("policy.json", "again.json"))
    assert again.columns == earlier.columns
    assert again.columns["label"] == "outcome"
