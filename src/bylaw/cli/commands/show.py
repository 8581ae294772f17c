"""bylaw show: a policy's card."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bylaw._base.visible_text import make_visible
from bylaw.cli import options
from bylaw.cli.console import show_json, show_table, tell

if TYPE_CHECKING:
    from bylaw.policy.policy import Policy


def run_show(policy: options.PolicyPath, as_json: options.AsJson = False) -> None:
    """Show a policy's card: its rules, their shadow prices, when and from what it was made, its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    from bylaw._base.json_reader import hash_file
    from bylaw.cli.price_words import word_price, word_saving
    from bylaw.policy.policy import Policy

    chosen = Policy.load(policy)
    if as_json:
        show_json({**_list_facts(chosen), "file_sha256": hash_file(policy)})
        return
    for name, value in {**_word_facts(chosen), "file sha256": hash_file(policy)}.items():
        tell(f"{name:12} {make_visible(value)}")  # a fact is one line, whatever names are in it
    tightened: dict[str, float] = {}
    for price in chosen.rule_prices:
        tightened[price.statement] = max(tightened.get(price.statement, -math.inf), price.tightened)
    lines = [
        (make_visible(rule), word_price(chosen, rule), word_saving(chosen, rule), f"{tightened[rule]:.4f}")
        for rule in chosen.prices
    ]
    show_table("", ("rule", "shadow price", "one more point saves", "tightened by"), lines)


def _word_facts(policy: Policy) -> dict[str, str]:
    """For people."""
    from bylaw.language.expressions import shorten

    counts = [f"{part.rows:,} rows" for part in policy.fingerprints]
    rows = ", and tested on ".join(counts) if counts else "an unknown number of rows"
    return {
        "minimize": str(policy.problem.minimize),
        **({"groups": "; ".join(map(str, policy.group_rates))} if policy.group_rates else {}),
        "decisions": f"{policy.action_space.description}: {shorten(policy.actions, 20)}",
        "made": policy.card.created,
        "fitted on": f"{policy.card.source or 'rows in memory'}, {rows}",
        "versions": ", ".join(f"{name} {number}" for name, number in policy.card.versions.items()),
        "solved to": f"{policy.guarantee.violation:.2g} on the fitted rows, as predicted by the model's "
        f"probabilities{_word_sampling(policy)}",
        **({} if policy.hard is None else {"chance": str(policy.hard)}),
        "calibration": "none" if policy.calibration is None else policy.calibration.describe(),
        "certificate": "none" if policy.certificate is None else str(policy.certificate),
        "looks": "; ".join(_word_looks(policy)) or "none on record",
        "hash": policy.digest,
    }


def _word_sampling(policy: Policy) -> str:
    sampling = policy.guarantee.sampling
    if math.isnan(sampling):
        return ""
    return f"; the paper's bound for new rows, of all rules together, adds {sampling:.2g}"


def _word_looks(policy: Policy) -> list[str]:
    """The audits on held-out rows."""
    return [f"{look.verdict} on {look.rows:,} rows, {look.date}" for look in policy.card.looks]


def _list_facts(policy: Policy) -> dict[str, Any]:
    """For machines."""
    return {
        "minimize": str(policy.problem.minimize),
        "kind": policy.action_space.kind,
        "actions": list(policy.actions),
        **{name: fact for name, fact in policy.card.to_dict().items() if name != "looks"},
        "looks": [{"date": x.date, "rows": x.rows, "verdict": x.verdict} for x in policy.card.looks],
        "rows": [part.rows for part in policy.fingerprints],
        "solved_to": policy.guarantee.violation,
        "sampling": None if math.isnan(policy.guarantee.sampling) else policy.guarantee.sampling,
        "hard": policy.hard and policy.hard._asdict(),
        "certificate": None if policy.certificate is None else asdict(policy.certificate),
        "calibration": None if policy.calibration is None else policy.calibration.to_dict(),
        "prices": policy.prices,
        "vacuous": list(policy.vacuous),
        "group_rates": [one.to_dict() for one in policy.group_rates],
        "tightened": policy.tightened,
        "hash": policy.digest,
    }
