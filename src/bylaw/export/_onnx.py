"""Export of a policy as an ONNX graph. No other module imports onnx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from bylaw._base import Value, write_atomically
from bylaw.errors import OptionError, install_extra
from bylaw.policy import Policy
from bylaw.scoring import (
    Cell,
    Features,
    ReferenceForm,
    Vector,
    compute_probabilities,
    default_columns,
    describe_policy,
)

OPSET = 13  # version of the standard operators, of 2020
OPSET_ML = 2  # version of the operators for classical models, such as LabelEncoder
IR_VERSION = 7  # version of the file format, of the same age
OUTPUT = "decision_probabilities"
_OPERATORS = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "<": "Less",
    "<=": "LessOrEqual",
    "and": "And",
    "max": "Max",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
}
_PREFIX = {"groups": "group_", "joint": "joint_", "references": "reference_", "costs": "cost_"}


def to_onnx(
    policy: Policy, path: str | PathLike[str], *, references: Mapping[str, ReferenceForm] | None = None
) -> None:
    """Write a policy to a file as an ONNX graph, see `onnx_model`.

    An older file is kept until the new one is complete.

    Parameters
    ----------
    policy : Policy
        The policy; its rules must not contain Python functions.
    path : str or path
        The path of the file.
    references : dict, optional
        As in `onnx_model`.

    Raises
    ------
    OptionError
        If the policy cannot be expressed as an ONNX graph, or onnx is not installed.

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
    """Return an ONNX graph that computes `policy.probabilities`, in 64-bit floats, opset 13 and ai.onnx.ml 2.

    For N rows, K classes, S values of a group and A actions, the inputs are those of the following that the
    policy needs: "probabilities" (N, K); "group_<name>", for a known attribute its values (N,) as text,
    int64, double or bool, for an unknown attribute its probabilities (N, S) in the order of
    `policy.feature_map.attributes`; "joint_<name>" (N, S, K); "reference_<name>", labels (N,) or
    probabilities (N, K plus the number of options); "cost_<name>" (N, A). The output
    "decision_probabilities" has the shape (N, A).

    A row gets NaN if `policy.probabilities` would raise an error for it, for example because of an unknown
    value. The metadata of the file contain the digest, the rules, the actions and the classes as JSON.

    Parameters
    ----------
    policy : Policy
        The policy; its rules must not contain Python functions, nor refer to several unknown attributes
        together.
    references : dict, optional
        {earlier model: "labels" or "probabilities"}: one label per row (the default), or one column of
        probabilities per class. A column of labels that are numbers cannot contain "reject".

    Returns
    -------
    bytes
        The serialized model.

    Raises
    ------
    OptionError
        If the policy cannot be expressed as an ONNX graph, or onnx is not installed.

    Examples
    --------
    >>> from bylaw import Evidence, Problem, error, rejected, solve
    >>> from bylaw.export import onnx_model
    >>> evidence = Evidence([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], classes=["no", "yes"])
    >>> policy = solve(Problem(error(), [rejected() <= 0.2]), evidence)
    >>> isinstance(onnx_model(policy), bytes)
    True
    """
    try:
        import onnx
    except ImportError:
        raise OptionError(
            f"onnx must be installed to export an ONNX graph: {install_extra('onnx')}"
        ) from None
    features = Features(
        policy.feature_map, default_columns(policy.feature_map, references), policy.calibration
    )
    graph = _GraphBuilder(onnx, policy, features)
    graph.write(compute_probabilities(policy, features, features.is_valid()), output=OUTPUT)
    shape = ["N", len(policy.actions)]
    output = onnx.helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.DOUBLE, shape)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "bylaw_policy", graph.inputs, [output], graph.constants),
        producer_name="bylaw",
        producer_version=version("bylaw"),
        ir_version=IR_VERSION,
        opset_imports=[
            onnx.helper.make_opsetid("", OPSET),
            onnx.helper.make_opsetid("ai.onnx.ml", OPSET_ML),
        ],
        doc_string="\n".join(describe_policy(policy)),
    )
    metadata = {
        "digest": policy.digest,
        "minimize": str(policy.problem.minimize),
        "rules": json.dumps([str(rule) for rule in policy.problem.rules]),
        "actions": json.dumps(policy.actions),
        "classes": json.dumps(policy.action_space.classes),
        "groups": json.dumps({name: a.values for name, a in policy.feature_map.attributes.items()}),
    }
    onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


class _GraphBuilder:
    """A builder of ONNX nodes from vectors; each value has the shape (N, width)."""

    def __init__(self, onnx: Any, policy: Policy, features: Features) -> None:
        self.onnx = onnx
        self.policy = policy
        self.features = features
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self._values: dict[Vector, str] = {}
        self._codes: dict[Cell, tuple[str, dict[Value, Any]]] = {}  # {cell: (its input, {value: code})}

    def write(self, vector: Vector, output: str | None = None) -> str:
        """Return the name of the value of a vector in the graph.

        Nodes that compute it are added if they do not exist yet.
        """
        if vector not in self._values:
            self._values[vector] = self._add(vector, output)
        return self._values[vector]

    def _add(self, vector: Vector, output: str | None) -> str:
        detail = vector.detail
        match vector.operator:
            case "constant":
                return self._add_constant([detail])
            case "read":
                parts = []
                for (part, _), group in groupby(detail, lambda cell: cell[:2]):
                    *_, last = cells = list(group)
                    shape = ["N", *(place + 1 for place in last.place)]
                    name = self._add_input(cells[0], self.onnx.TensorProto.DOUBLE, shape)
                    parts.append(self._add_node("Flatten", name, axis=1) if part == "joint" else name)
                return parts[0] if len(parts) == 1 else self._add_node("Concat", *parts, axis=1)
            case "step":
                return self._add(vector.arguments[0], output)
            case "in":
                return self._compare(vector)
        arguments = [self.write(argument) for argument in vector.arguments]
        match vector.operator:
            case "take":
                return self._add_node("Gather", *arguments, self._add_constant(detail), axis=1)
            case "join":
                return self._add_node("Concat", *arguments, axis=1)
            case "linear":
                weights, bias = detail
                product = self._add_node("MatMul", *arguments, self._add_constant(weights))
                if not bias.any():
                    return product
                return self._add_node("Add", product, self._add_constant(bias[None]))
            case "greatest":
                return self._add_node("ReduceMax", *arguments, axes=[1], keepdims=1)
            case "all":
                count = self._add_node("ReduceMin", self._cast(*arguments), axes=[1], keepdims=1)
                return self._cast(count, self.onnx.TensorProto.BOOL)
            case "between":
                given, low, high = arguments
                above, below = (
                    self._add_node("LessOrEqual", low, given),
                    self._add_node("LessOrEqual", given, high),
                )
                return self._add_node("And", above, below)
            case "case":
                missing = [] if len(arguments) % 2 else [self._add_constant(np.nan)]
                *choices, value = [*arguments, *missing]
                for i in range(len(choices) - 2, -1, -2):
                    value = self._add_node("Where", choices[i], choices[i + 1], value, output=output)
                return value
        return self._add_node(_OPERATORS[vector.operator], *arguments)

    def _compare(self, vector: Vector) -> str:
        """Add nodes that test if a known group or label is in `vector.detail`; return their output."""
        step, place = vector.arguments[0].find_entry(0)
        cell = step.arguments[0].detail[place]
        if cell not in self._codes:
            self._codes[cell] = self._encode_values(cell)
        column, codes = self._codes[cell]
        wanted = [codes[value] for value in vector.detail if value in codes]
        equal = self._add_node("Equal", column, self._add_constant([wanted]))
        if len(wanted) == 1:
            return equal
        most = self._add_node("ReduceMax", self._cast(equal), axes=[1], keepdims=1)
        return self._cast(most, self.onnx.TensorProto.BOOL)

    def _encode_values(self, cell: Cell) -> tuple[str, dict[Value, Any]]:
        """Add an input for a column of values, such as a known group.

        Return its name in the graph, of shape (N, 1), and a dict {value: what the input is compared with}.
        Text is replaced by its index among the values, and the index is compared.
        """
        values, tensor = self.features.known[cell], self.onnx.TensorProto
        if cell.part == "references" and not all(isinstance(value, str) for value in values):
            values = self.policy.action_space.reference_actions  # numbers, among which is no "reject"
        kinds = {type(value) for value in values}
        if str in kinds and len(kinds) > 1:
            raise OptionError(
                f"the labels of {cell.name!r} must be all text or all numbers in an ONNX graph, got both: "
                f"rename the classes, or pass references={{{cell.name!r}: 'probabilities'}}"
            )
        types = {str: tensor.STRING, int: tensor.INT64, bool: tensor.BOOL}
        kind = types.get(next(iter(kinds)), tensor.DOUBLE) if len(kinds) == 1 else tensor.DOUBLE
        name = self._add_input(cell, kind, ["N"])
        codes = {value: float(value) if kind == tensor.DOUBLE else value for value in values}
        if kind == tensor.STRING:
            codes = {value: place for place, value in enumerate(values)}
            places = {"keys_strings": values, "values_int64s": list(codes.values()), "default_int64": -1}
            name = self._add_node("LabelEncoder", name, domain="ai.onnx.ml", **places)
        return self._add_node("Unsqueeze", name, self._add_constant([1])), codes

    def _add_input(self, cell: Cell, kind: Any, shape: list[Any]) -> str:
        name = cell.part if cell.part == "probabilities" else f"{_PREFIX[cell.part]}{cell.name}"
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def _cast(self, name: str, kind: Any = None) -> str:
        """Add a node that converts a value to double, or to `kind`; return its name."""
        return self._add_node("Cast", name, to=self.onnx.TensorProto.DOUBLE if kind is None else kind)

    def _add_node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def _add_constant(self, values: Any) -> str:
        """Add a constant, as int64 if values are whole numbers and as double otherwise; return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name
