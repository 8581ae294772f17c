"""Reductions of problems to simpler ones, in an ordered list, with diagnoses of conflicts and warnings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
