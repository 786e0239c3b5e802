"""Array types used in signatures. Data may have any real dtype; centroids and sums are float64."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.intp]
DataArray: TypeAlias = npt.NDArray[Any]
ClientId: TypeAlias = str
