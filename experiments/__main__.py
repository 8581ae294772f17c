"""Run experiments by name: `python -m experiments NAME ...`, or `make experiment NAME="monitor paper"`.

Without a name, print all names. Results are written beside the modules, and figures into docs/images.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXPERIMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "paper": ("the paper's experiments: tables and figures", ("paper.run",)),
    "rates": ("how fast the paper's algorithm learns: table and figure", ("rates.run",)),
    "streams": ("distance of streams from the optimum of a known population", ("streams.run",)),
    "peers": ("the race against other libraries", ("benchmarks.peers.run",)),
    "migration": ("programs of other libraries beside those of bylaw", ("migration.run",)),
    "showcases": (
        "seven problems, each a page with figures",
        tuple(
            f"showcases.{name}"
            for name in ("upgrade", "routing", "experts", "referrals", "sets", "wages", "toxicity")
        ),
    ),
    "observed": (
        "whether rules hold as observed: on new rows, known populations, sets of each label",
        tuple(
            f"estimator.{name}" for name in ("observed", "populations", "per_label", "absurd", "equal_terms")
        ),
    ),
    "partly-seen": ("the same with a tenth of labels and groups observed", ("estimator.partly_seen",)),
    "fairlearn": (
        "beside fairlearn, error-parity and OxonFair, on the same rows with the same learners",
        ("estimator.peers", "estimator.known_groups"),
    ),
    "certificates": (
        "how often certificates are wrong: by simulation, after several looks, and in hard cases",
        tuple(f"certificates.{name}" for name in ("validity", "power", "looks", "hard_cases")),
    ),
    "guarantee": (
        "whether certified rules hold on real rows, and how often they are certified",
        tuple(f"certificates.{name}" for name in ("guarantee", "selective", "mapie")),
    ),
    "monitor": (
        "false alarms of monitors, delays beside an oracle, and widths of intervals",
        tuple(f"monitoring.{name}" for name in ("validity", "delay", "widths")),
    ),
    "monitor-peers": (
        "other tools that watch a rule: false alarms, days until a breach",
        ("monitoring.peers",),
    ),
    "fuzz": (
        "14,000 random problems: an optimal policy, a proof of conflict, or a warning",
        ("fuzz.run", "fuzz.options", "fuzz.objectives", "fuzz.labelled"),
    ),
}
ENVIRONMENTS = {"monitor-peers": ROOT / "experiments" / "monitoring" / "peers.txt"}
"""Requirements of experiments whose libraries need older versions than the tests: each has its own .venv."""


def find_python(name: str) -> str:
    """Return the interpreter for an experiment, in an environment of its own if it needs one."""
    requirements = ENVIRONMENTS.get(name)
    if requirements is None:
        return sys.executable
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True)
        packages = ["--requirement", requirements, "--editable", ROOT]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / ".installed").touch()
    return str(python)


def main(names: list[str]) -> int:
    """Run the experiments with these names; return the exit code of the first that fails."""
    unknown = [name for name in names if name not in EXPERIMENTS]
    if not names or unknown:
        if unknown:
            print(f"NAME must be one of those below, got {', '.join(unknown)}")
        print("\n".join(f"{name:14} {what}" for name, (what, _) in EXPERIMENTS.items()))
        return 2 if unknown else 0
    for name in names:
        python = find_python(name)
        for module in EXPERIMENTS[name][1]:
            whole = module if module.startswith("benchmarks") else f"experiments.{module}"
            code = subprocess.run([python, "-m", whole], cwd=ROOT, check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
