"""The reductions: commutative and associative folds of two arrays, with a final scale for the average."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.limits import OneOfWords

DTYPES = ("int32", "int64", "float16", "float32", "float64")
"""The dtypes of elements, by NumPy's names."""

BFLOAT16 = "bfloat16"
"""A dtype that NumPy and MPI do not have: the upper half of a float32."""

NCCL_TESTS_NAMES = {"half": "float16", "float": "float32", "double": "float64"}
"""The names of nccl-tests, where they differ from NumPy's."""

DTYPE = OneOfWords((*DTYPES, BFLOAT16), tuple(NCCL_TESTS_NAMES.items()))
"""The element types, which people may also name as nccl-tests does."""


def dtype_of(name: str) -> np.dtype[np.generic]:
    """Return the dtype of elements by its name; ml_dtypes has that of ``bfloat16``."""
    if name != BFLOAT16:
        return np.dtype(name)
    from ml_dtypes import bfloat16

    dtype: np.dtype[np.generic] = np.dtype(bfloat16)
    return dtype


def itemsize(name: str) -> int:
    """Return the bytes of an element, without importing ml_dtypes."""
    return 2 if name == BFLOAT16 else np.dtype(name).itemsize


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction by name; ``fold(a, b, out=c)`` and then, once at the end, ``scale(out, p)``."""

    name: str
    fold: np.ufunc
    averages: bool = False

    def scale(self, values: NDArray[np.generic], p: int) -> None:
        """Divide the folded ``values``, of NumPy or of CuPy, by the number of contributions, in place.

        Integers round down; numbers of two bytes, which have 8 or 11 bits for p, are divided as
        float32.
        """
        if not self.averages:
            return
        if values.dtype.name == BFLOAT16:
            quotients = values.astype(np.float32) / np.float32(p)
            values[...] = quotients.astype(values.dtype)
            return
        divide = np.floor_divide if np.issubdtype(values.dtype, np.integer) else np.divide
        divisor = np.float32(p) if values.dtype == np.float16 else values.dtype.type(p)
        divide(values, divisor, out=values)


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", np.add),
        Reduction("prod", np.multiply),
        Reduction("min", np.minimum),
        Reduction("max", np.maximum),
        Reduction("avg", np.add, averages=True),
    )
}
