"""Vendor: the library's own collective, called the way its users call it."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from mpi4py import MPI

from hpccoll.transports.operation import Array, Operation, Plan, aligned_empty

Described: TypeAlias = tuple[Array, MPI.Datatype]
Source: TypeAlias = Described | MPI.InPlaceType
Call: TypeAlias = Callable[[], object]

_OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "avg": MPI.SUM}


class VendorMpi:
    """The collectives of an MPI library, at its default settings."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        return aligned_empty(count, dtype)

    def plan(self, operation: Operation, src: Array, dst: Array) -> Plan:
        return VendorPlan(self.comm, operation, src, dst)


def _all_reduce(comm: MPI.Intracomm, operation: Operation, src: Source, dst: Described) -> Call:
    op = _OPS[operation.reduction.name]
    return lambda: comm.Allreduce(src, dst, op)


def _all_gather(comm: MPI.Intracomm, _operation: Operation, src: Source, dst: Described) -> Call:
    return lambda: comm.Allgather(src, dst)


def _barrier(comm: MPI.Intracomm, _operation: Operation, _src: Source, _dst: Described) -> Call:
    return comm.Barrier


CALLS = {"all_reduce": _all_reduce, "all_gather": _all_gather, "barrier": _barrier}
"""The call of each collective that the library has."""


class VendorPlan:
    """One call of the library; an average is its sum and our one scale."""

    def __init__(self, comm: MPI.Intracomm, operation: Operation, src: Array, dst: Array) -> None:
        datatype = MPI.Datatype.fromcode(operation.dtype.char)  # given, or mpi4py would look it up in each call
        source: Source = MPI.IN_PLACE if operation.in_place else (src, datatype)
        self._call = CALLS[operation.collective.name](comm, operation, source, (dst, datatype))
        self._operation, self._dst = operation, dst

    def run(self) -> None:
        self._call()
        if self._operation.reduction.averages:
            self._operation.reduction.scale(self._dst, self._operation.layout.workers)

    def where(self) -> str:
        return f"inside the library's {self._operation.collective.name}"

    def close(self) -> None:
        """Nothing is held."""
