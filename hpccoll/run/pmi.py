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
from collections.abc import Mapping
from contextlib import suppress

VALUE = 900
"""Bytes of a value: with the words around it, the longest name of a step and the longest key a line has 1015."""

LONGEST = re.compile(rb"(?<=vallen_max=)\d+")
"""What the server's answer to ``cmd=get_maxes`` says of values, in a line that it writes at once."""

AT_ONCE = 1 << 16
"""Bytes to read at once: more than a line of either has."""


def shorten_values(environment: Mapping[str, str] = os.environ) -> None:
    """Have values over PMI be short from here on, where this rank is one of Slurm's pmi2; before MPI starts."""
    number = environment.get("PMI_FD", "")
    if environment.get("SLURM_MPI_TYPE") != "pmi2" or not number.isdigit():
        return
    mine, between = socket.socketpair()
    if os.fork():
        between.close()
        os.dup2(mine.fileno(), int(number), inheritable=True)
        mine.close()
        return
    try:
        mine.close()
        _leave(int(number), between)
    finally:
        os._exit(0)


def _leave(number: int, rank: socket.socket) -> None:
    """Pass on what is said until either is gone: nothing that is sent to the ranks of a step ends this before."""
    for one in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
        signal.signal(one, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # whoever reads what the rank says does not wait for this process
        os.dup2(nothing, stream)
    with suppress(OSError), socket.socket(fileno=number) as server:
        relay(rank, server)


def relay(rank: socket.socket, server: socket.socket) -> None:
    """Pass on what is said until either end closes; what the server says of the length of values is at most VALUE."""
    with selectors.DefaultSelector() as selector:
        selector.register(rank, selectors.EVENT_READ, server)
        selector.register(server, selectors.EVENT_READ, rank)
        while True:
            for key, _ in selector.select():
                said = os.read(key.fd, AT_ONCE)
                if not said:
                    return
                key.data.sendall(said if key.fileobj is rank else LONGEST.sub(_least, said))


def _least(found: re.Match[bytes]) -> bytes:
    return b"%d" % min(int(found[0]), VALUE)
