"""Communicator settings, registered buffers and newer calls of NCCL through nccl4py, because CuPy's binding lacks them.

All data move through the same code: communicators created here have the methods of CuPy's, and
CuPy's groups contain their calls, because both bindings load one libnccl. Buffers can be registered
with either binding's communicators, and the newer calls take both.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.operation import Array
from hpccoll.transports.nccl.loaded_library import loaded_nccl_files
from hpccoll.transports.transport_interface import address

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.transports.gpu import Gpu

INSTALL = "pip install 'hpccoll[nccl4py]'"

METHODS = {
    "allReduce": "all_reduce",
    "reduceScatter": "reduce_scatter",
    "allGather": "all_gather",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
"""nccl4py's name of each CuPy method. Its functions take the communicator before the stream, their last argument."""

NEWER_CALLS = {"all_to_all": "allto_all", "gather": "gather", "scatter": "scatter"}
"""nccl4py's function for each collective that NCCL has since 2.28 and CuPy's binding lacks."""
NEWER_CALLS_SINCE = 22800
"""The version of NCCL that introduced ncclAlltoAll, ncclGather and ncclScatter (nccl.h)."""

SYMMETRIC = 1
"""NCCL_WIN_COLL_SYMMETRIC (nccl.h): all ranks use their buffers at the same offset."""
NO_COLOR = -1
"""NCCL_SPLIT_NOCOLOR (nccl.h)."""


class NcclError(RuntimeError):
    """An error of NCCL, with the name and base class of CuPy's."""


def _nccl() -> Any:
    from nccl.bindings import nccl

    return nccl


@cache
def missing_for_nccl4py(min_version: int) -> str | None:
    """Return the reason why this process cannot use nccl4py next to CuPy, None if it can.

    Args:
        min_version: the first NCCL version that has what is needed of it, major x 10000 + minor x
            100.
    """
    if find_spec("nccl") is None or find_spec("nccl.bindings") is None:
        return f"nccl4py is not installed; do: {INSTALL}"
    # first, because nccl4py takes the NCCL that is loaded, and CuPy's is the site's
    cupys = _cupy_nccl_version()
    try:
        version: int = _nccl().get_version()
    except (ImportError, OSError, RuntimeError) as error:
        return f"nccl4py finds no NCCL: {' '.join(str(error).split())}"
    if version < min_version:
        return f"NCCL {_version_text(version)} is too old: this needs {_version_text(min_version)} or later"
    if version != cupys:  # groups span both bindings
        return f"nccl4py loads NCCL {_version_text(version)}, and CuPy {_version_text(cupys)}: they must be the same"
    if len(files := loaded_nccl_files()) > 1:  # of one version, but each has groups of its own
        return f"nccl4py and CuPy load different files of NCCL: {', '.join(files)}; they must be the same"
    return None


def _cupy_nccl_version() -> int:
    from cupy.cuda import nccl

    version: int = nccl.get_version()
    return version


def _version_text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _call_nccl(call: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a call of nccl4py.

    Raises:
        NcclError: if NCCL returns an error.
    """
    try:
        return call(*arguments)
    except Exception as error:
        if type(error).__name__ != "NCCLError":  # nccl4py's exception
            raise
        raise NcclError(str(error)) from error


class ConfiguredCommunicator:
    """A communicator of nccl4py with the methods of CuPy's."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        for name, call in METHODS.items():
            setattr(self, name, _bind_communicator(getattr(_nccl(), call), handle))

    @property
    def comm(self) -> int:
        """The address of the ncclComm_t, 0 after it is destroyed."""
        return int(self._handle.handle) if self._handle else 0

    def commSplit(self, color: int, key: int) -> "ConfiguredCommunicator | None":  # noqa: N802
        """Return the communicator of the ranks with the same color and these settings, None for color -1."""
        handle = _call_nccl(_nccl().comm_split, self._handle, color, key, 0)
        return None if color == NO_COLOR else ConfiguredCommunicator(handle)

    def check_async_error(self) -> None:
        """Check for asynchronous errors.

        Raises:
            NcclError: if there is one.
        """
        if result := int(_call_nccl(_nccl().comm_get_async_error, self._handle)):
            raise NcclError(_nccl().get_error_string(result))

    def destroy(self) -> None:
        self._release(_nccl().comm_destroy)

    def abort(self) -> None:
        self._release(_nccl().comm_abort)

    def _release(self, function: Callable[[Any], None]) -> None:
        handle, self._handle = self._handle, None
        if handle:
            with suppress(NcclError):  # as in CuPy: no recovery is possible
                _call_nccl(function, handle)


def newer_call(communicator: Any, collective: str) -> Callable[..., None]:
    """Return the method that CuPy's communicators lack for ``collective``, one of NEWER_CALLS."""
    nccl = _nccl()
    return _bind_communicator(getattr(nccl, NEWER_CALLS[collective]), nccl.Comm(communicator.comm))


def _bind_communicator(call: Callable[..., Any], handle: Any) -> Callable[..., None]:
    def queue(*arguments: int) -> None:
        _call_nccl(call, *arguments[:-1], handle, arguments[-1])

    return queue


class ConfiguredNccl:
    """A replacement for CuPy's module of NCCL, whose communicators have settings.

    Args:
        settings: the fields of ncclConfig_t by their names in nccl4py, with NCCL's values.
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
        return ConfiguredCommunicator(
            _call_nccl(nccl.comm_init_rank_config, ndev, unique.ptr, rank, config.ptr)
        )


class NcclBuffers:
    """GPU memory that NCCL allocates, optionally registered as buffers or symmetric windows.

    Args:
        registration: ``allocated`` (none), ``registered`` or ``symmetric``.
    """

    def __init__(self, comm: "MPI.Intracomm", gpu: "Gpu", registration: str) -> None:
        self.comm = comm
        self.gpu = gpu
        self.registration = registration
        # keeps the arrays alive
        self._registered: list[tuple[Any, Any, Callable[[Any, Any], None], Array]] = []

    def empty(self, count: int, dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialised array, whose memory is freed with the last reference to it.

        Raises:
            MemoryError: if NCCL cannot allocate it, as in CuPy; on this rank only, which ends the
                job.
        """
        if not count:
            no_elements: Array = self.gpu.empty(0, dtype)
            return no_elements
        nccl = _nccl()
        try:
            memory = _call_nccl(nccl.mem_alloc, count * dtype.itemsize)
        except NcclError as error:
            raise MemoryError(
                f"NCCL cannot allocate {count * dtype.itemsize} bytes: {error}"
            ) from None
        owner = _MemoryOwner()
        # CUDA may have shut down by then
        weakref.finalize(owner, _free, self.gpu, memory).atexit = False
        array: Array = self.gpu.array_at(memory, count, dtype, owner)
        return array

    def register(self, communicator: Any, workers: int, arrays: Iterable[Array]) -> None:
        """Register ``arrays`` with a communicator; all ranks call this together.

        NCCL requires windows of equal size on all ranks, and uses registrations only if all ranks
        have registered their buffers. Arrays of unequal sizes are therefore not registered.

        Args:
            communicator: the communicator of CuPy or nccl4py, None on ranks outside it.
            workers: the number of ranks in the communicator, the first ones of ``comm``.
            arrays: the arrays of this rank, equally many on all ranks.

        Raises:
            BadInputError: on all ranks, if NCCL cannot create windows on these GPUs.
            NcclError: on all ranks, if NCCL returns an error on any of them.
        """
        for array in arrays:
            sizes = {*self.comm.allgather(array.nbytes)[:workers]}
            if self.registration == "allocated" or len(sizes) > 1 or not sizes - {0}:
                continue
            registered, failure = True, None
            try:
                registered = communicator is None or self._register(communicator, array)
            except NcclError as error:
                failure = str(error)
            outcomes = self.comm.allgather((registered, failure))
            if message := next(filter(None, (failure for _, failure in outcomes)), None):
                raise NcclError(message)
            if not all(registered for registered, _ in outcomes):
                why = "NCCL cannot make symmetric windows on these GPUs (NCCL_CUMEM_ENABLE, NCCL_WIN_ENABLE, no P2P)"
                raise BadInputError(
                    "communicator buffers", self.registration, f"allocated or registered: {why}"
                )

    def _register(self, communicator: Any, array: Array) -> bool:
        """Register one array, and return whether NCCL has registered it."""
        nccl = _nccl()
        comm, start = nccl.Comm(communicator.comm), address(array)
        if self.registration == "symmetric":
            handle = _call_nccl(nccl.comm_window_register, comm, start, array.nbytes, SYMMETRIC)
            deregister, registered = nccl.comm_window_deregister, bool(handle)
        else:
            handle = _call_nccl(nccl.comm_register, comm, start, array.nbytes)
            deregister, registered = nccl.comm_deregister, True
        if registered:
            self._registered.append((communicator, handle, deregister, array))
        return registered

    def close(self) -> None:
        """Deregister all arrays, the last one first; destroyed communicators have no registrations left."""
        nccl = _nccl()
        while self._registered:
            communicator, handle, deregister, _array = self._registered.pop()
            if communicator.comm:
                _call_nccl(deregister, nccl.Comm(communicator.comm), handle)


def _free(gpu: "Gpu", memory: int) -> None:
    """Free memory of NCCL, in whichever thread the last reference to it ends."""
    gpu.select()
    _nccl().mem_free(memory)


class _MemoryOwner:
    """Keeps memory of NCCL allocated as long as an array references it."""
