"""A reduction as a black box: a function from the vector of this rank to its part of the sums."""

from typing import Any

import numpy as np

from hpccoll.measure.run.payload import Array
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.order.procedure import ProbedCall


class BlackBox:
    """A case whose buffers the caller fills; its ranks create, call and close it together."""

    def __init__(self, prepared: PreparedCase) -> None:
        prepared.fill_by_caller()
        self._prepared = prepared
        self._contribution: Any = prepared.contribution  # of NumPy, or of CuPy
        self._gpu = prepared.gpu
        operation = prepared.operation
        units = operation.call.target(prepared.rank, operation.api_cut.units)
        self.call = ProbedCall(
            rank=prepared.rank,
            ranks=operation.layout.workers,
            dtype=operation.dtype,
            elements=len(prepared.contribution),
            first=operation.span("dst", units, prepared.rank).start,
            length=len(prepared.result),
        )

    def sums(self, vector: Array) -> Array:
        """Return a copy of the result of this rank, given its vector."""
        if self._gpu is None:
            np.copyto(self._contribution, vector)
            self._prepared.plan.run()
            return self._prepared.result.copy()
        target = self._contribution
        target.set(np.ascontiguousarray(vector).view(target.dtype), stream=self._gpu.stream)
        self._gpu.await_work()
        self._prepared.plan.run()
        if not self.call.length:
            return np.empty(0, self.call.dtype)
        return self._gpu.download(self._prepared.result).view(self.call.dtype)

    def close(self) -> None:
        """Free its buffers."""
        self._prepared.close()
