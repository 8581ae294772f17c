"""Type aliases used in all packages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Value = str | int | float | bool  # a label, or a value of a group
