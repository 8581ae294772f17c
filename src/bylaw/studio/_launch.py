"""The studio as a local web server that runs beside the session."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from bylaw._base import MIN_CELL
from bylaw.errors import OptionError
from bylaw.language import Problem
from bylaw.rows import Evidence, as_evidence
from bylaw.view import tag

if TYPE_CHECKING:
    from bylaw.studio._server import StudioServer


class Studio:
    """A running studio, made by `studio`; notebooks show its page."""

    def __init__(self, server: StudioServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_here, name="bylaw studio", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the page, for a browser on the same machine."""
        return self._server.door.url

    @property
    def running(self) -> bool:
        """Whether the studio still answers requests."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the studio, and cancel the fits that are running."""
        self._server.stop()
        self._thread.join()

    def __enter__(self) -> Studio:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        if not self.running:
            return tag("p", "This studio is closed.")
        return tag("iframe", src=self.url, width="100%", height=900, title="Rules tried out", frameborder=0)

    def __repr__(self) -> str:
        return f"<studio at {self.url}>" if self.running else "<studio, closed>"


def studio(
    problem: Problem,
    evidence: Evidence,
    *,
    labels: Any = None,
    groups: Any = None,
    propensity_weights: Any = None,
    title: str = "Rules tried out",
    port: int = 0,
    min_cell: int = MIN_CELL,
) -> Studio:
    """Start a page, in a notebook or a browser, on which the levels of rules are moved with sliders.

    The page shows the costs, rates and decisions of the policy that satisfies the rules.

    Parameters
    ----------
    problem : Problem
        The problem that the page shows first.
    evidence : Evidence
        The rows.
    labels, groups, propensity_weights : optional
        As in `solve`. With them, the page also shows observed rates.
    title : str
        The title of the page.
    port : int
        The port on this machine; 0 for any free port.
    min_cell : int
        The number of rows that a group must have for its rates and counts to be shown; 0 shows all groups.

    Returns
    -------
    Studio
        As the last value of a notebook cell, it shows the page. `url` is the address, and `close()` ends the
        studio, which also ends with the process.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected
    >>> from bylaw.studio import studio
    >>> rows = Evidence([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> with studio(Problem(error(), [rejected() <= 0.2]), rows) as running:
    ...     running.url.startswith("http://127.0.0.1:")
    True
    """
    if not isinstance(problem, Problem):
        raise OptionError(
            f"problem must be a Problem, got {type(problem).__name__}; pass the problem first, then the rows"
        )
    from bylaw.studio._server import StudioServer
    from bylaw.studio._session import Session

    rows = as_evidence(evidence).with_observed(
        labels=labels, true_groups=groups, propensity_weights=propensity_weights
    )
    session = Session(problem, rows, str(title), min_cell=min_cell)
    return Studio(StudioServer(session, port=port, framed=True))
