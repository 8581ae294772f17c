"""A moderation score should not depend on who happened to be asked: 1.35 million scores of comments.

People scored comments from very toxic to very healthy. A model guesses a person's score of a comment from the
others' scores of the same comment and from this person's habits. The rule: the guessed scores are spread
alike for people of either gender and any age. Comments, not rows, are split: two tenths show habits, one
trains the model, four choose the policy, three judge it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
from experiments.data import annotations, save
from experiments.figures import FAINT, INK, RUST, TEAL, keep, panels, percent, title
from experiments.showcases.command import asked
from matplotlib.ticker import MultipleLocator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Policy, Problem, cost, demographic_parity, solve

SCORES = np.arange(-2, 3)
NAMES = ("very toxic", "toxic", "neither", "healthy", "very healthy")
SHARES = [f"share {score}" for score in SCORES]
DISTANCE = np.abs(np.subtract.outer(SCORES, SCORES))
TOLERANCE = 0.02
HABITS, TRAINING, FITTING, JUDGING = (0, 1), (2,), (3, 4, 5, 6), (7, 8, 9)
PRIOR = 5  # scores like everybody's that are added to a person's own, so that few are not taken for a habit


def evidence_of(rows: pandas.DataFrame) -> Evidence:
    return Evidence(
        rows[SHARES].to_numpy(),
        classes=SCORES.tolist(),
        groups={"gender": rows.gender.to_numpy(), "age_group": rows.age_group.to_numpy()},
    )


def make_policy(evidence: Evidence) -> Policy:
    """As few points off as possible; every score alike for all ages of both genders."""
    rule = demographic_parity(("gender", "age_group"), tol=TOLERANCE)
    return solve(Problem(cost(DISTANCE.tolist()), [rule]), evidence)


def tally(keys: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """How often each key was given each score, (n_keys, n_scores)."""
    counts = np.zeros((keys.max() + 1, len(SCORES)))
    np.add.at(counts, (keys, scores), 1)
    return counts


def others_of(rows: pandas.DataFrame) -> np.ndarray:
    """What the others said of the same comment, as shares, (n_rows, n_scores)."""
    scores = rows.toxicity_score.to_numpy() + 2
    comments = pandas.factorize(rows.rev_id)[0]
    others = tally(comments, scores)[comments] - np.eye(len(SCORES))[scores]
    return others / np.maximum(others.sum(axis=1, keepdims=True), 1)


def habits_of(rows: pandas.DataFrame, parts: Sequence[int]) -> np.ndarray:
    """What each row's person usually says, on these parts of the comments, (n_rows, n_scores)."""
    people = rows.worker_id.to_numpy()
    here = rows.part.isin(parts).to_numpy()
    counts = np.zeros((people.max() + 1, len(SCORES)))
    seen = tally(people[here], rows.toxicity_score.to_numpy()[here] + 2)
    counts[: len(seen)] = seen
    usual = counts.sum(axis=0) / counts.sum()
    return ((counts + PRIOR * usual) / (counts.sum(axis=1, keepdims=True) + PRIOR))[people]


def guess(rows: pandas.DataFrame, others: np.ndarray, shift: int, parts: Sequence[int]) -> pandas.DataFrame:
    """The rows of these parts with P(score), by a model of other parts than theirs."""
    habits, training = ([part + shift for part in roles] for roles in (HABITS, TRAINING))
    features = np.hstack([others, np.log(others + 0.02), np.log(habits_of(rows, habits))])
    known = (rows.gender.notna() & (rows.gender != "other")).to_numpy()
    train, wanted = (known & rows.part.isin(here).to_numpy() for here in (training, parts))
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    model.fit(features[train], rows.toxicity_score[train])
    found = rows[wanted].astype({"gender": str, "age_group": str})
    found[SHARES] = model.predict_proba(features[wanted])
    return found.assign(others=others[wanted] @ SCORES)


def measured(path: Path) -> dict[str, float]:
    """Seconds of one core, and memory, for all rows at once, in a process that does nothing else."""
    rows = pandas.read_pickle(path)
    found = {"rows": len(rows), "MB, rows read": peak_memory()}
    marks = [time.process_time()]
    evidence = evidence_of(rows)
    marks.append(time.process_time())
    policy = make_policy(evidence)
    marks.append(time.process_time())
    policy.decide(evidence, rng=0)
    marks.append(time.process_time())
    steps = ("seconds to check the table", "seconds to choose", "seconds to decide")
    return {**found, **dict(zip(steps, np.diff(marks).tolist(), strict=True)), "MB, peak": peak_memory()}


def peak_memory() -> float:
    status = Path("/proc/self/status")
    return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1024 if status.exists() else np.nan


def in_a_process_of_its_own(rows: pandas.DataFrame) -> dict[str, float]:
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        path = Path(folder) / "rows.pickle"
        rows[["gender", "age_group", *SHARES]].to_pickle(path)
        return pool.submit(measured, path).result()


def judge(rows: pandas.DataFrame, distributions: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """For each cell, the spread of the guessed scores before and after, on comments left out."""
    found = []
    for (gender, age), places in rows.reset_index().groupby(["gender", "age_group"]).indices.items():
        cell = rows.iloc[places]
        line = {"cell": f"{gender}, {age}", "people": cell.worker_id.nunique(), "rows": len(places)}
        line["others"] = cell.others.mean()
        for when, distribution in distributions.items():
            shares = distribution[places].mean(axis=0)
            line |= {f"{name}, {when}": share for name, share in zip(NAMES, shares, strict=True)}
            line[f"gap, {when}"] = np.abs(shares - distribution.mean(axis=0)).max()
            line[f"off, {when}"] = (
                (distribution[places] * DISTANCE[cell.toxicity_score + 2]).sum(axis=1).mean()
            )
        found.append(line)
    return found


def describe(cells: pandas.DataFrame, speed: dict[str, float]) -> str:
    off = {when: np.average(cells[f"off, {when}"], weights=cells["rows"]) for when in ("before", "after")}
    worst = {when: cells.loc[cells[f"gap, {when}"].idxmax()] for when in ("before", "after")}
    large = cells[cells["rows"] >= cells["rows"].max() / 20]
    lines = [
        f"On {cells['rows'].sum():,} scores of comments that nothing was fitted on, the model alone is "
        f"{off['before']:.3f} points off on average (of at most 4), and with the rule {off['after']:.3f}. "
        f"The largest gap between a group and everybody falls from {100 * cells['gap, before'].max():.1f} "
        f"points ({worst['before'].cell}) to {100 * cells['gap, after'].max():.1f} ({worst['after'].cell}: "
        f"{worst['after'].people} people, {worst['after'].rows:,} rows); in the {len(large)} largest groups "
        f"from {100 * large['gap, before'].max():.1f} to {100 * large['gap, after'].max():.1f}.",
        "",
        f"For all {speed['rows']:,.0f} scores at once: {speed['seconds to choose']:.1f} seconds of one core "
        f"to choose the policy, {speed['seconds to decide']:.1f} to decide every row, and a peak of "
        f"{speed['MB, peak']:,.0f} MB of memory, {speed['MB, rows read']:,.0f} of which hold the table and "
        "the libraries before bylaw starts.",
        "",
        "| who was asked | people | rows | the others' mean score of the same comments | guessed healthy: "
        "before | after | largest gap: before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells.to_dict("records"):
        shares = (f"{100 * cell[f'healthy, {when}']:.1f} %" for when in ("before", "after"))
        gaps = (f"{100 * cell[f'gap, {when}']:.1f}" for when in ("before", "after"))
        lines.append(
            f"| {cell['cell']} | {cell['people']:,} | {cell['rows']:,} | {cell['others']:.2f} | "
            f"{' | '.join(shares)} | {' | '.join(gaps)} |"
        )
    return "\n".join(lines) + "\n"


def draw(cells: pandas.DataFrame, path: Path) -> None:
    figure, (left, right) = panels(2, width=5.6, height=5.0, sharey=True)
    cells = cells.sort_values("healthy, before").reset_index(drop=True)
    for axis, what in ((left, "healthy"), (right, "gap")):
        axis.grid(visible=False)
        for place, cell in cells.iterrows():
            axis.plot(cell[[f"{what}, before", f"{what}, after"]], [place] * 2, color=FAINT, zorder=1)
        for when, colour in (("before", RUST), ("after", TEAL)):
            axis.scatter(cells[f"{what}, {when}"], cells.index, color=colour, s=45, zorder=2)
        percent(axis.xaxis)
    for when, colour, name in (("before", RUST, "model alone"), ("after", TEAL, "with the rule")):
        x = cells[f"healthy, {when}"].iloc[-1]
        left.text(x, len(cells) - 0.65, name, color=colour, ha="center")
    labels = [f"{cell.cell} ({cell.people:,})" for cell in cells.itertuples()]
    left.set_yticks(cells.index, labels)
    left.set_ylim(-0.6, len(cells))
    title(left, "Comments guessed to be called healthy")
    right.axvline(TOLERANCE, color=INK, linestyle=":", linewidth=1.5)
    right.text(TOLERANCE + 0.002, len(cells) - 0.5, "the rule: 2 points", color=INK, va="center")
    right.set_xlim(left=0)
    right.xaxis.set_major_locator(MultipleLocator(0.05))
    title(right, "Largest gap to everybody, any score")
    left.set_ylabel("who was asked (people)", color=INK)
    keep(figure, path)


def main() -> None:
    data, results, pictures, quick = asked(__doc__, quick="few comments, large groups")
    rows = annotations(data, rows=20_000 if quick else None)
    if quick:
        small = rows.age_group.isin(["Over 60", "Under 18", "not given"])
        rows = rows[~small].reset_index(drop=True)
    comments = pandas.factorize(rows.rev_id)[0]
    rows["part"] = np.random.default_rng(0).integers(10, size=comments.max() + 1)[comments]
    others = others_of(rows)
    first = guess(rows, others, 0, FITTING + JUDGING)
    rest = guess(rows, others, 3, HABITS + TRAINING)
    speed = in_a_process_of_its_own(pandas.concat([first, rest]))
    fit, new = (evidence_of(first[first.part.isin(parts)]) for parts in (FITTING, JUDGING))
    alone = solve(Problem(cost(DISTANCE.tolist())), fit)
    distributions = {"before": alone.probabilities(new), "after": make_policy(fit).probabilities(new)}
    found = judge(first[first.part.isin(JUDGING)], distributions)
    save([{**line, **speed} for line in found], describe(pandas.DataFrame(found), speed), results, "toxicity")
    draw(pandas.DataFrame(found), pictures / "toxicity.png")


if __name__ == "__main__":
    main()
