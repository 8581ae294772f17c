"""Demands on rows, compiled: the linear form, its smoothed dual, rates per row, solutions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
