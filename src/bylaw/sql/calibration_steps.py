"""The steps from the columns of a table to calibrated probabilities, as SQL expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bylaw._base.typing import Value
from bylaw.calibration.maps import LOWEST_LOG, CalibrationMap
from bylaw.formulation.formulas import Calibrated, Cell, Terms
from bylaw.sql.dialects import Dialect
from bylaw.sql.text import SelectStep, join_lines, write_sum


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

    @property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The columns that are calibrated, each with the number of its map and its place there."""
        maps = enumerate(self.terms.calibrated)
        return {self.names[cell]: (d, i) for d, part in maps for i, cell in enumerate(part.cells)}

    def _build_maps(self) -> Iterator[SelectStep]:
        """Logarithms, scores by the maps, and their softmax, in which no probability is zero."""
        if not self.terms.calibrated:
            return
        number, names, places = self.dialect.write_float, list(self.names.values()), self._places
        others = [name for name in names if name not in places]
        found = self.terms.calibrated
        logs = [
            f"LN(GREATEST({name}, {number(found[d].otherwise.floor)})) AS log_{d}_{i}"
            for name, (d, i) in places.items()
        ]
        scores = [f"{self._write_score(found[d], d, i)} AS map_{d}_{i}" for d, i in places.values()]
        powers = [
            f"EXP(GREATEST(map_{d}_{i} - map_peak_{d}, {number(LOWEST_LOG)})) AS power_{d}_{i}"
            for d, i in places.values()
        ]
        shares = [f"power_{d}_{i} / power_total_{d} AS {name}" for name, (d, i) in places.items()]
        yield SelectStep("logs", [*names, *logs])
        yield SelectStep("maps", [*others, *scores])
        yield SelectStep("map_peaks", [*others, *self._list_columns("map"), *self._write_peaks()])
        yield SelectStep("powers", [*others, *powers])
        yield SelectStep("power_totals", [*others, *self._list_columns("power"), *self._write_totals()])
        yield SelectStep("calibrated", [*others, *shares])

    def _list_columns(self, name: str) -> list[str]:
        return [f"{name}_{d}_{i}" for d, i in self._places.values()]

    def _write_peaks(self) -> list[str]:
        """The largest score of each map."""
        sizes = [len(part.cells) for part in self.terms.calibrated]
        columns = [[f"map_{d}_{i}" for i in range(size)] for d, size in enumerate(sizes)]
        return [f"GREATEST({', '.join(parts)}) AS map_peak_{d}" for d, parts in enumerate(columns)]

    def _write_totals(self) -> list[str]:
        """The sum over each map."""
        sizes = [len(part.cells) for part in self.terms.calibrated]
        columns = [[f"power_{d}_{i}" for i in range(size)] for d, size in enumerate(sizes)]
        return [f"{write_sum(parts)} AS power_total_{d}" for d, parts in enumerate(columns)]

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
