"""Communicators of NCCL between two ranks, none of whose calls waits for the other rank.

They are nonblocking communicators (ncclConfig_t.blocking = 0, since NCCL 2.14), which CuPy's
binding does not make; the library is the one that CuPy has loaded. A call returns at once, and NCCL
goes on with it in a thread of its own, which an abort ends, whatever the other rank does. No call
may follow before that has ended (``is_ready``).
"""

import ctypes
from functools import cache

from hpccoll.transports.nccl.loaded_library import loaded_nccl_files
from hpccoll.transports.nccl.nccl_errors import NcclFailedError

IN_PROGRESS = 7
"""ncclInProgress (nccl.h)."""

UINT8 = 1
"""ncclUint8: messages are sent as bytes."""


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_ubyte * 128),)


class _Config(ctypes.Structure):
    """ncclConfig_t of the first version that has it; later ones take their own defaults for what they have appended."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    )


MAGIC, VERSION = 0xCAFEBEEF, 21400
"""NCCL_API_MAGIC, and the version of _Config (nccl.h)."""


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(loaded_nccl_files()[0])
    library.ncclGetErrorString.restype = library.ncclGetLastError.restype = ctypes.c_char_p
    return library


def _has_ended(status: int, communicator: ctypes.c_void_p | None = None) -> bool:
    """Return whether a call with this status has ended.

    Raises:
        NcclFailedError: if it has failed.
    """
    if status in (0, IN_PROGRESS):
        return status == 0
    texts = _library().ncclGetErrorString(status), _library().ncclGetLastError(communicator)
    words = ": ".join(" ".join(text.decode(errors="replace").split()) for text in texts if text)
    raise NcclFailedError(f"NCCL: {words}")


def new_unique_id() -> bytes:
    """Return what the two ranks of a communicator have in common.

    Raises:
        NcclFailedError: if NCCL finds no network, for example.
    """
    unique_id = _UniqueId()
    _has_ended(_library().ncclGetUniqueId(ctypes.byref(unique_id)))
    return bytes(unique_id)


class PairCommunicator:
    """A communicator, which begins to connect when it is made.

    Args:
        unique_id: the same on both ranks.
        rank: 0 or 1.

    Raises:
        NcclFailedError: if NCCL fails; so do the other methods, but for ``destroy`` and ``abort``.
    """

    def __init__(self, unique_id: bytes, rank: int) -> None:
        self._peer = 1 - rank
        self._communicator = ctypes.c_void_p()
        config = _Config(ctypes.sizeof(_Config), MAGIC, VERSION, 0)
        communicator = ctypes.byref(self._communicator)
        common_id = _UniqueId.from_buffer_copy(unique_id)
        status = _library().ncclCommInitRankConfig(
            communicator, 2, common_id, rank, ctypes.byref(config)
        )
        _has_ended(status)

    @property
    def is_ready(self) -> bool:
        """Whether the last call has ended."""
        state = ctypes.c_int()
        _has_ended(_library().ncclCommGetAsyncError(self._communicator, ctypes.byref(state)))
        return _has_ended(state.value, self._communicator)

    def queue(self, address: int, size: int, stream: int, *, sends: bool) -> None:
        """Queue a message of ``size`` bytes to or from the other rank on a stream; it is there when that has ended."""
        call = _library().ncclSend if sends else _library().ncclRecv
        buffer = ctypes.c_void_p(address)
        queue = ctypes.c_void_p(stream)
        _has_ended(
            call(buffer, ctypes.c_size_t(size), UINT8, self._peer, self._communicator, queue)
        )

    def destroy(self) -> None:
        """Free the communicator when all messages have ended; this may wait for the other rank to do so, too."""
        _library().ncclCommDestroy(self._communicator)

    def abort(self) -> None:
        """End what the communicator does, without the other rank, and free it."""
        _library().ncclCommAbort(self._communicator)
