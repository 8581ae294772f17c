"""Solvers of the dual: each turns a `Dual` into a `Solution`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
