"""Rows that are not in memory, in large files, clusters or databases, with one module per engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
