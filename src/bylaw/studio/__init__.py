"""The studio: a page in the browser on which rules are tried out and their effects are shown."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
