"""Versions of everything that a report of a problem should name."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

_OWN = "bylaw"
_DEVELOPMENT = ("test", "docs", "peers")  # extras of those who work on the library


def show_versions() -> None:
    """Print the versions of Python, the platform, bylaw, its dependencies and its extras, for reports of
    problems.

    Examples
    --------
    >>> import bylaw
    >>> bylaw.show_versions()  # doctest: +ELLIPSIS
    System
      python      3...
      ...
    """
    needed = {name: find_version(name) for name in (_OWN, *_list_packages(optional=False))}
    extras = {name: find_version(name) for name in _list_packages(optional=True)}
    parts = {"System": _describe_system(), "Needed": needed, "Optional": extras}
    print("\n\n".join(_format(title, facts) for title, facts in parts.items()))  # noqa: T201, its purpose


def find_version(package: str, otherwise: str = "not installed") -> str:
    """The version of a package that is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


def _describe_system() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }


def _list_packages(optional: bool) -> Iterator[str]:
    """The packages that every installation needs, or that only extras do, in order of their names."""
    needed: dict[bool, set[str]] = {False: set(), True: set()}
    for line in _read_requirements():
        found = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if found and found[0] != _OWN and (extra is None or extra[1] not in _DEVELOPMENT):
            needed[extra is not None].add(found[0])
    return iter(sorted(needed[True] - needed[False] if optional else needed[False]))


def _read_requirements() -> list[str]:
    """As the installed package states them; none where its source is used without an installation."""
    try:
        return requires(_OWN) or []
    except PackageNotFoundError:
        return []


def _format(title: str, facts: dict[str, str]) -> str:
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())])
