from ._onnx import onnx_model as onnx_model, to_onnx as to_onnx
from ._python import to_python as to_python
from ._sql import to_sql as to_sql
