"""A policy as an ONNX graph. The only file that imports onnx."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bylaw._base.atomic_files import write_atomically
from bylaw._base.typing import Value
from bylaw.calibration.maps import LOWEST_LOG, CalibrationMap
from bylaw.data.probabilities import SUM_TOLERANCE
from bylaw.errors import OptionError, install_extra
from bylaw.formulation.formulas import (
    HIGHEST,
    LOWEST,
    Calibrated,
    Cell,
    Equals,
    Product,
    Rescaled,
    Terms,
    Total,
    describe_policy,
    make_terms,
)
from bylaw.formulation.layout import ReferenceForm, default_columns
from bylaw.policy.policy import Policy

OPSET = 13  # of the standard operators, of 2020
OPSET_ML = 2  # of the operators for classical models: LabelEncoder
IR_VERSION = 7  # of the file format, as old as these
OUTPUT = "decision_probabilities"
_PREFIX = {"groups": "group_", "joint": "joint_", "references": "reference_", "costs": "cost_"}


def to_onnx(
    policy: Policy, path: str | PathLike[str], *, references: Mapping[str, ReferenceForm] | None = None
) -> None:
    """Write `onnx_model(policy)` to a file; an older one stays until the new one is whole.

    Parameters
    ----------
    policy : Policy
        without Python functions in its rules.
    path : str or path
        of the file.
    references : dict, optional
        as in `onnx_model`.

    Raises
    ------
    OptionError
        if the policy has no place in an ONNX graph, or onnx is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.export import to_onnx
    >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], classes=["no", "yes"])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     to_onnx(policy, Path(folder) / "policy.onnx")
    ...     [path.name for path in Path(folder).iterdir()]
    ['policy.onnx']
    """
    content = onnx_model(policy, references=references)
    with write_atomically(Path(path)) as partial:
        partial.write_bytes(content)


def onnx_model(policy: Policy, *, references: Mapping[str, ReferenceForm] | None = None) -> bytes:
    """A policy as an ONNX graph of `policy.probabilities`, in 64-bit floats, opset 13 and ai.onnx.ml 2.

    Inputs, of which a policy has those that it needs: "probabilities" (N, K); "group_<name>", of a
    known attribute (N,), text, int64, double or bool as its values are, of an unknown one its
    probabilities (N, S) in the order of `policy.feature_map.attributes`; "joint_<name>" (N, S, K);
    "reference_<name>" (N,), or (N, K) and one column more per option; "cost_<name>" (N, A). The output
    "decision_probabilities" is (N, A).

    A row that the policy would refuse (an unseen value, probabilities that do not sum to one) gets
    NaN. The metadata of the file hold the digest, the rules, the actions and the classes as JSON.

    Parameters
    ----------
    policy : Policy
        without Python functions in its rules, and without rules on several unknown attributes together.
    references : dict, optional
        for each earlier model "labels" (the default), one per row, or "probabilities", one column per
        class. Labels that are numbers cannot be "reject" here.

    Returns
    -------
    bytes
        the serialized model.

    Raises
    ------
    OptionError
        if the policy has no place in an ONNX graph, or onnx is not installed.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.export import onnx_model
    >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], classes=["no", "yes"])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    >>> isinstance(onnx_model(policy), bytes)
    True
    """
    onnx = _import_onnx()
    terms = make_terms(policy, default_columns(policy.feature_map, references))
    graph = _GraphBuilder(onnx, policy, terms)
    graph.build()
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes, "bylaw_policy", graph.inputs, [graph.make_output()], graph.constants
        ),
        producer_name="bylaw",
        producer_version=version("bylaw"),
        ir_version=IR_VERSION,
        opset_imports=[
            onnx.helper.make_opsetid("", OPSET),
            onnx.helper.make_opsetid("ai.onnx.ml", OPSET_ML),
        ],
        doc_string="\n".join(describe_policy(policy)),
    )
    onnx.helper.set_model_props(model, _make_metadata(policy))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _make_metadata(policy: Policy) -> dict[str, str]:
    return {
        "digest": policy.digest,
        "minimize": str(policy.problem.minimize),
        "rules": json.dumps([str(rule) for rule in policy.problem.rules]),
        "actions": json.dumps(policy.actions),
        "classes": json.dumps(policy.action_space.classes),
        "groups": json.dumps({name: a.values for name, a in policy.feature_map.attributes.items()}),
    }


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise OptionError(f"an ONNX graph needs onnx: {install_extra('onnx')}") from None
    return onnx


class _GraphBuilder:
    """Nodes in the order of their computation; methods return the name of a value, its shape stated."""

    def __init__(self, onnx: Any, policy: Policy, terms: Terms) -> None:
        self.onnx = onnx
        self.policy = policy
        self.terms = terms
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.columns: dict[Cell, tuple[str, int]] = {}  # the matrix of each cell, and its column there
        self.values: dict[Cell, str] = {}  # of known values, (N, S) indicators

    def build(self) -> None:
        conditions = [self._check_distribution(cells) for cells in self.terms.distributions]
        conditions += [self._check_values(cell, values) for cell, values in self.terms.known.items()]
        costs = dict.fromkeys(cell.name for cell in self.terms.numbers)
        conditions += [
            self._check_numbers([c for c in self.terms.numbers if c.name == name]) for name in costs
        ]
        for calibrated in self.terms.calibrated:
            self._calibrate(calibrated)
        for rescaled in self.terms.rescaled:
            self._rescale(rescaled)
        valid = reduce(lambda one, other: self._add_node("And", one, other), conditions)  # (N, 1)
        weighted = self.terms.weighted or [0]
        features = [self._multiply(self.terms.features[k]) for k in weighted]
        matrix = self._add_node("Concat", *features, axis=1)  # (N, F)
        scores = self._add_node("MatMul", matrix, self._add_constant(self.terms.scale[weighted]))  # (N, A)
        exclusive = self.policy.action_space.exclusive
        probabilities = (
            self._add_node("Softmax", scores, axis=1) if exclusive else self._add_node("Sigmoid", scores)
        )
        self._add_node("Where", valid, probabilities, self._add_constant(np.nan), output=OUTPUT)

    def make_output(self) -> Any:
        shape = ["N", len(self.policy.actions)]
        return self.onnx.helper.make_tensor_value_info(OUTPUT, self.onnx.TensorProto.DOUBLE, shape)

    def _check_distribution(self, cells: tuple[Cell, ...]) -> str:
        """Read probabilities; whether those of each row are valid, (N, 1)."""
        given = self._read_matrix(cells)
        low = self._add_node("ReduceMin", given, axes=[1], keepdims=1)
        high = self._add_node("ReduceMax", given, axes=[1], keepdims=1)
        total = self._add_node("ReduceSum", given, self._add_constant([1]), keepdims=1)
        off = self._add_node("Abs", self._add_node("Sub", total, self._add_constant(1.0)))
        clean = self._add_node("Max", given, self._add_constant(0.0))
        self.columns |= {cell: (clean, i) for i, cell in enumerate(cells)}
        above = self._add_node("LessOrEqual", self._add_constant(LOWEST), low)
        below = self._add_node("LessOrEqual", high, self._add_constant(HIGHEST))
        # NaN is within no tolerance.
        summing = self._add_node("LessOrEqual", off, self._add_constant(SUM_TOLERANCE))
        return self._add_node("And", self._add_node("And", above, below), summing)

    def _calibrate(self, part: Calibrated) -> None:
        """Put calibrated probabilities in the place of the given ones."""
        matrix = self.columns[part.cells[0]][0]
        given = self._gather(matrix, [self.columns[cell][1] for cell in part.cells])  # (N, C)
        logs = self._add_node("Log", self._add_node("Max", given, self._add_constant(part.otherwise.floor)))
        scores = self._add_map(part.otherwise, logs)
        for value, one in part.maps:
            assert part.by is not None
            here = self._add_node(
                "Less", self._add_constant(0.5), self._compare(Equals(part.by, value))
            )  # (N, 1)
            scores = self._add_node("Where", here, self._add_map(one, logs), scores)
        below = self._add_node("Sub", scores, self._add_node("ReduceMax", scores, axes=[1], keepdims=1))
        powers = self._add_node("Exp", self._add_node("Max", below, self._add_constant(LOWEST_LOG)))
        total = self._add_node("ReduceSum", powers, self._add_constant([1]), keepdims=1)
        calibrated = self._add_node("Div", powers, total)
        self.columns |= {cell: (calibrated, i) for i, cell in enumerate(part.cells)}

    def _add_map(self, one: CalibrationMap, logs: str) -> str:
        """Scores of the cells, (N, C)."""
        weighted = self._add_node("MatMul", logs, self._add_constant(one.weights.T))
        scores = self._add_node("Add", weighted, self._add_constant(one.bias[None]))
        for knots, bends in zip(one.knots.T, one.bends.T, strict=True):
            above = self._add_node("Sub", logs, self._add_constant(knots[None]))
            hinge = self._add_node("Max", above, self._add_constant(0.0))
            bent = self._add_node("Mul", hinge, self._add_constant(bends[None]))
            scores = self._add_node("Add", scores, bent)
        return scores

    def _rescale(self, part: Rescaled) -> None:
        """Make joint probabilities add up to the calibrated ones of the labels."""
        cells = [cell for row in part.cells for cell in row]
        n_values, n_labels = len(part.cells), len(part.labels)
        joint = self._gather(self.columns[cells[0]][0], [self.columns[cell][1] for cell in cells])
        places = [self.columns[cell][1] for cell in part.labels]
        labels = self._gather(self.columns[part.labels[0]][0], places)
        repeat = np.tile(np.eye(n_labels), n_values)  # (K, S * K): each label under each value
        total = self._add_node("MatMul", joint, self._add_constant(repeat.T))
        below = self._add_node("MatMul", total, self._add_constant(repeat))
        positive = self._add_node("Less", self._add_constant(0.0), below)
        divisor = self._add_node("Where", positive, below, self._add_constant(1.0))
        shares = self._add_node(
            "Where", positive, self._add_node("Div", joint, divisor), self._add_constant(1 / n_values)
        )
        spread = self._add_node("MatMul", labels, self._add_constant(repeat))
        rescaled = self._add_node("Mul", shares, spread)
        self.columns |= {cell: (rescaled, i) for i, cell in enumerate(cells)}

    def _check_numbers(self, cells: Sequence[Cell]) -> str:
        """Read costs; whether all of a row are finite, (N, 1)."""
        given = self._read_matrix(cells)
        self.columns |= {cell: (given, i) for i, cell in enumerate(cells)}
        finite = self._add_node(
            "LessOrEqual", self._add_node("Abs", given), self._add_constant(np.finfo(float).max)
        )
        count = self._add_node("ReduceSum", self._cast_to_double(finite), self._add_constant([1]), keepdims=1)
        return self._add_node("LessOrEqual", self._add_constant(float(len(cells))), count)

    def _check_values(self, cell: Cell, values: tuple[Value, ...]) -> str:
        """Read values; whether each row has one that the policy was fitted on, (N, 1)."""
        if cell.part == "references" and not all(isinstance(value, str) for value in values):
            values = self.policy.action_space.reference_actions  # numbers, among which is no "reject"
        kinds = {type(value) for value in values}
        if str in kinds and len(kinds) > 1:
            raise OptionError(
                f"{cell.name!r} has text and numbers, which no ONNX tensor can hold: rename the classes, or "
                f"pass references={{{cell.name!r}: 'probabilities'}}"
            )
        column, places = self._encode_values(cell, values, kinds)
        self.values[cell] = self._cast_to_double(
            self._add_node("Equal", column, self._add_constant([places]))
        )
        count = self._add_node("ReduceSum", self.values[cell], self._add_constant([1]), keepdims=1)
        return self._add_node("Less", self._add_constant(0.5), count)

    def _encode_values(
        self, cell: Cell, values: tuple[Value, ...], kinds: set[type]
    ) -> tuple[str, list[Any]]:
        """A column of values (N, 1), and what to compare it with: text by its positions."""
        tensor = self.onnx.TensorProto
        types = {str: tensor.STRING, int: tensor.INT64, bool: tensor.BOOL}
        kind = types.get(next(iter(kinds)), tensor.DOUBLE) if len(kinds) == 1 else tensor.DOUBLE
        name = self._add_input(cell, kind, ["N"])
        places: list[Any] = [float(value) for value in values] if kind == tensor.DOUBLE else list(values)
        if kind == tensor.STRING:
            places = list(range(len(values)))
            codes = {"keys_strings": values, "values_int64s": places, "default_int64": -1}
            name = self._add_node("LabelEncoder", name, domain="ai.onnx.ml", **codes)
        return self._add_node("Unsqueeze", name, self._add_constant([1])), places

    def _multiply(self, product: Product) -> str:
        """A feature, (N, 1)."""
        if not product:
            found = [*(matrix for matrix, _ in self.columns.values()), *self.values.values()]
            one = self.onnx.numpy_helper.from_array(np.ones(1))
            return self._add_node(
                "ConstantOfShape", self._add_node("Shape", self._gather(found[0], [0])), value=one
            )
        factors = [self._compare(f) if isinstance(f, Equals) else self._sum_cells(f) for f in product]
        return reduce(lambda one, other: self._add_node("Mul", one, other), factors)

    def _compare(self, factor: Equals) -> str:
        return self._gather(self.values[factor.cell], [self.terms.known[factor.cell].index(factor.value)])

    def _sum_cells(self, factor: Total) -> str:
        matrix = self.columns[factor.cells[0]][0]
        columns = self._gather(matrix, [self.columns[cell][1] for cell in factor.cells])
        if len(factor.cells) == 1:
            return columns
        return self._add_node("ReduceSum", columns, self._add_constant([1]), keepdims=1)

    def _read_matrix(self, cells: Sequence[Cell]) -> str:
        """The input that holds these cells, flat: (N, C)."""
        shape = ["N", *(place + 1 for place in cells[-1].place)]
        name = self._add_input(cells[0], self.onnx.TensorProto.DOUBLE, shape)
        return name if len(shape) == 2 else self._add_node("Flatten", name, axis=1)

    def _add_input(self, cell: Cell, kind: Any, shape: list[Any]) -> str:
        name = cell.part if cell.part == "probabilities" else f"{_PREFIX[cell.part]}{cell.name}"
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def _gather(self, matrix: str, places: list[int]) -> str:
        """Some columns, (N, len(places))."""
        return self._add_node("Gather", matrix, self._add_constant(places), axis=1)

    def _cast_to_double(self, name: str) -> str:
        return self._add_node("Cast", name, to=self.onnx.TensorProto.DOUBLE)

    def _add_node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _add_constant(self, values: Any) -> str:
        """Whole numbers as int64, others as double."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name
