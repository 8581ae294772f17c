"""Commands that solve: fit, refit, diagnose and frontier."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import bylaw
from bylaw.cli import options
from bylaw.cli.console import (
    ExitCode,
    Grid,
    remark,
    show_passes,
    show_progress,
    show_steps,
    warn,
    write_result,
)
from bylaw.cli.files import STREAM, check_outputs, name_output, name_saved, open_output, open_tables
from bylaw.errors import BylawError, InfeasibleRulesError, OptionError, UncertifiedError, install_extra

MAX_LEVELS = 1000  # each level is a solve
_MAX_SENTENCES = 20  # rules in words: a screen of them


def run_fit(
    context: typer.Context,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write the policy to.")],
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    report: Annotated[Path | None, typer.Option(help="Also write a report, an HTML file.")] = None,
    title: options.Title = None,
    owner: options.Owner = None,
    model_version: options.ModelVersion = None,
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows: tighten the policy until they certify it.")
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
        bool, typer.Option("--deterministic", help="Fit a deterministic policy, without random draws.")
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
    propensity_weights: options.PropensityWeights = None,
    id_column: options.IdColumn = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit the policy of least cost that satisfies the rules on these rows.

    With a column of labels, rules hold on observed rates; without, on predicted rates. If some labels are
    missing, rates are prediction-powered: as predicted plus the mean error on labeled rows.
    A table that does not fit in memory is scanned several times, and its report uses a sample.

    [bold]Examples[/bold]

      bylaw fit scores.parquet --rules rules.toml -o policy.json --report report.html --owner "Credit risk"

      bylaw fit scores.csv --rule "rejected() <= 0.1" -o policy.json

      bylaw fit 'scores/2024-*.parquet' --rules rules.toml -o policy.json

      bylaw fit scores.csv --rule "rejected() <= 0.1" --label y --calibrate isotonic -o policy.json
    """
    from bylaw._base.validation import check_choice
    from bylaw.calibration.calibration import CHOICES
    from bylaw.cli import tables
    from bylaw.cli.commands.report import write_report
    from bylaw.cli.rules_file import read_rules
    from bylaw.rows.table_files import name_table

    check_outputs(output, [table, rules, certify, held_out], report, as_json=as_json)
    if report is None and held_out is not None:
        raise OptionError("--held-out has no effect without --report; to tighten the policy, use --certify")
    names = {"title": title, "owner": owner, "model_version": model_version}
    if report is None:
        options.refuse_idle("--report", **names)
    if certify is None and held_out is None:
        options.refuse_idle_tests(context, "--certify or --held-out")
    level, stated = options.check_confidence(confidence), options.state_columns(context)

    file = read_rules(rules, rule, minimize)
    solving: dict[str, Any] = {**file.solve, **options.parse_margin(margin)}
    if calibrate is not None:
        solving["calibrate"] = check_choice(calibrate, "--calibrate", CHOICES)
    if deterministic:
        solving["deterministic"] = True
    if not file.problem.rules:
        options.refuse_idle("rules", certify=certify, margin=margin)
        warn("there are no rules: the policy takes the best decisions of the model")
    if certify is not None and solving.get("margin"):
        raise OptionError(
            "--certify finds the margin itself: leave out --margin, and margin in the rules file"
        )
    known = tables.parse_tests(context, file.problem)

    table, certify, held_out = open_tables(context, table, certify=certify, held_out=held_out)
    columns, guessed = tables.find_fitting_columns(table, file, stated)
    with open_output(output, ".json") as target, show_passes("fitting") as progress:
        rows = tables.open_rows(table, columns, scanned, progress)
        scans = not isinstance(rows, bylaw.Evidence)
        if scans and solving.get("calibrate") not in (None, "none"):
            raise OptionError(
                "a calibration needs rows in memory, and these are scanned: calibrate the scores before they "
                "are written, fit a part of the rows, or pass --in-memory"
            )
        tables.check_propensity_weights(rows, stated)
        proof = tests = None
        if certify is not None or held_out is not None:
            some = rows.survey(file.problem).evidence if isinstance(rows, bylaw.Scan) else rows
            reading = tables.Reading("give fewer, or pass --in-memory", unlimited=scanned is False)
            proof, tests = (
                tables.read_held_out(
                    path,
                    columns,
                    file.problem,
                    some.classes,
                    some.group_values,
                    known,
                    reading,
                )
                for path in (certify, held_out)
            )
        if proof is not None:
            solving |= {"guarantee": "high_probability", "held_out": proof, "confidence": level}
        with show_steps("solving", quiet=scans) as callback:
            policy = bylaw.solve(file.problem, rows, **solving, callback=callback)
        card = replace(policy.card, source=name_table(table), columns=columns.to_dict())
        policy = replace(policy, card=card)
        policy.save(target)
        costs, partly = tables.measure(policy, rows), tables.count_observed(rows, columns)
        if report is not None:
            if held_out is not None:
                names["held_out_source"] = name_table(held_out)
            with name_saved(output):
                write_report(
                    policy, tables.sample_rows(rows, policy), report, tests, confidence=level, **names
                )
        facts = {"policy": str(output), "report": None if report is None else str(report)}
        facts |= {**_list_facts(policy, partly, costs), "guessed": guessed}
        files = f"policy: {name_output(output)}" + (f"   report: {report}" if report else "")
        text = [*_describe(policy, columns, partly, costs), files, f"file sha256: {policy.file_digest}"]
        write_result(facts, text, as_json)


def _list_facts(policy: bylaw.Policy, partly: Mapping[str, int], measured: Any) -> dict[str, Any]:
    """Return a fit as plain values."""
    without = measured.costs.without_rules
    return {
        "hash": policy.digest,
        "file_sha256": policy.file_digest,
        "rows": measured.n_rows,
        "seen_rows": dict(partly),
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


def _describe(
    policy: bylaw.Policy, columns: bylaw.Columns, partly: Mapping[str, int], measured: Any
) -> Iterator[Any]:
    """Yield a fit as text."""
    from bylaw.cli.commands.report import word_price, word_saving
    from bylaw.testing import format_referred
    from bylaw.view.sentences import write_sentence

    how = "observed" if measured.observed else "predicted"
    costs = f"{measured.costs.describe(bool(policy.problem.rules))}{format_referred(measured.referred)}"
    yield f"{measured.n_rows:,} rows: {policy.problem.minimize}, {how}, is {costs}."
    for column, count in partly.items():
        yield f"{column} is observed on {count:,} of them: rates that refer to it are prediction-powered."
    for rate in policy.group_rates:
        yield f"  {rate}"
    if policy.action_space.classes and not (measured.observed or columns.label):
        yield (
            "There are no labels: rates are those that the scores predict. With --label COLUMN, rules hold "
            "on observed rates."
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


def run_refit(
    context: typer.Context,
    policy: options.PolicyPath,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write the new policy to.")],
    churn: Annotated[
        float | None,
        typer.Option(
            help="The largest share of decisions that may change, such as 0.05.", show_default="any"
        ),
    ] = None,
    rules: options.OtherRules = None,
    rule: options.OtherRule = None,
    margin: options.Margin = None,
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows, on which rules and changes are certified.")
    ] = None,
    confidence: options.Confidence = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a report on both policies, an HTML file.")
    ] = None,
    previous: options.Previous = None,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    scores: options.Scores = None,
    positive: options.Positive = None,
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
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit the rules of a policy on new rows, and change few of its decisions.

    If the rules alone change no more decisions than --churn, the new policy needs nothing else. Otherwise it
    reads the decisions of the earlier policy: pass that to `bylaw decide` and others as --previous.

    [bold]Examples[/bold]

      bylaw refit policy.json new.parquet --churn 0.05 -o policy2.json --report refit.html

      bylaw refit policy.json new.parquet --churn 0.05 --certify held.parquet -o policy2.json
    """
    from bylaw.cli import tables
    from bylaw.cli.commands.report import write_report
    from bylaw.cli.decisions import check_ids
    from bylaw.cli.rules_file import read_other_rules
    from bylaw.rows.table_files import name_table
    from bylaw.testing import compare_policies

    check_outputs(output, [policy, table, rules, certify, previous], report, as_json=as_json)
    if certify is None:
        options.refuse_idle_tests(context, "--certify")
    stated = options.state_columns(context)
    table, certify = open_tables(context, table, certify=certify)
    earlier, others = bylaw.Policy.load(policy), read_other_rules(rules, rule)
    problem, older = (others or earlier).problem, tables.load_previous(previous, earlier)
    values = tables.list_group_values(earlier)
    solving = {**({} if others is None else others.solve), **options.parse_margin(margin)}
    columns = tables.find_policy_columns(earlier, table, stated, others=others, previous=older)
    rows = tables.read_rows(table, columns, values, previous=older)
    ids = tables.read_ids(table, columns, values)
    if ids is not None:
        check_ids(ids)
    if certify is not None:
        held_columns = tables.find_policy_columns(earlier, certify, stated, others=others, previous=older)
        solving["confidence"] = options.check_confidence(confidence)
        solving["held_out"] = tables.read_held_out(
            certify,
            held_columns,
            problem,
            earlier.action_space.classes,
            values,
            tables.parse_tests(context, problem),
            previous=older,
        )
        held_ids = tables.read_ids(certify, held_columns, values)
        if ids is not None and held_ids is not None:
            check_ids(held_ids)
            solving["held_out_ids"] = held_ids
    try:
        new = bylaw.refit(
            earlier,
            rows,
            churn=churn,
            ids=ids,
            rules=None if others is None else list(problem.rules),
            **solving,
        )
    except (InfeasibleRulesError, UncertifiedError) as refused:
        refused.message = _name_churn(refused.message)
        raise
    new = replace(new, card=replace(new.card, source=name_table(table), columns=columns.to_dict()))
    with open_output(output, ".json") as target:
        new.save(target)
        compared = compare_policies(earlier, new, rows, ids=ids)
        if report is not None:
            with name_saved(output):
                write_report(new, compared.evidence, report, None, comparison=compared)
        facts = {
            "policy": str(output),
            "hash": new.digest,
            "report": None if report is None else str(report),
            "needs_previous": compared.needs_previous,
            **compared.to_dict(),
        }
        text = [*_describe_refit(compared, new.certificate), f"policy: {name_output(output)}"]
        write_result(facts, [*text, *([] if report is None else [f"report: {report}"])], as_json)


def _name_churn(text: str) -> str:
    """Return a text with --churn in place of the rule on changes, as wide as that if it is in a column."""

    def word(rule: re.Match[str]) -> str:
        flag = f"--churn {rule[1]}"
        return flag.ljust(len(rule[0])) if rule[2] else flag

    return re.sub(r"custom\('changed'\) <= ([\d.e-]+)( {2,})?", word, text)


def _describe_refit(compared: Any, certificate: Any) -> Iterator[str | Grid]:
    """Yield both policies side by side."""
    lines = [
        (_name_churn(one.statement), f"{one.target:.4g}", f"{one.before:.4f}", f"{one.after:.4f}")
        for one in compared.rules
    ]
    yield Grid(("rule, its worst part", "bound", "earlier", "new"), lines)
    before, after = compared.referred_before, compared.referred_after
    referred = f", with {100 * before:.3g} % and {100 * after:.3g} % of cases referred"
    yield (
        f"{compared.rows:,} rows: {compared.objective}, {compared.measurement}, is "
        f"{compared.cost_before:.4g} with the earlier policy and {compared.cost_after:.4g} with the new one"
        f"{referred if before + after > 0 else ''}; {compared.changed:.2%} of decisions change"
    )
    if certificate is not None:
        yield f"certified: {certificate}"
    if compared.needs_previous:
        yield "the new policy counts changed decisions: give the earlier one to `bylaw decide` as --previous"


def run_diagnose(
    context: typer.Context,
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
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
    propensity_weights: options.PropensityWeights = None,
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Check whether the rules are feasible together; if not, name the conflict and the least relaxation.

    Exit codes: 0 feasible, 1 in conflict, 2 an error.
    With a column of labels, rates are observed. A table that does not fit in memory is scanned several
    times, and its rates are predicted.

    [bold]Example[/bold]

      bylaw diagnose scores.parquet --rules rules.toml
    """
    from bylaw.cli import tables
    from bylaw.cli.rules_file import read_rules

    stated = options.state_columns(context)
    (table,) = open_tables(context, table)
    file = read_rules(rules, rule, None)
    columns, _ = tables.find_fitting_columns(table, file, stated, without=("id",))
    with show_passes("diagnosing") as progress:
        rows = tables.open_rows(table, columns, scanned, progress)
        if isinstance(rows, bylaw.Evidence):
            tables.check_propensity_weights(rows, stated)
        elif columns.outcomes:
            remark("the rows are scanned, so that rates are predicted: labels and true groups are not read")
        diagnosis = bylaw.diagnose(file.problem, rows)
    names = ("feasible", "conflict", "least", "violations", "relaxation", "small_cells", "least_violation")
    code = ExitCode.SUCCESS if diagnosis.feasible else ExitCode.BROKEN
    write_result({name: getattr(diagnosis, name) for name in names}, [diagnosis], as_json, code)


def run_frontier(
    context: typer.Context,
    table: options.Table,
    rules: options.Rules = None,
    rule: options.Rule = None,
    minimize: options.Minimize = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="The rule whose level varies, as it is written.", show_default="the first"),
    ] = None,
    levels: Annotated[str, typer.Option(help="first:last:count, or numbers with commas.")] = "0:0.2:21",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A table of the points; - for CSV on standard output."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="A plot of the points, a PNG, SVG or PDF file.")] = None,
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
    normalize: options.Normalize = False,
    delimiter: options.Delimiter = None,
    format_: options.InputFormat = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute the least cost at each level of a rule, a Pareto frontier.

    Each point is the policy that `bylaw fit` would find: with a column of labels, rules and costs are
    observed.

    [bold]Examples[/bold]

      bylaw frontier scores.parquet --rules rules.toml --levels 0:0.1:11 --plot frontier.png

      bylaw frontier scores.csv --rule "rejected() <= 0.1" --levels 0,0.05,0.1
    """
    import pyarrow

    from bylaw._base.files import write_atomically
    from bylaw.cli import tables
    from bylaw.cli.rules_file import read_rules
    from bylaw.rows.table_files import detect_format, write_table

    check_outputs(output, [table, rules], plot, as_json=as_json)
    reading, stated = options.make_reading(sample, seed), options.state_columns(context)
    if output not in (None, STREAM):
        detect_format(output)
    if plot is not None:
        _check_plot(plot)
    file = read_rules(rules, rule, minimize)
    if not file.problem.rules:
        raise OptionError("there is no rule to vary")
    try:
        statement = file.problem.rules[0 if sweep is None else file.problem.find(sweep)]
    except OptionError as unknown:
        unknown.add_place("--sweep")
        raise
    values = _parse_levels(levels)
    try:
        for level in values:
            statement.at(level)  # a level that the rule cannot have is refused before rows are read
    except BylawError as problem:
        if sweep is None and len(file.problem.rules) > 1:
            problem.message += f". The level of the first rule, {statement}, varies: choose it with --sweep"
        raise
    (table,) = open_tables(context, table)
    columns, _ = tables.find_fitting_columns(table, file, stated, without=("id",))
    rows = tables.read_rows(table, columns, {}, reading)
    tables.check_propensity_weights(rows, stated)
    solving = {name: value for name, value in file.solve.items() if name != "deterministic"}
    with show_progress("levels", len(values)) as advance:
        frontier = bylaw.frontier(
            file.problem,
            rows,
            {statement: values},
            callback=lambda _: advance(1),
            **solving,
        )
    points = frontier.to_frame(pyarrow.table({}))
    if plot is not None:
        figure = frontier.plot().figure
        with write_atomically(plot) as partial:
            figure.savefig(partial, dpi=150, format=plot.suffix.lstrip(".").lower())
    with contextlib.ExitStack() as stack:
        if output is not None:
            write_table(stack.enter_context(open_output(output, ".csv")), points)
        lines = points.to_pylist()
        facts = [{name: None if v != v else v for name, v in line.items()} for line in lines]  # no nan
        write_result(facts, _describe_frontier(frontier, lines, statement), as_json)


def _check_plot(path: Path) -> None:
    """Raise an error if no plot can be written to a file of this name."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise OptionError(f"--plot must be a file that ends in .png, .svg or .pdf, got {path}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise OptionError(f"--plot needs matplotlib: {install_extra('plot')}") from None


def _parse_levels(text: str) -> list[float]:
    """Return the levels that are written as first:last:count, or as numbers with commas."""
    import numpy as np

    from bylaw._base.validation import check_number

    try:
        numbers = text.split(":" if ":" in text else ",")
        if ":" not in text:
            return [check_number(float(part), "a level") for part in numbers]
        first, last, count = numbers
        start, end = (check_number(float(level), "a level") for level in (first, last))
        number = int(count)
    except OptionError as problem:
        problem.add_place("--levels")
        raise
    except ValueError:
        raise OptionError(f"--levels must be first:last:count or numbers with commas, got {text!r}") from None
    if not 1 <= number <= MAX_LEVELS:
        raise OptionError(f"--levels must be between 1 and {MAX_LEVELS} of them, got {number}")
    return np.linspace(start, end, number).tolist()


def _describe_frontier(
    frontier: bylaw.Frontier, lines: list[dict[str, Any]], statement: Any
) -> Iterator[str | Grid]:
    """Yield a line for each level, and how to read a price."""
    from bylaw.view.sentences import find_level_unit

    minimize, name = frontier.problem.minimize, frontier.swept[0]
    cells = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in line.values()] for line in lines]
    yield Grid((name, str(minimize), "shadow price", "status"), cells)
    points = minimize.is_probability and find_level_unit(statement) != "plain"
    unit, saved = ("point", "0.1 points") if points else ("unit", "0.1")
    yield f"A price of 0.1: one more {unit} of level in {name} saves {saved} of {minimize}."
