"""A model and three experts, each with a skill and a share of the cases that they have time for.

Generated applications: 4,000 to train the model, 4,000 to choose the policy, 8,000 to judge it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import save
from experiments.showcases.command import asked
from sklearn.linear_model import LogisticRegression

from bylaw import Evidence, Policy, Problem, custom, error, selected, solve
from experiments import figures

SEGMENTS = ("private", "business", "abroad")
CLASSES = ("deny", "approve")
# The chance that an expert is wrong, by segment; and the share of all cases that they have time for.
SKILLS = {
    "junior": {"private": 0.12, "business": 0.3, "abroad": 0.35},
    "specialist": {"private": 0.25, "business": 0.25, "abroad": 0.03},
    "senior": {"private": 0.04, "business": 0.05, "abroad": 0.08},
}
CAPACITY = {"junior": 0.15, "specialist": 0.06, "senior": 0.04}
PAST = 300  # cases by which each expert's errors are known, in each segment
SCALES = (0.25, 0.5, 1.0, 1.5, 2.0)


class Cases(NamedTuple):
    features: np.ndarray  # (n_rows, 4)
    segment: np.ndarray  # (n_rows,), positions
    right: np.ndarray  # (n_rows,), positions of the right decisions

    def rows(self, part: slice) -> Cases:
        return Cases(*(column[part] for column in self))


def draw_cases(n: int, rng: np.random.Generator) -> Cases:
    features, segment = rng.normal(size=(n, 4)), rng.choice(3, n, p=[0.6, 0.25, 0.15])
    odds = features @ [1.5, -1.0, 0.5, 0.0] * np.array([1.6, 1.0, 0.6])[segment]
    return Cases(features, segment, (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int))


def describe(cases: Cases) -> np.ndarray:
    """Each feature within each segment."""
    return np.column_stack([cases.features * (cases.segment == s)[:, None] for s in range(3)])


def estimate_skills(rng: np.random.Generator) -> np.ndarray:
    """(3 segments, 3 experts): shares of wrong decisions among past cases."""
    true = np.array([[skill[segment] for skill in SKILLS.values()] for segment in SEGMENTS])
    return (rng.binomial(PAST, true) + 1) / (PAST + 2)


def make_evidence(chances: np.ndarray, wrong: np.ndarray) -> Evidence:
    """The model's probabilities, and of each expert the probability of an error, (n_rows, 3)."""
    costs = np.column_stack([np.zeros(chances.shape), wrong])  # error() counts what the model decides
    return Evidence(chances, classes=CLASSES, costs={"expert wrong": costs}, options=list(SKILLS))


def share_work(rows: Evidence, scale: float) -> Policy:
    """Fewest wrong decisions, of the model and of experts, within what each has time for."""
    rules = [selected(expert) <= scale * share for expert, share in CAPACITY.items()]
    problem = Problem(error() + custom("expert wrong"), rules, decisions=[*CLASSES, *SKILLS])
    return solve(problem, rows)


def least_sure_first(chances: np.ndarray, scale: float) -> np.ndarray:
    """One-hot, (n_rows, 5): the least sure cases to the best expert, the next ones to the next."""
    decided, order = chances.argmax(axis=1), np.argsort(chances.max(axis=1))
    first = 0
    for expert in ("senior", "specialist", "junior"):
        last = first + round(scale * CAPACITY[expert] * len(order))
        decided[order[first:last]] = len(CLASSES) + list(SKILLS).index(expert)
        first = last
    return np.eye(len(CLASSES) + len(SKILLS))[decided]


def outcome(test: Cases, distribution: np.ndarray) -> dict[str, float]:
    """Wrong decisions, by the true skills, and the share of cases of each expert."""
    true = np.array([[skill[segment] for skill in SKILLS.values()] for segment in SEGMENTS])[test.segment]
    wrong = np.column_stack([1 - np.eye(2)[test.right], true])
    return {"wrong": (distribution * wrong).sum(axis=1).mean()} | dict(
        zip(SKILLS, distribution[:, 2:].mean(axis=0), strict=True)
    )


def measure(seed: int, n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    cases, skills = draw_cases(4 * n, rng), estimate_skills(rng)
    train, fit, test = (cases.rows(part) for part in (slice(n), slice(n, 2 * n), slice(2 * n, 4 * n)))
    model = LogisticRegression(max_iter=1000).fit(describe(train), train.right)
    rows, new = (
        make_evidence(model.predict_proba(describe(part)), skills[part.segment]) for part in (fit, test)
    )
    found = [{"way": "model alone", "scale": 0.0, **outcome(test, least_sure_first(new.probabilities, 0.0))}]
    for scale in SCALES:
        policy = share_work(rows, scale).probabilities(new)
        found.append({"way": "policy", "scale": scale, **outcome(test, policy)})
        naive = least_sure_first(new.probabilities, scale)
        found.append({"way": "least sure first", "scale": scale, **outcome(test, naive)})
        if scale == 1:
            for s, segment in enumerate(SEGMENTS):
                here = test.segment == s
                shares = dict(zip(SKILLS, policy[here, 2:].mean(axis=0), strict=True))
                found.append({"way": f"policy, {segment}", "scale": scale, **shares})
    return [{"seed": seed, **line} for line in found]


def points(values: pandas.Series) -> str:
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=0):.1f} %"


def text_of(found: pandas.DataFrame) -> str:
    full = found[found.scale == 1]
    model = found[found.way == "model alone"]
    naive, policy = (full[full.way == way] for way in ("least sure first", "policy"))
    over = max((policy[expert] - share).max() for expert, share in CAPACITY.items())
    lines = ["| cases | junior | specialist | senior |", "|---|---|---|---|"]
    lines.append(f"| capacity | {' | '.join(f'{share:.0%}' for share in CAPACITY.values())} |")
    names = {"all": "policy"} | {segment: f"policy, {segment}" for segment in SEGMENTS}
    for name, way in names.items():
        chosen = full[full.way == way]
        lines.append(f"| {name} | {' | '.join(points(chosen[expert]) for expert in SKILLS)} |")
    table = "\n".join(lines)
    return f"""\
The model alone decides {points(model.wrong)} of the new cases wrongly. With experts, filled by the least sure
cases first, model and experts together decide {points(naive.wrong)} wrongly; with the policy
{points(policy.wrong)}. On new cases no expert got more than {100 * over:.1f} points above the capacity.

{table}

Shares of the new cases that the policy sends to each expert; mean ± standard deviation over
{found.seed.nunique()} draws of everything.
"""


def draw(found: pandas.DataFrame, path: Path) -> None:
    figure, (curves, bars) = figures.panels(2, width=5.2, height=4.0)
    figures.title(curves, "Wrong decisions, model and experts together")
    alone = found[found.way == "model alone"].wrong.mean()
    for way, colour in (("least sure first", figures.FAINT), ("policy", figures.VIOLET)):
        means = found[found.way == way].groupby("scale").wrong.mean()
        curves.plot([0, *means.index], [alone, *means], color=colour, marker="o", linewidth=2)
        curves.annotate(
            way, (means.index[-2], means.iloc[-2]), (0, 9), textcoords="offset points", color=colour
        )
    curves.set(xlabel="capacity, as a multiple of today's", ylim=(0, None), yticks=np.arange(0, 0.21, 0.05))
    figures.percent(curves.yaxis)
    figures.title(bars, "Who gets the cases of each segment")
    colours = (figures.TEAL, figures.BLUE, figures.RUST)
    for k, (expert, colour) in enumerate(zip(SKILLS, colours, strict=True)):
        heights = [found[found.way == f"policy, {segment}"][expert].mean() for segment in SEGMENTS]
        bars.bar(np.arange(3) + 0.27 * (k - 1), heights, 0.25, color=colour, label=expert)
    bars.set(xticks=range(3), xticklabels=SEGMENTS, ylabel="share of the segment's cases")
    bars.legend(frameon=False)
    figures.percent(bars.yaxis)
    figures.keep(figure, path)


def main() -> None:
    _, results, pictures, quick = asked(__doc__, quick="one draw of 3,200 cases")
    rows = [row for seed in range(1 if quick else 20) for row in measure(seed, 800 if quick else 4000)]
    found = pandas.DataFrame(rows)
    save(rows, text_of(found), results, "experts")
    draw(found, pictures / "experts.png")


if __name__ == "__main__":
    main()
