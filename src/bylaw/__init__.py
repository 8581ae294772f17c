"""bylaw makes any trained classifier satisfy system-level rules, without retraining it.

Names are imported when they are first used, so that `import bylaw` is fast. `__init__.pyi` lists them,
here and in each package.
"""

from typing import Any

import lazy_loader

__version__ = "0.2.0"

_find_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _find_name(name)
    except ModuleNotFoundError as missing:
        if missing.name != "sklearn":
            raise
        from bylaw.errors import install_extra

        raise ImportError(f"{name} needs scikit-learn; install it with: {install_extra('sklearn')}") from None
