"""Scores and decisions as an expression over the columns of a row, and its SQL."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
