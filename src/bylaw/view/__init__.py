"""The presentation of results: numbers, sentences, charts, HTML and cards."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
