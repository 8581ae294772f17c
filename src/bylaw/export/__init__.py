"""Export of policies as SQL, as an ONNX graph, or as a module of plain Python."""

from bylaw.export._onnx import onnx_model, to_onnx
from bylaw.export._python import to_python
from bylaw.scoring import to_sql

__all__ = ["onnx_model", "to_onnx", "to_python", "to_sql"]
