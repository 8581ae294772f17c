"""Rules tried out in a browser: what each change of a rule does to costs, groups and decisions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
