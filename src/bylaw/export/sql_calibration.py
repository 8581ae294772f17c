"""The steps from the columns of a table to calibrated probabilities, as SQL expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bylaw._base.typing import Value
from bylaw.calibration.maps import LOWEST_LOG, CalibrationMap
from bylaw.export.formulas import Calibrated, Cell, Terms
from bylaw.export.sql_dialects import Dialect
from bylaw.export.sql_text import SelectStep, join_lines, write_sum


@dataclass(frozen=True)
class CalibrationSteps:
    """checked -> logs -> tempered -> peaks -> exponentials -> totals -> calibrated -> rescaled.

    Each step hands on all columns of cells; those that are calibrated take the place of the given ones.
    """

    terms: Terms
    dialect: Dialect
    names: Mapping[Cell, str]  # the column of each cell
    compare_value: Callable[[Cell, Value], str]  # the condition that a cell holds a value

    def build(self, kept: Sequence[str]) -> list[SelectStep]:
        """None, for a policy that is not calibrated."""
        steps = [*self._build_maps(), *self._build_rescaling()]
        return [SelectStep(step.name, [*kept, "valid", *step.columns]) for step in steps]

    def _build_maps(self) -> Iterator[SelectStep]:
        found = self.terms.calibrated
        if not found:
            return
        number, names = self.dialect.write_float, list(self.names.values())
        places = [
            (d, self.names[cell], i) for d, part in enumerate(found) for i, cell in enumerate(part.cells)
        ]
        changed = {name for _, name, _ in places}
        others = [name for name in names if name not in changed]
        logs, scores, powers = ([f"{kind}_{d}_{i}" for d, _, i in places] for kind in ("log", "map", "power"))
        floors = [number(found[d].otherwise.floor) for d, _, _ in places]
        rising = range(len(places))
        yield SelectStep(
            "logs", [*names, *(f"LN(GREATEST({places[j][1]}, {floors[j]})) AS {logs[j]}" for j in rising)]
        )
        written = [self._write_score(found[d], d, i) for d, _, i in places]
        # Values of a known attribute choose among maps, and are handed on with the others.
        yield SelectStep("maps", [*others, *(f"{written[j]} AS {scores[j]}" for j in rising)])
        peaks = [
            f"GREATEST({', '.join(f'map_{d}_{i}' for i in range(len(part.cells)))}) AS map_peak_{d}"
            for d, part in enumerate(found)
        ]
        yield SelectStep("map_peaks", [*others, *scores, *peaks])
        exps = [
            f"EXP(GREATEST({scores[j]} - map_peak_{places[j][0]}, {number(LOWEST_LOG)})) AS {powers[j]}"
            for j in rising
        ]
        yield SelectStep("powers", [*others, *exps])
        sums = [
            f"{write_sum([f'power_{d}_{i}' for i in range(len(part.cells))])} AS power_total_{d}"
            for d, part in enumerate(found)
        ]
        yield SelectStep("power_totals", [*others, *powers, *sums])
        shares = [f"{powers[j]} / power_total_{places[j][0]} AS {places[j][1]}" for j in rising]
        yield SelectStep("calibrated", [*others, *shares])

    def _write_score(self, part: Calibrated, d: int, i: int) -> str:
        """The score of one cell, by the map of the row's value."""
        otherwise = self._write_map(part.otherwise, d, i)
        if part.by is None:
            return otherwise
        cases = [
            f"WHEN {self.compare_value(part.by, value)} THEN {self._write_map(one, d, i)}"
            for value, one in part.maps
        ]
        return join_lines("CASE", *cases, f"ELSE {otherwise}", "END") if cases else otherwise

    def _write_map(self, one: CalibrationMap, d: int, i: int) -> str:
        number = self.dialect.write_float
        terms = [number(float(one.bias[i]))]
        terms += [f"{number(float(w))} * log_{d}_{j}" for j, w in enumerate(one.weights[i]) if w]
        terms += [
            f"{number(float(bend))} * GREATEST(log_{d}_{i} - {number(float(knot))}, {number(0.0)})"
            for knot, bend in zip(one.knots[i], one.bends[i], strict=True)
            if bend
        ]
        return write_sum(terms)

    def _build_rescaling(self) -> Iterator[SelectStep]:
        """Joint probabilities that add up to the calibrated ones of the labels."""
        found = self.terms.rescaled
        if not found:
            return
        names, number = list(self.names.values()), self.dialect.write_float
        totals, shares = [], {}
        for d, part in enumerate(found):
            for k, label in enumerate(part.labels):
                cells = [self.names[row[k]] for row in part.cells]
                totals.append(f"{write_sum(cells)} AS joint_total_{d}_{k}")
                for name in cells:
                    even = number(1 / len(cells))
                    share = f"CASE WHEN joint_total_{d}_{k} > {number(0.0)} THEN {name} / joint_total_{d}_{k}"
                    shares[name] = f"{share} ELSE {even} END * {self.names[label]} AS {name}"
        yield SelectStep("joint_totals", [*names, *totals])
        yield SelectStep("rescaled", [shares.get(name, name) for name in names])
