"""The compiled problem: its linear form, the smoothed dual, rates of rows, and solutions of solvers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
