"""Rows that live elsewhere: files larger than memory, clusters, databases. One file per engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
