"""Rows: evidence and its groups, observed rows, tables in files, and the roles of their columns."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
