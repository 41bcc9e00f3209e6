"""Slurm's pmi2 and MPICH: what they say is passed on as it is, but for how long values may be."""

import os
import socket
import subprocess
import sys
from threading import Thread

import pytest

from hpccoll.measure import pmi_relay

MAXES = b"cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=%d\n"


@pytest.fixture
def between():
    """Yield the rank's end and the server's, of two that are passed on what the other says."""
    rank, near = socket.socketpair()
    far, server = socket.socketpair()
    rank.settimeout(60)
    server.settimeout(60)
    passing = Thread(target=pmi_relay.relay, args=(near, far))
    passing.start()
    yield rank, server
    rank.close()
    passing.join(timeout=60)
    near.close()
    far.close()
    server.close()
    assert not passing.is_alive()


@pytest.mark.parametrize(("server_maximum", "maximum"), [(1024, 900), (900, 900), (256, 256)])
def test_values_are_as_long_as_the_server_allows_and_no_longer_than_slurm_can_read(
    between, server_maximum, maximum
):
    rank, server = between
    server.sendall(MAXES % server_maximum)
    assert rank.recv(2000) == MAXES % maximum
    last_words = b"cmd=put kvsname=1.0 key=vallen_max=1024 value=1\n"  # passed on as they are
    rank.sendall(last_words)
    rank.shutdown(socket.SHUT_RDWR)
    assert server.recv(2000) == last_words


PROGRAM = """
import os, sys
from hpccoll.measure.pmi_relay import shorten_values
shorten_values()
os.write(int(os.environ["PMI_FD"]), b"cmd=get_maxes\\n")
sys.stdout.buffer.write(os.read(int(os.environ["PMI_FD"]), 2000))
"""


@pytest.mark.parametrize(("kind", "heard"), [("pmi2", 900), ("pmix", 1024)])
def test_only_a_rank_of_slurms_pmi2_is_told_otherwise(kind, heard):
    server, rank = socket.socketpair()
    server.settimeout(60)
    environment = {**os.environ, "PMI_FD": str(rank.fileno()), "SLURM_MPI_TYPE": kind}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        pass_fds=[rank.fileno()],
        stdout=subprocess.PIPE,
    ) as process:
        rank.close()
        assert server.recv(2000) == b"cmd=get_maxes\n"
        server.sendall(MAXES % 1024)
        assert process.stdout.read() == MAXES % heard  # and nothing else holds it open
    assert process.returncode == 0
    assert server.recv(2000) == b""  # nobody is left who would answer
    server.close()


def test_a_child_of_a_rank_that_has_its_variables_and_not_its_socket_loses_nothing(tmp_path):
    log = tmp_path / "log"
    with log.open("w") as file:
        pmi_relay.shorten_values({"PMI_FD": str(file.fileno()), "SLURM_MPI_TYPE": "pmi2"})
        file.write("kept")
    pmi_relay.shorten_values({"PMI_FD": "1000000", "SLURM_MPI_TYPE": "pmi2"})
    assert log.read_text() == "kept"
