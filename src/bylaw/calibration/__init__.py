"""What scores are worth: maps from a model's probabilities to calibrated ones."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
