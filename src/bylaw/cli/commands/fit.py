"""The commands that fit a policy (fit and refit), and show, which prints its card."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import bylaw
from bylaw._base import make_visible
from bylaw.cli import options
from bylaw.cli.console import remark, show_progress, warn, write_result
from bylaw.cli.files import check_outputs, name_output, name_saved, open_output, open_tables
from bylaw.errors import InfeasibleRulesError, OptionError, UncertifiedError

SAMPLE_ROWS = 1_000_000  # number of rows of a report on scanned rows


@options.share(
    *("rules", "rule", "minimize", "title", "owner", "model_version", *options.TESTS, "margin", "scanned"),
    *(*options.LABELED, "classes", "weight", "propensity_weights", "id_column", *options.READ, "as_json"),
)
def run_fit(
    context: typer.Context,
    table: options.Table,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write the policy to.")],
    report: Annotated[Path | None, typer.Option(help="Also write a report, an HTML file.")] = None,
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows: tighten the policy until they certify it.")
    ] = None,
    held_out: Annotated[
        Path | None, typer.Option(help="Other held-out rows, for the verdicts of the report.")
    ] = None,
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
) -> None:
    """Fit the policy of least cost that satisfies the rules on these rows.

    With a column of labels, rules are about observed rates; otherwise, about predicted rates. If some labels
    are missing, rates are prediction-powered: the predicted rate plus its mean error on labeled rows.
    A table that does not fit in memory is scanned several times, and its report uses a sample.

    [bold]Examples[/bold]

      bylaw fit scores.parquet --rules rules.toml -o policy.json --report report.html --owner "Credit risk"

      bylaw fit scores.csv --rule "rejected() <= 0.1" -o policy.json

      bylaw fit 'scores/2024-*.parquet' --rules rules.toml -o policy.json

      bylaw fit scores.csv --rule "rejected() <= 0.1" --label y --calibrate isotonic -o policy.json
    """
    from bylaw.cli import tables
    from bylaw.cli.rules_file import check_solving, read_rules
    from bylaw.rows import name_table

    given = context.obj
    check_outputs(output, [table, given.rules, certify, held_out], report, as_json=given.as_json)
    names = {"title": given.title, "owner": given.owner, "model_version": given.model_version}
    if report is None:
        options.refuse(
            "has no effect without --report; to tighten the policy, use --certify", held_out=held_out
        )
        options.refuse_idle("--report", **names)
    if certify is None and held_out is None:
        options.refuse_idle_tests(given, "--certify or --held-out")
    level, stated = options.check_confidence(given.confidence), options.state_columns(given)

    file = read_rules(given.rules, given.rule, given.minimize)
    flags = {**options.parse_margin(given.margin), **options.keep_given(calibrate=calibrate)}
    check_solving(flags)
    solving: dict[str, Any] = {**file.solve, **flags, **({"deterministic": True} if deterministic else {})}
    if not file.problem.rules:
        options.refuse_idle("rules", certify=certify, margin=given.margin)
        warn("no rules are given, so the policy takes the best decisions of the model")
    if certify is not None and solving.get("margin"):
        raise OptionError(
            "--certify finds the margin itself; leave out --margin, and margin in the rules file"
        )
    limits = tables.parse_limits(given.limit, file.problem)

    table, certify, held_out = open_tables(context, table, certify=certify, held_out=held_out)
    columns, guessed = tables.find_fitting_columns(table, file, stated)
    with open_output(output, ".json") as target, show_progress("fitting") as progress:
        rows = tables.open_rows(table, columns, given.scanned, progress)
        scans = not isinstance(rows, bylaw.Evidence)
        if scans and solving.get("calibrate") not in (None, "none"):
            raise OptionError(
                "a calibration needs rows in memory, but these rows are scanned; calibrate the scores before "
                "they are written, fit some of the rows, or pass --in-memory"
            )
        tables.check_propensity_weights(rows, given)
        tests: dict[str, bylaw.Evidence] = {}
        for name, path in {"certify": certify, "held_out": held_out}.items():
            if path is not None:
                some = rows.survey(file.problem).evidence if isinstance(rows, bylaw.Scan) else rows
                reading = tables.Reading("give fewer, or pass --in-memory", unlimited=given.scanned is False)
                held = tables.read_rows(path, columns, some.group_values, reading)
                tests[name] = tables.add_tests(held, path, given, file.problem, limits, reading)
        if "certify" in tests:
            solving |= {"guarantee": "high_probability", "held_out": tests["certify"], "confidence": level}
        with show_progress("solving") as callback:  # while rows are scanned, the bar of passes is shown
            policy = bylaw.solve(file.problem, rows, **solving, callback=None if scans else callback)
        card = replace(policy.card, source=name_table(table), columns=columns.to_dict())
        policy = replace(policy, card=card)
        policy.save(target)
        measured = _measure(policy, rows, columns)
        if report is not None:
            if held_out is not None:
                names["held_out_source"] = name_table(held_out)
            with name_saved(output):
                from bylaw.report import report as make_report

                shown = rows
                if not isinstance(shown, bylaw.Evidence):
                    shown = shown.sample(SAMPLE_ROWS, values=tables.PolicyTables(policy).values)
                    if len(shown) == SAMPLE_ROWS:
                        remark(f"the report uses a random sample of {SAMPLE_ROWS:,} rows")
                names = options.keep_given(**names)
                made = make_report(policy, shown, held_out=tests.get("held_out"), confidence=level, **names)
                made.save(report)
        facts = {"policy": str(output), "report": None if report is None else str(report)}
        facts |= {**_list_fit(policy, measured), "guessed": guessed}
        files = f"policy: {name_output(output)}" + (f"   report: {report}" if report else "")
        text = [*_describe_fit(policy, measured, bool(columns.label)), files]
        write_result(facts, [*text, f"file sha256: {policy.file_digest}"], given.as_json)


class _Measured(NamedTuple):
    """The costs of a policy on the fitted rows."""

    n_rows: int
    costs: Any
    referred: float  # the share of decisions that are not labels; nan if all or no actions are labels
    observed: bool  # whether the costs are observed
    partly: Mapping[
        str, int
    ]  # number of rows with a value, by column of labels or groups with missing values


def _measure(policy: bylaw.Policy, rows: bylaw.Evidence | bylaw.Scan, columns: bylaw.Columns) -> _Measured:
    """Return the costs of the policy on the fitted rows."""
    from bylaw.fitting import solve_without_rules
    from bylaw.language import LABEL
    from bylaw.rows import observe
    from bylaw.testing import compare_costs, compare_scanned_costs, is_observed, measure_referred

    objective, space = policy.problem.minimize, policy.action_space
    if isinstance(rows, bylaw.Scan):
        surveyed = rows.survey(policy.problem)
        seen = observe(surveyed.evidence) if surveyed.observed is None else surveyed.observed
        measured = compare_scanned_costs(policy, surveyed)
        return _Measured(*measured, is_observed(objective, seen, space), {})
    seen, probabilities = observe(policy.calibrate(rows)), policy.probabilities(rows)
    without = solve_without_rules(policy, rows)
    costs = compare_costs(policy, seen, probabilities=probabilities, without_rules=without)
    masks, names = rows.find_observed(), {LABEL: columns.label, **columns.true_groups}
    partly = {column: int(masks[name].sum()) for name, column in names.items() if column and name in masks}
    referred = measure_referred(probabilities, space, rows)
    return _Measured(len(rows), costs, referred, is_observed(objective, seen, space), partly)


def _list_fit(policy: bylaw.Policy, measured: _Measured) -> dict[str, Any]:
    """Return the result of a fit as plain values."""
    costs, numbers = measured.costs, (measured.costs.without_rules, measured.referred)
    without, referred = (None if math.isnan(number) else number for number in numbers)
    return {
        **_list_common(policy),
        "file_sha256": policy.file_digest,
        "rows": measured.n_rows,
        "seen_rows": dict(measured.partly),
        "cost_observed": measured.observed,
        "cost_before": costs.model,
        "cost_without_rules": without,
        "cost_after": costs.policy,
        "referred": referred,
        "status": policy.solution.status.name.lower(),
        "violation": policy.guarantee.violation,
        "calibration": policy.calibration and policy.calibration.describe(),
        "columns": policy.card.columns,
    }


def _list_common(policy: bylaw.Policy) -> dict[str, Any]:
    """Return the facts about a policy that both fit and show print, as plain values."""
    return {
        "hash": policy.digest,
        "minimize": str(policy.problem.minimize),
        "prices": policy.prices,
        "vacuous": list(policy.vacuous),
        "group_rates": [one.to_dict() for one in policy.group_rates],
        "hard": policy.hard and policy.hard._asdict(),
        "certificate": policy.certificate and asdict(policy.certificate),
    }


def _describe_fit(policy: bylaw.Policy, measured: _Measured, labeled: bool) -> Iterator[Any]:
    """Yield the result of a fit as lines and tables."""
    from bylaw.testing import format_referred
    from bylaw.view import write_sentence

    how = "observed" if measured.observed else "predicted"
    costs = f"{measured.costs.describe(bool(policy.problem.rules))}{format_referred(measured.referred)}"
    yield f"{measured.n_rows:,} rows: {policy.problem.minimize}, {how}, is {costs}."
    for column, count in measured.partly.items():
        yield f"{column} is observed on {count:,} of them: rates that refer to it are prediction-powered."
    for rate in policy.group_rates:
        yield f"  {rate}"
    if policy.action_space.classes and not (measured.observed or labeled):
        yield (
            "Without labels, rules are about rates that the scores predict. With --label COLUMN, they are "
            "about observed rates."
        )
    if policy.prices:
        yield "In words:"
        for rule in policy.problem.rules:
            yield f"  {write_sentence(rule, policy.problem.kind)}"
        yield _tabulate_prices(policy)
    if policy.fitted_rates is not None and policy.certificate is None:
        yield f"The rules hold {policy.fitted_rates.describe_chance()}."
    if policy.hard is not None:
        yield policy.hard
    if policy.calibration is not None:
        yield f"calibrated: {policy.calibration.describe()}"
    if policy.certificate is not None:
        yield policy.certificate


def _tabulate_prices(policy: bylaw.Policy, more: Mapping[str, Mapping[str, str]] | None = None) -> Any:
    """Return a table of the shadow price of each rule, and of the saving if its level is one point looser.

    If the level is not a share, the table contains the saving for a tenth of the level. `more` has further
    columns: {heading: {rule: text}}.
    """
    from bylaw.view import Table, find_level_unit, name_step, write_saving

    lines: list[tuple[str, ...]] = []
    for rule, price in policy.prices.items():
        statement = policy.problem.rules[policy.problem.find(rule)]
        saving = "nothing"
        if rule in policy.vacuous_statements:
            saving = "undefined (0/0)"
        elif price > 0:
            saving = write_saving(price, statement, policy.problem.minimize) or "next to nothing"
            if find_level_unit(statement) == "plain":
                saving = f"{saving}, by {name_step(statement)}"
        worth = "0/0" if rule in policy.vacuous_statements else f"{price:.4g}"
        lines.append((rule, worth, saving, *(one[rule] for one in (more or {}).values())))
    heads = ("rule", "shadow price", "one more point saves", *(more or {}))
    return Table(heads, lines, numbers=[1, *range(3, len(heads))])


def run_show(
    policy: options.PolicyPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Show a policy's card: its rules, their shadow prices, its origin, its date and its hash.

    [bold]Example[/bold]

      bylaw show policy.json
    """
    from bylaw._base import hash_file

    loaded, digest = bylaw.Policy.load(policy), hash_file(policy)
    facts = {**_list_card(loaded), "file_sha256": digest}
    write_result(facts, _describe_card(loaded, digest), as_json)


def _describe_card(policy: bylaw.Policy, file_digest: str) -> Iterator[Any]:
    """Yield a line for each fact on the card of a policy, and a table of prices."""
    from bylaw.language import shorten

    counts = [f"{part.rows:,} rows" for part in policy.fingerprints]
    rows = ", and tested on ".join(counts) if counts else "an unknown number of rows"
    sampling = policy.guarantee.sampling
    bound = f"; on new rows, the paper's bound for all rules together adds {sampling:.2g}"
    solved = (
        f"{policy.guarantee.violation:.2g} on the fitted rows, for rates that the probabilities predict"
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
    amounts = {rule: f"{amount:.4f}" for rule, amount in tightened.items()}
    yield _tabulate_prices(policy, {"tightened by": amounts})


def _list_card(policy: bylaw.Policy) -> dict[str, Any]:
    """Return the card of a policy as plain values."""
    return {
        **_list_common(policy),
        "kind": policy.action_space.kind,
        "actions": list(policy.actions),
        **policy.card.to_dict(),
        "looks": [{"date": x.date, "rows": x.rows, "verdict": x.verdict} for x in policy.card.looks],
        "rows": [part.rows for part in policy.fingerprints],
        "solved_to": policy.guarantee.violation,
        "sampling": None if math.isnan(policy.guarantee.sampling) else policy.guarantee.sampling,
        "calibration": None if policy.calibration is None else policy.calibration.to_dict(),
        "tightened": policy.tightened,
    }


@options.share(
    *("other_rules", "other_rule", "margin", "previous", *options.TESTS, *options.LABELED),
    *("weight", "propensity_weights", "id_column", *options.READ, "as_json"),
)
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
    certify: Annotated[
        Path | None, typer.Option(help="Held-out rows, on which rules and changes are certified.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a report on both policies, an HTML file.")
    ] = None,
) -> None:
    """Fit the rules of a policy on new rows, and change few of its decisions.

    If the rules alone change no more decisions than --churn, the new policy can be used alone. Otherwise it
    needs the decisions of the earlier policy: pass that policy to `bylaw decide` and others as --previous.

    [bold]Examples[/bold]

      bylaw refit policy.json new.parquet --churn 0.05 -o policy2.json --report refit.html

      bylaw refit policy.json new.parquet --churn 0.05 --certify held.parquet -o policy2.json
    """
    from bylaw.cli.decisions import refuse_repeated
    from bylaw.cli.tables import PolicyTables
    from bylaw.rows import name_table
    from bylaw.testing import compare_policies

    given = context.obj
    inputs = [policy, table, given.other_rules, certify, given.previous]
    check_outputs(output, inputs, report, as_json=given.as_json)
    if certify is None:
        options.refuse_idle_tests(given, "--certify")
    table, certify = open_tables(context, table, certify=certify)
    tables = PolicyTables.open(policy, given)
    earlier, others = tables.policy, tables.others
    solving = {**({} if others is None else others.solve), **options.parse_margin(given.margin)}
    rows, columns = tables.read(table)
    ids = tables.read_ids(table, columns)
    if ids is not None:
        refuse_repeated(lambda: [ids], str(columns.id), len(ids))
    if certify is not None:
        solving["confidence"] = options.check_confidence(given.confidence)
        solving["held_out"], held_columns = tables.read_held_out(certify, given)
        held_ids = tables.read_ids(certify, held_columns)
        if ids is not None and held_ids is not None:
            refuse_repeated(lambda: [held_ids], str(held_columns.id), len(held_ids))
            solving["held_out_ids"] = held_ids
    rules = None if others is None else list(others.problem.rules)
    try:
        new = bylaw.refit(earlier, rows, churn=churn, ids=ids, rules=rules, **solving)
    except (InfeasibleRulesError, UncertifiedError) as refused:
        refused.message = _name_churn(refused.message)
        raise
    new = replace(new, card=replace(new.card, source=name_table(table), columns=columns.to_dict()))
    with open_output(output, ".json") as target:
        new.save(target)
        compared = compare_policies(earlier, new, rows, ids=ids)
        if report is not None:
            with name_saved(output):
                from bylaw.report import report as make_report

                make_report(new, compared.evidence, comparison=compared).save(report)
        facts = {
            "policy": str(output),
            "hash": new.digest,
            "report": None if report is None else str(report),
            "needs_previous": compared.needs_previous,
            **compared.to_dict(),
        }
        text = [*_describe_refit(compared, new.certificate), f"policy: {name_output(output)}"]
        write_result(facts, [*text, *([] if report is None else [f"report: {report}"])], given.as_json)


def _name_churn(text: str) -> str:
    """Replace the rule on changed decisions in a text by --churn, padded to the same width in columns."""

    def word(rule: re.Match[str]) -> str:
        flag = f"--churn {rule[1]}"
        return flag.ljust(len(rule[0])) if rule[2] else flag

    return re.sub(r"custom\('changed'\) <= ([\d.e-]+)( {2,})?", word, text)


def _describe_refit(compared: Any, certificate: Any) -> Iterator[Any]:
    """Yield lines and tables that compare the earlier policy with the refitted one."""
    from bylaw.view import Table

    lines = [
        (_name_churn(one.statement), f"{one.target:.4g}", f"{one.before:.4f}", f"{one.after:.4f}")
        for one in compared.rules
    ]
    yield Table(("rule, its worst part", "bound", "earlier", "new"), lines, numbers=(1, 2, 3))
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
        yield "the new policy counts changed decisions; pass the earlier one to `bylaw decide` as --previous"
