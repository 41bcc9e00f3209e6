"""MPICH under Slurm's pmi2: values that it publishes as MPI starts, made short enough for Slurm to read.

MPICH tells the other nodes the address of a rank in requests of a line each, ``cmd=put kvsname=... key=...
value=...``, whose values are as long as the server says that they may be: 1024 bytes. Slurm's plugin reads 1024 bytes
as a request, whatever it is of (src/plugins/mpi/pmi2/pmi1.c: handle_pmi1_cmd). MPICH with UCX sends 4096 bytes
(src/mpid/ch4/netmod/ucx/ucx_init.c: MPIDI_UCX_comm_addr_exchange), the address and what lies behind it in memory, in
hexadecimal with runs of zeros left out; so whether a line is too long depends on what that is, and is the same for
every launch of a program in an environment. MPI then fails as it starts, or waits for ever.

Between the two a process passes on what they say, and has the server say that values are shorter.
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
"""Bytes of a value: with the words around it, the longest name of a step and the longest key a line has 1015."""

VALUE_LENGTH = re.compile(rb"(?<=vallen_max=)\d+")
"""What the server's answer to ``cmd=get_maxes`` says of values, in a line that it writes at once."""

READ_BYTES = 1 << 16
"""Bytes to read at once: more than a line of either has."""


IGNORED_SIGNALS = signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2
"""Signals that are sent to all processes of a step: what is between lives as long as the rank."""

RANK_VARIABLES = "PMI", "SLURM", "HPCCOLL"
"""How variables begin that would have the process between look like a rank."""


def shorten_values(environment: Mapping[str, str] = os.environ) -> None:
    """Have values over PMI be short from here on, where the launcher is Slurm's pmi2; before MPI starts."""
    number = environment.get("PMI_FD", "")
    if environment.get("SLURM_MPI_TYPE") != "pmi2" or not number.isdigit() or not _is_socket(int(number)):
        return
    rank, between = socket.socketpair()
    between.set_inheritable(True)
    os.set_inheritable(int(number), True)
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]  # nobody waits for it
    own = {name: value for name, value in environment.items() if not name.startswith(RANK_VARIABLES)}
    program = [sys.executable, "-P", "-s", "-S", __file__, str(between.fileno()), number]
    os.posix_spawn(sys.executable, program, own, file_actions=quiet, setsigmask=IGNORED_SIGNALS)
    between.close()
    os.dup2(rank.fileno(), int(number))
    rank.close()


def _is_socket(number: int) -> bool:
    """Return whether a descriptor is open, and a socket: a child of a rank has the variable and not the descriptor."""
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def relay(rank: socket.socket, server: socket.socket) -> None:
    """Pass on what is said until either end closes; what the server says of the length of values is at most VALUE."""
    with selectors.DefaultSelector() as selector:
        selector.register(rank, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, rank)
        while True:
            for key, _ in selector.select():
                said = os.read(key.fd, READ_BYTES)
                if not said:
                    return
                key.data.sendall(said if key.fileobj is rank else VALUE_LENGTH.sub(_cap_value_length, said))


def _cap_value_length(found: re.Match[bytes]) -> bytes:
    return b"%d" % min(int(found[0]), MAX_VALUE_BYTES)


if __name__ == "__main__":
    with suppress(OSError):
        relay(*(socket.socket(fileno=int(number)) for number in sys.argv[1:]))
