"""Means over the splits, and whether they are as they should be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas
from experiments.paper import parity, rejection

Found = list[dict[str, Any]]
_TIGHTEST = 16


def means(found: Found, by: list[str]) -> pandas.DataFrame:
    """Mean, deviation and standard error of each measurement over the splits."""
    rows = pandas.DataFrame(found).drop(columns="seed").groupby(by, sort=False)
    mean, deviation = rows.mean(), rows.std(ddof=1)
    errors = deviation.div(np.sqrt(rows.size()), axis=0)
    parts = {"mean": mean, "deviation": deviation, "standard error": errors}
    named = [
        part.rename(columns=lambda column, name=name: f"{column}, {name}") for name, part in parts.items()
    ]
    return pandas.concat(named, axis=1).reset_index()


def of_rejections(found: Found) -> str:
    rows = pandas.DataFrame(found)
    rows["apart"] = rows["risk"] - rows["BinClassRO's risk there"]
    mean = means(rows.to_dict("records"), ["table", "method", "threshold"])
    methods = [rejection.FULL, rejection.COPT_800, rejection.COPT_100, rejection.ARGMAX, rejection.BASELINE]
    lines = [_verdict(mean, (rejection.FULL,), two_sided=True)]
    lines += [_verdict(mean, (rejection.COPT_800, rejection.COPT_100), two_sided=False)]
    lines += [_risks(mean, method) for method in methods[:3]]
    lines += ["", "Rejected, per cent of the test rows, with standard errors:", ""]
    shown = [*methods, rejection.NO_BETA]
    lines += _table(mean, shown, "rejected", sign="")
    lines += [
        "",
        "Risk less that of BinClassRO at the same rejection rate, in points, on the same splits:",
        "",
    ]
    lines += _table(mean, methods[:4], "apart", sign="+")
    base = mean[mean["method"] == rejection.BASE].drop_duplicates("table")
    risks = (
        f"{name} {100 * risk:.1f} %" for name, risk in zip(base["table"], base["risk, mean"], strict=True)
    )
    return "\n".join([*lines, "", f"Risk of the base model: {', '.join(risks)}."]) + "\n"


def _table(mean: pandas.DataFrame, methods: list[str], column: str, sign: str) -> list[str]:
    lines = ["| | threshold | " + " | ".join(methods) + " |", "|---" * (len(methods) + 2) + "|"]
    for (name, threshold), rows in mean.groupby(["table", "threshold"], sort=False):
        by_method = rows.set_index("method")
        cells = [
            f"{100 * by_method.loc[m, f'{column}, mean']:{sign}.2f} ± "
            f"{100 * by_method.loc[m, f'{column}, standard error']:.2f}"
            for m in methods
        ]
        lines.append(f"| {name} | {100 * threshold:g} | " + " | ".join(cells) + " |")
    return lines


def _verdict(mean: pandas.DataFrame, methods: Iterable[str], two_sided: bool) -> str:
    """How often the mean rejection rate is further from its threshold than two standard errors."""
    rows = mean[mean["method"].isin(list(methods))]
    away = (rows["rejected, mean"] - rows["threshold"]) / rows["rejected, standard error"]
    missed = rows[(away.abs() if two_sided else away) > 2]
    what = "within two standard errors of" if two_sided else "no more than two standard errors above"
    text = f"- {_and(methods)}: the mean rejection rate is {what} its threshold in "
    text += f"{len(rows) - len(missed)} of {len(rows)} cases"
    cases = [
        f"{row['table']}, {row['method']}, {100 * row['threshold']:g} %: {away[i]:+.1f}"
        for i, row in missed.iterrows()
    ]
    return text + (f" (the others, in standard errors: {'; '.join(cases)})." if cases else ".")


def _risks(mean: pandas.DataFrame, method: str) -> str:
    """How often the risk exceeds BinClassRO's at the same rejection rate by more than a standard error."""
    rows = mean[mean["method"] == method]
    apart = rows["apart, mean"]
    of_risk, of_difference = (rows[f"{name}, standard error"] for name in ("risk", "apart"))
    return (
        f"- {method}: at the same rejection rate the risk exceeds BinClassRO's by more than one standard "
        f"error of the risk in {(apart > of_risk).sum()} of {len(rows)} cases (of the difference on the same "
        f"splits, which is much smaller: {(apart > of_difference).sum()}); at most by "
        f"{100 * apart.max():.2f} points."
    )


def of_parities(found: Found) -> str:
    compared = _told_apart(pandas.DataFrame(_compared(found)))
    ours = [parity.COPT, parity.FULL, parity.ALL_ROWS]
    splits = len({row["seed"] for row in found})
    lines = []
    for method in ours:
        for peer in parity.FAIRLEARN:
            rows = compared[(compared["method"] == method) & (compared["peer"] == peer)]
            worse, better = ((sign * rows["apart"] > rows["error"]).sum() for sign in (1, -1))
            lines.append(
                f"- {method} against {peer}: at the same gap our risk is higher by more than a standard "
                f"error at {worse} of {len(rows)} tolerances, and lower at {better} (on "
                f"{rows['splits'].sum()} of {len(rows) * splits} splits; on the others its gap lies "
                "beyond that of our tightest rule)."
            )
    lines += [
        "",
        "Our risk less that of fairlearn at the gap that it shows on the test rows, in points; in brackets, "
        f"on how many of {splits} splits. Tighter tolerances than these hardly change anything and are left "
        "out, as is one at which fairlearn gives the same as at another.",
        "",
    ]
    lines += [f"| | peer | tolerance | its gap | its risk | {' | '.join(ours)} |", "|---" * 8 + "|"]
    for (name, peer, exponent), rows in compared.groupby(["table", "peer", "exponent"], sort=False):
        by_method = rows.set_index("method")
        gap, risk = by_method.iloc[0][["gap", "risk"]]
        cells = [_cell(by_method.loc[method]) for method in ours]
        lines.append(
            f"| {name} | {peer} | {2.0**-exponent:.3g} | {100 * gap:.2f} | {100 * risk:.2f} | "
            f"{' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def _told_apart(compared: pandas.DataFrame) -> pandas.DataFrame:
    """Each tolerance that makes a difference once: below 2 ** -16 none does, and the loosest may not bind."""
    rows = compared[compared["exponent"] <= _TIGHTEST]
    return rows.drop_duplicates(["table", "peer", "method", "gap", "risk"])


def _cell(row: pandas.Series) -> str:
    return f"{100 * row['apart']:+.2f} ± {100 * row['error']:.2f} ({row['splits']})"


def _compared(found: Found) -> Iterable[dict[str, Any]]:
    """On each split, our risk between the two tolerances whose gaps enclose the peer's, sign included; splits
    on which the peer is fairer than all of ours say nothing."""
    rows = pandas.DataFrame(found)
    curves = {key: part.sort_values("gap") for key, part in rows.groupby(["table", "method", "seed"])}
    peers = rows[rows["method"].isin(parity.FAIRLEARN)]
    for (name, peer, exponent), part in peers.groupby(["table", "method", "exponent"], sort=False):
        for method in (parity.COPT, parity.FULL, parity.ALL_ROWS):
            own = [curves[name, method, seed] for seed in part["seed"]]
            risks = [_risk_at(gap, curve) for gap, curve in zip(part["gap"], own, strict=True)]
            apart = np.array(risks) - part["risk"].to_numpy()
            apart = apart[np.isfinite(apart)]
            yield {
                "table": name,
                "peer": peer,
                "exponent": exponent,
                "method": method,
                "gap": part["gap"].mean(),
                "risk": part["risk"].mean(),
                "splits": len(apart),
                "apart": apart.mean() if len(apart) else np.nan,
                "error": apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan,
            }


def _risk_at(gap: float, curve: pandas.DataFrame) -> float:
    """nan where the gap is beyond our tightest. Beyond our loosest the rule is idle, and our risk stays."""
    gaps = curve["gap"].to_numpy()
    loosest = gaps[np.abs(gaps).argmax()]
    idle = abs(gap) >= abs(loosest) and gap * loosest > 0
    return float(np.interp(gap, gaps, curve["risk"])) if gaps[0] <= gap <= gaps[-1] or idle else np.nan


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
