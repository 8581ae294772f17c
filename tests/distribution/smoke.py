"""What an installed bylaw must do with nothing but its own dependencies. `make package` runs it with the
Python of a bare environment, outside of the project's folder."""

import importlib.metadata
import importlib.resources
import tempfile
from pathlib import Path

import numpy as np

import bylaw
from bylaw import Evidence, Policy, Problem, audit, demographic_parity, error, frontier, rejected, solve


def main() -> None:
    assert bylaw.__version__ == importlib.metadata.version("bylaw")
    assert "site-packages" in bylaw.__file__, f"{bylaw.__file__} is not the installed one"
    for folder, ending in (("bylaw.studio", ".js"), ("bylaw.report", ".css")):
        files = [found.name for found in Path(str(importlib.resources.files(folder))).rglob("*")]
        assert any(name.endswith(ending) for name in files), f"{folder} has no {ending}"
    assert importlib.resources.files("bylaw").joinpath("py.typed").is_file()

    rng = np.random.default_rng(0)
    chance, group = rng.random(2000), rng.choice(["a", "b"], 2000)
    chance[group == "a"] **= 1.5
    labels = (rng.random(2000) < chance).astype(int)
    rows = Evidence(np.column_stack([1 - chance, chance]), groups={"g": group})
    rules = [demographic_parity("g", tol=0.02), rejected() <= 0.1]
    policy = solve(Problem(error(), rules), rows, labels=labels)
    assert policy.expected(rejected(), rows) <= 0.1 + 1e-6
    assert len(frontier(Problem(error(), rules), rows, {rules[0]: [0.02, 0.1]})) == 2
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy.json")
        again = Policy.load(Path(folder) / "policy.json")
        assert (again.decide(rows, ids=range(2000)) == policy.decide(rows, ids=range(2000))).all()
    fresh = rng.random(1000)
    new = Evidence(np.column_stack([1 - fresh, fresh]), groups={"g": rng.choice(["a", "b"], 1000)})
    assert len(audit(again, new, labels=(rng.random(1000) < fresh).astype(int)).rules) > 0


if __name__ == "__main__":
    main()
