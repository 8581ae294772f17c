"""How long a slider's release waits for its answer, in a browser: from the event to the painted page.

A real browser opens the studio. A slider is set to a new level and released, twenty times; the clock is the
page's own, from the release to the frame after the answer's. Needs Chromium and playwright.
Prints a table and writes it to benchmarks/results/studio.md.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from bylaw import Evidence, Problem
from bylaw.studio import studio
from core import evidence_of, scores, show

RESULTS = Path(__file__).parent / "results" / "studio.md"
RULES = ["demographic_parity('group', tol=0.02)", "selected(0) <= 0.25"]
RELEASE = """([index, level]) => new Promise((done) => {
  const slider = document.getElementById(`slider-${index}`);
  const results = document.getElementById("results");
  const start = performance.now();
  slider.value = level;
  slider.dispatchEvent(new Event("input", {bubbles: true}));
  slider.dispatchEvent(new Event("change", {bubbles: true}));
  const look = () => {
    if (results.dataset.settled !== "true") return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(
      [performance.now() - start, 1000 * Number(results.dataset.seconds), results.dataset.status])));
  };
  const watch = new MutationObserver(look);
  watch.observe(results, {attributes: true});
  look();
})"""
WANDER = [0.11, 0.03, 0.16, 0.05, 0.14, 0.02, 0.09, 0.07, 0.12, 0.01]


def measure(page: Page, levels: list[float], rest: int) -> list[tuple[float, float]]:
    """Milliseconds from release to picture, and those of the server."""
    times = []
    for level in levels:
        waited, solving, status = page.evaluate(RELEASE, [0, level])
        if status != "solved":
            raise RuntimeError(f"at {level}, the answer was: {status}")
        times.append((waited, solving))
        page.wait_for_timeout(rest)
    return times


@dataclass(frozen=True)
class Contest:
    """A table, the rules that are tried on it, and how long an answer may take."""

    words: str
    evidence: Evidence
    rules: list[str]
    limit: int  # milliseconds
    labels: np.ndarray | None = None


def make_contests() -> list[Contest]:
    small, large = (evidence_of(*scores(rows, 5)) for rows in (100_000, 1_000_000))
    labels, groups = (sample(part) for part in scores(100_000, 5))
    known = Evidence(scores(100_000, 5)[0], groups={"group": groups})
    odds = ["equalized_odds('group', tol=0.05)"]
    return [
        Contest("100,000 rows x 5 classes, 4 groups", small, RULES, 200),
        Contest("100,000 rows x 5 classes, 4 groups, odds, as observed", known, odds, 200, labels),
        Contest("1,000,000 rows x 5 classes, 4 groups", large, RULES, 1000),
    ]


def sample(probabilities: np.ndarray) -> np.ndarray:
    """(n_rows,): one of each row's columns."""
    draws = np.random.default_rng(1).random(len(probabilities))
    return (draws[:, None] > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)


def race(contest: Contest) -> list[tuple[str, str, str]]:
    found, problem = [], Problem("error()", contest.rules)
    with studio(problem, contest.evidence, labels=contest.labels) as running, sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(running.url)
        page.wait_for_selector("#results[data-settled=true]")
        page.wait_for_selector("#frontier[data-state=drawn]")
        near = [round(0.02 + 0.001 * i, 3) for i in range(1, 21)]
        for words, levels in (("near the last level", near), ("anywhere", WANDER * 2)):
            times = measure(page, levels, 50)
            waited, solving = (statistics.median(column) for column in zip(*times, strict=True))
            most = max(one for one, _ in times)
            found.append(
                (
                    f"{contest.words}, released {words}",
                    f"{waited:.0f} ms (server {solving:.0f} ms; slowest {most:.0f} ms)",
                    f"<= {contest.limit} ms",
                )
            )
        browser.close()
    return found


if __name__ == "__main__":
    show([line for contest in make_contests() for line in race(contest)], RESULTS)
