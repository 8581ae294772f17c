"""Tables as validated evidence: columns and their roles, groups, observed rows, and files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
