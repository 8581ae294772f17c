"""Sliders: what moves the level of a rule, from where to where, and which level ends a conflict."""

from __future__ import annotations

from typing import Any

import numpy as np

from bylaw.errors import RuleError
from bylaw.language.parser import Statement
from bylaw.reductions import Diagnosis
from bylaw.report.number_format import Unit, find_level_unit

_ANY_LEVEL = 0.123457
_SLIDER = ("level", "lowest", "highest", "step", "unit", "template", "parts", "loosening")


def describe_level(statement: Statement) -> dict[str, Any]:
    """What a slider moves, from where to where; nothing for rules without a single number."""
    try:
        level, template = statement.level, statement.template
        moved = str(statement.at(_ANY_LEVEL))
    except RuleError:
        return dict.fromkeys(_SLIDER)
    if isinstance(level, tuple):
        return dict.fromkeys(_SLIDER)
    unit = find_level_unit(statement)
    lowest, highest, step = _choose_range(level, unit)
    return {
        "level": level,
        "lowest": lowest,
        "highest": highest,
        "step": step,
        "unit": unit,
        "template": template,
        "parts": _split_template(template, moved),
        "loosening": statement.loosening,
    }


def _choose_range(level: float, unit: Unit) -> tuple[float, float, float]:
    """Of a slider."""
    if unit == "plain":
        size = 10.0 ** np.ceil(np.log10(2 * abs(level))) if level else 1.0
        return (-size if level < 0 else 0.0), float(size), float(size / 200)
    highest = next((end for end in (0.2, 0.5, 1.0) if abs(level) <= 0.8 * end), 1.0)
    lowest = -highest if level < 0 else 0.0
    return lowest, max(highest, level), highest / 200


def _split_template(template: str, moved: str) -> list[str]:
    """What is before and after the number."""
    text = repr(_ANY_LEVEL)
    place = template.find("level")
    while template[:place] + text + template[place + 5 :] != moved:
        place = template.index("level", place + 1)
    return [template[:place], template[place + 5 :]]


def relax(place: int, statement: Statement, diagnosis: Diagnosis) -> dict[str, Any]:
    """The level that lets all rules hold, rounded outwards; None where no level tells it."""
    slack, level = diagnosis.relaxation[str(statement)], diagnosis.levels.get(str(statement))
    if level is None:
        return {"rule": place, "level": None, "loosened": slack}
    digits = 10**4
    loose = statement.loosening * level + slack * 1e-3
    loosest = statement.loosening * float(np.ceil(loose * digits) / digits)
    return {"rule": place, "level": loosest, "loosened": abs(loosest - level) + slack}
