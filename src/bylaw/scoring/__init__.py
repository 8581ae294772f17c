"""Probabilities and decisions of a policy as expressions over the columns of a table, and as SQL."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
