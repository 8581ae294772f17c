"""Files larger than memory: the answer of `solve` in memory, whatever the format and the partitions."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
import pytest

from bylaw import (
    Columns,
    ConvergenceWarning,
    Evidence,
    EvidenceError,
    InfeasibleRulesError,
    OptionError,
    Problem,
    audit,
    demographic_parity,
    diagnose,
    equalized_odds,
    error,
    frontier,
    miscoverage,
    rejected,
    scan,
    selected,
    size,
    solve,
)
from bylaw.engines import _files as files_module, _scan as scan_module

N = 6000
COLUMNS = Columns(["p_a", "p_b", "p_c"], classes=["a", "b", "c"], groups={"sex": "sex"})
PARITY = Problem(error(), [demographic_parity("sex", tol=0.02)])
PROBLEMS = {
    "parity": PARITY,
    "rejection": Problem(error(), [demographic_parity("sex", tol=0.02), rejected() <= 0.1]),
    "odds": Problem(error(), [equalized_odds("sex", tol=0.03)]),
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 4))
    chances = np.exp(0.9 * x @ rng.normal(size=(4, 3)))
    chances /= chances.sum(axis=1, keepdims=True)
    sex = np.where(x[:, 0] + rng.normal(size=N) > 0, "F", "M")
    labels = np.array(["a", "b", "c"])[
        (rng.random(N)[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    ]
    columns = {f"p_{name}": chances[:, k] for k, name in enumerate("abc")}
    return pa.table({"id": np.arange(N), **columns, "sex": sex, "label": labels, "w": rng.uniform(0.5, 2, N)})


@pytest.fixture
def small_sample(monkeypatch):
    """So few rows in memory that the rows elsewhere matter."""
    monkeypatch.setattr(scan_module, "SAMPLE_ROWS", 1000)
    monkeypatch.setattr(files_module, "_PARTITION_ROWS", 500)


def write_parts(table, folder, n_parts=3):
    folder.mkdir(exist_ok=True)
    ends = np.linspace(0, len(table), n_parts + 1).astype(int)
    for i, (first, last) in enumerate(itertools.pairwise(ends)):
        pa.parquet.write_table(
            table.slice(first, last - first), folder / f"part-{i}.parquet", row_group_size=300
        )
    return folder


def solve_in_memory(problem, table, **options):
    return solve(problem, COLUMNS.evidence(table), **options)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_answer_is_that_of_rows_in_memory(name, table, tmp_path):
    rows = scan(write_parts(table, tmp_path / "parts"), COLUMNS)
    found, expected = solve(PROBLEMS[name], rows), solve_in_memory(PROBLEMS[name], table)
    assert found.solution.value == pytest.approx(expected.solution.value, abs=1e-9)
    assert found.beta == pytest.approx(expected.beta, rel=1e-12)
    assert found.guarantee.sigma == pytest.approx(expected.guarantee.sigma, rel=1e-9)
    assert found.fingerprints == expected.fingerprints
    assert found.solution.passes == rows.passes <= 6
    evidence = COLUMNS.evidence(table)
    np.testing.assert_allclose(found.probabilities(evidence), expected.probabilities(evidence), atol=2e-3)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("n_parts", [1, 7])
def test_partitions_do_not_matter(n_parts, table, tmp_path):
    rows = scan(write_parts(table, tmp_path / "parts", n_parts), COLUMNS)
    expected = solve_in_memory(PARITY, table).solution.value
    assert solve(PARITY, rows).solution.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.usefixtures("small_sample")
def test_the_same_partitions_give_the_same_bits(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")
    one, two = (solve(PROBLEMS["rejection"], scan(folder, COLUMNS)).digest for _ in range(2))
    assert one == two


@pytest.mark.usefixtures("small_sample")
def test_weights_count(table, tmp_path):
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, groups={"sex": "sex"}, weights="w")
    zeros = np.where(np.arange(N) % 5, table["w"].to_numpy(), 0.0)
    table = table.set_column(table.schema.get_field_index("w"), "w", pa.array(zeros))
    found = solve(PARITY, scan(write_parts(table, tmp_path / "parts"), columns))
    expected = solve(PARITY, columns.evidence(table))
    assert found.solution.value == pytest.approx(expected.solution.value, abs=1e-9)
    assert found.guarantee.rows == expected.guarantee.rows == np.count_nonzero(zeros)


WRITERS = {
    "x.csv": lambda table, path: pa.csv.write_csv(table, path),
    "x.csv.gz": lambda table, path: pa.csv.write_csv(table, pa.CompressedOutputStream(str(path), "gzip")),
    "x.arrow": lambda table, path: pa.feather.write_feather(table, path, compression="uncompressed"),
    "x.parquet": lambda table, path: pa.parquet.write_table(table, path),
}


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("name", WRITERS)
def test_formats(name, table, tmp_path):
    WRITERS[name](table, tmp_path / name)
    found = solve(PARITY, scan(tmp_path / name, COLUMNS))
    assert found.solution.value == pytest.approx(solve_in_memory(PARITY, table).solution.value, abs=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_patterns_and_datasets(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.parquet.crc").touch()
    expected = solve_in_memory(PARITY, table).solution.value
    for source in (
        str(folder),
        f"{folder}/part-*.parquet",
        pa.dataset.dataset(sorted(folder.glob("*.parquet"))),
    ):
        assert solve(PARITY, scan(source, COLUMNS)).solution.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.usefixtures("small_sample")
def test_groups_are_what_all_of_their_values_look_like(table, tmp_path):
    """In CSV files nothing has a type: a 1 in one file is text if there is an x in another."""
    ends = {"one.csv": ["1", "2"], "two.csv": ["1", "x"]}
    for i, (name, values) in enumerate(ends.items()):
        part = table.slice(i * N // 2, N // 2)
        texts = pa.array(np.array(values)[(part["sex"].to_numpy(zero_copy_only=False) == "F").astype(int)])
        pa.csv.write_csv(part.set_column(part.schema.get_field_index("sex"), "sex", texts), tmp_path / name)
    policy = solve(PARITY, scan(f"{tmp_path}/*.csv", COLUMNS))
    assert policy.feature_map.attributes["sex"].values == ("1", "2", "x")
    numbers = solve(PARITY, scan(tmp_path / "one.csv", COLUMNS))
    assert numbers.feature_map.attributes["sex"].values == (1, 2)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_a_value_in_one_file_only_and_a_file_without_rows(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")
    rare = table.slice(0, 200).set_column(table.schema.get_field_index("sex"), "sex", pa.array(["X"] * 200))
    pa.parquet.write_table(rare, folder / "rare.parquet")
    pa.parquet.write_table(table.slice(0, 0), folder / "a-empty.parquet")
    whole = pa.concat_tables([table, rare])
    found, expected = solve(PARITY, scan(folder, COLUMNS)), solve_in_memory(PARITY, whole)
    assert found.feature_map.attributes["sex"].values == ("F", "M", "X")
    assert found.solution.value == pytest.approx(expected.solution.value, abs=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_rules_hold_as_observed(table, tmp_path):
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, groups={"sex": "sex"}, label="label")
    rows = scan(write_parts(table, tmp_path / "parts"), columns)
    policy = solve(PROBLEMS["odds"], rows)
    assert policy.fitted_rates is not None
    assert max(one.excess for one in policy.fitted_rates.rules) <= 1e-6
    found = audit(policy, COLUMNS.evidence(table), labels=table["label"], fitted_rows="estimate")
    excesses = [(r.estimate - r.target) * (1 if r.sense == "<=" else -1) for r in found.rules]
    assert max(excesses) <= 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_sets_hold_as_observed_on_all_rows(table, tmp_path):
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, label="label")
    problem = Problem(size(), [miscoverage().given(label=label) <= 0.1 for label in "abc"])
    policy = solve(problem, scan(write_parts(table, tmp_path / "parts"), columns))
    inside = policy.probabilities(columns.evidence(table))
    codes = np.array(["abc".index(label) for label in table["label"].to_pylist()])
    for k in range(3):  # by hand: the mean chance that the true label is left out
        assert 1 - inside[codes == k, k].mean() <= 0.1 + 1e-6
    expected = solve(problem, columns.evidence(table))
    assert (
        inside.sum(axis=1).mean() <= 1.02 * expected.probabilities(columns.evidence(table)).sum(axis=1).mean()
    )


@pytest.mark.parametrize("seed", range(6))
def test_sets_as_observed_cost_what_they_cost_in_memory(seed, tmp_path):
    """Also with scores that are far from calibrated, each label with a rule of its own."""
    rng = np.random.default_rng(seed)
    n, names = 2000, list("abc")
    chances = rng.dirichlet(np.full(3, 0.2), n)
    labels = np.array(names)[(rng.random(n)[:, None] > chances.cumsum(axis=1)[:, :2]).sum(axis=1)]
    scores = chances ** rng.choice([0.3, 3.0]) * np.exp(rng.normal(size=3)) + 1e-12
    scores /= scores.sum(axis=1, keepdims=True)
    evidence = Evidence(scores, classes=names)
    columns = Columns(names, label="label")
    rows = pa.table({**dict(zip(names, scores.T, strict=True)), "label": labels})
    pa.parquet.write_table(rows, tmp_path / "rows.parquet")
    for rules in ([miscoverage() <= 0.2], [miscoverage().given(label=label) <= 0.1 for label in names]):
        problem = Problem(size(), rules)
        scanned = solve(problem, scan(tmp_path / "rows.parquet", columns))
        expected = solve(problem, evidence, labels=labels, calibrate="none")
        inclusions = scanned.probabilities(evidence)
        missed = 1 - inclusions[np.arange(n), [names.index(label) for label in labels]]
        worst = max(missed[labels == label].mean() for label in names) if len(rules) > 1 else missed.mean()
        assert worst <= (0.1 if len(rules) > 1 else 0.2) + 1e-6
        cost = expected.expected(size(), evidence)
        assert scanned.expected(size(), evidence) == pytest.approx(cost, rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_rules_that_no_policy_satisfies_as_observed_do_not_pass_in_silence(table, tmp_path):
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, label="label")
    rows = scan(write_parts(table, tmp_path / "parts"), columns)
    with pytest.raises((InfeasibleRulesError, ConvergenceWarning), match=r"error\(\) <= 0\.01"):
        solve(Problem(error(), [error() <= 0.01]), rows)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_conflicts_are_proved_on_all_rows(table, tmp_path):
    problem = Problem(error(), [selected("a") <= 0.2, selected("b") <= 0.2, selected("c") <= 0.2])
    rows = scan(write_parts(table, tmp_path / "parts"), COLUMNS)
    with pytest.raises(InfeasibleRulesError) as conflict:
        solve(problem, rows)
    assert conflict.value.diagnosis.least_violation == pytest.approx(0.4 / 3, abs=1e-6)
    found, expected = diagnose(problem, rows), diagnose(problem, COLUMNS.evidence(table))
    assert set(found.conflict) == set(expected.conflict)
    assert found.least_relaxation == pytest.approx(expected.least_relaxation, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_how_far_rules_conflict_is_that_of_all_rows(table, tmp_path):
    problem = Problem(rejected(), [error() <= 0.02, rejected() <= 0.1, demographic_parity("sex", tol=0.01)])
    found = diagnose(problem, scan(write_parts(table, tmp_path / "parts"), COLUMNS))
    expected = diagnose(problem, COLUMNS.evidence(table))
    assert found.least_violation == pytest.approx(expected.least_violation, abs=1e-6)
    assert found.violations == pytest.approx(expected.violations, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("small_sample")
def test_room_is_that_of_all_rows(table, tmp_path):
    problem = Problem(error(), [error() <= 0.3, rejected() <= 0.3])
    found = diagnose(problem, scan(write_parts(table, tmp_path / "parts"), COLUMNS))
    assert found.slack == pytest.approx(diagnose(problem, COLUMNS.evidence(table)).slack, abs=1e-6)


def test_missing_labels_are_refused(table, tmp_path):
    labels = table["label"].to_pylist()
    labels[17] = None
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, groups={"sex": "sex"}, label="label")
    table = table.set_column(table.schema.get_field_index("label"), "label", pa.array(labels))
    with pytest.raises(EvidenceError, match="'label' must be observed on all rows"):
        solve(PROBLEMS["odds"], scan(write_parts(table, tmp_path / "parts"), columns))


def test_a_file_that_changes_between_walks_is_an_error_that_names_it(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")

    def touch(step):
        if step.number == 1:
            os.utime(folder / "part-1.parquet", ns=(1, 1))

    with pytest.raises(EvidenceError, match=r"part-1\.parquet was changed"):
        solve(PARITY, scan(folder, COLUMNS, progress=touch))


def test_a_file_that_vanishes_between_walks_is_an_error_that_names_it(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")

    def remove(step):
        (folder / "part-2.parquet").unlink(missing_ok=True)

    with pytest.raises(EvidenceError, match=r"part-2\.parquet"):
        solve(PARITY, scan(folder, COLUMNS, progress=remove))


def test_bad_rows_are_named(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")
    wrong = table.slice(0, 50).set_column(1, "p_a", pa.array(np.full(50, 0.9)))
    pa.parquet.write_table(wrong, folder / "z.parquet")
    with pytest.raises(EvidenceError, match=r"z\.parquet") as problem:
        solve(PARITY, scan(folder, COLUMNS))
    assert "sums to" in str(problem.value)


def test_progress_is_reported_walk_by_walk(table, tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_PARTITION_ROWS", 500)
    seen = []
    rows = scan(write_parts(table, tmp_path / "parts"), COLUMNS, progress=seen.append)
    solve(PARITY, rows)
    assert {step.number for step in seen} == set(range(1, rows.passes + 1))
    for number in range(1, rows.passes + 1):
        counts = [step.rows for step in seen if step.number == number]
        assert counts == sorted(counts)
        assert counts[-1] == N
    assert all(step.n_rows == N for step in seen)


def test_samples_are_uniform_and_repeatable(table, tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "_PARTITION_ROWS", 500)
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, label="label")
    rows = scan(write_parts(table, tmp_path / "parts"), columns)
    again, other = rows.sample(1000, seed=1), rows.sample(1000, seed=2)
    found = rows.sample(1000, seed=1)
    assert len(found) == 1000
    np.testing.assert_array_equal(found.probabilities, again.probabilities)
    assert not np.array_equal(found.probabilities, other.probabilities)
    place = {tuple(row): i for i, row in enumerate(columns.evidence(table).probabilities)}
    places = np.array([place[tuple(row)] for row in found.probabilities])
    assert len(set(places)) == 1000
    counts = np.histogram(places, bins=6, range=(0, N))[0]  # 1000/6 each, with a deviation of 11
    assert abs(counts - 1000 / 6).max() < 55
    assert [table["label"][i].as_py() for i in places] == [found.classes[code] for code in found.labels]
    assert len(rows.sample(10**6)) == N


@pytest.mark.slow
def test_audits_and_frontiers_read_rows_that_fit_in_memory(table, tmp_path, monkeypatch):
    fitted, other = table.slice(0, N // 2), table.slice(N // 2)
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, groups={"sex": "sex"}, label="label")
    policy = solve_in_memory(PARITY, fitted)
    rows = scan(write_parts(other, tmp_path / "parts"), columns)
    found = audit(policy, rows)
    expected = audit(policy, COLUMNS.evidence(other), labels=other["label"])
    assert [rule.estimate for rule in found.rules] == pytest.approx(
        [rule.estimate for rule in expected.rules]
    )
    curve = frontier(PARITY, rows, {PARITY.rules[0]: [0.01, 0.05]})
    assert len(curve.cost) == 2
    monkeypatch.setattr(scan_module, "MOST_VALUES", 5000)
    with pytest.raises(EvidenceError, match=r"rows\.sample\(1_000_000\)"):
        audit(policy, rows)
    assert audit(policy, rows.sample(500)).rows == 500


def test_rows_of_unknown_number_are_read_all_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    path.write_text("no,yes\n" + "0.5,0.5\n" * 100)
    rows = scan(path, Columns(["no", "yes"]))
    assert rows.engine.n_rows is None
    monkeypatch.setattr(scan_module, "MOST_VALUES", 2 * 101)
    assert len(rows.read()) == 100
    monkeypatch.setattr(scan_module, "MOST_VALUES", 2 * 60)
    with pytest.raises(EvidenceError, match="has 60 rows or more, too many"):
        rows.read()


@pytest.mark.slow
def test_certified_policies(table, tmp_path):
    columns = Columns(COLUMNS.probabilities, COLUMNS.classes, groups={"sex": "sex"})
    fitted, held_out = (
        scan(write_parts(table.slice(i * N // 2, N // 2), tmp_path / f"part-{i}"), columns) for i in range(2)
    )
    problem = Problem(error(), [demographic_parity("sex", tol=0.1)])
    policy = solve(problem, fitted, guarantee="high_probability", held_out=held_out)
    assert policy.certificate.rows == N // 2


def test_what_needs_memory_or_names_columns_twice_is_refused(table, tmp_path):
    folder = write_parts(table, tmp_path / "parts")
    rows = scan(folder, COLUMNS)
    with pytest.raises(OptionError, match="calibrate"):
        solve(PARITY, rows, calibrate="temperature")
    with pytest.raises(OptionError, match="for scanned rows, got 'sgd3'"):
        solve(PARITY, rows, solver="sgd3")
    with pytest.raises(OptionError, match="bylaw decide"):
        solve_in_memory(PARITY, table).decide(rows, ids="id")
    with pytest.raises(OptionError, match="Columns"):
        solve(PARITY, rows, labels=table["label"])
    with pytest.raises(EvidenceError, match="no column 'nothing'"):
        scan(folder, Columns(["p_a", "p_b", "nothing"]))
    with pytest.raises(OptionError, match="pass rows in memory as Evidence"):
        scan(Evidence([[0.5, 0.5]]), COLUMNS)
    with pytest.raises(EvidenceError, match="no files were found"):
        scan(f"{tmp_path}/none-*.parquet", COLUMNS)
    with pytest.raises(EvidenceError, match="no such file"):
        scan(tmp_path / "none.parquet", COLUMNS)
    pa.parquet.write_table(table.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(EvidenceError, match="must have at least one row"):
        solve(PARITY, scan(tmp_path / "empty.parquet", COLUMNS))
    pa.parquet.write_table(table.drop_columns(["sex"]), folder / "other.parquet")
    with pytest.raises(EvidenceError, match=r"other\.parquet has no column 'sex'"):
        scan(folder, COLUMNS)


def test_no_thread_is_left_behind(table, tmp_path):
    import threading

    before = set(threading.enumerate())
    rows = scan(write_parts(table, tmp_path / "parts"), COLUMNS)

    def stop(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve(PARITY, scan(tmp_path / "parts", COLUMNS, progress=stop))
    solve(PARITY, rows)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("bylaw")]


def test_a_table_of_a_database_is_no_option_of_files(tmp_path):
    with pytest.raises(OptionError, match="table= must be left out"):
        scan(str(tmp_path / "*.parquet"), COLUMNS, table="scores")
