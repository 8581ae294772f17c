"""Policies that leave Python: as SQL, as an ONNX graph, or as a module of plain Python."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylaw.export.onnx_graph import onnx_model, to_onnx
    from bylaw.export.python_module import to_python
    from bylaw.scoring import to_sql

__all__ = ["onnx_model", "to_onnx", "to_python", "to_sql"]


def __getattr__(name: str) -> Any:
    """Each is imported when it is used."""
    if name in ("onnx_model", "to_onnx"):
        from bylaw.export import onnx_graph as module
    elif name == "to_python":
        from bylaw.export import python_module as module
    elif name == "to_sql":
        from bylaw import scoring as module
    else:
        raise AttributeError(f"module 'bylaw.export' has no attribute {name!r}")
    return getattr(module, name)
