"""The structures of executor.h, as ctypes and as NumPy dtypes for their arrays, and the tables of its kernels."""

import ctypes
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Records: TypeAlias = NDArray[np.void]

OPERATIONS = ("add", "multiply", "minimum", "maximum")
"""The names of NumPy's ufuncs, in the order of the rows of the kernels that fold."""

DTYPES = ("uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16")
"""The names of the dtypes, in the order of the columns of the kernels."""

WORK_COPY, WORK_FOLD, WORK_SCALE = range(3)

CALL_ARGUMENTS = 12

FAILED_CALLS = ("", "MPI_Startall", "MPI_Isend or MPI_Irecv", "MPI_Testall or MPI_Testsome", "MPI_Iprobe", "the call")
"""The names of the MPI functions by ``plan_t.failed``."""

LOOP_PHASES = ("preparing", "waiting for the other ranks", "in the operation", "checking")
"""The phases of an iteration by their numbers."""


class MpiStruct(ctypes.Structure):
    """The functions of the MPI library, by their addresses."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("startall", "testall", "testsome", "isend", "irecv", "iprobe")),
        ("request_size", ctypes.c_int64),
    )


class IdleStruct(ctypes.Structure):
    """How a rank waits."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("shares_core", "since_ns", "polls"))


class ProbeStruct(ctypes.Structure):
    """How a rank drives the progress of the library."""

    _fields_ = (
        *(("mpi", ctypes.c_void_p), ("comm", ctypes.c_int64), ("rank", ctypes.c_int64)),
        ("status", ctypes.c_void_p),
    )


class PlanStruct(ctypes.Structure):
    """A compiled plan of this rank."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("works", "messages", "signals", "steps", "sequences")),
        ("sequence_count", ctypes.c_int64),
        ("calls", ctypes.c_void_p),
        ("call_count", ctypes.c_int64),
        ("requests", ctypes.c_void_p),
        ("active", ctypes.c_void_p),
        ("slots", ctypes.c_int64),
        ("indices", ctypes.c_void_p),
        ("statuses", ctypes.c_void_p),
        ("probe", ProbeStruct),
        ("initial", ctypes.c_int64),
        ("idle", IdleStruct),
        *((name, ctypes.c_int64) for name in ("runs", "started", "running", "failed", "error")),
    )


class BarrierStruct(ctypes.Structure):
    """The barrier of the timing loop."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("arrived", "go", "released")),
        *((name, ctypes.c_int64) for name in ("node_ranks", "node_rank")),
        ("requests", ctypes.c_void_p),
        ("rounds", ctypes.c_int64),
        ("statuses", ctypes.c_void_p),
        ("probe", ProbeStruct),
        ("idle", IdleStruct),
        *((name, ctypes.c_int64) for name in ("passed", "error")),
    )


class TimedCaseStruct(ctypes.Structure):
    """A case for the timing loop."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("plan", "barrier")),
        *(
            field
            for name in ("fill", "compared", "guard")
            for field in ((f"{name}_blocks", ctypes.c_void_p), (f"{name}_count", ctypes.c_int64))
        ),
        *((name, ctypes.c_int64) for name in ("generations", "generation", "guards_dirty")),
        ("progress", ctypes.c_void_p),
    )


def _record(*fields: tuple[str, str]) -> np.dtype[np.void]:
    return np.dtype([*fields], align=True)


WORK = _record(
    ("kind", "i4"), ("kernel", "i4"), ("count", "i8"), ("target", "u8"), ("a", "u8"), ("b", "u8"), ("workers", "i8")
)
CALL = np.dtype([("function", "u8"), ("arguments", "i8", (CALL_ARGUMENTS,))], align=True)
MESSAGE = _record(
    ("data", "u8"),
    ("count", "i8"),
    ("datatype", "i8"),
    ("sends", "i4"),
    ("peer", "i4"),
    ("tag", "i4"),
    ("unused", "i4"),
)
SIGNAL = _record(("word", "u8"), ("ordinal", "i8"), ("per_run", "i8"))
STEP = _record(
    *((name, "i8") for part in ("before", "raised", "messages", "awaited", "after") for name in (part, f"{part}_end"))
)
SEQUENCE = _record(*((name, "i8") for name in ("first", "end", "at", "pending", "next_awaited")))
BLOCK = _record(
    ("buffer", "u8"), ("values", "u8"), *((name, "i8") for name in ("rows", "row_bytes", "values_bytes", "itemsize"))
)

SIZES = (
    *(record.itemsize for record in (WORK, CALL, MESSAGE, SIGNAL, STEP, SEQUENCE, BLOCK)),
    *map(ctypes.sizeof, (MpiStruct, PlanStruct, BarrierStruct, TimedCaseStruct)),
)
"""The sizes in bytes in the order of ``hpccoll_structure_sizes``."""


def records(rows: list[Any], dtype: np.dtype[np.void]) -> Records:
    """Return rows as an array that C reads; it has at least one element, so that its address is valid."""
    return np.array(rows, dtype) if rows else np.zeros(1, dtype)


def kernel(operation: str, dtype: str) -> int:
    """Return the number of the kernel that folds elements of ``dtype`` with a ufunc of NumPy."""
    return OPERATIONS.index(operation) * len(DTYPES) + DTYPES.index(dtype)
