"""bylaw fit: a policy from a table of scores and rules."""

from __future__ import annotations

import math
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bylaw.cli import options
from bylaw.cli.column_flags import ALL_FLAGS, Flags, takes_columns
from bylaw.cli.console import show_json, show_passes, show_steps, show_table, tell, warn
from bylaw.cli.standard_streams import STREAM, check_output, find_file, name_output, open_output
from bylaw.errors import BylawError, OptionError

if TYPE_CHECKING:
    from bylaw.cli.inputs import InputRows, Measured
    from bylaw.cli.reading import Reading
    from bylaw.cli.rules_file import RulesFile
    from bylaw.cli.scanned_rows import ScannedRows
    from bylaw.data.column_roles import Roles
    from bylaw.data.outcomes import HeldOut
    from bylaw.policy.policy import Policy

    Rows = InputRows | ScannedRows

_MOST_SENTENCES = 20


@takes_columns(*ALL_FLAGS)
def run_fit(
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
    no_lottery: Annotated[
        bool, typer.Option("--no-lottery", help="Decide without chance: the rules hold on hard decisions.")
    ] = False,
    limit: options.Limit = None,
    largest_weight: options.LargestWeight = None,
    outcomes: options.Outcomes = None,
    scanned: options.Scanned = None,
    as_json: options.AsJson = False,
    *,
    flags: Flags,
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
    from bylaw.cli.commands.report import name_report
    from bylaw.cli.inputs import check_outputs, find_fitting_roles, parse_limits, read_rules
    from bylaw.cli.reading import Reading

    check_output(output, as_json)
    check_outputs([find_file(output), report], [table, rules, certify, held_out])
    if report is None and held_out is not None:
        raise OptionError("--held-out has no effect without --report; to tighten the policy, use --certify")
    if report is None:
        named = {"--title": title, "--owner": owner, "--model-version": model_version}
        options.refuse_idle(named, "--report")
    if certify is None and held_out is None:
        idle = {"--confidence": confidence, "--limit": limit, "--outcomes": outcomes}
        idle["--largest-weight"] = largest_weight
        options.refuse_idle(idle, "--certify or --held-out")
    sure = options.check_confidence(confidence)
    file = _set_calibration(_set_margin(read_rules(rules, rule, minimize), margin, certify), calibrate)
    if no_lottery:
        file = replace(file, solve={**file.solve, "lottery": False})
    limits = parse_limits(limit, file.problem)
    roles = find_fitting_roles(table, file, flags)
    with open_output(output, ".json") as target, show_passes("fitting") as progress:
        rows = _open_rows(table, roles, file, scanned, progress)
        rows.check_seen_weights(flags)
        reading = Reading("give fewer, or pass --in-memory", unlimited=scanned is False)
        proof, judges = (
            _read_held_out(path, rows, file, outcomes, reading, limits=limits, largest_weight=largest_weight)
            for path in (certify, held_out)
        )
        policy = _solve(table, file, rows, proof, sure)
        policy.save(target)
        measured = rows.measure(policy)
        if report is not None:
            names = name_report(title, owner, model_version, held_out)
            _write_report(policy, rows, judges, sure, output, report, **names)
        (_show_json if as_json else _show_text)(policy, rows, measured, output, report)


def _open_rows(table: Path, roles: Roles, file: RulesFile, scanned: bool | None, progress: Any) -> Rows:
    """In memory, or as they are scanned."""
    from bylaw.cli.inputs import read_rows
    from bylaw.cli.reading import Reading
    from bylaw.cli.scanned_rows import ScannedRows, choose_scan

    if not choose_scan(scanned, table, roles):
        return read_rows(table, roles, {}, Reading("scan them: --scan", unlimited=scanned is False))
    if file.solve.get("calibrate") not in (None, "none"):
        raise OptionError(
            "a calibration needs rows in memory, and these are scanned: calibrate the scores before they are "
            "written, fit a part of the rows, or pass --in-memory"
        )
    return ScannedRows.open(table, roles, progress)


def _read_held_out(
    path: Path | None, rows: Rows, file: RulesFile, outcomes: Any, reading: Reading, **known: Any
) -> HeldOut | None:
    """The rows of another table with the columns of the fitted one, and what costs turned out to be."""
    from bylaw.cli.inputs import read_outcomes, read_rows

    if path is None:
        return None
    evidence = rows.describe(file.problem)
    found = read_outcomes(path, outcomes, file.problem, evidence.classes, reading)
    return read_rows(path, rows.roles, evidence.group_values, reading).hold_out(found, **known)


def _set_margin(file: RulesFile, margin: str | None, certify: Path | None) -> RulesFile:
    """The rules with the margin of the command line; whatever has no effect is refused."""
    if margin is not None:
        file = replace(file, solve={**file.solve, "margin": options.parse_margin(margin)})
    if not file.problem.rules:
        options.refuse_idle({"--certify": certify, "--margin": margin}, "rules")
        warn("there are no rules: the policy is the model's best answers")
    if certify is not None and file.solve.get("margin"):
        raise OptionError(
            "--certify finds the margin by itself: leave out --margin, and margin under [solve] in the rules "
            "file"
        )
    return file


def _set_calibration(file: RulesFile, calibrate: str | None) -> RulesFile:
    """The rules with the calibration of the command line."""
    from bylaw._base.validation import check_choice
    from bylaw.calibration.calibration import CHOICES

    if calibrate is None:
        return file
    return replace(file, solve={**file.solve, "calibrate": check_choice(calibrate, "--calibrate", CHOICES)})


def _solve(table: Path, file: RulesFile, rows: Rows, proof: HeldOut | None, confidence: float) -> Policy:
    """The policy, with the table and its columns on its card."""
    from bylaw.data.table_files import name_table
    from bylaw.fitting.solve import solve

    solving: dict[str, Any] = dict(file.solve)
    if proof is not None:
        solving |= {"guarantee": "high_probability", "held_out": proof, "confidence": confidence}
    with show_steps("solving", quiet=rows.scanned) as callback:
        policy = solve(file.problem, rows.source, **rows.outcomes, **solving, callback=callback)
    card = replace(policy.card, source=name_table(table), columns=rows.roles.to_dict())
    return replace(policy, card=card)


def _write_report(
    policy: Policy,
    rows: Rows,
    judges: HeldOut | None,
    confidence: float,
    output: Path,
    path: Path,
    **settings: Any,
) -> None:
    """After the policy is saved: whatever is wrong with a report does not lose the solve."""
    from bylaw.cli.commands.report import make_report

    saved = "no policy is printed, since" if output == STREAM else f"the policy is saved as {output}, but"
    try:
        make_report(policy, rows.sample(policy), judges, confidence, **settings).save(path)
    except (BylawError, OSError) as problem:
        raise BylawError(
            f"{saved} its report failed: {getattr(problem, 'message', problem)}",
            getattr(problem, "remedy", None),
        ) from problem
    except Exception as fault:
        raise BylawError(
            f"{saved} its report failed by a fault in bylaw; please report it\n{traceback.format_exc()}"
        ) from fault


def _show_json(policy: Policy, rows: Rows, measured: Measured, output: Path, report: Path | None) -> None:
    show_json(
        {
            "policy": str(output),
            "report": None if report is None else str(report),
            "hash": policy.digest,
            "file_sha256": policy.file_digest,
            "rows": measured.n_rows,
            "seen_rows": dict(rows.seen_rows),
            "minimize": str(policy.problem.minimize),
            "cost_observed": measured.observed,
            "cost_before": measured.costs.model,
            "cost_without_rules": None
            if math.isnan(measured.costs.without_rules)
            else measured.costs.without_rules,
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
            "guessed": list(rows.roles.guessed),
        }
    )


def _show_text(policy: Policy, rows: Rows, measured: Measured, output: Path, report: Path | None) -> None:
    from bylaw.cli.price_words import word_price, word_saving
    from bylaw.report.sentences import write_sentence
    from bylaw.testing import format_referred

    how = "observed" if measured.observed else "predicted"
    referred = format_referred(measured.referred)
    costs = measured.costs.describe(bool(policy.problem.rules))
    tell(f"{measured.n_rows:,} rows: {policy.problem.minimize}, {how}, is {costs}{referred}.")
    for column, count in rows.seen_rows.items():
        tell(f"{column} was seen on {count:,} of them: rates that refer to it are prediction-powered.")
    for found in policy.group_rates:
        tell(f"  {found}")
    if policy.action_space.classes and not (measured.observed or rows.roles.label):
        tell(
            "There are no labels: rates are those that the scores predict. With --label COLUMN, rules hold "
            "as observed."
        )
    if policy.prices:
        tell("In words:")
        for rule in policy.problem.rules[:_MOST_SENTENCES]:
            tell(f"  {write_sentence(rule, policy.problem.kind)}")
        prices = [(rule, word_price(policy, rule), word_saving(policy, rule)) for rule in policy.prices]
        show_table("", ("rule", "shadow price", "one more point saves"), prices)
    if policy.fitted_rates is not None and policy.certificate is None:
        tell(f"The rules hold {policy.fitted_rates.describe_chance()}.")
    if policy.hard is not None:
        tell(str(policy.hard))
    if policy.calibration is not None:
        tell(f"calibrated: {policy.calibration.describe()}")
    if policy.certificate is not None:
        tell(str(policy.certificate))
    tell(f"policy: {name_output(output)}" + (f"   report: {report}" if report else ""))
    tell(f"file sha256: {policy.file_digest}")
