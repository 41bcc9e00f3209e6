"""Pickles of plain values: containers, texts and numbers. No class is looked up, and nothing is called."""

import io
import pickle
import struct
from typing import Any

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
        raise ValueError(f"it is larger than a pickle that is read: {format_size(MAX_PICKLE_BYTES)}, {MAX_MARKS} lists")
    try:
        value = _PlainUnpickler(io.BytesIO(data)).load()
    except (LookupError, TypeError, AttributeError, OverflowError, EOFError, struct.error, pickle.UnpicklingError):
        raise ValueError("it is damaged, or would do more than hold plain values, which is refused") from None
    inner, values = [value], 0  # a container counts wherever it stands: a few that share others may stand for billions
    while inner:
        each = inner.pop()
        if isinstance(each, dict | list | tuple):
            values += len(each)
            if values > MAX_VALUES:
                raise ValueError(f"it has more than {MAX_VALUES} values")
            inner.extend(each.values() if isinstance(each, dict) else each)
    return value


_CONTAINERS = b"(", b"]", b"}", pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3
_ALLOWED = (
    "PROTO FRAME STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING"
    " SHORT_BINSTRING EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK APPEND APPENDS TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT"
    " LONG_BINPUT MEMOIZE BINGET LONG_BINGET"
)
"""The instructions that build plain values, but for those that set items."""


_Unpickler: Any = vars(pickle)["_Unpickler"]  # in Python: the one in C allocates as much as an index of a memo says


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
        if not isinstance(self.stack[-1], dict) or not all(isinstance(key, str | int) for key in keys):
            raise TypeError
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    dispatch = {code: _Unpickler.dispatch[code] for name in _ALLOWED.split() for code in getattr(pickle, name)} | {
        pickle.SETITEMS[0]: set_items, pickle.SETITEM[0]: set_item,
    }  # fmt: skip
