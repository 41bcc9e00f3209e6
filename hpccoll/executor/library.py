"""Loads the C library of the compiled executor."""

from ctypes import CDLL, c_char
from functools import cache

from hpccoll.common.errors import UnusableError
from hpccoll.executor.build import LIBRARY, REBUILD, source_hash


class ExecutorUnavailableError(UnusableError):
    """This machine has no compiled executor: its library is not built, or cannot be loaded."""


@cache
def load_library() -> CDLL:
    """Return the library that was built from the C sources next to it.

    Raises:
        ExecutorUnavailableError: if the library is missing, or the dynamic loader refuses it.
        UnusableError: if the library was built from other sources.
    """
    if not LIBRARY.exists():
        raise ExecutorUnavailableError("executor", f"{LIBRARY} is not built; do: {REBUILD}")
    try:
        library = CDLL(str(LIBRARY))
    except OSError as error:
        raise ExecutorUnavailableError(
            "executor", f"{LIBRARY} cannot be loaded: {error}; do: {REBUILD}"
        ) from error
    expected = source_hash()
    text = c_char * (len(expected) + 1)
    try:
        built_from = text.in_dll(library, "hpccoll_source_hash").value.decode()
    except ValueError:
        built_from = "unknown"
    if built_from != expected:
        raise UnusableError(
            "executor",
            f"{LIBRARY} is stale: it was built from sources {built_from}, those next to it are {expected}; "
            f"do: {REBUILD}, or choose --executor python",
        )
    return library
