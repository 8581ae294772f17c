"""Export of policies as SQL, as an ONNX graph, or as a module of plain Python."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
