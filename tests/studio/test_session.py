"""What the studio answers, beside the functions of the library and counts by hand."""

from __future__ import annotations

import threading
import tomllib
import warnings

import numpy as np
import pytest

from bylaw import Evidence, Problem, frontier, solve
from bylaw._base import checkpoint
from bylaw.cli.rules_file import RulesFile
from bylaw.errors import GuaranteeWarning, OptionError
from bylaw.language import parse
from bylaw.policy import Policy
from bylaw.rows import Columns, observe
from bylaw.solvers import WarmFullBatch
from bylaw.studio import Session, Source, _session as session_module
from bylaw.studio._questions import CancelledError, Job, Question
from bylaw.studio._saved_files import suggest_next
from helpers.scored import people

RULES = ["demographic_parity('sex', tol={})", "rejected() <= {}"]


def ask(session, rules, minimize="error()", view="predicted", number=1, **more):
    stated = [rule if isinstance(rule, dict) else {"text": rule, "on": True} for rule in rules]
    content = {"tab": "one", "number": number, "minimize": minimize, "rules": stated, "view": view}
    return session.answer({**content, **more})


def three_classes(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    scores = rng.normal(size=(n, 3)) + 0.5 * np.eye(3)[group]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    names = np.array(["a", "b", "c"])
    evidence = Evidence(
        chances,
        classes=["x", "y", "z"],
        groups={"team": names[group]},
        references={"old": np.array(["x", "y", "z"])[rng.integers(0, 3, n)]},
        weights=rng.uniform(0.5, 2, n),
    )
    return evidence, np.array(["x", "y", "z"])[labels]


CASES = {  # what is minimised, rules with levels, the range of the levels, decisions
    "parity": ("error()", ["demographic_parity('team', tol={})"], [(0.005, 0.1)], "auto"),
    "odds": ("error()", ["equalized_odds('team', tol={})"], [(0.02, 0.1)], "auto"),
    "rejection": (
        "error()",
        ["demographic_parity('team', tol={})", "rejected() <= {}"],
        [(0.005, 0.1), (0.02, 0.4)],
        "auto",
    ),
    "churn": (
        "error()",
        ["disagreement('old') <= {}", "selected('x') <= {}"],
        [(0.2, 0.5), (0.2, 0.5)],
        "auto",
    ),
    "sets": ("size()", ["miscoverage() <= {}", "coverage_parity('team', tol={})"], [(0.02, 0.3)] * 2, "auto"),
    "capacity": (
        "error() + 0.1 * selected('expert')",
        ["selected('expert') <= {}", "selected('y') <= {}"],
        [(0.02, 0.3), (0.25, 0.4)],
        ["x", "y", "z", "expert"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("view", ["predicted", "observed"])
@pytest.mark.parametrize("case", CASES)
def test_a_warm_answer_is_the_cold_one(case, view):
    minimize, rules, ranges, decisions = CASES[case]
    evidence, labels = three_classes()
    session = Session(Problem(minimize, decisions=decisions), evidence.with_observed(labels=labels))
    rng = np.random.default_rng(1)
    levels = [rng.uniform(*ends) for ends in ranges]
    for _ in range(4 if view == "predicted" else 2):
        moved = int(rng.integers(len(levels)))
        levels[moved] = rng.uniform(*ranges[moved])
        texts = [rule.format(round(level, 4)) for rule, level in zip(rules, levels, strict=True)]
        warm = session.solve(Question(minimize, tuple((text, True) for text in texts), view))
        outcomes = {"labels": labels} if view == "observed" else {}
        cold = solve(Problem(minimize, texts, decisions=decisions), evidence, **outcomes)
        assert warm.solution.value == pytest.approx(cold.solution.value, abs=1e-6)
        taken = [policy.probabilities(evidence) for policy in (warm, cold)]
        weights = evidence.row_weights / evidence.row_weights.sum()
        assert weights @ taken[0] == pytest.approx(weights @ taken[1], abs=1e-5)
        for group in "abc":
            here = weights * (np.asarray(evidence.event_probability((("team", group),))))
            assert here @ taken[0] / here.sum() == pytest.approx(here @ taken[1] / here.sum(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("view", ["predicted", "observed"])
@pytest.mark.parametrize("case", CASES)
def test_each_rule_is_shown_by_its_worst_group(case, view, deterministic):
    minimize, rules, ranges, decisions = CASES[case]
    evidence, labels = three_classes(1500)
    session = Session(
        Problem(minimize, decisions=decisions),
        evidence.with_observed(labels=labels),
        solving={"deterministic": deterministic},
    )
    texts = [rule.format(ends[1]) for rule, ends in zip(rules, ranges, strict=True)]
    found = ask(session, texts, minimize, view)
    assert found["status"] == "solved"
    outcomes = {"labels": labels} if view == "observed" else {}
    problem = Problem(minimize, texts, decisions=decisions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        cold = solve(problem, evidence, **outcomes, deterministic=deterministic)
    rows, taken = observe(evidence.with_observed(labels=outcomes.get("labels"))), cold.probabilities(evidence)
    singles = problem.expand(evidence.classes, evidence.group_values, cold.action_space.options)
    excesses = np.full(len(texts), -np.inf)
    for single in singles:
        excess = cold.expected(single.rule.excess, rows, probabilities=taken)
        excesses[single.place] = max(excesses[single.place], excess)
    shown = [rule["rate"] - rule["bound"] for rule in found["rules"]]
    cost = cold.expected(problem.minimize, rows, probabilities=taken)
    assert shown == pytest.approx(excesses.tolist(), abs=1e-5 if not deterministic else 2e-3)
    assert found["cost"]["after"] == pytest.approx(cost, abs=1e-5 if not deterministic else 2e-3)


def test_the_second_answer_begins_where_the_first_ended():
    evidence, _, _ = people(3000, 0)
    solver = WarmFullBatch()
    steps = []
    for level in (0.1, 0.101):
        policy = solve(Problem("error()", [f"rejected() <= {level}"]), evidence, solver=solver)
        steps.append(policy.solution.steps)
    texts = ["demographic_parity('sex', tol=0.02)", "rejected() <= 0.1"]
    cold = solve(Problem("error()", texts), evidence, solver=solver)
    warm = solve(Problem("error()", [texts[0], "rejected() <= 0.101"]), evidence, solver=solver)
    assert warm.solution.steps < cold.solution.steps
    assert "rejected() <= level" in solver.prices


def test_the_first_answer_states_what_there_is():
    evidence, labels, _ = people(500, 0)
    problem = Problem("error()", [rule.format(0.1) for rule in RULES])
    start = Session(problem, evidence.with_observed(labels=labels), title="Referrals").start()
    assert start["title"] == "Referrals"
    assert (start["rows"], start["classes"], start["actions"]) == (500, [0, 1], [0, 1, "reject"])
    assert start["groups"] == {"sex": ["F", "M"]}
    assert (start["references"], start["costs"], start["labelled"]) == (["old"], ["visit"], True)
    assert start["problem"]["rules"] == [{"text": str(rule), "on": True} for rule in problem.rules]
    kinds = {word["name"]: word["kind"] for word in start["words"]}
    expected = {"error": "rate", "recall": "rate", "equalized_odds": "family", "worst": "objective"}
    assert kinds.items() >= (expected | {"g_mean": "objective"}).items()
    assert not Session(problem, evidence).start()["labelled"]


def test_numbers_are_those_of_counts_by_hand():
    evidence, labels, sex = people(2000, 3)
    session = Session(Problem("error()"), evidence.with_observed(labels=labels))
    found = ask(session, [RULES[0].format(0.03), RULES[1].format(0.15)], view="observed")
    policy = solve(
        Problem("error()", [RULES[0].format(0.03), RULES[1].format(0.15)]), evidence, labels=labels
    )
    taken = policy.probabilities(evidence)
    before = np.eye(3)[evidence.probabilities.argmax(axis=1)]
    wrong = 1 - np.eye(3)[labels] - np.eye(3)[2]  # a rejection is no mistake
    near = {"abs": 2e-5}
    assert found["status"] == "solved"
    assert found["cost"]["before"] == pytest.approx((before * wrong).sum(axis=1).mean())
    assert found["cost"]["after"] == pytest.approx((taken * wrong).sum(axis=1).mean(), **near)
    assert found["cost"]["observed"]
    whole, by_sex = found["partitions"]
    assert (whole["groups"][0]["rows"], by_sex["name"]) == (2000, "sex")
    for group in by_sex["groups"]:
        here = sex == group["value"]
        assert group["rows"] == here.sum()
        assert group["share"] == pytest.approx(here.mean())
        assert group["before"] == pytest.approx(before[here].mean(axis=0))
        assert group["after"] == pytest.approx(taken[here].mean(axis=0), **near)
        assert group["mistakes_before"] == pytest.approx((before * wrong)[here].sum(axis=1).mean())
        assert group["mistakes_after"] == pytest.approx((taken * wrong)[here].sum(axis=1).mean(), **near)
        error = taken[here].std(axis=0) / np.sqrt(here.sum())
        assert np.subtract(group["upper"], group["after"]) == pytest.approx(1.96 * error, rel=1e-3, abs=1e-6)
    kept = (before * taken).sum(axis=1)
    assert found["changed"] == pytest.approx(1 - kept.mean(), **near)
    assert np.array(found["flows"]) == pytest.approx(before.T @ taken / 2000, **near)
    for one in found["changed_by_group"]:
        assert one["changed"] == pytest.approx(1 - kept[sex == one["value"]].mean(), **near)
    likeliest = taken.max(axis=1)
    assert found["random"]["settled"] == pytest.approx((likeliest >= 0.99).mean(), abs=1e-3)
    assert sum(found["random"].values()) == pytest.approx(1)
    parity, rejection = found["rules"]
    gaps = {g: taken[sex == g].mean(axis=0)[:2] - taken.mean(axis=0)[:2] for g in "FM"}
    assert parity["rate"] == pytest.approx(max(np.abs(gap).max() for gap in gaps.values()), **near)
    assert (parity["bound"], parity["sense"], parity["holds"]) == (0.03, "<=", True)
    assert rejection["rate"] == pytest.approx(taken[:, 2].mean(), **near)
    spread = taken[:, 2].std() / np.sqrt(2000)
    assert rejection["upper"] - rejection["rate"] == pytest.approx(1.96 * spread, rel=1e-2)
    assert rejection["price"] == pytest.approx(policy.prices[RULES[1].format(0.15)], rel=1e-3)
    assert "would save" in rejection["price_words"]


def test_the_interval_of_a_ratio_is_in_the_unit_of_the_ratio():
    evidence, labels, _ = people(2000, 3)
    rules = ["error() <= 0.25 * accepted()", "rejected() <= 0.4"]
    found = ask(Session(Problem("error()"), evidence.with_observed(labels=labels)), rules, view="observed")
    taken = solve(Problem("error()", rules), evidence, labels=labels).probabilities(evidence)
    wrong, answered = taken[np.arange(2000), 1 - labels], 1 - taken[:, 2]
    ratio, bounded = wrong.mean() / answered.mean(), found["rules"][0]
    assert bounded["rate"] == pytest.approx(ratio, abs=2e-5)
    error = (wrong - 0.25 * answered).std() / np.sqrt(2000) / answered.mean()
    assert answered.mean() < 0.7
    assert bounded["upper"] - ratio == pytest.approx(1.96 * error, rel=0.05)
    assert ratio - bounded["lower"] == pytest.approx(1.96 * error, rel=0.05)


def test_without_rules_each_view_has_the_decisions_of_its_own():
    """The worst class is another one where the labels are not those that the model predicts."""
    evidence, labels, _ = people(1000, 5, tilt=1.0)
    minimize = "worst(error(), by='label')"
    session = Session(Problem(minimize), evidence.with_observed(labels=labels))
    for view, outcomes in (("predicted", {}), ("observed", {"labels": labels})):
        found = ask(session, ["selected(1) <= 0.4"], minimize=minimize, view=view)
        alone = solve(Problem(minimize), evidence, **outcomes).probabilities(evidence)
        truth = evidence.probabilities if view == "predicted" else np.eye(2)[labels]
        rates = [(alone[:, 1 - y] * truth[:, y]).sum() / truth[:, y].sum() for y in (0, 1)]
        assert found["cost"]["without_rules"] == pytest.approx(max(rates), abs=2e-3)


def test_both_sides_of_a_band_are_shown_as_a_distance():
    evidence, _, _ = people(1000, 0)
    session = Session(Problem("error()"), evidence)
    for text in ("abs(selected(0) - selected(1)) <= 0.9", "abs(selected(1) - selected(0)) <= 0.9"):
        found = ask(session, [text])
        shares = found["partitions"][0]["groups"][0]["after"]
        (rule,) = found["rules"]
        assert shares[1] > shares[0]
        assert rule["rate"] == pytest.approx(shares[1] - shares[0])
        assert (rule["bound"], rule["sense"]) == (0.9, "<=")


def test_labels_change_the_observed_view_alone():
    evidence, labels, _ = people(4000, 5, tilt=0.7)  # the model is wrong about labels
    session = Session(Problem("error()"), evidence.with_observed(labels=labels))
    rule = "error().given(sex='F') <= 0.2"
    predicted, observed = (
        ask(session, [rule, "rejected() <= 0.4"], view=v) for v in ("predicted", "observed")
    )
    assert not predicted["cost"]["observed"]
    assert predicted["rules"][0]["lower"] != predicted["rules"][0]["lower"]  # nan: none
    assert predicted["partitions"][0]["groups"][0]["lower"] is None
    problem = Problem("error()", [rule, "rejected() <= 0.4"])
    cold = solve(problem, evidence, labels=labels, calibrate="none")
    assert observed["rules"][0]["price"] == pytest.approx(cold.prices[rule], abs=1e-4)
    wrong = (cold.probabilities(evidence)[:, :2] * (1 - np.eye(2)[labels])).sum(axis=1)
    women = np.asarray(evidence.event_probability((("sex", "F"),))) > 0
    assert observed["rules"][0]["rate"] == pytest.approx(wrong[women].mean(), abs=1e-5)


def test_groups_that_are_known_by_probabilities_are_shown_as_predicted_or_as_observed():
    evidence, labels, sex = people(3000, 7, known=False)
    session = Session(Problem("error()"), evidence.with_observed(labels=labels, true_groups={"sex": sex}))
    rules = ["demographic_parity('sex', tol=0.05)"]
    predicted, observed = (ask(session, rules, view=view) for view in ("predicted", "observed"))
    assert predicted["partitions"][1]["predicted"]
    assert not observed["partitions"][1]["predicted"]
    assert [g["rows"] for g in observed["partitions"][1]["groups"]] == [(sex == g).sum() for g in "FM"]
    chances = [np.sum(evidence.event_probability((("sex", value),))) for value in "FM"]
    assert [g["rows"] for g in predicted["partitions"][1]["groups"]] == pytest.approx(chances)
    assert predicted["partitions"][1]["groups"][0]["mistakes_after"] is None  # no joint probabilities
    assert observed["partitions"][1]["groups"][0]["mistakes_after"] is not None


def test_rules_that_are_off_are_left_out():
    evidence, _, _ = people(1000, 0)
    session = Session(Problem("error()"), evidence)
    found = ask(session, [{"text": "rejected() <= 0.1", "on": False}, "selected(1) <= 0.4"])
    assert found["rules"][0] is None
    assert found["rules"][1]["text"] == "selected(1) <= 0.4"
    assert found["actions"] == [0, 1]  # nothing refers to rejections


@pytest.mark.parametrize(
    ("text", "level", "unit", "template"),
    [
        ("rejected()<=.1", 0.1, "share", "rejected() <= level"),
        ("demographic_parity('sex', tol=0.02)", 0.02, "points", "demographic_parity('sex', tol=level)"),
        ("error() <= 0.05 * accepted()", 0.05, "share", "error() <= level * accepted()"),
        ("disparate_impact('sex')", 0.8, "share", "disparate_impact('sex', ratio=level)"),
        ("custom('visit') <= 3", 3.0, "plain", "custom('visit') <= level"),
    ],
)
def test_a_rule_has_a_level_that_a_slider_moves(text, level, unit, template):
    evidence, _, _ = people(200, 0)
    found = Session(Problem("error()"), evidence).read_rule(text)
    assert found["ok"]
    assert (found["level"], found["unit"], found["template"]) == (level, unit, template)
    assert found["lowest"] <= level <= found["highest"]
    assert found["step"] > 0
    assert Session(Problem("error()"), evidence).read_rule("0.07".join(found["parts"]))["level"] == 0.07


def test_the_word_level_in_a_name_is_no_level():
    evidence = Evidence([[0.5, 0.5], [0.2, 0.8]], classes=["level", "no"], groups={"level": ["a", "level"]})
    session = Session(Problem("error()"), evidence)
    for text in ("selected('level') <= 0.3", "demographic_parity('level', tol=0.3, labels=['level'])"):
        assert "0.3".join(session.read_rule(text)["parts"]) == text


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("rejectd() <= 0.1", 1, 0, "did you mean 'rejected'"),
        ("error() +\n nothing <= 0.1", 1, 9, "not a rule"),
        ("(\n rejectd() <= 0.1)", 2, 1, "did you mean 'rejected'"),
        ("error() <= 'a'", 1, 11, "a rate or a number"),
        ("error()", 1, 0, "a rule must compare"),
        ("demographic_parity('race', tol=0.1)", 1, 0, "no group column 'race'"),
        ("rejected() <= 10", 1, 0, "never be violated"),
    ],
)
def test_what_is_no_rule_has_a_place(text, line, column, words):
    evidence, _, _ = people(200, 0)
    found = Session(Problem("error()"), evidence).read_rule(text)
    assert not found["ok"]
    assert (found["line"], found["column"]) == (line, column)
    assert words in found["error"]


def test_a_rule_without_a_single_number_has_no_level():
    evidence, _, _ = people(200, 0)
    session = Session(Problem("error()"), evidence)
    for text in ("error() <= 0.1 * accepted() + 0.2", "demographic_parity('sex', tol={'F': 0.1, 'M': 0.2})"):
        found = session.read_rule(text)
        assert found["ok"]
        assert found["level"] is found["template"] is None
        assert ask(session, [text])["status"] == "solved"


def test_a_conflict_is_explained_and_its_relaxation_ends_it():
    evidence, _, _ = people(1000, 0)
    session = Session(Problem("error()"), evidence)
    rules = ["rejected() <= 0.1", "selected(0) <= 0.2", "selected(1) <= 0.3"]
    found = ask(session, [rules[0], {"text": "selected(0) <= 0.01", "on": False}, *rules[1:]])
    assert found["status"] == "conflict"
    assert {one["text"] for one in found["conflict"]["rules"]} == set(rules)
    assert all(one["reach"] > 0.4 for one in found["conflict"]["rules"])
    assert found["rules"][1] is None
    assert found["rules"][0]["sentence"].startswith("At most 10")
    moved = [rules[0], None, *rules[1:]]
    for one in found["conflict"]["relaxations"]:
        assert one["rule"] in (0, 2, 3)
        left, _, _ = moved[one["rule"]].rpartition(" ")
        moved[one["rule"]] = f"{left} {one['level']}"
    total = sum(one["loosened"] for one in found["conflict"]["relaxations"])
    assert total == pytest.approx(0.4, abs=2e-3)
    assert ask(session, [rule for rule in moved if rule])["status"] == "solved"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ratio", "other", "begins"),
    [
        (
            "disparate_impact('sex', labels=[1])",
            "selected(1).given(sex='F') <= 0.2",
            "disparate_impact('sex', ratio=",
        ),
        ("error() <= 0.1 * accepted()", "rejected() <= 0.1", "error() <= "),
    ],
)
def test_a_ratio_is_relaxed_by_its_level(ratio, other, begins):
    evidence, _, _ = people(1000, 0)
    session = Session(Problem("error()"), evidence)
    rules = [ratio, "selected(1).given(sex='M') >= 0.6", other]
    found = ask(session, rules)
    assert found["status"] == "conflict"
    for one in found["conflict"]["relaxations"]:
        statement = parse(rules[one["rule"]])
        rules[one["rule"]] = str(statement.at(one["level"]))
    assert rules[0].startswith(begins)
    assert ask(session, rules)["status"] == "solved"


def test_a_factor_that_may_be_below_zero_has_no_level_to_relax():
    rng = np.random.default_rng(0)
    costs = {"u": rng.uniform(1, 2, (300, 2)), "v": rng.uniform(0, 1, (300, 2))}
    session = Session(Problem("error()"), Evidence(np.full((300, 2), 0.5), costs=costs))
    rules = ["custom('u') <= 0.5 * custom('v')", "selected(0) <= 0.2 * selected(1) - 0.1"]
    found = ask(session, rules)
    assert found["status"] == "conflict"
    assert {one["level"] for one in found["conflict"]["relaxations"]} == {None}


def test_a_failed_question_states_why_and_the_next_is_answered():
    evidence, _, _ = people(500, 0)
    session = Session(Problem("error()"), evidence)
    failed = ask(session, ["demographic_parity('race', tol=0.1)"])
    assert failed["status"] == "failed"
    assert "no group column 'race'" in failed["error"]
    assert ask(session, ["rejectd() <= 1"])["status"] == "failed"
    assert ask(session, [], minimize="rubbish")["status"] == "failed"
    assert ask(session, ["rejected() <= 0.1"], number=2)["status"] == "solved"


@pytest.mark.parametrize("content", [{}, {"tab": 1, "number": 2}, {"tab": "a", "number": "1"}])
def test_a_question_has_a_tab_and_a_number(content):
    evidence, _, _ = people(100, 0)
    with pytest.raises(OptionError, match="tab must be text"):
        Session(Problem("error()"), evidence).answer(content)


def test_warnings_are_part_of_an_answer():
    rng = np.random.default_rng(0)
    scores = rng.random(300)
    rare = np.where(np.arange(300) < 8, "rare", "common")
    labels = (rng.random(300) < scores).astype(int)
    evidence = Evidence(np.column_stack([1 - scores, scores]), groups={"kind": rare})
    session = Session(Problem("error()"), evidence.with_observed(labels=labels))
    found = ask(session, ["error_parity('kind', tol=0.05)"], view="observed")
    assert found["status"] == "solved"
    assert any("too few rows" in text for text in found["warnings"])


def test_a_newer_question_ends_an_older_one(monkeypatch):
    evidence, _, _ = people(500, 0)
    session = Session(Problem("error()"), evidence)
    begun, answers = threading.Event(), {}

    def slow(*_, callback, **__):
        begun.set()
        while True:
            callback(None)

    with monkeypatch.context() as patch:
        patch.setattr(session_module, "solve", slow)
        older = threading.Thread(target=lambda: answers.update(old=ask(session, RULES[:0], number=1)))
        older.start()
        assert begun.wait(60)
        assert session.jobs.describe("one")["busy"]
        assert not session.jobs.describe("two")["busy"]
        patch.setattr(session_module, "solve", solve)
        newer = ask(session, ["rejected() <= 0.1"], number=2)
        older.join(60)
    assert answers["old"]["status"] == "cancelled"
    assert newer["status"] == "solved"
    assert ask(session, ["rejected() <= 0.1"], number=1)["status"] == "cancelled"  # it came too late
    assert ask(session, ["rejected() <= 0.1"], number=3)["status"] == "solved"


def test_progress_counts_passes_and_states_how_far_off_the_solver_is(monkeypatch):
    evidence, _, _ = people(500, 0)
    session, seen = Session(Problem("error()"), evidence), []

    def watched(*args, callback, **options):
        def watch(step):
            callback(step)
            seen.append(session.jobs.describe("one"))

        return solve(*args, callback=watch, **options)

    monkeypatch.setattr(session_module, "solve", watched)
    ask(session, [rule.format(0.05) for rule in RULES])
    assert all(one["busy"] for one in seen)
    assert 0 < seen[0]["step"] < seen[-1]["step"]
    assert seen[-1]["off_by"] < 1e-6 < seen[0]["off_by"]
    assert not session.jobs.describe("one")["busy"]


def test_another_tab_does_not_end_it(monkeypatch):
    evidence, _, _ = people(500, 0)
    session = Session(Problem("error()"), evidence)
    with session.jobs.run("one", "solve", 1) as job:
        assert ask(session, ["rejected() <= 0.1"], tab="two", number=9)["status"] == "solved"
        assert not job.cancelled
        session.jobs.cancel("one")
        assert job.cancelled


def test_the_diagnosis_of_a_conflict_ends_between_two_passes(monkeypatch):
    evidence, _, _ = people(500, 0)
    session = Session(Problem("error()"), evidence)
    from bylaw.reductions import _conflicts

    examine = _conflicts.examine

    def examine_cancelled(*args, **options):
        session.jobs.cancel("one")
        return examine(*args, **options)

    monkeypatch.setattr(_conflicts, "examine", examine_cancelled)
    rules = ["rejected() <= 0.1", "selected(0) <= 0.2", "selected(1) <= 0.3"]
    assert ask(session, rules)["status"] == "cancelled"


def test_a_frontier_is_that_of_the_library():
    evidence, _, _ = people(1500, 0)
    session = Session(Problem("error()"), evidence)
    rules = [
        {"text": text, "on": True} for text in ("demographic_parity('sex', tol=0.02)", "rejected() <= 0.1")
    ]
    off = {"text": "selected(1) <= 0.5", "on": False}
    content = {"tab": "one", "number": 1, "minimize": "error()", "rules": [off, *rules], "view": "predicted"}
    found = session.trace({**content, "rule": 2})
    assert found["rule"] == 2
    assert found["now"] in found["levels"]
    texts = [rule["text"] for rule in rules]
    direct = frontier(Problem("error()", texts), evidence, {texts[1]: found["levels"]})
    assert found["costs"] == pytest.approx(direct.cost.tolist(), abs=1e-5)
    assert found["prices"] == pytest.approx(direct.prices[:, 0].tolist(), abs=1e-3)
    with pytest.raises(OptionError, match="a rule that is on"):
        session.trace({**content, "rule": 0, "number": 2})


def test_levels_that_conflict_are_listed():
    evidence, _, _ = people(1000, 0)
    session = Session(Problem("error()"), evidence)
    rules = [{"text": text} for text in ("rejected() <= 0.1", "selected(0) <= 0.4", "selected(1) <= 0.4")]
    content = {"tab": "one", "number": 1, "minimize": "error()", "rules": rules, "view": "predicted"}
    found = session.trace({**content, "rule": 1})
    assert found["conflicts"]
    assert max(found["conflicts"]) < 0.5 <= min(found["levels"])


def test_saved_rules_state_the_same_problem(tmp_path):
    evidence, _, _ = people(200, 0)
    problem = Problem("error()", [], decisions="reject", reject='re"fer\x7f')
    session = Session(problem, evidence)
    rules = [{"text": "rejected() <= 0.1"}, {"text": "selected(0) <= 0.3", "on": False}]
    saved = session.save({"kind": "rules", "minimize": "error()", "rules": rules})
    assert saved.name == "rules.toml"
    (tmp_path / saved.name).write_text(saved.text, encoding="utf-8")
    read = RulesFile.read(tmp_path / saved.name).problem
    assert read == Problem("error()", ["rejected() <= 0.1"], None, "reject", 're"fer\x7f')
    assert tomllib.loads(saved.text)["rules"] == ["rejected() <= 0.1"]
    assert "selected(0) <= 0.3" in saved.text


@pytest.mark.slow
def test_a_saved_policy_is_the_one_of_solve(tmp_path):
    evidence, labels, _ = people(600, 0)
    session = Session(Problem("error()"), evidence.with_observed(labels=labels))
    ask(session, ["rejected() <= 0.3"])  # leaves no trace
    rules = [{"text": "rejected() <= 0.1"}, {"text": "error_parity('sex', tol=0.05)"}]
    content = {"minimize": "error()", "rules": rules, "view": "observed"}
    (tmp_path / "policy.json").write_text(session.save({**content, "kind": "policy"}).text)
    cold = solve(Problem("error()", [rule["text"] for rule in rules]), evidence, labels=labels)
    assert Policy.load(tmp_path / "policy.json").digest == cold.digest
    page = session.save({**content, "kind": "report"})
    assert "<!doctype html>" in page.text
    with pytest.raises(OptionError, match="kind must be"):
        session.save({**content, "kind": "../../etc/passwd"})


@pytest.mark.parametrize(
    ("text", "rules", "column", "words"),
    [
        ("error() + rejectd()", [], 10, "did you mean 'rejected'"),
        ("custom('price')", [], 0, "the cost must be one of ['visit'], got 'price'"),
        ("disagreement('new')", [], 0, "the earlier model must be one of ['old'], got 'new'"),
        ("worst(error(), by='race')", [], 0, "the group column must be one of ['sex'], got 'race'"),
        ("miscoverage()", ["rejected() <= 0.1"], 0, "one kind of decisions"),
        ("error() <= 0.1", [], 0, "must be a rate"),
    ],
)
def test_an_objective_that_cannot_be_minimised_has_a_place(text, rules, column, words):
    evidence, _, _ = people(200, 0)
    found = Session(Problem("error()"), evidence).read_objective(text, rules)
    assert (found["ok"], found["line"], found["column"]) == (False, 1, column)
    assert words in found["error"]


def test_an_objective_is_read_beside_rules_that_may_be_wrong():
    evidence, _, _ = people(200, 0)
    session = Session(Problem("error()"), evidence)
    found = session.read_objective("error()+.5*rejected()", ["rubbish", "rejected() <= 0.1"])
    assert (found["ok"], found["text"]) == (True, "error() + 0.5 * rejected()")
    assert session.read_objective("custom('visit')")["ok"]
    assert not session.read_rule("rejected() <= 0.1", "miscoverage()")["ok"]  # beside another objective
    assert session.read_rule("rejected() <= 0.1", "rubbish")["ok"]  # which is not its mistake


@pytest.mark.parametrize("kind", ["policy", "report"])
def test_a_save_is_cancelled_and_does_not_hold_up_a_solve(kind, monkeypatch):
    evidence, _, _ = people(500, 0)
    session, begun, ended = Session(Problem("error()"), evidence), threading.Event(), []
    slow = "solve" if kind == "policy" else "report"

    def endless(*_, **__):
        begun.set()
        while True:
            checkpoint()

    def save():
        content = {"tab": "saves", "number": 1, "kind": kind, "minimize": "error()", "rules": []}
        with pytest.raises(CancelledError):
            session.save(content)
        ended.append(kind)

    with monkeypatch.context() as patch:
        patch.setattr(session_module, slow, endless)
        saving = threading.Thread(target=save)
        saving.start()
        assert begun.wait(60)
    assert ask(session, ["rejected() <= 0.1"])["status"] == "solved"
    assert session.jobs.describe("saves")["busy"]
    session.jobs.cancel("saves")
    saving.join(60)
    assert ended == [kind]
    assert not session.jobs.describe("saves")["busy"]


def test_a_question_that_waits_for_its_turn_is_cancelled():
    lock, job = threading.Lock(), Job("solve", 1)
    with lock:
        job.cancelled = True
        with pytest.raises(CancelledError), job.hold(lock):
            pytest.fail("it was not its turn")
    with Job("solve", 2).hold(lock):
        assert lock.locked()
    with pytest.raises(CancelledError), job.hold(lock):
        pytest.fail("it was cancelled")
    assert not lock.locked()


def test_warnings_of_a_file_that_is_made_meanwhile_are_not_of_the_answer(monkeypatch):
    evidence, _, _ = people(300, 0)
    session = Session(Problem("error()"), evidence)

    def warn(*args, **options):
        other = threading.Thread(target=lambda: warnings.warn("of another", UserWarning, stacklevel=1))
        other.start()
        other.join()
        warnings.warn("of this one", UserWarning, stacklevel=1)
        return solve(*args, **options)

    monkeypatch.setattr(session_module, "solve", warn)
    with pytest.warns(UserWarning, match="of another"):
        assert ask(session, [])["warnings"] == ["of this one"]


def test_what_to_do_with_a_file_is_told():
    columns = Columns(probabilities="p_*", label="true label")
    told = suggest_next(Source("my scores.csv", "my scores.csv", columns))
    assert told["policy"]["command"] == "bylaw audit policy.json new.csv --label 'true label'"
    assert told["rules"]["command"] == "bylaw fit 'my scores.csv' --rules rules.toml -o policy.json"
    assert suggest_next(None) == {}


def test_the_cost_before_is_that_of_the_model_and_not_of_the_same_problem_without_rules():
    """A referral costs less than a likely error: the model refers no case, the problem without rules does."""
    evidence, _ = three_classes(600)
    minimize, referred = "error() + 0.2 * rejected()", "rejected() <= 0.1"
    session = Session(Problem(minimize, [referred]), evidence)
    cost = ask(session, [referred], minimize)["cost"]
    weights, chances = evidence.weights, evidence.probabilities
    errors = 1 - chances.max(axis=1)
    assert cost["before"] == pytest.approx(np.average(errors, weights=weights))
    assert cost["without_rules"] == pytest.approx(
        np.average(np.minimum(errors, 0.2), weights=weights), abs=1e-3
    )
    assert cost["without_rules"] < cost["after"] < cost["before"]
