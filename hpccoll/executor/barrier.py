"""The barrier of the timing loop, which all ranks leave at the same time (barrier.c)."""

import ctypes
from typing import cast

import numpy as np
from mpi4py import MPI

from hpccoll.common.errors import BadInputError
from hpccoll.executor.compiled_executor import ExecutorOptions, NodeMemory
from hpccoll.executor.library import load_library
from hpccoll.executor.mpi_functions import mpi_functions, probe_struct, request_array, status_array
from hpccoll.executor.structures import STRUCTURES

LINE = 8
"""The int64 of a cache line."""

ARRIVED = 0
"""The word of a rank that counts the barriers that it has entered."""

RELEASED = LINE
"""The word of the leader of a node that has the barrier that its node may leave."""

GO = LINE + 1
"""The word of the leader of a node that says when its node leaves that barrier."""


class ExecutorBarrier:
    """A barrier that all ranks leave at the same time; created and closed by all ranks together.

    Args:
        shared: memory of the node for the words of its ranks; the barrier closes it.
    """

    def __init__(self, comm: MPI.Intracomm, shared: NodeMemory, options: ExecutorOptions) -> None:
        try:
            words = shared.empty(2 * LINE, np.dtype(np.int64))
            self._words = [shared.views(words)[rank] for rank in shared.ranks]
        # on all ranks: too little shared memory; each rank is then a node of its own
        except BadInputError:
            words = np.empty(2 * LINE, np.int64)
            self._words = [words]
        words[...] = 0
        self._shared = shared
        node_rank = 0 if len(self._words) == 1 else shared.node.rank
        shared.node.Barrier()  # no rank enters a barrier before the words are zero
        addresses = [words_of_rank.ctypes.data for words_of_rank in self._words]
        leader = addresses[0]
        self._arrived = np.array(
            [address + ARRIVED * words.itemsize for address in addresses], np.uint64
        )
        self._leaders = cast(
            "MPI.Intracomm", comm.Split(0 if node_rank == 0 else MPI.UNDEFINED, comm.rank)
        )
        self._requests = _dissemination(self._leaders) if node_rank == 0 else []
        self._handles = request_array(self._requests)
        self._statuses = status_array(2)
        self._mpi = mpi_functions()
        self._struct = STRUCTURES["barrier_t"](
            arrived=self._arrived.ctypes.data,
            released=leader + RELEASED * words.itemsize,
            go=leader + GO * words.itemsize,
            node_ranks=len(addresses),
            node_rank=node_rank,
            requests=self._handles.ctypes.data,
            rounds=len(self._requests) // 2,
            statuses=self._statuses.ctypes.data,
            probe=probe_struct(comm, self._mpi, self._statuses),
            idle=STRUCTURES["idle_t"](shares_core=options.oversubscribed),
        )
        self.address = ctypes.addressof(self._struct)

    def check(self) -> None:
        """Raise the error of a call that failed.

        Raises:
            RuntimeError: if MPI returned an error.
        """
        if self._struct.error:
            raise RuntimeError(f"the barrier fails: {MPI.Get_error_string(self._struct.error)}")

    def wait(self) -> None:
        """Wait until all ranks have entered the barrier."""
        load_library().hpccoll_barrier(ctypes.c_void_p(self.address))
        self.check()

    def close(self) -> None:
        """Free the words and the requests."""
        for request in self._requests:
            request.Free()
        if self._leaders != MPI.COMM_NULL:
            self._leaders.Free()
        self._shared.close()


def _dissemination(leaders: MPI.Intracomm) -> list[MPI.Prequest]:
    """Return a send and a receive for each round, in which a leader signals another one at twice the last distance."""
    nothing = np.empty(0, np.uint8)
    requests = []
    distance = 1
    while distance < leaders.size:
        tag = distance.bit_length()
        requests.append(
            leaders.Send_init(nothing, (leaders.rank + distance) % leaders.size, tag=tag)
        )
        requests.append(
            leaders.Recv_init(nothing, (leaders.rank - distance) % leaders.size, tag=tag)
        )
        distance *= 2
    return requests
