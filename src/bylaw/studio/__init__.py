"""Rules tried out in a browser: what each change of a rule does to costs, groups and decisions.

>>> from bylaw.studio import studio
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from bylaw._base.validation import MIN_CELL
from bylaw.errors import OptionError
from bylaw.language.problem import Problem
from bylaw.rows.evidence import Evidence, as_evidence
from bylaw.view.html import tag

if TYPE_CHECKING:
    from bylaw.studio.server import StudioServer

__all__ = ["Studio", "studio"]


class Studio:
    """A running studio, made by `studio`; notebooks show it in a frame."""

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
        """Whether it still answers."""
        return self._thread.is_alive()

    def close(self) -> None:
        """End the studio, and cancel what is being solved."""
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
    """Try out rules in a notebook or a browser: sliders move levels, and the policy follows.

    Parameters
    ----------
    problem : Problem
        to begin with.
    evidence : Evidence
        the rows.
    labels, groups, propensity_weights : optional
        as in `solve`: rates are then shown as observed, too.
    title : str
        of the page.
    port : int
        of this machine; 0 for any that is free.
    min_cell : int
        the number of rows that a group must have for its rates and counts to be on the page; 0 shows all.

    Returns
    -------
    Studio
        shows the page if it is the last value of a cell; `url` is its address, and `close()` ends it. It also
        ends with the process.

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
        raise OptionError(f"studio() takes a Problem and then Evidence, not {type(problem).__name__} first")
    from bylaw.studio.server import StudioServer
    from bylaw.studio.session import Session

    rows = as_evidence(evidence).with_observed(
        labels=labels, true_groups=groups, propensity_weights=propensity_weights
    )
    session = Session(problem, rows, str(title), min_cell=min_cell)
    return Studio(StudioServer(session, port=port, framed=True))
