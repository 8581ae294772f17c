"""Both experiments of the paper's appendix, from the data to the figures.

Controlled rejection and parity with unknown groups, on Communities and Crime and on 2,000 rows of Adult:
ten random splits into training, unlabelled and test rows, every method on the same ones.
"""

from __future__ import annotations

import argparse
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from experiments.data import ROOT, save
from experiments.paper import figures, parity, rejection, tables
from experiments.paper.data import Sample, adult, communities, folder_of

HERE = Path(__file__).parent
SEEDS = range(1, 11)


def rejections(folder: Path, seeds: range, quick: bool) -> list[dict[str, Any]]:
    samples = {"Communities and Crime": communities(folder), "Adult": adult(folder, keep="income")}
    thresholds = rejection.THRESHOLDS[:2] if quick else rejection.THRESHOLDS
    measures = {
        name: partial(rejection.measure, few(sample, quick), thresholds=thresholds)
        for name, sample in samples.items()
    }
    return in_parallel(measures, seeds)


def parities(folder: Path, seeds: range, quick: bool) -> list[dict[str, Any]]:
    samples = {"Communities and Crime": communities(folder), "Adult": adult(folder, keep="sex")}
    exponents = {name: chosen[2:3] if quick else chosen for name, chosen in parity.EXPONENTS.items()}
    measures = {
        name: partial(parity.measure, few(sample, quick), exponents=exponents[name])
        for name, sample in samples.items()
    }
    return in_parallel(measures, seeds)


def few(sample: Sample, quick: bool) -> Sample:
    return sample.rows(np.arange(500)) if quick else sample


def in_parallel(measures: dict[str, Any], seeds: range) -> list[dict[str, Any]]:
    """What every table's measure finds for every seed."""
    found = []
    with Pool() as pool:
        for name, measure in measures.items():
            for done, rows in enumerate(pool.imap(measure, seeds), start=1):
                found += [{"table": name, **row} for row in rows]
                print(f"{name}: {done} of {len(seeds)} splits", end="\r", flush=True)
            print()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder with adult_parsed.csv and communities.csv")
    parser.add_argument("--out", type=Path, help="folder for everything; default results/ and docs/images")
    parser.add_argument("--quick", action="store_true", help="two splits of few rows, two levels")
    arguments = parser.parse_args()
    folder, seeds = folder_of(arguments.data_dir), SEEDS[:2] if arguments.quick else SEEDS
    results, images = arguments.out or HERE / "results", arguments.out or ROOT / "docs" / "images"
    found = rejections(folder, seeds, arguments.quick)
    save(found, tables.of_rejections(found), results, "rejection")
    tables.means(found, ["table", "method", "threshold"]).to_csv(results / "rejection_means.csv", index=False)
    figures.of_rejections(found, images / "paper_rejection.png")
    found = parities(folder, seeds, arguments.quick)
    save(found, tables.of_parities(found), results, "parity")
    tables.means(found, ["table", "method", "exponent"]).to_csv(results / "parity_means.csv", index=False)
    figures.of_parities(found, images / "paper_parity.png")


if __name__ == "__main__":
    main()
