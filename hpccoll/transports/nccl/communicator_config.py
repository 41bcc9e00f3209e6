"""nccl4py, for what CuPy's binding of NCCL lacks: what communicators are made with, and buffers that NCCL knows.

It moves no data by a way of its own. A communicator that it makes has CuPy's names for the calls of the one data path,
and CuPy's groups hold them, for both bindings have one libnccl; buffers can be registered with either's communicator.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hpccoll.errors import BadInputError
from hpccoll.transports.operation import Array, address

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu

INSTALL = "pip install 'hpccoll[nccl4py]'"

CUPY_TO_NCCL4PY = {
    "allReduce": "all_reduce", "reduceScatter": "reduce_scatter", "allGather": "all_gather", "broadcast": "broadcast",
    "reduce": "reduce", "send": "send", "recv": "recv",
}  # fmt: skip
"""CuPy's name of a call, and nccl4py's: it has the communicator before the stream, which is the last argument."""

SYMMETRIC = 1
"""NCCL_WIN_COLL_SYMMETRIC (nccl.h): the buffers of all ranks are used at one offset."""
NO_COLOR = -1
"""NCCL_SPLIT_NOCOLOR (nccl.h)."""


class NcclError(RuntimeError):
    """What NCCL refuses, by the name and the kind that CuPy's has."""


def _nccl() -> Any:
    from nccl.bindings import nccl

    return nccl


@cache
def missing_for_config(least: int) -> str | None:
    """Return why communicators of NCCL cannot be made here with settings, or None where they can.

    Args:
        least: the version of NCCL that has them, major x 10000 + minor x 100: an older one would not heed them.
    """
    if find_spec("nccl") is None or find_spec("nccl.bindings") is None:
        return f"nccl4py not found: {INSTALL}"
    try:
        there: int = _nccl().get_version()
    except (ImportError, OSError, RuntimeError) as error:
        return f"nccl4py finds no NCCL: {' '.join(str(error).split())}"
    if there < least:
        return f"NCCL {_version_text(there)} is too old: from {_version_text(least)} on it has these settings"
    cupys = _cupy_nccl_version()
    return (
        f"nccl4py has NCCL {_version_text(there)}, and CuPy {_version_text(cupys)}: they need one"
        if cupys != there
        else None
    )


def _cupy_nccl_version() -> int:
    from cupy.cuda import nccl

    version: int = nccl.get_version()
    return version


def _version_text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _call_nccl(call: Callable[..., Any], *arguments: object) -> Any:
    """Return what NCCL returns.

    Raises:
        NcclError: where it refuses.
    """
    try:
        return call(*arguments)
    except Exception as error:
        if type(error).__name__ != "NCCLError":  # nccl4py's
            raise
        raise NcclError(str(error)) from error


class ConfiguredCommunicator:
    """A communicator of nccl4py, with the names of CuPy's.

    Args:
        handle: nccl4py's.
    """

    allReduce: Callable[..., None]  # noqa: N815  CuPy's names, here and below
    reduceScatter: Callable[..., None]  # noqa: N815
    allGather: Callable[..., None]  # noqa: N815
    broadcast: Callable[..., None]
    reduce: Callable[..., None]
    send: Callable[..., None]
    recv: Callable[..., None]

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        for name, call in CUPY_TO_NCCL4PY.items():
            setattr(self, name, _bind_communicator(getattr(_nccl(), call), handle))

    @property
    def comm(self) -> int:
        """The address of the ncclComm_t, 0 when it is destroyed."""
        return int(self._handle.handle) if self._handle else 0

    def commSplit(self, color: int, key: int) -> "ConfiguredCommunicator | None":  # noqa: N802
        """Return that of the ranks of a color, with the settings of this one; None for color -1."""
        handle = _call_nccl(_nccl().comm_split, self._handle, color, key, 0)
        return None if color == NO_COLOR else ConfiguredCommunicator(handle)

    def check_async_error(self) -> None:
        """See that nothing has gone wrong.

        Raises:
            NcclError: where it has.
        """
        if result := int(_call_nccl(_nccl().comm_get_async_error, self._handle)):
            raise NcclError(_nccl().get_error_string(result))

    def destroy(self) -> None:
        self._end(_nccl().comm_destroy)

    def abort(self) -> None:
        self._end(_nccl().comm_abort)

    def _end(self, how: Callable[[Any], None]) -> None:
        handle, self._handle = self._handle, None
        if handle:
            with suppress(NcclError):  # as CuPy does: there is nothing left to be done about it
                _call_nccl(how, handle)


def _bind_communicator(call: Callable[..., Any], handle: Any) -> Callable[..., None]:
    def queue(*arguments: int) -> None:
        _call_nccl(call, *arguments[:-1], handle, arguments[-1])

    return queue


class ConfiguredNccl:
    """NCCL whose communicators are made with settings: takes the place of CuPy's module for ``nccl_world.World``.

    Args:
        settings: fields of ncclConfig_t by their names in nccl4py, and the values that NCCL takes.
    """

    def __init__(self, settings: Mapping[str, int | str]) -> None:
        self._settings = settings

    def get_unique_id(self) -> bytes:
        return bytes(_call_nccl(_nccl().get_unique_id))

    def NcclCommunicator(self, ndev: int, commId: bytes, rank: int) -> ConfiguredCommunicator:  # noqa: N802, N803  CuPy's names
        nccl = _nccl()
        config = nccl.Config()
        for name, value in self._settings.items():
            setattr(config, name, value)
        unique = nccl.UniqueId.from_buffer(commId)
        return ConfiguredCommunicator(_call_nccl(nccl.comm_init_rank_config, ndev, unique.ptr, rank, config.ptr))


class NcclBuffers:
    """Memory of a GPU that NCCL allocates, and may know as registered buffers or symmetric windows.

    Args:
        comm: of the ranks.
        gpu: of this one.
        how: ``allocated``, ``registered`` or ``symmetric``.
    """

    def __init__(self, comm: "MPI.Intracomm", gpu: "Gpu", how: str) -> None:
        self.comm, self.gpu, self.how = comm, gpu, how
        self._known: list[tuple[Any, Any, Callable[[Any, Any], None], Array]] = []  # arrays stay until then

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array, whose memory goes back to NCCL when nobody names it.

        Raises:
            MemoryError: where there is no room, as CuPy does: at this rank alone, which ends the job.
        """
        if not count:
            none: Array = self.gpu.empty(0, dtype)
            return none
        nccl = _nccl()
        try:
            place = _call_nccl(nccl.mem_alloc, count * dtype.itemsize)
        except NcclError as error:
            raise MemoryError(f"NCCL allocates no {count * dtype.itemsize} bytes: {error}") from None
        owner = _Owner()
        weakref.finalize(owner, nccl.mem_free, place).atexit = False  # by then CUDA may be gone
        array: Array = self.gpu.array_at(place, count, dtype, owner)
        return array

    def register(self, communicator: Any, workers: int, arrays: Iterable[Array]) -> None:
        """Register ``arrays`` with a communicator, on all ranks together.

        NCCL wants windows of one size at all ranks, and calls whose buffers are known at all of them: others stay
        as they are.

        Args:
            communicator: CuPy's or ours, None at ranks that have no part in it.
            workers: that have one, the first ranks.
            arrays: of this rank, as many at all.

        Raises:
            BadInputError: on all ranks, where NCCL makes no windows of these GPUs.
            NcclError: on all ranks, where NCCL refuses at one of them.
        """
        for array in arrays:
            sizes = {*self.comm.allgather(array.nbytes)[:workers]}
            if self.how == "allocated" or len(sizes) > 1 or not sizes - {0}:
                continue
            made, complaint = True, None
            try:
                made = communicator is None or self._register(communicator, array)
            except NcclError as error:
                complaint = str(error)
            everywhere = self.comm.allgather((made, complaint))
            if said := next(filter(None, (words for _, words in everywhere)), None):
                raise NcclError(said)
            if not all(there for there, _ in everywhere):
                why = "NCCL makes no symmetric windows of these GPUs (NCCL_CUMEM_ENABLE, NCCL_WIN_ENABLE, no P2P)"
                raise BadInputError("communicator buffers", self.how, f"allocated or registered: {why}")

    def _register(self, communicator: Any, array: Array) -> bool:
        nccl = _nccl()
        comm, place = nccl.Comm(communicator.comm), address(array)
        if self.how == "symmetric":
            window = _call_nccl(nccl.comm_window_register, comm, place, array.nbytes, SYMMETRIC)
            known, forget, there = window, nccl.comm_window_deregister, bool(window)
        else:
            known, forget, there = _call_nccl(nccl.comm_register, comm, place, array.nbytes), nccl.comm_deregister, True
        if there:
            self._known.append((communicator, known, forget, array))
        return there

    def close(self) -> None:
        """Have NCCL forget them, the last one first; with a communicator that is gone they are gone already."""
        nccl = _nccl()
        while self._known:
            communicator, known, forget, _array = self._known.pop()
            if communicator.comm:
                _call_nccl(forget, nccl.Comm(communicator.comm), known)


class _Owner:
    """Has memory of NCCL as long as an array names it."""
