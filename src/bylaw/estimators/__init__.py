"""Models of the conditional probabilities of labels, of groups, and of both together, for scikit-learn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
