"""Which of three language models answers a question, under a budget in money?

The small model answers first, and its six scores are all that a policy sees. Of 10,000 questions, 3,000 with
right answers choose the policy, 2,000 without certify its budget, and 5,000 judge it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import save
from experiments.showcases.command import asked
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import Evidence, Policy, Problem, custom, frontier, solve
from experiments import figures

MODELS = {"7b": "Llama-2-7b-hf", "13b": "Llama-2-13b-hf", "70b": "Llama-2-70b-hf"}
# Dollars for 1,000 questions, a cent per billion parameters. The small model is always asked first.
PRICES = {"7b": 0.07, "13b": 0.07 + 0.13, "70b": 0.07 + 0.70}
BUDGETS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
SHOWN = (0.1, 0.2, 0.3, 0.5)
LOOKS = {
    "models at random": (figures.FAINT, 3, (10, -12)),
    "gap below a threshold: 70b": (figures.TEAL, 2, (8, -14)),
    "two thresholds on the gap": (figures.BLUE, 5, (10, -14)),
    "policy": (figures.VIOLET, 4, (-8, 8)),
}


class Questions(NamedTuple):
    scores: np.ndarray  # (n_rows, 6): log-probabilities of the small model
    right: np.ndarray  # (n_rows, 3): whether each model is right

    @property
    def gap(self) -> np.ndarray:
        """(n_rows,): between the small model's best two probabilities."""
        best, second = np.exp(np.sort(self.scores, axis=1)[:, :-3:-1]).T
        return best - second

    def rows(self, part: Any) -> Questions:
        return Questions(self.scores[part], self.right[part])


def load(folder: Path) -> Questions:
    with np.load(folder / "cosmosqa_llm_logits.npz") as file:
        logits, labels = {name: file[key].astype(float) for name, key in MODELS.items()}, file["y"]
    small = logits["7b"] - logits["7b"].max(axis=1, keepdims=True)
    scores = small - np.log(np.exp(small).sum(axis=1, keepdims=True))
    return Questions(scores, np.column_stack([found.argmax(axis=1) == labels for found in logits.values()]))


def describe(asked: Questions) -> np.ndarray:
    """(n_rows, 17): what is known of a question once the small model has answered it."""
    ranked = np.sort(asked.scores, axis=1)[:, ::-1]
    answer = np.eye(6)[asked.scores.argmax(axis=1)]
    return np.column_stack([asked.scores, ranked[:, :4], asked.gap, answer])


def predict_wrong(fit: Questions, *others: Questions) -> list[np.ndarray]:
    """(n_rows, 3) each: the probability that each model is wrong; on the fitting rows, out of fold."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))
    X, wrong = describe(fit), ~fit.right
    inside = [cross_val_predict(model, X, w, cv=5, method="predict_proba")[:, 1] for w in wrong.T]
    fitted = [clone(model).fit(X, w) for w in wrong.T]
    outside = [np.column_stack([m.predict_proba(describe(rows))[:, 1] for m in fitted]) for rows in others]
    return [np.column_stack(inside), *outside]


def make_evidence(wrong: np.ndarray) -> Evidence:
    """No classes: the decisions are the models to call, and each has two costs."""
    usd = np.tile(list(PRICES.values()), (len(wrong), 1))
    return Evidence(costs={"wrong": wrong, "usd": usd}, options=list(PRICES))


def certified_routes(rows: Evidence, unlabelled: Evidence, budget: float) -> Policy:
    """Fewest wrong answers for so much money, certified to cost no more."""
    problem = Problem(minimize=custom("wrong"), rules=[custom("usd") <= budget])
    limits = {"usd": (min(PRICES.values()), max(PRICES.values()))}
    held_out = unlabelled.with_observed(
        limits=limits, outcomes={"usd": "known"}
    )  # prices need no right answers
    return solve(problem, rows, guarantee="high_probability", held_out=held_out)


def outcome(asked: Questions, distribution: np.ndarray) -> dict[str, float]:
    """Right answers and money spent, with the standard error of the latter."""
    spent = distribution @ list(PRICES.values())
    error = spent.std() / np.sqrt(len(spent))
    return {"right": (distribution * asked.right).sum(axis=1).mean(), "spent": spent.mean(), "error": error}


def route_by_gap(gap: np.ndarray, large: float, mid: float) -> np.ndarray:
    """One-hot, (n_rows, 3): the large model below one threshold, the middle one below the other."""
    return np.eye(3)[np.where(gap < large, 2, np.where(gap < mid, 1, 0))]


def one_threshold(fit: Questions, test: Questions, budget: float) -> np.ndarray:
    share = (budget - PRICES["7b"]) / (PRICES["70b"] - PRICES["7b"])
    threshold = np.quantile(fit.gap, share)
    return route_by_gap(test.gap, threshold, threshold)


def two_thresholds(fit: Questions, test: Questions, budget: float, grid: int = 41) -> np.ndarray:
    """The pair that spends the budget and is right most often on the fitting rows."""
    small, mid, large = PRICES.values()
    tried = []
    for share in np.linspace(0, (budget - small) / (large - small), grid):
        rest = min((budget - small - share * (large - small)) / (mid - small), 1 - share)
        pair = np.quantile(fit.gap, [share, min(share + rest, 1.0)])
        tried.append((outcome(fit, route_by_gap(fit.gap, *pair))["right"], *pair))
    return route_by_gap(test.gap, *max(tried)[1:])


def at_random(budget: float) -> np.ndarray:
    """(3,): the best mix of the models that costs this much, whatever the question."""
    points = sorted(PRICES.values())
    spots = np.array([np.interp(budget, points, column) for column in np.eye(3).T])
    return spots / spots.sum()


def measure(asked: Questions, seed: int, budgets: tuple[float, ...]) -> list[dict[str, Any]]:
    """One split, all ways and budgets."""
    n = len(asked.scores)
    parts = np.split(np.random.default_rng(seed).permutation(n), [3 * n // 10, n // 2])
    fit, held, test = map(asked.rows, parts)
    rows, unlabelled, new = map(make_evidence, predict_wrong(fit, held, test))
    rule = custom("usd") <= budgets[0]
    path = frontier(Problem(custom("wrong"), [rule]), rows, {rule: budgets})
    found = []
    for budget, policy, price in zip(budgets, path.policies, path.prices[:, 0], strict=True):
        ways = {
            "policy": policy.probabilities(new),
            "certified": certified_routes(rows, unlabelled, budget).probabilities(new),
            "gap below a threshold: 70b": one_threshold(fit, test, budget),
            "two thresholds on the gap": two_thresholds(fit, test, budget),
            "models at random": np.tile(at_random(budget), (len(test.right), 1)),
        }
        found += [
            {"seed": seed, "way": way, "budget": budget, "price": price, **outcome(test, law)}
            for way, law in ways.items()
        ]
    alone = {f"{name} alone": np.tile(np.eye(3)[k], (len(test.right), 1)) for k, name in enumerate(PRICES)}
    prices = dict(zip(alone, PRICES.values(), strict=True))
    return found + [
        {"seed": seed, "way": way, "budget": prices[way], **outcome(test, law)} for way, law in alone.items()
    ]


def at(found: pandas.DataFrame, way: str, budget: float) -> pandas.DataFrame:
    return found[(found.way == way) & np.isclose(found.budget, budget)].set_index("seed")


def points(values: pandas.Series) -> str:
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=0):.1f} %"


def count_over(found: pandas.DataFrame, way: str) -> str:
    """How often the money spent on new questions exceeds the budget, and by how much."""
    chosen = found[found.way == way]
    over = chosen.spent - chosen.budget
    beyond = (over > chosen.error).sum()
    return (
        f"spent more than the budget in {(over > 0).sum()} of {len(chosen)} cases, by more than one standard "
        f"error in {beyond}, at most {100 * max(over.max(), 0):.1f} cents"
    )


def text_of(found: pandas.DataFrame) -> str:
    rivals = ("gap below a threshold: 70b", "two thresholds on the gap")
    budgets = sorted(set(found[found.way == "policy"].budget))
    shown = [budget for budget in SHOWN if budget in budgets]
    ranges = {
        rival: [100 * (at(found, "policy", b).right - at(found, rival, b).right).mean() for b in budgets]
        for rival in rivals
    }
    models = ", ".join(
        f"{name} {points(at(found, f'{name} alone', usd).right)}" for name, usd in PRICES.items()
    )
    rows = {
        way: [points(at(found, way, b).right) for b in shown]
        for way in ("models at random", *rivals, "policy", "certified")
    }
    rows["money spent, policy"] = [f"${at(found, 'policy', b).spent.mean():.3f}" for b in shown]
    rows["money spent, certified"] = [f"${at(found, 'certified', b).spent.mean():.3f}" for b in shown]
    rows["one more cent buys, by the price"] = [
        f"{at(found, 'policy', b).price.mean():.2f} points" for b in shown
    ]
    lines = [
        f"| budget for 1,000 questions | {' | '.join(f'${b:.2f}' for b in shown)} |",
        "|---" * (1 + len(shown)) + "|",
    ]
    table = "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])
    return f"""\
Right answers of the models alone: {models}.
The policy is ahead of a threshold on the small model's gap by {min(ranges[rivals[0]]):.1f} to
{max(ranges[rivals[0]]):.1f} points at the budgets tried, and of two thresholds, tuned for each budget, by
{min(ranges[rivals[1]]):.1f} to {max(ranges[rivals[1]]):.1f} points (means over splits).

On the new questions, the policy {count_over(found, "policy")}; the
certified one {count_over(found, "certified")}.

{table}

Right answers on new questions; mean ± standard deviation over {found.seed.nunique()} splits.
"""


def draw(found: pandas.DataFrame, path: Path) -> None:
    figure, (axis,) = figures.panels(width=8.4, height=5.0)
    figures.title(axis, "A budget in money, spent where a larger model helps")
    means = found.groupby(["way", "budget"])[["spent", "right"]].mean()
    for way, (colour, place, across) in LOOKS.items():
        curve = means.loc[way]
        axis.plot(curve.spent, curve.right, color=colour, linewidth=2)
        side = "left" if across[0] > 0 else "right"
        spot = curve.iloc[min(place, len(curve) - 1)]
        axis.annotate(way, spot, across, textcoords="offset points", color=colour, ha=side)
    certified = means.loc["certified"]
    axis.plot(certified.spent, certified.right, "D", color=figures.RUST, markersize=5, linestyle="none")
    axis.annotate("certified", certified.iloc[-1], (6, -14), textcoords="offset points", color=figures.RUST)
    for name in PRICES:
        spot = means.loc[f"{name} alone"].iloc[0]
        axis.plot(*spot, "o", color=figures.INK, markersize=8)
        axis.annotate(name, spot, (9, -5), textcoords="offset points", color=figures.INK)
    axis.set(xlim=(0, 0.85), xlabel="dollars for 1,000 questions", ylabel="right answers, new questions")
    figures.percent(axis.yaxis)
    figures.keep(figure, path)


def main() -> None:
    data, results, pictures, quick = asked(__doc__, quick="one split of 2,000 questions, three budgets")
    questions = load(data).rows(slice(2000 if quick else None))
    budgets = (0.1, 0.2, 0.5) if quick else BUDGETS
    rows = [row for seed in range(1 if quick else 20) for row in measure(questions, seed, budgets)]
    found = pandas.DataFrame(rows)
    save(rows, text_of(found), results, "routing")
    draw(found, pictures / "routing.png")


if __name__ == "__main__":
    main()
