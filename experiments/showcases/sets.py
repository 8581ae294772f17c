"""Answers that are short lists: two classes per image on average, and no kind of object left behind.

Half of CIFAR-100's test images calibrate the network's scores and choose the policy, half judge it; then the
halves change places.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from experiments.data import images, save
from experiments.showcases.command import asked
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from bylaw import Evidence, Policy, Problem, frontier, miscoverage, size, solve
from bylaw.language import Rate
from experiments import figures

SUPERCLASSES = {
    "aquatic mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit and vegetables": ("apple", "mushroom", "orange", "pear", "sweet pepper"),
    "electrical devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large man-made things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large natural scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "omnivores, herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "other invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple tree", "oak tree", "palm tree", "pine tree", "willow tree"),
    "vehicles": ("bicycle", "bus", "motorcycle", "pickup truck", "train"),
    "other vehicles": ("lawn mower", "rocket", "streetcar", "tank", "tractor"),
}
CLASSES = sorted(name for names in SUPERCLASSES.values() for name in names)
KIND = np.array([[name in names for names in SUPERCLASSES.values()].index(True) for name in CLASSES])
MEAN_SIZE, WORST = 2.0, 0.18
SMALL, FAIR = "mean size 2", "mean size 2, kinds lifted"
SIZES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)


def missed(kind: str) -> Rate:
    """How often the true class is not in the set, over the classes of one kind."""
    first, *others = (miscoverage().given(label=name) for name in SUPERCLASSES[kind])
    return sum(others, start=first) / len(SUPERCLASSES[kind])


def small_sets(evidence: Evidence, labels: np.ndarray) -> Policy:
    """As many true classes as possible in sets of two classes on average."""
    return solve(Problem(miscoverage(), [size() <= MEAN_SIZE]), evidence, labels=labels)


def small_fair_sets(evidence: Evidence, labels: np.ndarray) -> Policy:
    """The same, but of no kind of object more than 18 % are missed."""
    rules = [size() <= MEAN_SIZE, *(missed(kind) <= WORST for kind in SUPERCLASSES)]
    return solve(Problem(miscoverage(), rules), evidence, labels=labels, tol=1e-4)


def temperature(scores: np.ndarray, labels: np.ndarray) -> float:
    """What to divide the scores by, so that they are as sure as they should be."""
    rows = np.arange(len(labels))
    found = minimize_scalar(
        lambda log: -log_softmax(scores / np.exp(log), axis=1)[rows, labels].mean(), bounds=(-1, 2)
    )
    return float(np.exp(found.x))


def top(chances: np.ndarray, count: int) -> np.ndarray:
    """The likeliest classes, (n_rows, n_classes)."""
    return (np.argsort(np.argsort(-chances, axis=1), axis=1) < count).astype(float)


class Split(NamedTuple):
    chances: np.ndarray
    labels: np.ndarray
    fit: np.ndarray
    test: np.ndarray


def split(scores: np.ndarray, labels: np.ndarray, seed: int) -> Split:
    """Half of the images of each class in either part; the next odd seed lets the parts change places."""
    order = np.random.default_rng(seed // 2).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    fit, test = order[seed % 2 :: 2], order[1 - seed % 2 :: 2]
    chances = softmax(scores / temperature(scores[fit], labels[fit]), axis=1)
    return Split(chances, labels, fit, test)


def measure(scores: np.ndarray, labels: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """Of one split: coverage and size, over all and by kind of object."""
    chances, labels, fit, test = split(scores, labels, seed)
    evidence = Evidence(chances, classes=CLASSES)
    rows, seen = evidence.rows(fit), np.array(CLASSES)[labels[fit]]
    distributions = {"top 1": top(chances[test], 1), "top 2": top(chances[test], 2)}
    for way, choose in ((SMALL, small_sets), (FAIR, small_fair_sets)):
        distributions[way] = choose(rows, seen).probabilities(evidence.rows(test))
    budget = size() <= MEAN_SIZE
    path = frontier(Problem(miscoverage(), [budget]), rows, {budget: SIZES})
    for bound, policy in zip(SIZES, path.policies, strict=True):
        distributions[f"mean size at most {bound}"] = policy.probabilities(evidence.rows(test))
    return [
        {"seed": seed, "way": way, **line}
        for way, distribution in distributions.items()
        for line in judge(distribution, labels[test], seed)
    ]


def judge(distribution: np.ndarray, labels: np.ndarray, seed: int) -> list[dict[str, Any]]:
    """How often the true class is in the set, how large sets are, and how many are of each size."""
    covered, sizes, kinds = (
        distribution[np.arange(len(distribution)), labels],
        distribution.sum(axis=1),
        KIND[labels],
    )
    drawn = np.random.default_rng(seed).random(distribution.shape) < distribution
    counts = np.bincount(drawn.sum(axis=1).clip(0, 7), minlength=8) / len(distribution)
    shares = {f"sets of {count}": share for count, share in enumerate(counts)}
    found = [
        {"kind": "all", "rows": len(distribution), "covered": covered.mean(), "size": sizes.mean(), **shares}
    ]
    for number, kind in enumerate(SUPERCLASSES):
        here = kinds == number
        rates = {"covered": covered[here].mean(), "size": sizes[here].mean()}
        found.append({"kind": kind, "rows": int(here.sum()), **rates})
    return found


def within_kinds(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The share of wrong first answers of the right kind, and the largest for 1,000 random groupings."""
    wrong = (answers := scores.argmax(axis=1)) != labels
    pairs, rng = (answers[wrong], labels[wrong]), np.random.default_rng(0)
    shares = [
        np.equal(*(kinds[part] for part in pairs)).mean() for kinds in rng.permuted([KIND] * 1000, axis=1)
    ]
    return float(np.equal(*(KIND[part] for part in pairs)).mean()), float(max(shares))


def luck(coverage: float, rows: int) -> float:
    """The worst coverage that 20 kinds show on so many images each, if in truth all have the same."""
    drawn = np.random.default_rng(0).binomial(rows, coverage, (10_000, len(SUPERCLASSES)))
    return float(drawn.min(axis=1).mean() / rows)


def points(values: pandas.Series) -> str:
    """Mean and standard deviation over splits, in per cent."""
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=0):.1f} %"


def text_of(found: pandas.DataFrame, same_kind: tuple[float, float]) -> str:
    kinds, everything = found[found.kind != "all"], found[found.kind == "all"]
    means = kinds.groupby(["way", "kind"])[["covered", "size"]].mean()
    total = everything.groupby("way").covered.mean()
    small, fair, rows = means.loc[SMALL], means.loc[FAIR], int(kinds.rows.mean())
    worst, easy, hard = small.covered.idxmin(), small["size"].idxmin(), small["size"].idxmax()
    lines = [
        f"| {way} | {everything[everything.way == way]['size'].mean():.2f} | "
        f"{points(everything[everything.way == way].covered)} | {means.loc[way].covered.min():.1%} | "
        f"{points(kinds[kinds.way == way].groupby('seed').covered.min())} |"
        for way in ("top 1", "top 2", SMALL, FAIR)
    ]
    return f"""\
The network's first answer is right on {total["top 1"]:.1%} of the images; its first two contain the truth on
{total["top 2"]:.1%}. Sets of two classes *on average* contain it on {total[SMALL]:.1%}: images of {easy} get
{small["size"][easy]:.1f} classes, images of {hard} {small["size"][hard]:.1f}. But of {worst} only
{small.covered[worst]:.1%} are covered. With the rule on kinds it is {fair.covered[worst]:.1%}, with
{fair["size"][worst]:.1f} classes instead of {small["size"][worst]:.1f}. The worst kind then is
{fair.covered.idxmin()} with {fair.covered.min():.1%}. Over all kinds, coverage changes by
{100 * (total[FAIR] - total[SMALL]):+.1f} points.

| | mean size | true class in the set | worst kind, mean over splits | worst kind of each split |
|---|---|---|---|---|
{chr(10).join(lines)}

On images that nothing was fitted on; mean ± standard deviation over {found.seed.nunique()} splits. The last
column is partly luck: with {rows} images of a kind, the worst of twenty would show
{luck(total[FAIR], rows):.1%} even if all were covered alike. The kinds are real: {same_kind[0]:.0%} of the
wrong first answers are of the right kind, and at most {same_kind[1]:.0%} in a thousand random groupings.
"""


def draw_kinds(found: pandas.DataFrame, path: Path) -> None:
    figure, (axis,) = figures.panels(width=8.2, height=6.2)
    figures.title(axis, "Sets of mean size 2: the kinds left behind are lifted, the others pay")
    means = found[found.kind != "all"].pivot_table(index="kind", columns="way", values="covered")
    means = means.sort_values(SMALL)
    places = np.arange(len(means))
    axis.axvline(1 - WORST, color=figures.FAINT, linestyle="--", linewidth=1)
    axis.hlines(places, means[SMALL], means[FAIR], color=figures.FAINT, linewidth=2)
    axis.scatter(means[SMALL], places, color=figures.RUST, s=45, zorder=3)
    axis.scatter(means[FAIR], places, color=figures.TEAL, s=45, zorder=3)
    axis.set_yticks(places, means.index)
    axis.grid(axis="y", visible=False)
    axis.text(0.03, 0.93, "● rule on size only", color=figures.RUST, transform=axis.transAxes)
    axis.text(0.03, 0.88, "● and the rule on kinds", color=figures.TEAL, transform=axis.transAxes)
    axis.text(1 - WORST + 0.002, len(means) - 0.6, f"the rule: {1 - WORST:.0%}", color=figures.INK)
    axis.set(ylim=(-1, len(means)), xlabel="true class in the set, new images, mean over splits")
    axis.xaxis.set_major_locator(figures.mpl.ticker.MultipleLocator(0.05))
    figures.percent(axis.xaxis)
    figures.keep(figure, path)


def draw_sizes(found: pandas.DataFrame, path: Path) -> None:
    figure, (bars, curve) = figures.panels(2, width=5.0, height=3.9)
    means = found[found.kind == "all"].groupby("way").mean(numeric_only=True)
    shares = means.loc[FAIR].filter(like="sets of")
    figures.title(bars, "About half of the sets hold one class")
    drawn = bars.bar(range(len(shares)), shares, color=figures.TEAL)
    bars.bar_label(drawn, [f"{share:.0%}" for share in shares], color=figures.INK)
    bars.set_xticks(range(len(shares)), [*map(str, range(len(shares) - 1)), f"{len(shares) - 1}+"])
    bars.set(xlabel="classes in the set")
    figures.percent(bars.yaxis)
    figures.title(curve, "What size buys")
    sized = means[means.index.str.startswith("mean size at most")].sort_values("size")
    curve.plot(sized["size"], sized.covered, color=figures.TEAL, marker="o", linewidth=2)
    fixed = means.loc[["top 1", "top 2"]]
    curve.scatter(fixed["size"], fixed.covered, color=figures.RUST, zorder=3)
    for way, row in fixed.iterrows():
        note = {"xytext": (9, -5), "textcoords": "offset points", "color": figures.RUST}
        curve.annotate(f"{way} for every image", (row["size"], row.covered), **note)
    curve.set(xlabel="mean size of the sets", ylabel="true class in the set")
    figures.percent(curve.yaxis)
    figures.keep(figure, path)


def main() -> None:
    data, results, pictures, quick = asked(__doc__, quick="one split of a tenth of the images")
    scores, labels = images(data)
    some = np.argsort(labels, kind="stable")[:: 10 if quick else 1]
    scores, labels = scores[np.sort(some)], labels[np.sort(some)]
    rows = [row for seed in range(1 if quick else 10) for row in measure(scores, labels, seed)]
    found = pandas.DataFrame(rows)
    save(rows, text_of(found, within_kinds(scores, labels)), results, "sets")
    draw_kinds(found, pictures / "sets.png")
    draw_sizes(found, pictures / "sets_sizes.png")


if __name__ == "__main__":
    main()
