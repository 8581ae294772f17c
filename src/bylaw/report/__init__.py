"""One self-contained page about a policy, for those who must sign it."""

from bylaw.report.document import Report, report

__all__ = ["Report", "report"]
