"""The lowest versions that pyproject.toml admits, as constraints of pip: `name==version` on each line."""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("cli", "demo", "onnx", "plot", "polars", "sklearn", "stochastic", "studio")


def list_lowest(project: dict) -> dict[str, str]:
    """The lower bound of each requirement."""
    stated = list(project["dependencies"])
    for extra in EXTRAS:
        stated += project["optional-dependencies"][extra]
    found = {}
    for requirement in stated:
        name, _, version = re.sub(r"\[.*?\]", "", requirement).partition(">=")
        if version:
            found[name] = max(
                found.get(name, ""), version, key=lambda text: [int(n) for n in text.split(".") if n]
            )
    return found


def read_version(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]


if __name__ == "__main__":
    lowest = list_lowest(tomllib.loads(PROJECT.read_text())["project"])
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(lowest.items()))
