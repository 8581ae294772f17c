"""1,989 real mortgage decisions: equal approval for black and other applicants, few referrals.

A logistic model predicts approval without using race. Two rules are added after training:
approval rates within 2 points of each other, and at most 10 % of files referred to a human.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

from bylaw import Columns, Evidence, Policy, Problem, error, rejected, selected, solve
from bylaw.datasets import mortgages

mpl.use("Agg")
import matplotlib.pyplot as plt

BLACK, OTHERS = "black", "others"
APPROVED = {group: selected("approve").given(race=group) for group in (BLACK, OTHERS)}
GAP = APPROVED[OTHERS] - APPROVED[BLACK]
PARITY, REFERRALS = abs(GAP) <= 0.02, rejected() <= 0.10


def evidence_of_mortgages() -> tuple[Evidence, Evidence, np.ndarray]:
    """Train a model on a third of the files. Return evidence for the others, with their true outcomes:
    one third to fit the policy, and one third of new files."""
    columns = Columns(["p_approve", "p_deny"], ["approve", "deny"], groups={"race": "race"})
    tables = mortgages()
    evidence = [columns.evidence(tables[name]) for name in ("scores", "new")]
    return *evidence, tables["new"]["outcome"].to_numpy()


def observed_error(policy: Policy, new: Evidence, outcome: np.ndarray) -> float:
    """Return the share of new files with a wrong answer, averaged over the randomness."""
    wrong = outcome[:, None] != np.array(new.classes)
    return float((policy.probabilities(new)[:, : len(new.classes)] * wrong).sum(axis=1).mean())


def table(before: Policy, after: Policy, fitted: Evidence, new: Evidence, outcome: np.ndarray) -> str:
    lines = [f"{'':34}{'baseline':>14}{'with rules':>14}{'on new files':>14}"]
    rates = {
        "expected error": error(),
        "referred to a human": rejected(),
        "approved, black applicants": APPROVED[BLACK],
        "approved, other applicants": APPROVED[OTHERS],
        "gap in approval": GAP,
    }
    for name, rate in rates.items():
        values = [before.expected(rate, fitted), after.expected(rate, fitted), after.expected(rate, new)]
        lines.append(f"{name:34}" + "".join(f"{value:>13.1%} " for value in values))
    errors = [observed_error(policy, new, outcome) for policy in (before, after)]
    lines.append(f"{'error by the true outcomes, new files':41}{errors[0]:>6.1%}{errors[1]:>27.1%}")
    lines += ["", "One more point of slack would save"]
    lines += [f"  {price:.2f} points of error   {rule}" for rule, price in after.prices.items()]
    return "\n".join(lines)


def plot(before: Policy, after: Policy, fitted: Evidence, path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    colors = {BLACK: "#c2410c", OTHERS: "#1d4ed8"}
    for group, color in colors.items():
        rates = [policy.expected(APPROVED[group], fitted) for policy in (before, after)]
        left.plot([0, 1], rates, "o-", color=color, linewidth=2.5, markersize=9)
        for x, rate, side in ((0, rates[0], "right"), (1, rates[1], "left")):
            nudge = 0.008 * (1 if group == OTHERS else -1) * x
            left.text(x + (0.07 if x else -0.07), rate + nudge, f"{group} {rate:.0%}",
                      color=color, ha=side, va="center")  # fmt: skip
    left.set(xlim=(-0.6, 1.6), xticks=[0, 1], xticklabels=["baseline", "with the rules"])
    left.set_title("Approval rate", loc="left", fontweight="bold")
    left.yaxis.set_major_locator(mpl.ticker.MultipleLocator(0.05))
    left.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))

    gaps = np.array([0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2])
    for budget, color in ((0.0, "#94a3b8"), (0.05, "#0d9488"), (0.10, "#4c1d95")):
        costs = [
            solve(Problem(error(), [abs(GAP) <= gap, rejected() <= budget]), fitted).expected(error(), fitted)
            for gap in gaps
        ]
        right.plot(gaps, costs, color=color, linewidth=2.5)
        right.text(gaps[-1] + 0.003, costs[-1], f"{budget:.0%} referred", color=color, va="center")
    right.plot(0.02, after.expected(error(), fitted), "o", color="#4c1d95", markersize=9)
    right.set(xlim=(-0.005, 0.26), xlabel="allowed gap in approval")
    right.set_title("What the rules cost: expected error", loc="left", fontweight="bold")
    for axis in (right.xaxis, right.yaxis):
        axis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e2e8f0")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(folder: Path) -> None:
    fitted, new, outcome = evidence_of_mortgages()
    before = solve(Problem(error(), [rejected() <= 0]), fitted)
    after = solve(Problem(error(), [PARITY, REFERRALS]), fitted)
    print(table(before, after, fitted, new, outcome))
    plot(before, after, fitted, folder / "mortgages.png")
    after.save(folder / "mortgages.json")
    print(f"\nplot: {folder / 'mortgages.png'}   policy: {folder / 'mortgages.json'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
