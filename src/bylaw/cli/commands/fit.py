"""bylaw fit: a policy from a table of scores and rules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.console import Grid, show_passes, show_steps, warn, write_result
from bylaw.cli.files import check_outputs, name_output, name_saved, open_output, open_tables
from bylaw.errors import OptionError

if TYPE_CHECKING:
    from bylaw.cli.inputs import InputRows, Measured
    from bylaw.policy.policy import Policy

_MAX_SENTENCES = 20  # rules in words: more than a screen of them is not read


def run_fit(
    context: typer.Context,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the policy.")],
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    report: Annotated[Path | None, typer.Option(help="Also write a report, an HTML file.")] = None,
    title: options.Title = None,
    owner: options.Owner = None,
    model_version: options.ModelVersion = None,
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows: the policy is tightened until they certify it.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Other held-out rows, for the verdicts of the report.")
    ] = None,
    confidence: options.Confidence = None,
    margin: options.Margin = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            help="Calibrate the scores on the labels: auto, none, temperature, vector, isotonic, dirichlet.",
            show_default="auto with labels",
        ),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Decide without chance: the rules hold on hard decisions.")
    ] = False,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    scanned: options.Scanned = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    classes: options.Classes = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.SeenWeights = None,
    id_column: options.IdColumn = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Choose the policy of least cost that satisfies the rules on these rows.

    Where there is a column of labels, the rules hold as observed; otherwise, as predicted. Some of its cells
    may be empty: the rates are then prediction-powered, as predicted plus the mean error on labelled rows.
    A table that does not fit in memory is scanned, several times; its report goes by a sample of it.

    [bold]Examples[/bold]

      bylaw fit scores.parquet --rules rules.toml -o policy.json --report report.html --owner "Credit risk"

      bylaw fit scores.csv --rule "rejected() <= 0.1" -o policy.json

      bylaw fit 'scores/2024-*.parquet' --rules rules.toml -o policy.json

      bylaw fit scores.csv --rule "rejected() <= 0.1" --label y --calibrate isotonic -o policy.json
    """
    from bylaw._base.validation import check_choice
    from bylaw.calibration.calibration import CHOICES
    from bylaw.cli.commands.report import write_report
    from bylaw.cli.inputs import Reading, open_rows, parse_limits, read_held_out
    from bylaw.cli.rules_file import read_rules
    from bylaw.cli.table_columns import find_fitting_columns
    from bylaw.fitting.solve import solve
    from bylaw.rows.table_files import name_table

    check_outputs(output, [table, rules, certify, held_out], report, as_json=as_json)
    if report is None and held_out is not None:
        raise OptionError("--held-out has no effect without --report; to tighten the policy, use --certify")
    names = {"title": title, "owner": owner, "model_version": model_version}
    if report is None:
        options.refuse_idle("--report", **names)
    if certify is None and held_out is None:
        options.refuse_idle(
            "--certify or --held-out",
            confidence=confidence,
            limit=limit,
            outcomes=outcomes,
            largest_weight=largest_weight,
        )
    sure, stated = options.check_confidence(confidence), options.state_columns(context)

    file = read_rules(rules, rule, minimize)
    solving: dict[str, Any] = dict(file.solve)
    if margin is not None:
        solving["margin"] = options.parse_margin(margin)
    if calibrate is not None:
        solving["calibrate"] = check_choice(calibrate, "--calibrate", CHOICES)
    if deterministic:
        solving["deterministic"] = True
    if not file.problem.rules:
        options.refuse_idle("rules", certify=certify, margin=margin)
        warn("there are no rules: the policy is the model's best answers")
    if certify is not None and solving.get("margin"):
        raise OptionError(
            "--certify finds the margin by itself: leave out --margin, and margin under [solve] in the rules "
            "file"
        )
    known = {
        "limits": parse_limits(limit, file.problem),
        "largest_weight": largest_weight,
        "outcomes": outcomes,
    }

    table, certify, held_out = open_tables(context, table, certify=certify, held_out=held_out)
    columns, guessed = find_fitting_columns(table, file, stated)
    with open_output(output, ".json") as target, show_passes("fitting") as progress:
        rows = open_rows(table, columns, scanned, progress)
        if rows.scanned and solving.get("calibrate") not in (None, "none"):
            raise OptionError(
                "a calibration needs rows in memory, and these are scanned: calibrate the scores before they "
                "are written, fit a part of the rows, or pass --in-memory"
            )
        rows.check_propensity_weights(stated)
        proof = judges = None
        if certify is not None or held_out is not None:
            some = rows.describe(file.problem)
            reading = Reading("give fewer, or pass --in-memory", unlimited=scanned is False)
            proof, judges = (
                read_held_out(
                    path, columns, file.problem, some.classes, some.group_values, reading=reading, **known
                )
                for path in (certify, held_out)
            )
        if proof is not None:
            solving |= {"guarantee": "high_probability", "held_out": proof, "confidence": sure}
        with show_steps("solving", quiet=rows.scanned) as callback:
            policy = solve(file.problem, rows.source, **rows.outcomes, **solving, callback=callback)
        card = replace(policy.card, source=name_table(table), columns=columns.to_dict())
        policy = replace(policy, card=card)
        policy.save(target)
        measured = rows.measure(policy)
        if report is not None:
            if held_out is not None:
                names["held_out_source"] = name_table(held_out)
            with name_saved(output):
                write_report(policy, rows.sample(policy), report, judges, confidence=sure, **names)
        facts = {"policy": str(output), "report": None if report is None else str(report)}
        facts |= {**_list_facts(policy, rows, measured), "guessed": guessed}
        files = f"policy: {name_output(output)}" + (f"   report: {report}" if report else "")
        text = [*_describe(policy, rows, measured), files, f"file sha256: {policy.file_digest}"]
        write_result(facts, text, as_json)


def _list_facts(policy: Policy, rows: InputRows, measured: Measured) -> dict[str, Any]:
    """Return the result for machines."""
    without = measured.costs.without_rules
    return {
        "hash": policy.digest,
        "file_sha256": policy.file_digest,
        "rows": measured.n_rows,
        "seen_rows": dict(rows.seen_rows),
        "minimize": str(policy.problem.minimize),
        "cost_observed": measured.observed,
        "cost_before": measured.costs.model,
        "cost_without_rules": None if math.isnan(without) else without,
        "cost_after": measured.costs.policy,
        "referred": None if math.isnan(measured.referred) else measured.referred,
        "prices": policy.prices,
        "vacuous": list(policy.vacuous),
        "group_rates": [one.to_dict() for one in policy.group_rates],
        "status": policy.solution.status.name.lower(),
        "violation": policy.guarantee.violation,
        "hard": policy.hard and policy.hard._asdict(),
        "certificate": policy.certificate and vars(policy.certificate),
        "calibration": policy.calibration and policy.calibration.describe(),
        "columns": policy.card.columns,
    }


def _describe(policy: Policy, rows: InputRows, measured: Measured) -> Iterator[Any]:
    """Yield the result for people."""
    from bylaw.cli.commands.show import word_price, word_saving
    from bylaw.testing import format_referred
    from bylaw.view.sentences import write_sentence

    how = "observed" if measured.observed else "predicted"
    costs = f"{measured.costs.describe(bool(policy.problem.rules))}{format_referred(measured.referred)}"
    yield f"{measured.n_rows:,} rows: {policy.problem.minimize}, {how}, is {costs}."
    for column, count in rows.seen_rows.items():
        yield f"{column} was seen on {count:,} of them: rates that refer to it are prediction-powered."
    for found in policy.group_rates:
        yield f"  {found}"
    if policy.action_space.classes and not (measured.observed or rows.columns.label):
        yield (
            "There are no labels: rates are those that the scores predict. With --label COLUMN, rules hold "
            "as observed."
        )
    if policy.prices:
        yield "In words:"
        for rule in policy.problem.rules[:_MAX_SENTENCES]:
            yield f"  {write_sentence(rule, policy.problem.kind)}"
        prices = [(rule, word_price(policy, rule), word_saving(policy, rule)) for rule in policy.prices]
        yield Grid(("rule", "shadow price", "one more point saves"), prices)
    if policy.fitted_rates is not None and policy.certificate is None:
        yield f"The rules hold {policy.fitted_rates.describe_chance()}."
    if policy.hard is not None:
        yield policy.hard
    if policy.calibration is not None:
        yield f"calibrated: {policy.calibration.describe()}"
    if policy.certificate is not None:
        yield policy.certificate
