"""Every snippet and command in the README and the docs runs as printed."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.clusters import JAVA
from helpers.shared_data import shared
from helpers.snippets import clean, read_snippets, run_snippets

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if read_snippets(p)], ids=lambda page: page.name)
def test_snippets_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # otherwise Spark takes the python3 on the path
    monkeypatch.setenv("JDK_JAVA_OPTIONS", JAVA)
    for snippet, printed in zip(read_snippets(page), run_snippets(page), strict=True):
        if snippet.output is not None:
            assert_alike(printed, snippet.output)


NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")


def assert_alike(printed, shown):
    """The same words, and the same numbers but for roundings on another machine."""
    assert [NUMBER.sub("#", line) for line in clean(printed).splitlines()] == [
        NUMBER.sub("#", line) for line in clean(shown).splitlines()
    ], printed
    now, then = ([float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (printed, shown))
    assert now == pytest.approx(then, rel=0.01, abs=0.002), printed


def test_outputs_are_compared():
    assert_alike("price 0.2731, 1,000 rows \n", "price 0.2729, 1,000 rows\n")
    for other in ("price 0.29, 1,000 rows", "cost 0.2731, 1,000 rows", "price 0.2731, 1,200 rows"):
        with pytest.raises(AssertionError):
            assert_alike("price 0.2731, 1,000 rows", other)


def lines_of(page, program):
    return [line for line in "".join(blocks(page, "bash")).splitlines() if line.startswith(program)]


def test_commands_are_targets():
    commands = [line.split("#")[0].split() for line in lines_of(ROOT / "README.md", "make")]
    assert ["make", "demo"] in commands
    for command in commands:
        made = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr


def run_in_shell(line, folder):
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], cwd=folder, env=here, check=True, capture_output=True)


def split_command(line):
    """Words and operators, as a shell splits them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|")
    lexer.whitespace_split = True
    return list(lexer)


def run_here(lines, folder, bylaw):
    """Run commands in this process, but for those with redirections, which are left to a shell."""
    for line in lines:
        words = split_command(line)
        may_fail = words[-2:] == ["||", "true"]
        words = words[:-2] if may_fail else words
        if {"<", ">", "|", "||"} & set(words):
            run_in_shell(line, folder)
            continue
        answer = bylaw(*words[1:])
        assert may_fail or answer.code == 0, answer.err


def test_commands_are_split_as_by_a_shell():
    line = "bylaw watch 'a b' --rule \"error() <= 0.2\" > out.txt || true   # comment"
    words = ["bylaw", "watch", "a b", "--rule", "error() <= 0.2", ">", "out.txt", "||", "true"]
    assert split_command(line) == words


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if lines_of(p, "bylaw")], ids=lambda page: page.name)
def test_commands_run_as_printed(page, tmp_path, monkeypatch, bylaw):
    """All lines of a page, one after the other, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    run_here(lines_of(page, "bylaw"), tmp_path, bylaw)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "decisions.parquet").exists()


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *PAGES):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_demo_runs_and_leaves_a_plot_and_a_policy(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mortgages.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "mortgages.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert (tmp_path / "mortgages.png").stat().st_size > 10_000
    assert (tmp_path / "mortgages.json").exists()
    table = {line[:34].strip(): line[34:].split() for line in shown.splitlines() if "%" in line}
    gap, referred = table["gap in approval"], table["referred to a human"]
    assert float(gap[0].rstrip("%")) > 10
    assert abs(float(gap[1].rstrip("%"))) <= 2.05
    assert float(referred[1].rstrip("%")) <= 10.05
    assert "points of error   rejected() <= 0.1" in shown


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.experiment
def test_the_experiment_on_rates_runs(tmp_path):
    table = run("experiments/rates/run.py", "--quick", "--out", tmp_path)
    assert table == (tmp_path / "rates.md").read_text()
    assert (tmp_path / "rates.png").stat().st_size > 10_000
    assert len((tmp_path / "rates.csv").read_text().splitlines()) == 1 + 2 * 2 * 2 * 3


@pytest.mark.experiment
def test_the_papers_experiments_run(tmp_path):
    shared("paper/communities.csv")
    run("-m", "experiments.paper.run", "--quick", "--out", tmp_path)
    for name, lines in (("rejection", 2 * 2 * 7), ("parity", 2 * (1 + 5))):
        assert (tmp_path / f"paper_{name}.png").stat().st_size > 10_000
        assert len((tmp_path / f"{name}_means.csv").read_text().splitlines()) == 1 + lines
        assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 1 + 2 * lines


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("name", "needs", "figures"),
    [
        ("upgrade", "cosmosqa_llm_logits.npz", 2),
        ("routing", "cosmosqa_llm_logits.npz", 1),
        ("experts", None, 1),
        ("referrals", None, 1),
        ("sets", "cifar100_logits.npy", 2),
        ("wages", "gss_wages.csv.gz", 2),
        ("toxicity", "toxicity_annotations.tsv.gz", 1),
    ],
)
def test_the_showcases_run(name, needs, figures, tmp_path):
    if needs:
        shared(needs)
    shown = run("-m", f"experiments.showcases.{name}", "--quick", "--out", tmp_path)
    assert (tmp_path / f"{name}.md").read_text() in shown
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) > 5
    assert sum(image.stat().st_size > 10_000 for image in tmp_path.glob("*.png")) == figures


@pytest.mark.experiment
def test_the_race_against_peers_runs(tmp_path):
    for name in ("adult.parquet", "toxicity_annotations.tsv.gz", "cifar100_logits.npy", "news20_labels.npy"):
        shared(name)
    shown = run("-m", "benchmarks.peers.run", "--quick", "--out", tmp_path)
    assert shown == (tmp_path / "peers.md").read_text()
    assert shown.count("\n| ") == 50
    assert "failed" not in shown
    assert "crashed" not in shown


@pytest.mark.experiment
def test_the_benchmark_of_decisions_runs(tmp_path):
    command = ("benchmarks/decide.py", "--rows", 20_000, "--rounds", 1, "--out", tmp_path / "decide.md")
    assert run(*command).count("\n| ") == 4
    assert "MB" in (tmp_path / "decide.md").read_text()


@pytest.mark.slow
def test_an_engine_of_ones_own_runs():
    shown = run("examples/own_engine.py")
    elsewhere, here = (float(value) for value in re.findall(r"-?[\d.]+\d", shown))
    assert elsewhere == pytest.approx(here, abs=1e-9)
    source = (ROOT / "examples" / "own_engine.py").read_text()
    engine = source[source.index("def run_on_file") : source.index("def write_files")]
    assert len(engine.strip().splitlines()) <= 30


@pytest.mark.slow
def test_an_optimiser_from_another_library_runs():
    shown = run("examples/optax_optimizer.py")
    errors = [float(error) for error in re.findall(r"expected error ([\d.]+)", shown)]
    assert errors[0] == pytest.approx(errors[1], abs=0.01)


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("name", "needs", "lines"),
    [
        ("observed", "adult.parquet", 2),
        ("peers", "adult.parquet", 7),
        ("known_groups", "adult.parquet", 7),
        ("populations", None, 4),
        ("per_label", None, 3),
        ("equal_terms", "adult.parquet", 22),
    ],
)
def test_the_experiments_with_the_classifier_run(name, needs, lines, tmp_path):
    if needs:
        shared(needs)
    shown = run("-m", f"experiments.estimator.{name}", "--quick", "--out", tmp_path)
    table = (tmp_path / f"{name}.md").read_text()
    assert shown.startswith(table)
    n_lines = table.count("\n") - 2  # without the head
    assert n_lines == lines


@pytest.mark.experiment
def test_the_benchmark_of_observed_rules_runs(tmp_path):
    shown = run("benchmarks/observed.py", "--quick", "--out", tmp_path / "observed.md")
    assert shown == (tmp_path / "observed.md").read_text()
    assert shown.count(" times (") == 10


@pytest.mark.experiment
@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("validity", None),
        ("power", None),
        ("hard_cases", None),
        ("mapie", None),
        ("looks", None),
        ("selective", None),
        ("guarantee", "adult.parquet"),
    ],
)
def test_the_experiments_on_certificates_run(name, needs, tmp_path):
    if needs:
        shared(needs)
    shown = run("-m", f"experiments.certificates.{name}", "--quick", "--out", tmp_path)
    assert shown == (tmp_path / f"{name}.md").read_text()
    assert (
        shown.count("\n| ")
        == {
            "validity": 23,
            "power": 3,
            "looks": 6,
            "selective": 2,
            "guarantee": 4,
            "hard_cases": 5,
            "mapie": 3,
        }[name]
    )
