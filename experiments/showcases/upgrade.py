"""A language model is upgraded, and few answers may change. Which changes are worth making?

Of 10,000 questions, 3,000 with right answers choose the policy, 2,000 without certify it, and 5,000 judge it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import language_models, save
from experiments.showcases.command import asked
from sklearn.linear_model import LogisticRegression

from bylaw import Evidence, Policy, Problem, audit, disagreement, error, frontier, solve
from experiments import figures

BUDGETS = (0.05, 0.1, 0.15)
LEVELS = np.linspace(0, 0.3, 13)
STEP, MIDDLE = LEVELS[1], BUDGETS[1]
NAIVE = ("changes at random", "most confident first", "widest margin first", "policy, scores as they are")
LOOKS = {
    "changes at random": (figures.FAINT, 8, (10, -10)),
    "most confident first": (figures.TEAL, 7, (8, -26)),
    "policy": (figures.VIOLET, 8, (-6, 6)),
}


class Questions(NamedTuple):
    chances: np.ndarray  # (n_rows, 6): Llama-2 13b's
    right: np.ndarray  # (n_rows,)
    old: np.ndarray  # (n_rows,): the answers of Llama-2 7b
    new: np.ndarray  # (n_rows,): the answers of Llama-2 13b


def load(folder: Path) -> Questions:
    table = language_models(folder)
    chances = table.X.to_numpy(float)
    return Questions(chances, table.y, table.groups["7b"].to_numpy(), chances.argmax(axis=1))


def put_right(chances: np.ndarray, right: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """What the new model's probabilities mean, learned from some answered questions."""
    model = LogisticRegression(max_iter=1000).fit(np.log(chances[fit]), right[fit])
    learned = np.zeros(chances.shape)
    learned[:, model.classes_] = model.predict_proba(np.log(chances))
    return learned


def careful_upgrade(rows: Evidence, unlabelled: Evidence, budget: float) -> Policy:
    """Most right answers with so many changes, certified to be no more."""
    problem = Problem(minimize=error(), rules=[disagreement("7b") <= budget])
    return solve(problem, rows, guarantee="high_probability", held_out=unlabelled)


def naive(asked: Questions, wish: np.ndarray, fit: np.ndarray, level: float) -> np.ndarray:
    """The new answer where it is wished most: above a threshold with so many changes on the fitting rows."""
    wish = np.where(asked.new != asked.old, wish, -np.inf)
    most = round(level * len(fit))
    threshold = np.sort(wish[fit])[-most] if most else np.inf
    return np.where((wish >= threshold) & (wish > -np.inf), asked.new, asked.old)


def outcome(asked: Questions, distribution: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Shares of the questions: right answers, changed answers, and right ones that were changed."""
    rows, old, right = np.arange(len(test)), asked.old[test], asked.right[test]
    changed = 1 - distribution[rows, old]
    means = distribution[rows, right].mean(), changed.mean(), (changed * (old == right)).mean()
    return dict(zip(("right", "changed", "spoilt"), means, strict=True))


def follow(asked: Questions, chances: np.ndarray, fit: np.ndarray, test: np.ndarray) -> list[dict[str, Any]]:
    """Policies at all levels, judged on the test rows, and their prices."""
    evidence = Evidence(chances, references={"7b": asked.old})
    budget = disagreement("7b") <= BUDGETS[0]
    path = frontier(Problem(error(), [budget]), evidence.rows(fit), {budget: LEVELS})
    distributions = [policy.probabilities(evidence.rows(test)) for policy in path.policies]
    return [
        {"level": level, "price": price, **outcome(asked, distribution, test)}
        for level, distribution, price in zip(LEVELS, distributions, path.prices[:, 0], strict=True)
    ]


def certify(asked: Questions, chances: np.ndarray, *parts: np.ndarray) -> list[dict[str, Any]]:
    """Certified policies at the budgets, audited without right answers."""
    evidence = Evidence(chances, references={"7b": asked.old})
    rows, unlabelled, new = (evidence.rows(part) for part in parts)
    found = []
    for budget in BUDGETS:
        policy = careful_upgrade(rows, unlabelled, budget)
        rule = audit(policy, new).rules[0]
        line = {"level": budget, "lower": rule.lower, "upper": rule.upper, "verdict": str(rule.verdict)}
        found.append({**line, **outcome(asked, policy.probabilities(new), parts[-1])})
    return found


def simple(asked: Questions, fit: np.ndarray, test: np.ndarray) -> list[dict[str, Any]]:
    """No upgrade, a full one, and the ways that come to mind between them."""
    old, new = np.eye(6)[asked.old[test]], np.eye(6)[asked.new[test]]
    share = (asked.new != asked.old)[fit].mean()
    best, second = np.sort(asked.chances, axis=1)[:, :-3:-1].T
    wishes = {"most confident first": best, "widest margin first": best - second}
    distributions = {("no upgrade", 0.0): old, ("full upgrade", 1.0): new}
    for level in LEVELS:
        distributions["changes at random", level] = old + min(level / share, 1) * (new - old)
        for way, wish in wishes.items():
            distributions[way, level] = np.eye(6)[naive(asked, wish, fit, level)[test]]
    return [
        {"way": way, "level": level, **outcome(asked, distribution, test)}
        for (way, level), distribution in distributions.items()
    ]


def measure(asked: Questions, seed: int) -> list[dict[str, Any]]:
    """One split, all ways."""
    n = len(asked.right)
    order = np.random.default_rng(seed).permutation(n)
    fit, held, test = np.split(order, [3 * n // 10, n // 2])
    learned = put_right(asked.chances, asked.right, fit)
    ways = {
        "policy": follow(asked, learned, fit, test),
        "policy, scores as they are": follow(asked, asked.chances, fit, test),
        "certified": certify(asked, learned, fit, held, test),
    }
    found = [{"way": way, **line} for way, lines in ways.items() for line in lines]
    return [{"seed": seed, **line} for line in [*found, *simple(asked, fit, test)]]


def at(found: pandas.DataFrame, way: str, level: float) -> pandas.DataFrame:
    return found[(found.way == way) & np.isclose(found.level, level)].set_index("seed")


def points(values: pandas.Series) -> str:
    """Mean and standard deviation over splits, in per cent."""
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=0):.1f} %"


def slope(found: pandas.DataFrame, level: float) -> float:
    """Points of accuracy for one more point of changes, as observed between the neighbouring levels."""
    above, below = at(found, "policy", level + STEP), at(found, "policy", level - STEP)
    return (above.right - below.right).mean() / (above.changed - below.changed).mean()


def text_of(found: pandas.DataFrame) -> str:
    old, new, part = at(found, "no upgrade", 0), at(found, "full upgrade", 1), at(found, "policy", MIDDLE)
    gained = (part.right - old.right).mean() / (new.right - old.right).mean()
    ahead = part.right - at(found, "widest margin first", MIDDLE).right
    spoilt = [(way.spoilt / way.changed).mean() for way in (new, part)]
    plain, sure = pandas.concat([at(found, "policy", b) for b in BUDGETS]), found[found.way == "certified"]
    over, broken = plain.changed - plain.level, sure.changed - sure.level
    audits = ", ".join(f"{verdict} {times} times" for verdict, times in sure.verdict.value_counts().items())
    return f"""\
The old model is right on {points(old.right)} of the questions, the new one on {points(new.right)}, but the
new one changes {points(new.changed)} of the answers, and {spoilt[0]:.0%} of its changes spoil an answer that
was right. With a budget of {MIDDLE:.0%} the policy is right on {points(part.right)}: {gained:.0%} of the gain
for {(part.changed / new.changed).mean():.0%} of the changes, of which {spoilt[1]:.0%} spoil an answer. It
beats the widest margins first by {100 * ahead.mean():.1f} points, in {(ahead > 0).mean():.0%} of splits.

On the new questions, policies without a certificate changed more than their budget in
{(over > 0).sum()} of {len(plain)} cases, by at most {100 * max(over.max(), 0):.1f} points; certified ones in
{(broken > 0).sum()} of {len(sure)}, by at most {100 * max(broken.max(), 0):.1f} points (audits: {audits}).

{table_of(found)}

Right answers on new questions only; mean ± standard deviation over {found.seed.nunique()} splits.
"""


def table_of(found: pandas.DataFrame) -> str:
    rows = {way: [points(at(found, way, budget).right) for budget in BUDGETS] for way in [*NAIVE, "policy"]}
    rows["certified policy"] = [points(at(found, "certified", budget).right) for budget in BUDGETS]
    rows["its changes"] = [points(at(found, "certified", budget).changed) for budget in BUDGETS]
    prices = [at(found, "policy", budget).price.mean() for budget in BUDGETS]
    rows["one more point of changes buys, as promised"] = [f"{price:.2f} points" for price in prices]
    rows["as observed"] = [f"{slope(found, budget):.2f} points" for budget in BUDGETS]
    lines = [
        f"| budget | {' | '.join(f'{budget:.0%}' for budget in BUDGETS)} |",
        "|---" * (1 + len(BUDGETS)) + "|",
    ]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())])


def draw_curves(found: pandas.DataFrame, path: Path) -> None:
    figure, (axis,) = figures.panels(width=8.4, height=5.0)
    figures.title(axis, "A budget of changes, spent at random or where they pay")
    means = found.groupby(["way", "level"])[["changed", "right"]].mean()
    for way, (colour, place, across) in LOOKS.items():
        curve = means.loc[way]
        axis.plot(curve.changed, curve.right, color=colour, linewidth=2)
        name, side = way.replace(" first", "\nfirst"), "left" if across[0] > 0 else "right"
        axis.annotate(name, curve.iloc[place], across, textcoords="offset points", color=colour, ha=side)
    for budget, spot in means.loc["certified"].iterrows():
        axis.plot(*spot, "D", color=figures.RUST, markersize=7)
        look = {"color": figures.RUST, "ha": "right"}
        axis.text(spot.changed - 0.005, spot.right + 0.003, f"certified: ≤ {budget:.0%}", **look)
    for way in ("no upgrade", "full upgrade"):
        spot = means.loc[way].iloc[0]
        axis.plot(*spot, "o", color=figures.INK, markersize=8)
        axis.annotate(way, spot, (9, -8), textcoords="offset points", color=figures.INK)
    axis.set(xlim=(-0.035, 0.36), xlabel="answers that change", ylabel="right answers, new questions")
    figures.percent(axis.xaxis)
    figures.percent(axis.yaxis)
    figures.keep(figure, path)


def draw_budgets(found: pandas.DataFrame, path: Path) -> None:
    figure, (kept, prices) = figures.panels(2, width=5.2, height=3.9)
    figures.title(kept, "Budgets on new questions, first split")
    for place, budget in enumerate(BUDGETS):
        sure, plain = at(found, "certified", budget).loc[0], at(found, "policy", budget).loc[0]
        kept.hlines(budget, place - 0.35, place + 0.35, color=figures.INK, linewidth=2)
        reach = [[sure.changed - sure.lower], [sure.upper - sure.changed]]
        kept.errorbar([place + 0.12], [sure.changed], reach, color=figures.RUST, fmt="D", capsize=4)
        kept.plot(place - 0.12, plain.changed, "o", color=figures.VIOLET)
    kept.text(0.7, 0.03, "● without certificate", color=figures.VIOLET)
    kept.text(0.7, 0.018, "◆ certified, with the audit's bounds", color=figures.RUST)
    ticks = {"xticks": range(len(BUDGETS)), "xticklabels": [f"budget {budget:.0%}" for budget in BUDGETS]}
    kept.set(ylim=(0, BUDGETS[-1] + 0.02), ylabel="answers that change", **ticks)
    figures.percent(kept.yaxis)
    figures.title(prices, "One more point of changes buys")
    levels = LEVELS[1:-3]
    promised = [at(found, "policy", level).price.mean() for level in levels]
    seen = [slope(found, level) for level in levels]
    prices.plot(levels, promised, color=figures.AMBER, marker="o", linewidth=2)
    prices.plot(levels, seen, color=figures.VIOLET, marker="o", linewidth=2)
    prices.text(levels[4] + 0.006, promised[4] + 0.02, "promised by the price", color=figures.AMBER)
    prices.text(levels[4] - 0.006, seen[4] - 0.06, "observed", color=figures.VIOLET, ha="right")
    prices.set(ylim=(0, 1), xlabel="budget of changes", ylabel="points of right answers", xticks=levels[1::2])
    figures.percent(prices.xaxis)
    figures.keep(figure, path)


def main() -> None:
    data, results, pictures, quick = asked(__doc__, quick="one split of 1,500 questions")
    some = slice(1500 if quick else None)
    questions = Questions(*(part[some] for part in load(data)))
    rows = [row for seed in range(1 if quick else 20) for row in measure(questions, seed)]
    found = pandas.DataFrame(rows)
    save(rows, text_of(found), results, "upgrade")
    draw_curves(found, pictures / "upgrade.png")
    draw_budgets(found, pictures / "upgrade_budgets.png")


if __name__ == "__main__":
    main()
