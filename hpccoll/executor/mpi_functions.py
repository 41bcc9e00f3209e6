"""The MPI library's functions and handles as C needs them.

Nothing is looked up in an mpi.h: mpi4py has loaded the library and knows the values of its handles.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import UnusableError
from hpccoll.executor.structures import CALL, STRUCTURES, Records
from hpccoll.schedule.operation import Array

MAX_COUNT = 2**31 - 1
"""The largest count of a function with an argument of type int; above it, the function with the suffix _c is needed."""

REQUEST_BYTES = MPI._sizeof(MPI.Request)  # noqa: SLF001  for C interfaces
STATUS_BYTES = MPI._sizeof(MPI.Status)  # noqa: SLF001


@cache
def function_address(name: str, *, large: bool = False) -> int:
    """Return the address of a function of the MPI library that mpi4py has loaded; ``large`` with counts of MPI_Count.

    Raises:
        UnusableError: if the library has no such function.
    """
    full_name = f"{name}_c" if large else name
    # In the order of the dynamic linker: a profiler's or a translator's library that LD_PRELOAD
    # names comes first. Then the symbols of mpi4py's module are those of the MPI library that it
    # has loaded.
    for library in (ctypes.CDLL(None), ctypes.CDLL(MPI.__file__)):
        function = getattr(library, full_name, None)
        if function:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    remedy = "smaller sizes, or --executor python" if large else "--executor python"
    raise UnusableError("executor", f"the MPI library has no {full_name}; use {remedy}")


@cache
def mpi_functions(*, large: bool = False) -> ctypes.Structure:
    """Return the functions of the compiled executor; ``large`` as for ``function_address``."""
    fields = ("startall", "testall", "testsome", "isend", "irecv", "iprobe")
    counted = ("isend", "irecv")
    addresses = {}
    for field in fields:
        addresses[field] = function_address(
            f"MPI_{field.capitalize()}", large=large and field in counted
        )
    return STRUCTURES["mpi_t"](**addresses, request_size=REQUEST_BYTES)


def handle(mpi_object: Any) -> int:
    """Return the value of a handle as an intptr_t; mpi4py returns it as an uintptr_t."""
    value = int(MPI._handleof(mpi_object))  # noqa: SLF001  mpi4py's function for C interfaces
    return value - 2**64 if value >= 2**63 else value


def request_array(requests: Sequence[MPI.Request]) -> Array:
    """Return the handles of requests as an array that MPI reads and writes; it has at least one element."""
    handles = [handle(request) for request in requests] or [0]
    modulus = 2 ** (8 * REQUEST_BYTES)
    return np.array([value % modulus for value in handles], f"u{REQUEST_BYTES}")


def status_array(count: int) -> Array:
    """Return memory for ``count`` statuses: the constant with which MPI ignores them differs between libraries."""
    return np.zeros(max(1, count) * STATUS_BYTES, np.uint8)


def probe_struct(comm: MPI.Intracomm, mpi: ctypes.Structure, status: Array) -> ctypes.Structure:
    """Return how a rank of ``comm`` drives the library's progress; ``status`` is memory of ``status_array``."""
    return STRUCTURES["probe_t"](
        mpi=ctypes.addressof(mpi), comm=handle(comm), rank=comm.rank, status=status.ctypes.data
    )


def call_record(name: str, *arguments: int, large: bool = False) -> Records:
    """Return a blocking call of the MPI library with integers, addresses and handles as arguments."""
    record = np.zeros(1, CALL)
    record["function"] = function_address(name, large=large)
    record["arguments"][0, : len(arguments)] = arguments
    return record
