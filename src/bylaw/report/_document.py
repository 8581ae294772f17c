"""The function `report`, which writes a complete HTML page about a policy that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from bylaw._base import MIN_CELL, check_fraction, check_margin, check_min_cell, make_visible, write_text
from bylaw.errors import OptionError
from bylaw.fitting import Frontier, solve_without_rules
from bylaw.policy import Policy
from bylaw.report._context import ReportContext, bound_rates, make_report_rows
from bylaw.report._groups import write_affected, write_before_and_after, write_earlier_policy
from bylaw.report._prices import Curves, trace_curves, write_frontier, write_prices
from bylaw.report._rules import write_rules, write_verdicts, write_watch
from bylaw.report._summary import write_fingerprint, write_statement, write_summary
from bylaw.report._trust import write_calibration, write_guarantees, write_randomness
from bylaw.rows import Evidence, as_evidence
from bylaw.testing import Comparison, Monitor, audit
from bylaw.view import Html, format_moment, shorten, tag, write_color_variables

_LEVELS, _MOST_LEVELS = 11, 200  # points of a frontier: the default and the maximum
_LARGE = 20_000  # single rules times actions; beyond it, frontiers take minutes and need a request
# The sections: anchor, name in the contents, heading, and the function that writes the section.
_SECTIONS = (
    ("summary", "Summary", "Summary", write_summary),
    ("rules", "Rules", "The rules in words", write_rules),
    ("groups", "Before and after", "Before and after", write_before_and_after),
    ("kept", "Do they hold?", "Do the rules hold?", write_verdicts),
    ("watch", "Since then", "Since then", write_watch),
    ("earlier", "Earlier policy", "Comparison with the earlier policy", write_earlier_policy),
    ("prices", "Prices", "What each rule costs", write_prices),
    ("affected", "Who is affected", "Who is affected", write_affected),
    ("frontier", "Other levels", "What other levels would cost", write_frontier),
    ("chance", "Random decisions", "Random decisions", write_randomness),
    ("calibration", "Calibration", "Is the model calibrated?", write_calibration),
    ("guarantees", "Guarantees", "What is guaranteed, and what is not", write_guarantees),
    ("fingerprint", "Fingerprint", "Fingerprint", write_fingerprint),
    ("sign", "Statement", "Statement to sign", write_statement),
)


@dataclass(frozen=True)
class Report:
    """A self-contained HTML page about a policy, for the people who must approve it. Made by `report`.

    Parameters
    ----------
    html : str
        The complete page. Notebooks display it in a frame.

    Examples
    --------
    >>> from bylaw.report import Report
    >>> Report("<!doctype html>")
    Report of 0 KB; keep it with save('report.html')
    """

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. An existing file is replaced only after the new one is complete.

        Parameters
        ----------
        path : str or path
            The path of the file, such as "report.html".
        """
        write_text(Path(path), self.html)

    def __repr__(self) -> str:
        return f"Report of {len(self.html) / 1024:,.0f} KB; keep it with save('report.html')"

    def _repr_html_(self) -> str:
        # The frame separates the page from the notebook's own.
        size = {"width": "100%", "height": 720, "frameborder": 0}
        return tag("iframe", srcdoc=self.html, sandbox="allow-scripts", title="Policy report", **size)


def report(
    policy: Policy,
    evidence: Evidence,
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    held_out: Evidence | None = None,
    confidence: float = 0.95,
    margin: float | Literal["auto"] | None = None,
    levels: int | None = None,
    frontiers: Sequence[Frontier] | None = None,
    comparison: Comparison | None = None,
    monitor: Monitor | None = None,
    title: str = "Policy report",
    owner: str = "",
    model_version: str = "",
    held_out_source: str = "",
    file_digest: str | None = None,
    created: str | datetime | None = None,
    min_cell: int = MIN_CELL,
) -> Report:
    """Write a page about a policy: its decisions, its rules, the affected groups, and the costs.

    Parameters
    ----------
    policy : Policy
        The policy.
    evidence : Evidence
        The rows on which the policy was fitted. Prices and frontiers are computed on these rows.
    labels : array of shape (n_rows,), optional
        The true labels of these rows, a short form of `Evidence(labels=)`. If labels or groups are missing on
        some rows, rates are prediction-powered, as in `solve`.
    groups : dict or frame, optional
        The true groups of these rows, for attributes that the evidence contains only as probabilities.
    propensity_weights : array of shape (n_rows,), optional
        If labels or groups are missing on some rows, the weights 1 / P(observed | x) of the rows that have
        them, as in `solve`.
    held_out : Evidence, optional
        Rows on which the policy was not fitted. If given, an audit on them judges the rules, with confidence
        intervals and verdicts, and the other rates are measured on them, too. Without them, the rules are
        judged by estimates only, as in `audit(..., fitted_rows="estimate")`.
    confidence : float
        The confidence of the audit on held-out rows.
    margin : float or "auto", optional
        The margin of the policies on the frontiers, as in `solve`. By default, the margin with which the
        policy was fitted, or 0 if an early version of bylaw saved the policy without it.
    levels : int, optional
        The number of points of each frontier; 0 for no frontiers. By default 11, or 0 if there are so many
        rules and labels that frontiers would take minutes.
    frontiers : list of Frontier, optional
        Frontiers to show, each for one rule of the policy, instead of computed ones. Not allowed with
        `levels`.
    comparison : Comparison, optional
        A comparison with an earlier policy, made by `bylaw.testing.compare_policies`.
    monitor : Monitor, optional
        A monitor of the policy in use. The page shows its rates, confidence sequences and alarms over time.
    title : str
        The title of the page.
    owner : str
        The person or department that is responsible for the policy.
    model_version : str
        The version of the model whose scores the policy uses.
    held_out_source : str
        The origin of the held-out rows, such as the name of their file. The statement to sign contains the
        owner, the model version and this origin; a missing owner or model version gets a blank line to fill
        in.
    file_digest : str, optional
        The SHA-256 hash of the policy's file for the statement to sign. By default `policy.file_digest`, the
        hash of the file that `policy.save` writes. Pass the hash of an existing file that an earlier version
        wrote.
    created : str or datetime, optional
        The date of the report; by default, now.
    min_cell : int
        The number of cases that a group must have for its rates and counts to be shown; 0 shows all groups.
        If one group is hidden, the next smallest is hidden too, so that totals do not reveal the hidden
        numbers.

    Returns
    -------
    Report

    Raises
    ------
    OptionError
        If options contradict each other, or a frontier or monitor belongs to another policy.
    EvidenceError
        If held-out rows are among the rows on which the policy was fitted, or their columns do not match.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.report import report
    >>> evidence = Evidence([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8], [0.6, 0.4]])
    >>> policy = solve(Problem(error(), [rejected() <= 0.25]), evidence)
    >>> made = report(policy, evidence, labels=[0, 0, 1, 1], levels=3, title="Referrals")
    >>> "<h1>Referrals</h1>" in made.html
    True
    >>> "estimated to hold" in made.html
    True
    """
    if not isinstance(policy, Policy):
        raise OptionError(f"policy must be a Policy, got {type(policy).__name__}")
    evidence = as_evidence(evidence).with_observed(
        labels=labels, true_groups=groups, propensity_weights=propensity_weights
    )
    check_min_cell(min_cell)
    check_fraction(confidence, "confidence")
    kept: float | Literal["auto"] = policy.card.options.get("margin", 0.0) if margin is None else margin
    if kept != "auto":
        check_margin(kept)
    if levels is not None and frontiers is not None:
        raise OptionError(
            "only one of levels and frontiers must be given, got both; leave out levels= to show the given "
            "frontiers, or frontiers= to compute all of them"
        )
    if monitor is not None and monitor.policy.digest != policy.digest:
        raise OptionError("monitor must be of this policy, got a monitor of another policy")
    points = _count_points(levels, policy)
    file_digest = policy.file_digest if file_digest is None else file_digest  # before an audit is noted
    if held_out is None:
        found, without_rules = None, solve_without_rules(policy, evidence)
        fitted = judged = make_report_rows(policy, evidence, False, min_cell, without_rules)
    else:
        fitted = make_report_rows(policy, evidence, False, min_cell)
        found = audit(policy, as_evidence(held_out), confidence=confidence)
        without_rules = solve_without_rules(policy, evidence, held_out)
        judged = make_report_rows(policy, held_out, True, min_cell, without_rules)
    wanted = points or frontiers is not None
    traced = trace_curves(fitted, points, frontiers, kept) if wanted else Curves()
    context = ReportContext(
        title=str(title),
        created=format_moment(datetime.now(UTC) if created is None else created),
        owner=str(owner),
        model_version=str(model_version),
        held_out_source=str(held_out_source),
        file_digest=file_digest,
        judged=judged,
        fitted=fitted,
        audit=found,
        confidence=confidence,
        bounded_rates=bound_rates(judged, found),
        traced=traced,
        comparison=comparison,
        monitor=monitor,
    )
    model = f"model version {model_version}" if model_version else ""
    subtitle = filter(None, [context.owner, context.created, model, f"policy {policy.digest[:12]}"])
    return Report(_make_page(context, " · ".join(subtitle)))


def _count_points(levels: Any, policy: Policy) -> int:
    if levels is None:
        size = len(policy.rule_prices) * len(policy.actions)
        return 0 if size > _LARGE else _LEVELS
    if type(levels) is not int or not (levels == 0 or 2 <= levels <= _MOST_LEVELS):
        raise OptionError(f"levels must be 0 or a whole number from 2 to {_MOST_LEVELS}, got {levels!r}")
    return levels


def _make_page(context: ReportContext, subtitle: str) -> str:
    """Return the HTML document with all sections; printed pages show the policy's hash."""
    css, script = (
        resources.files("bylaw.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    # Printed pages have the title after the first page, the hash, and page numbers in their margins.
    margins = (
        "@media print{@page{"
        f"@top-left{{content:{_write_css_text(shorten(context.title, 90))};}}"
        f"@bottom-left{{content:{_write_css_text(f'policy {context.policy.digest}')};}}"
        "@bottom-right{content:'page ' counter(page) ' of ' counter(pages);}}"
        "@page:first{@top-left{content:none;}}}"
    )
    style = write_color_variables() + css + margins
    # The security policy: nothing is loaded, and only the page's own script runs.
    style_hash, script_hash = (
        f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
        for text in (style, script)
    )
    security = (
        f"default-src 'none'; style-src '{style_hash}'; script-src '{script_hash}'; base-uri 'none'; "
        "form-action 'none'"
    )
    links, sections = list[Html](), list[Html]()
    for anchor, name, title, write in _SECTIONS:
        if content := write(context):
            heading = tag("h2", title, id=f"{anchor}-title")
            sections.append(tag("section", heading, *content, id=anchor, aria_labelledby=f"{anchor}-title"))
            links.append(tag("li", tag("a", name, href=f"#{anchor}")))
    button = tag("button", "Dark", type="button", id="theme", hidden=True)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=security),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", context.title),
        Html(f"<style>{style}</style>"),
    )
    header = tag(
        "header",
        tag("div", tag("h1", context.title), button, class_="top"),
        tag("p", subtitle, class_="note"),
        tag("nav", tag("ul", *links), aria_label="Contents"),
    )
    footer = tag("p", "Made with bylaw. This file is self-contained: it loads nothing from elsewhere.")
    body = tag(
        "body",
        tag("a", "Skip to the report", href="#main", class_="skip"),
        header,
        tag("main", *sections, id="main"),
        tag("footer", footer),
        Html(f"<script>{script}</script>"),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _write_css_text(text: str) -> str:
    """Convert text to a CSS string in which all characters except letters and digits are escaped."""
    visible = make_visible(text)
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in visible) + '"'
