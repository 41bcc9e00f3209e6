"""A recorder in the place of nccl4py, and memory of the host in that of a GPU."""

import ctypes
from types import SimpleNamespace

import numpy as np

from hpccoll.transports.nccl.communicator_config import NO_COLOR

ARGUMENTS = {
    "all_reduce": "sendbuff recvbuff count datatype op comm stream",
    "reduce_scatter": "sendbuff recvbuff recvcount datatype op comm stream",
    "all_gather": "sendbuff recvbuff sendcount datatype comm stream",
    "broadcast": "sendbuff recvbuff count datatype root comm stream",
    "reduce": "sendbuff recvbuff count datatype op root comm stream",
    "send": "sendbuff count datatype peer comm stream",
    "recv": "recvbuff count datatype peer comm stream",
    "comm_init_rank_config": "nranks comm_id rank config",
    "comm_split": "comm color key config",
    "comm_destroy": "comm",
    "comm_abort": "comm",
    "comm_get_async_error": "comm",
    "comm_window_register": "comm buff size win_flags",
    "comm_window_deregister": "comm win",
    "comm_register": "comm buff size",
    "comm_deregister": "comm handle",
    "mem_alloc": "size",
    "mem_free": "ptr",
    "get_unique_id": "",
    "get_version": "",
    "get_error_string": "result",
}
"""What is asked of nccl.bindings.nccl: each function with its arguments."""


class NCCLError(Exception):
    """Has the name of nccl4py's."""


class Handle(int):
    """A Comm or a Window: false where there is none."""

    @property
    def handle(self):
        return int(self)


class Recorder:
    """nccl.bindings.nccl, as far as it is asked; keeps what it is asked in ``said``."""

    Comm = Handle
    UniqueId = SimpleNamespace(from_buffer=lambda told: SimpleNamespace(ptr=bytes(told)))

    def __init__(self, *, windows=True):
        self.said, self.windows, self.configs, self.rooms = [], windows, {}, {}

    def Config(self):  # noqa: N802
        config = SimpleNamespace(ptr=1000 + len(self.configs))
        self.configs[config.ptr] = config
        return config

    def __getattr__(self, name):
        if name.startswith("_"):  # what it does with what it is asked: nothing
            return lambda **_: None
        names = ARGUMENTS[name].split()

        def call(*arguments):
            assert len(arguments) == len(names), name
            self.said.append((name, dict(zip(names, arguments, strict=True))))
            return getattr(self, f"_{name}")(**self.said[-1][1])

        return call

    def _get_unique_id(self):
        return b"an id"

    def _comm_init_rank_config(self, nranks, comm_id, rank, config):
        made = vars(self.configs[config])
        if made.get("max_ctas") == 0:
            raise NCCLError("InvalidArgument (4): invalid argument")
        self.made = (nranks, comm_id, rank, {name: value for name, value in made.items() if name != "ptr"})
        return Handle(7)

    def _comm_split(self, comm, color, key, config):
        assert (comm, config) == (7, 0), "with the settings of the whole"
        return Handle(0 if color == NO_COLOR else 8 + key)

    def _comm_window_register(self, **_):
        return Handle(len(self.said) if self.windows else 0)

    def _comm_register(self, **_):
        return len(self.said)

    def _comm_get_async_error(self, comm):
        return comm - 7

    def _get_error_string(self, result):
        return f"error {result}"

    def _mem_alloc(self, size):
        buffer = ctypes.create_string_buffer(size)
        self.rooms[ctypes.addressof(buffer)] = buffer
        return ctypes.addressof(buffer)

    def _mem_free(self, ptr):
        del self.rooms[ptr]

    @property
    def names(self):
        return [name for name, _ in self.said]


class Room(np.ndarray):
    """An array as CuPy has it: says where its memory is, and holds who has it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class HostGpu:
    """Gives arrays of the host."""

    stream = SimpleNamespace(ptr=4711)

    def array_at(self, address, count, dtype, owner):
        array = np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype).view(Room)
        array.owner = owner
        return array

    def empty(self, count, dtype):
        return np.empty(count, dtype).view(Room)
