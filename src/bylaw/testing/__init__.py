"""Tests of rules on rows: audits, certificates and monitors. No solver is needed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
