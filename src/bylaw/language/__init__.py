"""The language of rules: rates, rules, families of rules and problems, all independent of data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
