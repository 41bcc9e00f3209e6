"""Variables of the MPI library that a running program sets: the tool information interface (MPI 5.0, section 15.3)."""

import ctypes
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from hpccoll.common.errors import UnusableError
from hpccoll.executor.mpi_functions import function_address

_NAME = re.compile(r"^(\w+) +- ", re.MULTILINE)
"""A word of a variable of MPICH in its description, whose order is that of the values: MPICH has no MPI_T_enum."""

_TEXT_BYTES = 1 << 14


def _call(name: str, *arguments: Any) -> bool:
    """Call MPI_T_``name``, and return whether it succeeds."""
    code: int = ctypes.CFUNCTYPE(ctypes.c_int)(function_address(f"MPI_T_{name}"))(*arguments)
    return code == 0


@cache
def _begin() -> bool:
    """Begin to use the interface, which every process may at any time, and which ends with the process."""
    try:
        return _call("init_thread", 0, ctypes.byref(ctypes.c_int()))
    except UnusableError:
        return False


class ControlVariable:
    """A variable of type int of the library that mpi4py has loaded."""

    def __init__(self, index: int) -> None:
        self.words = _words(index)
        """Its values by their words; empty for a plain number."""
        self._handle = ctypes.c_void_p()
        if not _call(
            "cvar_handle_alloc",
            index,
            None,
            ctypes.byref(self._handle),
            ctypes.byref(ctypes.c_int()),
        ):
            raise UnusableError("MPI", f"the library gives no access to its variable {index}")

    @classmethod
    @cache
    def find(cls, name: str) -> "ControlVariable | None":
        """Return the variable of a name; None if the library has none."""
        index = ctypes.c_int()
        if not _begin() or not _call("cvar_get_index", name.encode(), ctypes.byref(index)):
            return None
        return cls(index.value)

    def get(self) -> int:
        """Return the value.

        Raises:
            UnusableError: if the library does not tell it.
        """
        value = ctypes.c_int()
        if not _call("cvar_read", self._handle, ctypes.byref(value)):
            raise UnusableError(
                "MPI", "the library does not tell the value of one of its variables"
            )
        return value.value

    @contextmanager
    def set_to(self, value: int) -> Iterator[None]:
        """Set the variable within the block.

        Raises:
            UnusableError: if the library refuses it.
        """
        before = self.get()
        self._set(value)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, value: int) -> None:
        if not _call("cvar_write", self._handle, ctypes.byref(ctypes.c_int(value))):
            raise UnusableError("MPI", f"the library does not let a variable be set to {value}")


def _words(index: int) -> Mapping[str, int]:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    length = ctypes.c_int(_TEXT_BYTES)
    words = ctypes.c_void_p()
    datatype = ctypes.c_void_p()
    number = ctypes.byref(ctypes.c_int())  # not used
    about = (
        number,
        ctypes.byref(datatype),
        ctypes.byref(words),
        text,
        ctypes.byref(length),
        number,
        number,
    )
    _call("cvar_get_info", index, None, None, *about)
    if not words.value:
        named = _NAME.findall(text.value.decode(errors="replace"))
        return {word: value for value, word in enumerate(named)}
    values = {}
    count = ctypes.c_int()
    value = ctypes.c_int()
    _call("enum_get_info", words, ctypes.byref(count), None, None)
    for item in range(count.value):
        length.value = _TEXT_BYTES
        _call("enum_get_item", words, item, ctypes.byref(value), text, ctypes.byref(length))
        values[text.value.decode(errors="replace")] = value.value
    return values
