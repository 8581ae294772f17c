"""Reports: one self-contained HTML page about a policy, for the people who must approve it."""

from bylaw.report.document import Report, report

__all__ = ["Report", "report"]
