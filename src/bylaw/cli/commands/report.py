"""Commands that present a policy: report, show and studio."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import bylaw
from bylaw._base.validation import make_visible
from bylaw.cli import options
from bylaw.cli.console import Grid, remark, tell, write_result
from bylaw.cli.files import STREAM, check_outputs, name_output, open_output, open_tables
from bylaw.errors import OptionError, install_extra


def run_report(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write the report to.")],
    held_out: Annotated[Path | None, typer.Option(help="Held-out rows, for bounds and verdicts.")] = None,
    title: options.Title = None,
    owner: options.Owner = None,
    model_version: options.ModelVersion = None,
    confidence: options.Confidence = None,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    previous: options.Previous = None,
    watch: Annotated[
        Path | None, typer.Option(help="The state of `bylaw watch`, for rates and alarms since the fit.")
    ] = None,
    min_cell: options.MinCell = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    propensity_weights: options.PropensityWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
) -> None:
    """Write a report on a policy, from the table of its fit and, for verdicts, held-out rows.

    [bold]Example[/bold]

      bylaw report policy.json scores.parquet --held-out new.parquet -o report.html

      bylaw report policy.json scores.parquet --owner "Credit risk" --model-version 3.1 -o report.html
    """
    from bylaw._base.files import hash_file
    from bylaw.cli import tables
    from bylaw.rows.table_files import name_table

    check_outputs(output, [policy, table, held_out, watch])
    if held_out is None:
        options.refuse_idle_tests(context, "--held-out")
    level, reading = options.check_confidence(confidence), options.make_reading(sample, seed)
    stated = options.state_columns(context)
    table, held_out = open_tables(context, table, held_out=held_out)
    loaded = bylaw.Policy.load(policy)
    values, earlier = tables.list_group_values(loaded), tables.load_previous(previous, loaded)
    known = tables.parse_tests(context, loaded.problem)
    columns = tables.find_policy_columns(loaded, table, stated, previous=earlier)
    rows = tables.read_rows(table, columns, values, reading, earlier)
    tests, names = None, {"title": title, "owner": owner, "model_version": model_version}
    if held_out is not None:
        names["held_out_source"] = name_table(held_out)
        tests = tables.read_held_out(
            held_out,
            tables.find_policy_columns(loaded, held_out, stated, previous=earlier),
            loaded.problem,
            loaded.action_space.classes,
            values,
            known,
            reading,
            earlier,
        )
    if tests is None or tests.propensity_weights is None:
        tables.check_propensity_weights(rows, stated)
    with open_output(output, ".html") as target:
        write_report(
            loaded,
            rows,
            target,
            tests,
            confidence=level,
            **names,
            monitor=None if watch is None else bylaw.Monitor.load(watch, loaded),
            min_cell=min_cell,
            file_digest=hash_file(policy),
        )
        tell(f"report: {name_output(output)}")


def write_report(policy: bylaw.Policy, rows: Any, path: Path, held_out: Any, **settings: Any) -> None:
    """Write the report on a policy; settings that are None are left to their defaults."""
    from bylaw.report import report

    given = options.keep_given(**settings)
    report(policy, rows, held_out=held_out, **given).save(path)


def run_show(policy: options.PolicyPath, as_json: options.AsJson = False) -> None:
    """Show a policy's card: its rules, their shadow prices, its origin, its date and its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    from bylaw._base.files import hash_file

    loaded, digest = bylaw.Policy.load(policy), hash_file(policy)
    write_result({**_list_facts(loaded), "file_sha256": digest}, _describe(loaded, digest), as_json)


def _describe(policy: bylaw.Policy, file_digest: str) -> Iterator[str | Grid]:
    """Yield a line for each fact of the card, and a table of prices."""
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
        yield f"{name:12} {make_visible(str(value))}"  # one line, whatever names are in it
    tightened: dict[str, float] = {}
    for price in policy.rule_prices:
        tightened[price.statement] = max(tightened.get(price.statement, -math.inf), price.tightened)
    lines = [
        (make_visible(rule), word_price(policy, rule), word_saving(policy, rule), f"{tightened[rule]:.4f}")
        for rule in policy.prices
    ]
    yield Grid(("rule", "shadow price", "one more point saves", "tightened by"), lines)


def word_price(policy: bylaw.Policy, rule: str) -> str:
    """Return the shadow price of a rule as stated; it is undefined for a rate that is 0/0."""
    return "0/0" if rule in policy.vacuous_statements else f"{policy.prices[rule]:.4g}"


def word_saving(policy: bylaw.Policy, rule: str) -> str:
    """Return what one more point of a rule's level saves, or a tenth of it if the level is no share."""
    from bylaw.view.sentences import find_level_unit, name_step, write_saving

    statement = policy.problem.rules[policy.problem.find(rule)]
    if rule in policy.vacuous_statements:
        return "undefined (0/0)"
    if (price := policy.prices[rule]) <= 0:
        return "nothing"
    saved = write_saving(price, statement, policy.problem.minimize) or "next to nothing"
    return f"{saved}, by {name_step(statement)}" if find_level_unit(statement) == "plain" else saved


def _list_facts(policy: bylaw.Policy) -> dict[str, Any]:
    """Return the card as plain values."""
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


def run_studio(
    context: typer.Context,
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    port: Annotated[
        int, typer.Option(help="A port of this machine; 0 for any that is free.", min=0, max=65535)
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and do not open a browser.")
    ] = False,
    min_cell: options.MinCell = None,
    sample: options.Sample = None,
    seed: options.Seed = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
    classes: options.Classes = None,
    group: options.Group = None,
    group_probabilities: options.GroupProbabilities = None,
    true_group: options.TrueGroup = None,
    reference: options.Reference = None,
    label: options.Label = None,
    weight: options.Weight = None,
    propensity_weights: options.PropensityWeights = None,
    id_column: options.IdColumn = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
) -> None:
    """Try out rules in a browser: move sliders, and see costs, groups and decisions.

    The page is served to this machine only, and nothing leaves it. Control-C ends it.

    [bold]Examples[/bold]

      bylaw studio scores.parquet --rules rules.toml

      bylaw studio scores.csv --rule "rejected() <= 0.1" --group sex --label outcome
    """
    from bylaw.cli import tables
    from bylaw.cli.rules_file import RulesFile, read_rules
    from bylaw.rows.table_files import name_table

    try:
        from bylaw.studio.saved_files import Source
        from bylaw.studio.server import StudioServer
        from bylaw.studio.session import Session
    except ModuleNotFoundError as missing:
        raise OptionError(f"the studio needs {missing.name}: {install_extra('studio')}") from None
    if table == STREAM:
        raise OptionError("the studio needs a table in files, whose names it saves, and not -")
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    open_tables(context, table)
    file = (
        read_rules(rules, rule, minimize)
        if rules or rule
        else RulesFile(bylaw.Problem(minimize or "error()"))
    )
    solving = {name: value for name, value in file.solve.items() if name not in ("solver", "calibrate")}
    if len(solving) < len(file.solve):
        remark("the studio does not use solver and calibrate under [solve] in the rules file")
    merged = tables.merge_columns(file.columns, stated)
    mentioned = replace(file, problem=_mention(file.problem, merged))
    columns, _ = tables.find_fitting_columns(table, mentioned, stated)
    rows = tables.read_rows(table, columns, {}, reading)
    tables.check_propensity_weights(rows, stated)
    name = name_table(table)
    session = Session(
        file.problem,
        rows,
        title=f"Rules for {name}",
        solving=solving,
        source=Source(str(table), name, columns, merged, sample, seed or 0),
        **options.keep_given(min_cell=min_cell),
    )
    server = StudioServer(session, port=port)
    tell(f"studio: {server.url}")
    remark("control-C ends it")
    if not no_browser:
        server.open_browser()
    server.serve_here()


def _mention(problem: bylaw.Problem, stated: Mapping[str, Any]) -> bylaw.Problem:
    """Return the problem with a rule on every earlier model and cost, so that their columns are read."""
    from bylaw.language.action_space import ACTION_SPACES

    differs = ACTION_SPACES[problem.kind].choose_phrase("disagreement", "omits")
    others = [name for name in stated.get("references", ()) if name not in problem.references]
    rules: list[Any] = [bylaw.parse(f"{differs}({name!r}) <= 1") for name in others]
    rules += [bylaw.custom(name) <= 1 for name in stated.get("costs", ()) if name not in problem.arrays]
    return problem.with_rules([*problem.rules, *rules])
