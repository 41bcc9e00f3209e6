"""The structures and constants of executor.h, read from the header: as ctypes, and as NumPy dtypes for their arrays."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Records: TypeAlias = NDArray[np.void]

HEADER = re.sub(
    r"/\*.*?\*/", "", Path(__file__).with_name("executor.h").read_text(), flags=re.DOTALL
)
"""The header without its comments."""


def _constants() -> dict[str, int]:
    constants = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\n", HEADER)}
    for members in re.findall(r"enum \w+ \{(.*?)\}", HEADER, re.DOTALL):
        constants |= {name: number for number, name in enumerate(re.findall(r"\w+", members))}
    return constants


def _structures() -> dict[str, type[ctypes.Structure]]:
    types: dict[str, Any] = {
        "int32_t": ctypes.c_int32,
        "int64_t": ctypes.c_int64,
        "intptr_t": ctypes.c_int64,
    }
    structures: dict[str, type[ctypes.Structure]] = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", HEADER, re.DOTALL):
        fields: list[tuple[str, Any]] = []
        for declaration in body.split(";"):
            fields += _fields(declaration, {**types, **structures})
        structures[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return structures


def _fields(declaration: str, types: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and types of a declaration of one or more fields; all pointers are addresses."""
    function = re.search(r"\(\*(\w+)\)", declaration)
    if function:
        yield function[1], ctypes.c_void_p
        return
    unqualified = re.sub(r"\b(const|volatile)\b", "", declaration).strip()
    kind, _, names = unqualified.partition(" ")
    for stars, name, length in re.findall(r"([* ]*)(\w+)(?:\[(\w+)\])?", names):
        element = ctypes.c_void_p if "*" in stars else types[kind]
        yield name, element * CONSTANTS[length] if length else element


def _members(prefix: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(prefix).lower() for name in CONSTANTS if name.startswith(prefix))


CONSTANTS = _constants()
STRUCTURES = _structures()

OPERATIONS = _members("OPERATION_")
"""The names of NumPy's ufuncs, in the order of the rows of the kernels that fold."""

DTYPES = _members("DTYPE_")
"""The names of the dtypes, in the order of the columns of the kernels."""

WORK_COPY = CONSTANTS["WORK_COPY"]
WORK_FOLD = CONSTANTS["WORK_FOLD"]
WORK_SCALE = CONSTANTS["WORK_SCALE"]

FAILED_CALLS = {
    CONSTANTS["FAILED_STARTALL"]: "MPI_Startall",
    CONSTANTS["FAILED_START"]: "MPI_Isend or MPI_Irecv",
    CONSTANTS["FAILED_TEST"]: "MPI_Testall or MPI_Testsome",
    CONSTANTS["FAILED_PROBE"]: "MPI_Iprobe",
    CONSTANTS["FAILED_CALL"]: "the call",
}
"""The names of the MPI functions by ``plan_t.failed``."""

LOOP_PHASES = {
    CONSTANTS["PHASE_PREPARING"]: "preparing",
    CONSTANTS["PHASE_WAITING"]: "waiting for the other ranks",
    CONSTANTS["PHASE_RUNNING"]: "in the operation",
    CONSTANTS["PHASE_CHECKING"]: "checking",
}
"""The phases of an iteration by their numbers."""


def _dtype(name: str) -> np.dtype[np.void]:
    return cast("np.dtype[np.void]", np.dtype(STRUCTURES[name]))


WORK, CALL, MESSAGE, SIGNAL = map(_dtype, ("work_t", "call_t", "message_t", "signal_t"))
STEP, SEQUENCE, BLOCK = map(_dtype, ("step_t", "sequence_t", "block_t"))


def records(rows: list[Any], dtype: np.dtype[np.void]) -> Records:
    """Return rows as an array that C reads; it has at least one element, so that its address is valid."""
    if not rows:
        return np.zeros(1, dtype)
    return np.array(rows, dtype)


def kernel(operation: str, dtype: str) -> int:
    """Return the number of the kernel that folds elements of ``dtype`` with a ufunc of NumPy."""
    return OPERATIONS.index(operation) * len(DTYPES) + DTYPES.index(dtype)
