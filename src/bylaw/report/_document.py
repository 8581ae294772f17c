"""`report`: a policy and rows in, one page out, which is complete and is not allowed to load anything."""

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

_LEVELS, _MOST_LEVELS = 11, 200  # of a frontier, by default and at most
_LARGE = 20_000  # single rules times actions from which frontiers take minutes and are made on request only
# Of each section: its anchor, its name in the contents, its heading, and what writes it.
_SECTIONS = (
    ("summary", "Summary", "Summary", write_summary),
    ("rules", "Rules", "The rules in words", write_rules),
    ("groups", "Before and after", "Before and after", write_before_and_after),
    ("kept", "Do they hold?", "Do the rules hold?", write_verdicts),
    ("watch", "Since then", "Since then", write_watch),
    ("earlier", "Earlier policy", "Beside the earlier policy", write_earlier_policy),
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
    """A self-contained HTML page about a policy, made by `report`, for people who must approve the policy.

    Parameters
    ----------
    html : str
        the complete page. Notebooks show it in a frame.

    Examples
    --------
    >>> from bylaw.report import Report
    >>> Report("<!doctype html>")
    Report of 0 KB; keep it with save('report.html')
    """

    html: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file; an older file is replaced only when the new one is complete.

        Parameters
        ----------
        path : str or path
            such as "report.html".
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
    """Write a page about a policy: what it decides, whether its rules hold, whom they affect, what they cost.

    Parameters
    ----------
    policy : Policy
    evidence : Evidence
        the rows on which the policy was chosen: prices and frontiers are about them.
    labels : array of shape (n_rows,), optional
        the true labels of these rows, `Evidence(labels=)`. Where labels or groups are missing on some rows,
        rates are prediction-powered, as in `solve`.
    groups : dict or frame, optional
        the true groups of these rows, of attributes that the evidence knows only as probabilities.
    propensity_weights : array of shape (n_rows,), optional
        1 / P(seen | x) of the rows that show labels or groups which others lack, as in `solve`.
    held_out : Evidence, optional
        rows that had no part in choosing the policy. If given, the rules are judged by an audit of them,
        with confidence intervals and verdicts, and the other rates are theirs, too. Without them, a rule is
        estimated to hold as in `audit(..., fitted_rows="estimate")`.
    confidence : float
        of the audit of held-out rows.
    margin : float or "auto", optional
        for the frontiers, as in `solve`; by default the margin that the policy was chosen with, which its
        file states (0 for files of versions that did not).
    levels : int, optional
        how many points each frontier gets; 0 for no frontiers. By default 11, or none if there are so many
        rules and labels that frontiers take minutes.
    frontiers : list of Frontier, optional
        frontiers to show instead of computed ones, each over one rule of the policy; not with `levels`.
    comparison : Comparison, optional
        with an earlier policy, from `bylaw.testing.compare_policies`: both side by side.
    monitor : Monitor, optional
        that watched the policy since: rates, confidence sequences and alarms over time.
    title : str
        of the page.
    owner : str
        who answers for the policy, such as a person or a department.
    model_version : str
        of the model whose scores the policy decides by.
    held_out_source : str
        where the held-out rows come from, such as the name of their file. The statement to sign names these
        three; what is missing has a line to be filled in by hand.
    file_digest : str, optional
        the SHA-256 of the policy's file, which the statement names; by default `policy.file_digest`, that of
        the file that `policy.save` writes. Pass that of an existing file if an earlier version wrote it.
    created : str or datetime, optional
        what to print as the date; by default, now.
    min_cell : int
        the number of cases that a group must have for its rates and counts to be on the page; 0 shows all.
        If one group is hidden, the next smallest is, too, so that its numbers do not follow from the totals.

    Returns
    -------
    Report

    Raises
    ------
    OptionError
        when options do not go together, or a frontier is not about the policy.
    EvidenceError
        when held-out rows are rows on which the policy was chosen, or columns do not fit.

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
        raise OptionError(f"report() takes a Policy and then Evidence, not {type(policy).__name__} first")
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
            "report() takes levels= for frontiers that it computes, or frontiers= that are at hand, not "
            "both: leave out levels= to show the given frontiers, or frontiers= to have all of them "
            "computed"
        )
    if monitor is not None and monitor.policy.digest != policy.digest:
        raise OptionError("the monitor watches another policy; pass the one that it was made for")
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
        raise OptionError(f"levels must be 0 or a whole number from 2 to {_MOST_LEVELS}, not {levels!r}")
    return levels


def _make_page(context: ReportContext, subtitle: str) -> str:
    """Return the document of all sections; printed pages have the policy's hash."""
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
    """Return a string of a style sheet, in which every character but letters and digits is escaped."""
    visible = make_visible(text)
    return '"' + "".join(c if c.isascii() and c.isalnum() else f"\\{ord(c):x} " for c in visible) + '"'
