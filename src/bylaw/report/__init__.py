"""Reports: one self-contained HTML page about a policy, for the people who must approve it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
