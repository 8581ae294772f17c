"""Refer a tenth of all mortgage files to people, and of each race alike.

A model that never sees race answers "approve" or "deny", and refers files it is unsure of. With a budget
alone it refers those of minorities more often; one more rule shares referrals alike. Groups are small, so
the files are split again and again: seven tenths to fit, three to judge, and the rates are means over files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
from experiments.data import Remembered, Table, mortgages, save
from experiments.figures import BLUE, FAINT, INK, RUST, TEAL, keep, panels, percent, title
from experiments.showcases.command import asked
from matplotlib.ticker import MultipleLocator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bylaw import ConstrainedClassifier, rejected, rejection_parity

EVERYBODY = "everybody"
COLOURS = {"black": RUST, "hispanic": TEAL, "others": BLUE}
NO_REFERRALS, BUDGET_ONLY = "model alone", "10 % referred"
TOLERANCES = (0.0, 0.02, 0.05, 0.1)
TOLERANCE = 0.02


def rules_for(tolerance: float) -> list[Any]:
    """At most a tenth referred; of each race as often as of everybody, within the tolerance."""
    return [rejected() <= 0.1, rejection_parity("race", tol=tolerance)]


def way_of(tolerance: float) -> str:
    return f"alike within {100 * tolerance:.0f} points"


WAYS = {NO_REFERRALS: [], BUDGET_ONLY: [rejected() <= 0.1]} | {way_of(t): rules_for(t) for t in TOLERANCES}


def distributions(table: Table, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Of one split: the files left out, and each way's chances to approve, deny and refer them."""
    X, y, groups = table
    fit, new = train_test_split(np.arange(len(X)), test_size=0.3, random_state=seed, stratify=groups.race)
    model = Remembered(make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(C=0.05)))
    found = {}
    for way, rules in WAYS.items():
        classifier = ConstrainedClassifier(model, rules, margin=0, random_state=seed)
        race = {
            name: {"sensitive_features": groups.iloc[rows]} for name, rows in (("fit", fit), ("new", new))
        }
        classifier.fit(X.iloc[fit], y[fit], **race["fit"])
        distribution = classifier.predict_proba(X.iloc[new], **race["new"])
        found[way] = np.pad(distribution, ((0, 0), (0, 3 - distribution.shape[1])))
    return new, found


def measure(table: Table, splits: int) -> dict[str, pandas.DataFrame]:
    """For each way, how often each file was judged, and with which chance referred or answered wrongly."""
    n_files = len(table.y)
    sums = {way: np.zeros((n_files, 3)) for way in WAYS}
    for seed in range(splits):
        new, found = distributions(table, seed)
        for way, distribution in found.items():
            wrong = np.where(table.y[new] == "approve", distribution[:, 1], distribution[:, 0])
            sums[way][new] += np.column_stack([np.ones(len(new)), distribution[:, 2], wrong])
        Remembered.trained.clear()
    columns = ["judged", "referred", "wrong"]
    return {way: pandas.DataFrame(counts, columns=columns) for way, counts in sums.items()}


def errors_among_answered(files: pandas.DataFrame) -> tuple[float, pandas.Series]:
    """The share, and by how much each file pulls at it."""
    answered, wrong = 1 - files.referred / files.judged, files.wrong / files.judged
    share = wrong.mean() / answered.mean()
    return share, (wrong - share * answered) / answered.mean()


def summary(ways: dict[str, pandas.DataFrame], race: np.ndarray) -> list[dict[str, Any]]:
    """Rates by way and group; standard errors say how much other files would have changed them."""
    found = []
    for way, files in ways.items():
        for group in (*COLOURS, EVERYBODY):
            here = (files.judged > 0) & ((race == group) | (group == EVERYBODY))
            referred = (files.referred / files.judged)[here]
            share, pulls = errors_among_answered(files[here])
            budget_share, budget_pulls = errors_among_answered(ways[BUDGET_ONLY][here])
            root = np.sqrt(here.sum())
            found.append(
                {"way": way, "group": group, "files": here.sum(), "referred": referred.mean()}
                | {"referred, se": referred.std() / root, "error": share, "error, se": pulls.std() / root}
                | {"price": share - budget_share, "price, se": (pulls - budget_pulls).std() / root}
            )
    return found


def describe(found: pandas.DataFrame, splits: int) -> str:
    cell = found.set_index(["way", "group"])
    alike = way_of(TOLERANCE)

    def share(way: str, group: str, what: str) -> str:
        line = cell.loc[(way, group)]
        return f"{100 * line[what]:.1f} % ± {100 * line[f'{what}, se']:.1f}"

    def points(group: str) -> str:
        line = cell.loc[(alike, group)]
        return f"{100 * line.price:.1f} ± {100 * line['price, se']:.1f}"

    lines = [
        f"Without any referral the model is wrong on {share(NO_REFERRALS, EVERYBODY, 'error')} of the files. "
        f"When it may refer a tenth, it is wrong on {share(BUDGET_ONLY, EVERYBODY, 'error')} of those it "
        f"answers, but it refers {share(BUDGET_ONLY, 'black', 'referred')} of the black applicants' files "
        f"and {share(BUDGET_ONLY, 'others', 'referred')} of the others'. With the second rule these are "
        f"{share(alike, 'black', 'referred')} and {share(alike, 'others', 'referred')}. The price is "
        f"{points(EVERYBODY)} points of error among the answered files; among those of black applicants, of "
        f"which more that are hard are now answered by the model, it is {points('black')} points.",
        "",
        f"Means over {splits} random splits, on the files left out; ± is one standard error over files.",
        "",
        "| | files | referred: budget only | referred: alike | error: model alone | error: budget only "
        "| error: alike |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in (*COLOURS, EVERYBODY):
        columns = [(BUDGET_ONLY, "referred"), (alike, "referred")]
        columns += [(way, "error") for way in (NO_REFERRALS, BUDGET_ONLY, alike)]
        shares = " | ".join(share(way, group, what) for way, what in columns)
        lines.append(f"| {group} | {cell.loc[(alike, group), 'files']:,} | {shares} |")
    return "\n".join(lines) + "\n"


def draw(found: pandas.DataFrame, path: Path) -> None:
    figure, (left, right) = panels(2, width=5.4, height=4.2)
    ways = [BUDGET_ONLY, way_of(TOLERANCE)]
    for place, way in enumerate(ways):
        lines = found[found.way == way].set_index("group")
        for step, (group, colour) in enumerate(COLOURS.items()):
            line, x = lines.loc[group], place + 0.26 * (step - 1)
            left.bar(x, line.referred, 0.24, color=colour)
            left.errorbar(x, line.referred, line["referred, se"], color=INK, capsize=3, linewidth=1.2)
            left.text(x, 0.008, f"{group}\n{line.referred:.0%}", color="white", ha="center", fontsize=9)
    left.axhline(0.1, color=INK, linestyle=":", linewidth=1.2, zorder=0)
    left.set_xticks([0, 1], ["a budget of 10 %", "and of each race alike"])
    title(left, "Files referred to people")
    percent(left.yaxis)
    steps = [BUDGET_ONLY, *(way_of(t) for t in sorted(TOLERANCES, reverse=True))]
    names = ["any", *(f"{100 * t:.0f} points" for t in sorted(TOLERANCES, reverse=True))]
    for group, colour in {**COLOURS, EVERYBODY: INK}.items():
        lines = found[found.group == group].set_index("way").loc[steps]
        right.errorbar(range(len(steps)), lines.error, lines["error, se"], fmt="o-", color=colour,
                       ecolor=FAINT, capsize=2, linewidth=2, markersize=5)  # fmt: skip
        right.text(len(steps) - 0.85, lines.error.iloc[-1], group, color=colour, va="center")
    right.set_xticks(range(len(steps)), names)
    right.set(xlim=(-0.3, len(steps) + 0.3), ylim=(0, None))
    right.set_xlabel("allowed gap in referrals", color=INK)
    right.yaxis.set_major_locator(MultipleLocator(0.05))
    title(right, "Errors among the files answered")
    percent(right.yaxis)
    keep(figure, path)


def main() -> None:
    _, results, pictures, quick = asked(__doc__, quick="two splits")
    splits = 2 if quick else 40
    table = mortgages()
    found = summary(measure(table, splits), table.groups.race.to_numpy())
    save(found, describe(pandas.DataFrame(found), splits), results, "referrals")
    draw(pandas.DataFrame(found), pictures / "referrals.png")


if __name__ == "__main__":
    main()
