"""Experiments that are run by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from experiments.__main__ import ENVIRONMENTS, EXPERIMENTS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_name_leads_to_modules(name):
    for module in EXPERIMENTS[name][1]:
        assert find_spec(module if module.startswith("benchmarks") else f"experiments.{module}")


def test_every_module_with_results_has_a_name():
    listed = {module for _, modules in EXPERIMENTS.values() for module in modules}
    for path in (ROOT / "experiments").glob("*/*.py"):
        if '__name__ == "__main__"' in path.read_text():
            module = f"{path.parent.name}.{path.stem}"
            assert module in listed or path.stem in {"golden", "by_hand", "binned_program", "command"}, module


def test_names_are_listed_and_unknown_ones_refused(capsys):
    assert main([]) == 0
    assert set(EXPERIMENTS) <= set(capsys.readouterr().out.split())
    assert main(["nothing"]) == 2
    assert "got nothing" in capsys.readouterr().out


def test_environments_have_requirements():
    assert all(name in EXPERIMENTS and path.exists() for name, path in ENVIRONMENTS.items())
