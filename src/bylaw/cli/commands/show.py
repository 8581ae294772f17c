"""bylaw show: a policy's card."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from bylaw.cli import options
from bylaw.cli.console import show_json, show_table, tell
from bylaw.language.expressions import shorten
from bylaw.policy.policy import Policy


def show(policy: options.PolicyPath, as_json: options.AsJson = False) -> None:
    """A policy's card: its rules, what each costs, when and from what it was made, its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    chosen = Policy.load(policy)
    kind = "sets of " if chosen.action_space.kind == "sets" else ""
    facts = {
        "minimize": str(chosen.problem.minimize),
        "decisions": kind + shorten(chosen.actions, 20),
        "made": chosen.card.created,
        "fitted on": f"{chosen.card.source or 'rows in memory'}, {_rows(chosen)}",
        "versions": ", ".join(f"{name} {number}" for name, number in chosen.card.versions.items()),
        "solved to": f"{chosen.guarantee.violation:.2g}",
        "certificate": "none" if chosen.certificate is None else str(chosen.certificate),
        "hash": chosen.digest,
    }
    if as_json:
        show_json(_for_machines(chosen))
        return
    for name, value in facts.items():
        tell(f"{name:12} {value}")
    tightened: dict[str, float] = {}
    for price in chosen.rule_prices:
        tightened[price.statement] = max(tightened.get(price.statement, -math.inf), price.tightened)
    lines = [(rule, f"{price:.4g}", f"{tightened[rule]:.4f}") for rule, price in chosen.prices.items()]
    show_table("", ("rule", "one more unit of slack would save", "held tighter by"), lines)


def _for_machines(policy: Policy) -> dict[str, Any]:
    return {
        "minimize": str(policy.problem.minimize),
        "kind": policy.action_space.kind,
        "actions": list(policy.actions),
        **policy.card.to_dict(),
        "rows": [part.rows for part in policy.fingerprints],
        "solved_to": policy.guarantee.violation,
        "certificate": None if policy.certificate is None else asdict(policy.certificate),
        "prices": policy.prices,
        "tightened": policy.tightened,
        "hash": policy.digest,
    }


def _rows(policy: Policy) -> str:
    counts = [f"{part.rows:,}" for part in policy.fingerprints]
    return " + ".join(counts) + " rows" if counts else "an unknown number of rows"
