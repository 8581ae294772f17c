"""bylaw show: a policy's card."""

from __future__ import annotations

from bylaw.cli import options
from bylaw.cli.console import show_json, show_table, tell
from bylaw.policy import Policy


def show(policy: options.PolicyPath, as_json: options.AsJson = False) -> None:
    """A policy's card: its rules, what each costs, when and from what it was made, its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    chosen = Policy.load(policy)
    facts = {
        "minimize": str(chosen.problem.minimize),
        "decisions": ", ".join(map(str, chosen.actions[:20])) + (" ..." if len(chosen.actions) > 20 else ""),
        "made": chosen.card.created,
        "fitted on": f"{chosen.card.source or 'rows in memory'}, {_rows(chosen)}",
        "versions": ", ".join(f"{name} {number}" for name, number in chosen.card.versions.items()),
        "rules hold, fitted rows": f"to {chosen.guarantee.violation:.2g}",
        "certificate": "none" if chosen.certificate is None else str(chosen.certificate),
        "hash": chosen.digest,
    }
    if as_json:
        show_json({**facts, "prices": chosen.prices, "columns": chosen.card.columns})
        return
    for name, value in facts.items():
        tell(f"{name:24} {value}")
    prices = [(rule, f"{price:.4g}") for rule, price in chosen.prices.items()]
    show_table("", ("rule", "one more unit of slack would save"), prices)


def _rows(policy: Policy) -> str:
    counts = [f"{part.rows:,}" for part in policy.fingerprints]
    return " + ".join(counts) + " rows" if counts else "an unknown number of rows"
