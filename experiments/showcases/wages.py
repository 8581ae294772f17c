"""Five classes of wages, alike for women and men, without a gender column when decisions are made.

A model guesses in which fifth of all incomes a person's lies. A second one guesses gender from the same
columns; the true gender is used to train, choose, certify and judge, never to decide. The rows are split
again and again: a fifth trains the models, three tenths choose, a quarter certifies, a quarter judges.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import Table, logistic, save, wages
from experiments.figures import BLUE, FAINT, INK, RUST, TEAL, VIOLET, keep, panels, percent, title
from experiments.showcases.command import asked
from matplotlib.ticker import MultipleLocator

from bylaw import (
    Evidence,
    Policy,
    Problem,
    UncertifiedError,
    audit,
    demographic_parity,
    error,
    solve,
)

FIFTHS = ("lowest", "low", "middle", "high", "highest")
WOMEN, MEN = "Female", "Male"
TOLERANCE = 0.05
TOLERANCES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.13)
ALONE, TRUTH = "model alone", "true incomes"
BELIEVED, OBSERVED, SAFER, CERTIFIED = "as guessed", "as seen", "as seen, with a margin", "certified"


class Part(NamedTuple):
    """Rows that the models have not seen. Decisions see the evidence only."""

    evidence: Evidence
    fifths: np.ndarray
    gender: dict[str, np.ndarray]


def parts(table: Table, seed: int) -> list[Part]:
    """A fifth trains both models; the others are scored: to choose, certify and judge."""
    X, y, gender = table.X, table.y, table.groups.gender.to_numpy()
    order = np.random.default_rng(seed).permutation(len(X))
    train, *others = np.split(order, [int(share * len(X)) for share in (0.2, 0.5, 0.75)])
    wage, guess = (logistic(X).fit(X.iloc[train], target[train]) for target in (y, gender))

    def part(rows: np.ndarray) -> Part:
        chances = pandas.DataFrame(wage.predict_proba(X.iloc[rows]), columns=wage.classes_)
        guessed = pandas.DataFrame(guess.predict_proba(X.iloc[rows]), columns=guess.classes_)
        evidence = Evidence(chances[list(FIFTHS)], groups={"gender": guessed})
        return Part(evidence, y[rows], {"gender": gender[rows]})

    return [part(rows) for rows in others]


def parity(tolerance: float) -> Problem:
    """As few errors as possible; in no fifth do women's and men's shares differ by more."""
    return Problem(error(), [demographic_parity("gender", tol=tolerance, between="groups")])


def policies(choose: Part, certify: Part) -> dict[str, Policy]:
    """Without the rule; by guessed genders; by those seen on the rows that choose; with a certificate."""
    problem = parity(TOLERANCE)
    held_out = certify.evidence.with_observed(true_groups=certify.gender)
    found = {
        ALONE: solve(Problem(error()), choose.evidence),
        BELIEVED: solve(problem, choose.evidence),
        OBSERVED: solve(problem, choose.evidence, groups=choose.gender),
        SAFER: solve(problem, choose.evidence, groups=choose.gender, margin=1),
    }
    with suppress(UncertifiedError):
        sure = {"guarantee": "high_probability", "held_out": held_out}
        found[CERTIFIED] = solve(problem, choose.evidence, groups=choose.gender, **sure)
    return found


def judge(policy: Policy, part: Part) -> dict[str, float]:
    """Observed on these rows, with the policy's own randomness integrated out."""
    distribution = policy.probabilities(part.evidence)
    women = part.gender["gender"] == WOMEN
    truth = np.array([FIFTHS.index(fifth) for fifth in part.fifths])
    far = np.abs(truth[:, None] - np.arange(len(FIFTHS))) > 1
    shares = {WOMEN: distribution[women].mean(axis=0), MEN: distribution[~women].mean(axis=0)}
    found = {f"{sex}, {fifth}": share[i] for sex, share in shares.items() for i, fifth in enumerate(FIFTHS)}
    return found | {
        "gap": np.abs(shares[WOMEN] - shares[MEN]).max(),
        "error": 1 - distribution[np.arange(len(distribution)), truth].mean(),
        "far off": (distribution * far).sum(axis=1).mean(),
    }


def truth_of(part: Part) -> dict[str, float]:
    """The incomes themselves, as if they were decisions."""
    women = part.gender["gender"] == WOMEN
    rows = {WOMEN: part.fifths[women], MEN: part.fifths[~women]}
    found = {f"{sex}, {fifth}": (here == fifth).mean() for sex, here in rows.items() for fifth in FIFTHS}
    return found | {
        "gap": max(abs(found[f"{WOMEN}, {fifth}"] - found[f"{MEN}, {fifth}"]) for fifth in FIFTHS)
    }


def measure(table: Table, splits: int) -> list[dict[str, Any]]:
    found = []
    for seed in range(splits):
        choose, certify, new = parts(table, seed)
        found.append({"seed": seed, "way": TRUTH, "tolerance": np.nan, **truth_of(new)})
        for way, policy in policies(choose, certify).items():
            line = {"seed": seed, "way": way, "tolerance": np.nan, **judge(policy, new)}
            if way != ALONE:
                judged = audit(policy, new.evidence, groups=new.gender)
                line |= {"tolerance": TOLERANCE, "verdict": str(judged.verdict)}
            found.append(line)
        for tolerance in set(TOLERANCES) - {TOLERANCE}:
            for way, options in ((BELIEVED, {}), (SAFER, {"groups": choose.gender, "margin": 1})):
                policy = solve(parity(tolerance), choose.evidence, **options)
                found.append({"seed": seed, "way": way, "tolerance": tolerance, **judge(policy, new)})
    return found


def at_the_rule(found: pandas.DataFrame, way: str) -> pandas.DataFrame:
    here = found[found.way == way]
    return here[here.tolerance.isna() | (here.tolerance == TOLERANCE)]


def describe(found: pandas.DataFrame) -> str:
    splits = found.seed.nunique()
    mean = {way: 100 * at_the_rule(found, way).mean(numeric_only=True) for way in found.way.unique()}
    before, after = mean[ALONE], mean[SAFER]
    lines = [
        f"The model alone puts {before[f'{MEN}, highest']:.0f} % of the men and "
        f"{before[f'{WOMEN}, highest']:.0f} % of the women into the highest fifth; with the rule it is "
        f"{after[f'{MEN}, highest']:.0f} % and {after[f'{WOMEN}, highest']:.0f} %. The largest gap in any "
        f"fifth falls from {before.gap:.1f} points to {after.gap:.1f}. The price: {before.error:.1f} % of "
        f"the guesses were wrong, now {after.error:.1f} % are (a blind guess is wrong on 80 %). If the "
        f"guessed genders are believed instead of checked, a gap of {mean[BELIEVED].gap:.1f} points remains.",
        "",
        f"Means over {splits} random splits, on the quarter left out; ± is the spread between splits. In "
        f"{splits - len(at_the_rule(found, CERTIFIED))} of them the rule could not be certified.",
        "",
        "| the rule | largest gap, points | wrong | wrong by two fifths or more | splits with a gap of at "
        f"most {100 * TOLERANCE:.0f} | proved by an audit |",
        "|---|---|---|---|---|---|",
    ]
    for way in (ALONE, BELIEVED, OBSERVED, SAFER, CERTIFIED):
        if (here := at_the_rule(found, way)).empty:
            continue
        proved = "" if way == ALONE else f"{(here.verdict == 'certified').sum()} of {len(here)}"
        errors = " | ".join(f"{mean[way][kind]:.1f} %" for kind in ("error", "far off"))
        lines.append(
            f"| {way} | {mean[way].gap:.1f} ± {100 * here.gap.std():.1f} | {errors} | "
            f"{(here.gap <= TOLERANCE).sum()} of {len(here)} | {proved} |"
        )
    return "\n".join(lines) + "\n"


def draw_fifths(found: pandas.DataFrame, path: Path) -> None:
    figure, axes = panels(3, width=3.9, height=3.8, sharey=True)
    names = {TRUTH: "True incomes", ALONE: "The model alone", SAFER: "With the rule"}
    for axis, (way, name) in zip(axes, names.items(), strict=True):
        mean = at_the_rule(found, way).mean(numeric_only=True)
        for step, (sex, colour) in enumerate(((WOMEN, RUST), (MEN, BLUE))):
            shares = [mean[f"{sex}, {fifth}"] for fifth in FIFTHS]
            axis.bar(np.arange(5) + 0.4 * step - 0.2, shares, 0.38, color=colour)
        axis.set_xticks(range(5), FIFTHS)
        percent(axis.yaxis)
        title(axis, f"{name}: gap up to {100 * mean.gap:.0f} points")
    for name, colour, place in (("women", RUST, 0.62), ("men", BLUE, 0.82)):
        axes[0].text(place, 0.93, name, color=colour, transform=axes[0].transAxes, fontweight="bold")
    axes[0].set_ylabel("share of the women, of the men", color=INK)
    keep(figure, path)


def draw_tolerances(found: pandas.DataFrame, path: Path) -> None:
    figure, (left, right) = panels(2, width=5.2, height=4.0)
    for way, colour, side, shift in ((BELIEVED, FAINT, "right", (-8, 5)), (SAFER, TEAL, "left", (12, -9))):
        here = found[(found.way == way) & found.tolerance.notna()].groupby("tolerance")
        mean, spread = here.mean(numeric_only=True), here.std(numeric_only=True)
        left.errorbar(mean.index, mean.gap, spread.gap, fmt="o-", color=colour, capsize=2, linewidth=2)
        right.plot(mean.gap, mean.error, "o-", color=colour, linewidth=2)
        label(left, (TOLERANCE, mean.gap[TOLERANCE]), f"genders {way}", colour, side, shift)
    left.plot([0, TOLERANCES[-1]], [0, TOLERANCES[-1]], ":", color=INK)
    left.set(xlim=(0, None), ylim=(0, None))
    left.set_xlabel("gap allowed by the rule (dotted: just so)", color=INK)
    title(left, "Largest gap on new rows")
    alone, sure = (at_the_rule(found, way).mean(numeric_only=True) for way in (ALONE, CERTIFIED))
    for mean, name, colour, side, shift in (
        (alone, ALONE, INK, "left", (8, -3)),
        (sure, CERTIFIED, VIOLET, "right", (-8, -4)),
    ):
        right.plot(mean.gap, mean.error, "o", color=colour, markersize=8)
        label(right, (mean.gap, mean.error), name, colour, side, shift)
    right.set(xlim=(0, 0.19))
    right.set_xlabel("largest gap on new rows", color=INK)
    right.xaxis.set_major_locator(MultipleLocator(0.05))
    right.yaxis.set_major_locator(MultipleLocator(0.005))
    title(right, "What it costs: wrong guesses")
    for axis, decimals in ((left.xaxis, 0), (left.yaxis, 0), (right.xaxis, 0), (right.yaxis, 1)):
        percent(axis, decimals)
    keep(figure, path)


def label(axis: Any, point: Any, text: str, colour: str, side: str, shift: tuple[int, int]) -> None:
    axis.annotate(text, point, shift, textcoords="offset points", color=colour, ha=side)


def main() -> None:
    data, results, pictures, quick = asked(__doc__, quick="one split of few rows")
    table = wages(data)
    if quick:
        table = Table(*(part[:4000] for part in table))
    found = measure(table, 1 if quick else 10)
    save(found, describe(pandas.DataFrame(found)), results, "wages")
    draw_fifths(pandas.DataFrame(found), pictures / "wages.png")
    draw_tolerances(pandas.DataFrame(found), pictures / "wages-tolerances.png")


if __name__ == "__main__":
    main()
