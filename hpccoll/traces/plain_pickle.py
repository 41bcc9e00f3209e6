"""Pickles of plain values: containers, texts and numbers. No class is looked up, and nothing is called.

Python's unpickler in C is 10 times as fast as the one in Python, but obeys every instruction: it
may look up and call what the pickle names, allocate as much as an index of the memo says, and
overflow the stack when it hashes tuples in tuples as keys. Therefore a pickle is first scanned from
its first instruction to its last one. The scan knows where each one ends, and so finds the same
ones as the unpickler. The one in C reads the pickle only if all instructions build plain values,
indices are small, and tuples are too few to be deep; PyTorch writes such ones. It also finds no
class, whatever the scan says. The unpickler in Python reads the others, and checks each instruction
as it comes.
"""

import io
import pickle
import re
import struct
from collections.abc import Iterable, Sequence
from itertools import chain, compress, islice
from typing import Any, NoReturn

from hpccoll.common.files import MAX_CONTAINERS
from hpccoll.common.units import format_size

MAX_PICKLE_BYTES = 32 << 20
MAX_VALUES = 4 * MAX_CONTAINERS
MAX_MARKS = 2 * MAX_CONTAINERS
"""The maximum number of bytes that may begin a container; each takes 100 bytes of memory."""


def read_plain_pickle(data: bytes) -> Any:
    """Return the value of a pickle of dictionaries, lists, tuples, texts, numbers, truth values and None.

    Raises:
        ValueError: if the pickle is damaged, too large, or would do more than build such a value.
    """
    if len(data) > MAX_PICKLE_BYTES or sum(map(data.count, _CONTAINERS)) > MAX_MARKS:
        raise ValueError(
            f"it is larger than a pickle that is read: {format_size(MAX_PICKLE_BYTES)}, {MAX_MARKS} lists"
        )
    kind: type[pickle.Unpickler] = _UnpicklerInC if _is_harmless(data) else _PlainUnpickler
    try:
        value = kind(io.BytesIO(data)).load()
    except (
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        EOFError,
        struct.error,
        pickle.UnpicklingError,
    ):
        raise ValueError(
            "it is damaged, or would do more than hold plain values, which is refused"
        ) from None
    _check_values(value)
    return value


def _check_values(value: object) -> None:
    """Check that a value is not too large.

    A container counts wherever it stands: a few that share others may stand for billions.
    """
    values = 0
    containers = _containers([value])
    while containers:
        inner = list(islice(_elements(containers), MAX_VALUES - values + 1))
        values += len(inner)
        if values > MAX_VALUES:
            raise ValueError(f"it has more than {MAX_VALUES} values")
        containers = _containers(inner)


def _containers(values: Sequence[object]) -> list[Any]:
    # in C: most of a dump is not a container
    are_containers = map(_CONTAINER_TYPES.__contains__, map(type, values))
    return list(compress(values, are_containers))


def _elements(containers: Sequence[Any]) -> Iterable[object]:
    elements: list[Iterable[object]] = []
    for container in containers:
        if type(container) is dict:
            elements.append(container.values())
        else:
            elements.append(container)
    return chain.from_iterable(elements)


_CONTAINER_TYPES = frozenset({dict, list, tuple})
_CONTAINERS = b"(", b"]", b"}", pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3
_ALLOWED = (
    "PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING"
    " SHORT_BINSTRING EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK APPEND APPENDS TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT"
    " LONG_BINPUT MEMOIZE BINGET LONG_BINGET"
)
"""The instructions that build plain values, but for those that set items."""


# in Python: the one in C allocates as much as an index of a memo says
_Unpickler: Any = vars(pickle)["_Unpickler"]


class _PlainUnpickler(_Unpickler):  # type: ignore[misc] # its attributes are not in typeshed
    """An unpickler that knows the instructions above; the one for any other is missing from its table."""

    def set_items(self) -> None:
        self.set_all(self.pop_mark())

    def set_item(self) -> None:
        items = self.stack[-2:]
        del self.stack[-2:]
        self.set_all(items)

    def set_all(self, items: list[Any]) -> None:
        """Set keys, which are texts or integers (to hash nested tuples may overflow the stack), and values."""
        keys = items[::2]
        if not isinstance(self.stack[-1], dict) or not all(
            isinstance(key, str | int) for key in keys
        ):
            raise TypeError
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    dispatch = {
        code: _Unpickler.dispatch[code]
        for name in _ALLOWED.split()
        for code in getattr(pickle, name)
    } | {
        pickle.SETITEMS[0]: set_items,
        pickle.SETITEM[0]: set_item,
    }


_INSTRUCTIONS = re.compile(
    rb"(?s)(?:[]})(Ntaesu\x85-\x89]"  # containers, None and truth values, and what fills containers
    rb"|K.|M..|J....|G.{8}|\x8a(?:\x00|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})"  # numbers
    # the memo, with indices below 2^21, for which memory is allocated
    rb"|[qh].|[rj]..[\x00-\x1f]\x00)*+"
)
"""Instructions of known lengths that build plain values, as many as there are in a row."""

_BEGIN = b"\x80\x02"
"""How the pickles that PyTorch writes begin: with their protocol."""

_TUPLES = pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3
MAX_TUPLES = 1 << 15
"""The maximum number of bytes that may make a tuple: hashing one in as many others takes a third of a usual stack."""


def _is_harmless(data: bytes) -> bool:
    """Return whether a pickle only builds plain values, in memory as large as the pickle, without deep tuples."""
    if not data.startswith(_BEGIN) or sum(map(data.count, _TUPLES)) > MAX_TUPLES:
        return False
    place = len(_BEGIN)
    while True:
        instructions = _INSTRUCTIONS.match(data, place)
        place = instructions.end() if instructions else place
        if data[place : place + 1] == pickle.STOP:
            return True
        if data[place : place + 1] != pickle.BINUNICODE:
            return False
        begin = place + 5
        place = begin + int.from_bytes(data[place + 1 : begin], "little")


class _UnpicklerInC(pickle.Unpickler):
    """An unpickler that finds no class."""

    def find_class(self, _module: str, _name: str) -> NoReturn:
        raise pickle.UnpicklingError

    def persistent_load(self, _identity: object) -> NoReturn:
        raise pickle.UnpicklingError
