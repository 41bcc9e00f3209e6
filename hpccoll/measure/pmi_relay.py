"""A relay between MPICH and Slurm's pmi2 that limits the length of published values to what Slurm can read.

MPICH publishes the address of a rank in one-line requests,
``cmd=put kvsname=... key=... value=...``. A value is as long as the server allows: 1024 bytes.
Slurm's plugin reads at most 1024 bytes for the whole request (src/plugins/mpi/pmi2/pmi1.c:
handle_pmi1_cmd). MPICH with UCX publishes 4096 bytes (src/mpid/ch4/netmod/ucx/ucx_init.c:
MPIDI_UCX_comm_addr_exchange), the address and the memory behind it, in hexadecimal without runs of
zeros. The content of that memory therefore decides whether a line is too long; it is the same in
every launch of a program in an environment. If a line is too long, MPI_Init fails or waits for
ever.

A relay process forwards the traffic in both directions, and lowers the maximum length in the
server's answer.
"""

import os
import re
import selectors
import signal
import socket
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress

MAX_VALUE_BYTES = 900
"""Bytes of a value: with the keywords, the longest step name and the longest key a line has 1015 bytes."""

VALUE_LENGTH = re.compile(rb"(?<=vallen_max=)\d+")
"""The maximum length of values in the server's answer to ``cmd=get_maxes``, which arrives in one read."""

READ_BYTES = 1 << 16
"""Bytes per read; lines are shorter."""

IGNORED_SIGNALS = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2
"""Signals that reach all processes of a step; the relay ignores them, because it must live as long as the rank."""

RANK_VARIABLES = "PMI", "SLURM", "HPCCOLL"
"""Prefixes of variables that mark a process as a rank; the relay does not inherit them."""


def shorten_values(environment: Mapping[str, str] = os.environ) -> None:
    """Start the relay if the launcher is Slurm's pmi2; call it before MPI_Init."""
    number = environment.get("PMI_FD", "")
    if (
        environment.get("SLURM_MPI_TYPE") != "pmi2"
        or not number.isdigit()
        or not _is_socket(int(number))
    ):
        return
    rank, between = socket.socketpair()
    between.set_inheritable(True)
    os.set_inheritable(int(number), True)
    # nothing waits for it
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    own = {
        name: value for name, value in environment.items() if not name.startswith(RANK_VARIABLES)
    }
    program = [sys.executable, "-P", "-s", "-S", __file__, str(between.fileno()), number]
    os.posix_spawn(sys.executable, program, own, file_actions=quiet, setsigmask=IGNORED_SIGNALS)
    between.close()
    os.dup2(rank.fileno(), int(number))
    rank.close()


def _is_socket(number: int) -> bool:
    """Return whether a descriptor is an open socket: a child of a rank inherits the variable, not the descriptor."""
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def relay(rank: socket.socket, server: socket.socket) -> None:
    """Forward traffic until either end closes, with the maximum length of values capped at MAX_VALUE_BYTES."""
    with selectors.DefaultSelector() as selector:
        selector.register(rank, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, rank)
        while True:
            for key, _ in selector.select():
                data = os.read(key.fd, READ_BYTES)
                if not data:
                    return
                key.data.sendall(
                    data if key.fileobj is rank else VALUE_LENGTH.sub(_cap_value_length, data)
                )


def _cap_value_length(match: re.Match[bytes]) -> bytes:
    return b"%d" % min(int(match[0]), MAX_VALUE_BYTES)


if __name__ == "__main__":
    with suppress(OSError):
        relay(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
