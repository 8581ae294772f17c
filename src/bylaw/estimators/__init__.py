"""Models of conditional probabilities: of labels, of groups, of both together. They need scikit-learn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
