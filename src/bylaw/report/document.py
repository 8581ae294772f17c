"""`report`: a policy and rows in, one page out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from bylaw._base.files import write_text
from bylaw._base.validation import MIN_CELL, check_fraction, check_margin, check_min_cell
from bylaw.errors import OptionError
from bylaw.fitting.frontier import Frontier
from bylaw.fitting.solve import solve_without_rules
from bylaw.policy.policy import Policy
from bylaw.report.context import ReportContext, bound_rates
from bylaw.report.curves import Curves, trace_curves
from bylaw.report.groups import write_affected, write_before_and_after, write_earlier_policy
from bylaw.report.page import frame_page, make_page
from bylaw.report.prices import write_frontier, write_prices
from bylaw.report.rows import make_report_rows
from bylaw.report.rules import write_rules, write_verdicts
from bylaw.report.summary import write_fingerprint, write_statement, write_summary
from bylaw.report.trust import write_calibration, write_guarantees, write_randomness
from bylaw.report.watch import write_watch
from bylaw.rows.evidence import Evidence, as_evidence
from bylaw.testing import Comparison, Monitor, audit
from bylaw.view.numbers import format_moment

_LEVELS, _MOST_LEVELS = 11, 200  # of a frontier, by default and at most
_LARGE = 20_000  # single rules times actions from which frontiers take minutes and are made on request only
_SECTIONS = (
    ("summary", "Summary", write_summary),
    ("rules", "Rules", write_rules),
    ("groups", "Before and after", write_before_and_after),
    ("kept", "Do they hold?", write_verdicts),
    ("watch", "Since then", write_watch),
    ("earlier", "Earlier policy", write_earlier_policy),
    ("prices", "Prices", write_prices),
    ("affected", "Who is affected", write_affected),
    ("frontier", "Other levels", write_frontier),
    ("chance", "Random decisions", write_randomness),
    ("calibration", "Calibration", write_calibration),
    ("guarantees", "Guarantees", write_guarantees),
    ("fingerprint", "Fingerprint", write_fingerprint),
    ("sign", "Statement", write_statement),
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
        return frame_page(self.html)


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
    fitted = make_report_rows(
        policy,
        evidence,
        held_out=False,
        min_cell=min_cell,
        without_rules=solve_without_rules(policy, evidence) if held_out is None else None,
    )
    judged, found = fitted, None
    if held_out is not None:
        found = audit(policy, as_evidence(held_out), confidence=confidence)
        without = solve_without_rules(policy, evidence, held_out)
        judged = make_report_rows(policy, held_out, held_out=True, min_cell=min_cell, without_rules=without)
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
    written = [(anchor, name, write(context)) for anchor, name, write in _SECTIONS]
    sections = [(anchor, name, section) for anchor, name, section in written if section is not None]
    return Report(make_page(context.title, _write_subtitle(context), policy.digest, sections))


def _write_subtitle(context: ReportContext) -> str:
    model = f"model version {context.model_version}" if context.model_version else ""
    parts = [context.owner, context.created, model, f"policy {context.policy.digest[:12]}"]
    return " · ".join(part for part in parts if part)


def _count_points(levels: Any, policy: Policy) -> int:
    if levels is None:
        size = len(policy.rule_prices) * len(policy.actions)
        return 0 if size > _LARGE else _LEVELS
    if type(levels) is not int or not (levels == 0 or 2 <= levels <= _MOST_LEVELS):
        raise OptionError(f"levels must be 0 or a whole number from 2 to {_MOST_LEVELS}, not {levels!r}")
    return levels
