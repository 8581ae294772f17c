"""Your model, without rules and with rules: every number of them recomputed by hand from raw scores.

The rows need a calibration for each group, decisions have a cost matrix, and a referral has a cost.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from bylaw import Evidence, Problem, audit, demographic_parity, error, explain, rejected, solve
from bylaw.fitting import solve_without_rules
from bylaw.language import OptionSpace
from bylaw.program import list_free_options
from bylaw.report import report
from bylaw.studio import Session
from bylaw.view import format_percent, round_number
from helpers.command_line import bylaw  # noqa: F401
from helpers.reported import parsed

CLASSES = ["late", "on time"]
COSTS = np.array([[0, 10, 2], [4, 0, 1.5]])  # of late and on time (rows), decided so or referred (columns)
PROBLEM = Problem(
    "cost([[0, 10, 2], [4, 0, 1.5]])", [demographic_parity("carrier", tol=0.05), rejected() <= 0.15]
)
FEW = "error() + 0.2 * rejected()"  # no rules, but a referral has a cost


def flights(n=1500, seed=5):
    """Scores that are too high for one carrier: the columns p (of late), carrier and arrival."""
    rng = np.random.default_rng(seed)
    carrier = np.where(rng.random(n) < 0.4, "B", "A")
    logit = 1.2 * rng.normal(size=n) + np.where(carrier == "B", 0.3, -0.4)
    arrival = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), *CLASSES)
    raw = 1 / (1 + np.exp(-(1.5 * logit + np.where(carrier == "B", 1.6, -0.2))))
    return pd.DataFrame({"p": raw, "carrier": carrier, "arrival": arrival})


def make_evidence(table):
    return Evidence(
        np.column_stack([table.p, 1 - table.p]), classes=CLASSES, groups={"carrier": table.carrier.to_numpy()}
    )


def apply_maps(policy, table):
    """P(late) as calibrated for the carrier of each row."""
    found, maps = np.empty(len(table)), policy.calibration
    assert maps.by == "carrier"
    for value, rows in table.groupby("carrier").indices.items():
        scores = np.column_stack([table.p, 1 - table.p])[rows]
        found[rows] = maps.by_value.get(value, maps.labels).apply(scores)[:, 0]
    return found


@pytest.fixture(scope="module")
def case():
    """A policy, its rows, and by hand: the decisions of each kind with their cost and errors, row by row."""
    table = flights()
    policy = solve(PROBLEM, make_evidence(table), labels=table.arrival.to_numpy(), calibrate="auto")
    calibrated = apply_maps(policy, table)
    truth = (table.arrival == "on time").astype(int).to_numpy()
    raw, read = (np.column_stack([p, 1 - p]) @ COSTS for p in (table.p, calibrated))
    taken = {
        "model": np.eye(3)[raw[:, :2].argmin(axis=1)],
        "without": np.eye(3)[read.argmin(axis=1)],
        "with": policy.probabilities(make_evidence(table)),
    }
    for name, decisions in taken.items():
        table[f"{name} cost"] = (decisions * COSTS[truth]).sum(axis=1)
        table[f"{name} error"] = decisions[np.arange(len(table)), 1 - truth]
        table[f"{name} referred"] = decisions[:, 2]
    table["changed"] = 1 - (taken["model"] * taken["with"]).sum(axis=1)
    return policy, table, taken


def read_section(html, name):
    (found,) = (part for part in parsed(html).all("section") if part.attributes["id"] == name)
    return found


def plain(text):
    return text.replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def page(case):
    policy, table, _ = case
    return report(policy, make_evidence(table), labels=table.arrival.to_numpy(), levels=0).html


def test_the_three_kinds_of_decisions_differ_here(case):
    """So that no number below is right by chance."""
    _, table, taken = case
    costs = table[["model cost", "without cost", "with cost"]].mean().to_numpy()
    assert np.diff(np.sort(costs)).min() > 0.05
    calibrated = taken["without"][:, :2].argmax(axis=1)
    assert (taken["model"].argmax(axis=1) != calibrated).mean() > 0.1


def test_summary_and_statement_state_costs_and_errors(case, page):
    _, table, _ = case
    mean = table.drop(columns=["carrier", "arrival"]).mean()
    cost = {name: round_number(mean[f"{name} cost"]) for name in ("model", "without", "with")}
    shares = {name: plain(format_percent(value)) for name, value in mean.items()}
    answered = plain(format_percent(mean["with error"] / (1 - mean["with referred"])))
    said = (
        "The objective, the average cost by the given table of costs, is "
        f"{cost['model']} with your model, {cost['without']} without rules, {cost['with']} with rules (as "
        f"observed). Your model answers {shares['model error']} of all cases wrongly (as observed). Without "
        f"rules, {shares['without error']} are answered wrongly, and {shares['without referred']} are "
        f"referred. With rules, {shares['with error']} are answered wrongly, because "
        f"{shares['with referred']} of all cases are referred and count as no error; of the cases that still "
        f"get an answer, {answered} get a wrong one."
    )
    for name in ("summary", "sign"):
        assert said in plain(read_section(page, name).words())
    changed = f"In {shares['changed']} of the cases the decision is not that of your model"
    assert changed in plain(read_section(page, "summary").words())


def test_tiles_show_the_objective_first(case, page):
    _, table, _ = case
    mean = table.drop(columns=["carrier", "arrival"]).mean()
    tiles = {
        tile.all("dt")[0].words(): plain(tile.all("dd")[0].words())
        for tile in read_section(page, "summary").all("dl", class_="figures")[0].all("div")
    }
    assert list(tiles)[:2] == ["Objective", "Wrong answers"]
    cost, share = round_number, lambda value: plain(format_percent(value))
    assert tiles["Objective"].startswith(f"{cost(mean['model cost'])} → {cost(mean['with cost'])}")
    assert f"your model → with rules; {cost(mean['without cost'])} without rules" in tiles["Objective"]
    assert tiles["Wrong answers"].startswith(f"{share(mean['model error'])} → {share(mean['with error'])}")
    assert f"; {share(mean['without error'])} without rules" in tiles["Wrong answers"]
    assert tiles["Decisions changed"] == f"{share(mean['changed'])} compared with your model"


def test_group_tables_start_from_the_raw_scores(case, page):
    _, table, taken = case
    table = table.assign(late=taken["model"][:, 0], later=taken["with"][:, 0])
    summary = plain(read_section(page, "summary").words())
    charts = plain(read_section(page, "groups").words())
    for value, part in table.groupby("carrier"):
        shares = [part[name].mean() for name in ("with referred", "model error", "with error", "changed")]
        line = " ".join(plain(format_percent(share)) for share in shares)
        assert f"carrier: {value} {len(part)} {line}" in summary
        late, later = (plain(format_percent(part[name].mean())) for name in ("late", "later"))
        assert re.search(rf"{value}\s+{len(part)} cases .*?{re.escape(late)} {re.escape(later)}", charts)
    falls = table.groupby("carrier")[["model error", "with error"]].mean()
    rises = falls[falls["with error"] - falls["model error"] > 0.005]
    assert ("wrong answers rise" in summary) == bool(len(rises))


def test_guarantees_separate_predicted_from_observed_rates():
    """A rule that holds by raw scores, which are wrong here, and not as observed."""
    table = flights(600)
    evidence = make_evidence(table)
    policy = solve(Problem(rejected(), [error() <= 0.1]), evidence)
    html = report(policy, evidence, labels=table.arrival.to_numpy(), levels=0).html
    assert (
        "At least one rule is not satisfied on the 600 cases on which the policy was chosen, as observed"
        in (plain(read_section(html, "summary").words()))
    )
    yes, no = plain(read_section(html, "guarantees").words()).split("Not guaranteed")
    assert "as predicted by the model’s probabilities, all rules together are violated by no more than" in yes
    assert (
        "This is the precision of the solver: observed rates may differ from predicted ones by more." in yes
    )
    assert "600 cases on which the policy was chosen, as observed, the only rate is outside the bounds" in no


def test_explain_starts_from_the_raw_scores(case):
    policy, table, taken = case
    why = explain(policy, make_evidence(table))
    assert (why.before == taken["model"].argmax(axis=1)).all()
    assert (why.without_rules == taken["without"].argmax(axis=1)).all()
    after = taken["with"].argmax(axis=1)
    moved, changed = (int((taken[name].argmax(axis=1) != after).sum()) for name in ("without", "model"))
    assert repr(why) == (
        f"Explanation of 1500 rows, {moved:,} of them moved by {len(why.rules)} rules, {changed:,} decided "
        "otherwise than by your model"
    )
    said = f"{changed:,} of 1,500 rows are decided otherwise than by your model; the rules move {moved:,}"
    assert said in why._repr_html_()


@pytest.mark.slow
def test_an_audit_has_all_three(case):
    policy, _, _ = case
    table = flights(n=900, seed=6)
    evidence, truth = make_evidence(table), (table.arrival == "on time").astype(int).to_numpy()
    calibrated = apply_maps(policy, table)
    raw, read = (np.column_stack([p, 1 - p]) @ COSTS for p in (table.p, calibrated))
    model, without = raw[:, :2].argmin(axis=1), read.argmin(axis=1)
    found = audit(policy, evidence, labels=table.arrival.to_numpy())
    assert found.cost_before == pytest.approx(COSTS[truth, model].mean())
    assert found.cost_without_rules == pytest.approx(COSTS[truth, without].mean())
    after = (policy.probabilities(evidence) * COSTS[truth]).sum(axis=1).mean()
    assert found.cost_after == pytest.approx(after)
    numbers = f"{found.cost_before:.4g} with your model, {found.cost_without_rules:.4g} without rules"
    assert f"{numbers}, {found.cost_after:.4g} with rules" in str(found)
    held = evidence.with_observed(labels=table.arrival.to_numpy())
    html = report(policy, make_evidence(flights()), labels=flights().arrival, held_out=held, levels=0).html
    assert f"{round_number(found.cost_before)} with your model" in plain(read_section(html, "sign").words())


def test_the_studio_draws_the_same(case):
    _, table, taken = case
    rows = Session(
        PROBLEM,
        make_evidence(table).with_observed(labels=table.arrival.to_numpy()),
        solving={"calibrate": "auto"},
    )
    rules = [{"text": str(rule), "on": True} for rule in PROBLEM.rules]
    asked = {"tab": "t", "number": 1, "minimize": str(PROBLEM.minimize), "rules": rules, "view": "observed"}
    drawn = rows.answer(asked)
    assert drawn["status"] == "solved", drawn
    for key, name in (("before", "model"), ("without_rules", "without"), ("after", "with")):
        assert drawn["cost"][key] == pytest.approx(table[f"{name} cost"].mean(), abs=1e-4), key
    assert drawn["cost"]["observed"]
    assert drawn["changed"] == pytest.approx(table.changed.mean(), abs=1e-4)
    flows = taken["model"].T @ taken["with"] / len(table)
    assert np.array(drawn["flows"]) == pytest.approx(flows, abs=1e-4)
    (partition,) = (part for part in drawn["partitions"] if part["name"] == "carrier")
    for group in partition["groups"]:
        inside = (table.carrier == group["value"]).to_numpy()
        assert group["before"] == pytest.approx(taken["model"][inside].mean(axis=0))
        assert group["after"] == pytest.approx(taken["with"][inside].mean(axis=0), abs=1e-4)
        assert group["mistakes_before"] == pytest.approx(table["model error"][inside].mean())


@pytest.mark.slow
def test_the_command_line_states_the_same(case, bylaw, tmp_path, monkeypatch):  # noqa: F811
    _, table, taken = case
    monkeypatch.chdir(tmp_path)
    columns = {
        "p_late": table.p,
        "p_on time": 1 - table.p,
        "carrier": table.carrier,
        "arrival": table.arrival,
    }
    pd.DataFrame(columns).to_parquet("flights.parquet")
    fit = ["fit", "flights.parquet", "--minimize", str(PROBLEM.minimize), "--calibrate", "auto"]
    fit += [part for rule in PROBLEM.rules for part in ("--rule", str(rule))]
    fit += ["--group", "carrier", "--label", "arrival", "-o", "p.json"]
    expected = table[["model cost", "without cost", "with cost"]].mean().to_numpy()
    told = json.loads(bylaw(*fit, "--json").out)
    found = [told[name] for name in ("cost_before", "cost_without_rules", "cost_after")]
    assert found == pytest.approx(expected, abs=1e-4)
    text = bylaw(*fit).out
    assert f"{found[0]:.4g} with your model, {found[1]:.4g} without rules, {found[2]:.4g} with rules" in text
    actions = [*CLASSES, "reject"]
    before, without = (actions[int(taken[name][3].argmax())] for name in ("model", "without"))
    told = json.loads(bylaw("explain", "p.json", "flights.parquet", "--row", 3, "--json").out)
    assert (told["before"], told["without_rules"]) == (before, without) == ("late", "reject")
    why = bylaw("explain", "p.json", "flights.parquet", "--row", 3).out
    assert "Your model decides late.\nThe rules changed the best decision from reject to late." in why


def test_a_rejection_with_a_cost_is_no_work_of_rules():
    table = flights(400)
    evidence, labels = make_evidence(table), table.arrival.to_numpy()
    policy = solve(Problem(FEW), evidence)
    why = explain(policy, evidence)
    p = np.column_stack([table.p, 1 - table.p])
    best = np.where(1 - p.max(axis=1) > 0.2, 2, p.argmax(axis=1))
    assert (why.without_rules == best).all()
    assert not why.moved.any()
    assert f"0 of them moved by 0 rules, {(best == 2).sum()} decided otherwise than by your model" in repr(
        why
    )
    found = audit(policy, evidence, labels=labels, fitted_rows="estimate")
    assert found.cost_without_rules == found.cost_after
    assert "with this policy, which has no rules" in str(found)
    limited = solve(Problem(FEW, [rejected() <= 0.1]), evidence)
    costs = audit(limited, evidence, fitted_rows="estimate")  # as predicted
    assert costs.cost_without_rules == pytest.approx(np.minimum(1 - p.max(axis=1), 0.2).mean())
    assert costs.cost_before == pytest.approx(1 - p.max(axis=1).mean())


def test_a_free_rejection_is_left_out_without_rules():
    """Without the rule, every row would be rejected."""
    table = flights(400)
    evidence = make_evidence(table)
    found = audit(solve(Problem(error(), [rejected() <= 0.1]), evidence), evidence, fitted_rows="estimate")
    assert (
        found.cost_without_rules
        == found.cost_before
        == pytest.approx(np.minimum(table.p, 1 - table.p).mean())
    )


def test_the_worst_group_without_rules_is_solved_for(case):
    """No row tells the best decisions by itself: an audit does not know their cost, a report does."""
    table = flights(600)
    evidence = make_evidence(table)
    problem = Problem("worst(error(), by='carrier')", ["selected('late') <= 0.3"])
    policy = solve(problem, evidence)
    assert np.isnan(audit(policy, evidence, fitted_rows="estimate").cost_without_rules)
    free = solve(problem.with_rules(()), evidence)
    text = plain(read_section(report(policy, evidence, levels=0).html, "sign").words())
    assert f"{format_percent(free.expected(problem.minimize, evidence))} without rules" in text.replace(
        " %", "\N{NO-BREAK SPACE}%"
    )
    why = explain(policy, evidence)
    assert why.without_rules is None
    assert repr(why).endswith("of them decided otherwise than by your model")


def test_one_less_a_share_is_a_share():
    table = flights(400)
    evidence = make_evidence(table)
    policy = solve(Problem("1 - recall('late')", ["selected('late') <= 0.4"]), evidence)
    text = plain(read_section(report(policy, evidence, labels=table.arrival, levels=0).html, "sign").words())
    truth = (table.arrival == "late").to_numpy()
    missed = 1 - policy.probabilities(evidence)[truth, 0].mean()
    assert f"{plain(format_percent(missed))} with rules (as observed)" in text


def test_a_policy_says_whether_its_rates_are_predicted():
    table = flights(400)
    evidence, labels = make_evidence(table), table.arrival.to_numpy()
    predicted = "as predicted by the model's probabilities, the rules hold to"
    assert predicted in repr(solve(Problem(rejected(), [error() <= 0.1]), evidence))
    assert "as observed, all rules hold" in repr(
        solve(Problem(rejected(), [error() <= 0.1]), evidence, labels=labels)
    )
    known = repr(solve(Problem(error(), [rejected() <= 0.1]), evidence))  # no rate that is predicted
    assert "converged: the rules hold to" in known
    assert "there are no rules" in repr(solve(Problem(error()), evidence))


def test_one_calibrated_row_has_the_decision_that_it_has_among_others():
    """Also where it is of another group than the objective is about."""
    table = flights(600)
    evidence, labels = make_evidence(table), table.arrival.to_numpy()
    problem = Problem("error() + error().given(carrier='B')", ["selected('late') <= 0.5"])
    policy = solve(problem, evidence, labels=labels, calibrate="temperature")
    whole, row = explain(policy, evidence), int(np.flatnonzero(table.carrier == "A")[0])
    alone = explain(policy, evidence.rows(slice(row, row + 1)))
    assert alone.before[0] == whole.before[row]
    assert alone.without_rules[0] == whole.without_rules[row]


def test_an_objective_that_is_a_ratio_leaves_a_free_rejection_out():
    table = flights(400)
    evidence = make_evidence(table)
    policy = solve(Problem("error() / accepted()", [rejected() <= 0.1]), evidence)
    found = solve_without_rules(policy, evidence)
    assert found[:, 2].max() < 1e-6
    least = np.minimum(table.p, 1 - table.p).mean()
    assert (found[:, :2] * [*zip(1 - table.p, table.p, strict=True)]).sum(axis=1).mean() == pytest.approx(
        least, abs=1e-3
    )


@pytest.mark.parametrize(
    ("minimize", "free"),
    [
        ("error()", ["ask", "call"]),
        ("error() + 0.1 * selected('ask')", ["call"]),
        ("cost([[0, 1, 0, 0.2], [1, 0, 0, 0.2]])", ["ask"]),
        ("cost([[-1, 1, 0, 0], [1, -1, 0, 0]])", []),  # a label may be worth more than nothing
        ("1 - recall(1)", []),
        ("worst(error(), by='g')", ["ask", "call"]),
        ("error() / accepted()", ["ask", "call"]),
    ],
)
def test_which_options_are_free(minimize, free):
    problem = Problem(minimize)
    assert list_free_options(problem.minimize, OptionSpace((0, 1), options=("ask", "call"))) == free
