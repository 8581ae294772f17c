"""What commands end with, in one place: for scripts, jobs and gates of continuous delivery."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The same in every command."""

    SUCCESS = 0
    BROKEN = 1
    TROUBLE = 2
    FAULT = 3
    UNDECIDED = 4


MEANINGS: dict[int, str] = {
    ExitCode.SUCCESS: "success; of audit, all rules are certified; of watch, quiet",
    ExitCode.BROKEN: "rules do not hold, conflict, or cannot be certified; of watch, an alarm",
    ExitCode.TROUBLE: "trouble: something is wrong with a file or an option, and the message says what",
    ExitCode.FAULT: "a fault in bylaw itself",
    ExitCode.UNDECIDED: "of audit, undecided: the rows are too few to tell, or were fitted on",
    130: "interrupted",
}


def list_exit_codes() -> str:
    """One line each, for help."""
    return "[bold]Exit codes[/bold]\n\n" + "\n\n".join(
        f"{int(code)}  {text}" for code, text in MEANINGS.items()
    )
