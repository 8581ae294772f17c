"""One self-contained page about a policy, for people who must approve it."""

from bylaw.report.document import Report, report

__all__ = ["Report", "report"]
