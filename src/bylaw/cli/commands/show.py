"""bylaw show: a policy's card."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bylaw._base.visible_text import make_visible
from bylaw.cli import options
from bylaw.cli.console import Grid, write_result

if TYPE_CHECKING:
    from bylaw.policy.policy import Policy


def run_show(policy: options.PolicyPath, as_json: options.AsJson = False) -> None:
    """Show a policy's card: its rules, their shadow prices, when and from what it was made, its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    from bylaw._base.files import hash_file
    from bylaw.policy.policy import Policy

    chosen, digest = Policy.load(policy), hash_file(policy)
    write_result({**_list_facts(chosen), "file_sha256": digest}, _describe(chosen, digest), as_json)


def _describe(policy: Policy, file_digest: str) -> Iterator[str | Grid]:
    """Yield the card for people: a line for each fact, and a table of prices."""
    from bylaw.language.expressions import shorten

    counts = [f"{part.rows:,} rows" for part in policy.fingerprints]
    rows = ", and tested on ".join(counts) if counts else "an unknown number of rows"
    sampling = policy.guarantee.sampling
    bound = f"; the paper's bound for new rows, of all rules together, adds {sampling:.2g}"
    solved = (
        f"{policy.guarantee.violation:.2g} on the fitted rows, as predicted by the model's probabilities"
        f"{'' if math.isnan(sampling) else bound}"
    )
    looks = [f"{look.verdict} on {look.rows:,} rows, {look.date}" for look in policy.card.looks]
    facts = {
        "minimize": policy.problem.minimize,
        **({"groups": "; ".join(map(str, policy.group_rates))} if policy.group_rates else {}),
        "decisions": f"{policy.action_space.description}: {shorten(policy.actions, 20)}",
        "made": policy.card.created,
        "fitted on": f"{policy.card.source or 'rows in memory'}, {rows}",
        "versions": ", ".join(f"{name} {number}" for name, number in policy.card.versions.items()),
        "solved to": solved,
        **({} if policy.hard is None else {"chance": policy.hard}),
        "calibration": "none" if policy.calibration is None else policy.calibration.describe(),
        "certificate": "none" if policy.certificate is None else policy.certificate,
        "looks": "; ".join(looks) or "none on record",
        "hash": policy.digest,
        "file sha256": file_digest,
    }
    for name, value in facts.items():
        yield f"{name:12} {make_visible(str(value))}"  # a fact is one line, whatever names are in it
    tightened: dict[str, float] = {}
    for price in policy.rule_prices:
        tightened[price.statement] = max(tightened.get(price.statement, -math.inf), price.tightened)
    lines = [
        (make_visible(rule), word_price(policy, rule), word_saving(policy, rule), f"{tightened[rule]:.4f}")
        for rule in policy.prices
    ]
    yield Grid(("rule", "shadow price", "one more point saves", "tightened by"), lines)


def word_price(policy: Policy, rule: str) -> str:
    """Return the shadow price of a rule, as stated; it means nothing where the rule holds as 0/0."""
    return "0/0" if rule in policy.vacuous_statements else f"{policy.prices[rule]:.4g}"


def word_saving(policy: Policy, rule: str) -> str:
    """Return what a point of the level of a rule, as stated, saves; if it is no share, a tenth of it."""
    from bylaw.view.sentences import find_level_unit, name_step, write_saving

    statement = policy.problem.rules[policy.problem.find(rule)]
    if rule in policy.vacuous_statements:
        return "undefined (0/0)"
    if (price := policy.prices[rule]) <= 0:
        return "nothing"
    saved = write_saving(price, statement, policy.problem.minimize) or "next to nothing"
    return f"{saved}, by {name_step(statement)}" if find_level_unit(statement) == "plain" else saved


def _list_facts(policy: Policy) -> dict[str, Any]:
    """Return the card for machines."""
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
