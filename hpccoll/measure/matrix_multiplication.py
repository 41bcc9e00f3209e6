"""Matrix multiplications on a core of the host, beside the collectives that another thread drives."""

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from hpccoll.measure.computing_thread import ComputingThread

Products: TypeAlias = tuple[tuple[int, int], ...]
"""The products of a computation: rows of the matrices, and how many of them."""

HOST_ROWS = range(64, 384 + 1, 64)
"""The rows of the matrices on a host: from half a million to 113 million FLOPs a product."""


class Gemm(ComputingThread):
    """Multiplies matrices; a computation is the products that it runs."""

    def __init__(self, computations: Sequence[Products]) -> None:
        super().__init__([partial(self._multiply, products) for products in computations])
        self._a, self._b = (np.full(HOST_ROWS[-1] ** 2, value, np.float32) for value in (0.5, 0.25))
        self._c = np.empty_like(self._a)
        self._closed = False

    @classmethod
    def until_closed(cls) -> "Gemm":
        """Return a thread that multiplies large matrices from now on until it is closed."""
        endless = 1 << 62
        thread = cls([((HOST_ROWS[-1], endless),)])
        thread.start()
        return thread

    def _multiply(self, products: Products) -> None:
        for rows, number in products:
            a, b, c = (
                matrix[: rows * rows].reshape(rows, rows) for matrix in (self._a, self._b, self._c)
            )
            for _ in range(number):
                if self._closed:
                    return
                np.matmul(a, b, out=c)

    def close(self) -> None:
        self._closed = True
        super().close()
