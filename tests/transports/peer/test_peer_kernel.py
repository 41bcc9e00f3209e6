"""The programs of the peer kernel: their bits, their order of memory, and their end, on threads of the host."""

from typing import NamedTuple

import pytest
from peer_accesses import Ordered
from peer_cases import SOME
from peer_cluster import SCHEDULED, PeerCluster
from peer_conflicts import conflicts_between_threads
from peer_mutants import IMPATIENT, SHORT_CHUNKS, THREADS
from peer_operations import kernel_of, operations
from schedule_examples import case_of

from hpccoll.transports.peer.peer_plan import AWAITED_ACTIONS
from hpccoll.transports.peer.program import Flag
from hpccoll.transports.peer.program_tables import AWAIT

DTYPES = "int32", "float16", "float32"
MANY_RANKS = [pytest.param(ranks, marks=pytest.mark.long) for ranks in (4, 6, 7, 8)]
"""Numbers of ranks that take long."""
PROTOCOLS = "simple", "ll"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("peer")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [2, 3, 5, *MANY_RANKS])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_schedule_has_the_bits_of_lockstep(directory, protocol, ranks, dtype):
    for name, operation in operations(ranks, dtype):
        cluster = PeerCluster(operation, protocol)
        results = cluster.run(kernel_of(directory, operation), operations=2)
        assert results is not None, f"{name} hangs"
        assert cluster.wrong_ranks(results) == [], (name, operation)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_flags_order_all_accesses_of_every_schedule_whatever_the_timing(ranks):
    for name, operation in operations(ranks, "float32"):
        assert Ordered(PeerCluster(operation).programs).races() == [], name


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_threads_of_a_block_wait_between_accesses_to_the_same_memory(ranks, protocol):
    for name, operation in operations(ranks, "float16"):
        for tables in PeerCluster(operation, protocol).tables:
            assert conflicts_between_threads(tables, operation.dtype.itemsize) == [], name


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", SOME)
def test_any_interleaving_of_blocks_gives_the_same_bits(directory, name, protocol):
    operation = case_of(name, 3).operation(24, "float32", channels=2, window=2)
    library = kernel_of(directory, operation, scheduler=SCHEDULED)
    for seed in range(10):
        cluster = PeerCluster(operation, protocol)
        results = cluster.run(library, seed=seed)
        assert results is not None
        assert cluster.wrong_ranks(results) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", SOME)
def test_blocks_of_several_threads_have_the_bits_of_lockstep(directory, name, protocol):
    operation = case_of(name, 3).operation(203, "float16", channels=2, window=2)
    library = kernel_of(directory, operation, replaced=SHORT_CHUNKS, threads=THREADS)
    cluster = PeerCluster(operation, protocol)
    results = cluster.run(library)
    assert results is not None
    assert cluster.wrong_ranks(results) == []


@pytest.mark.parametrize("name", SOME)
def test_every_wait_for_a_flag_that_never_comes_ends_with_an_abort_and_names_it(directory, name):
    operation = case_of(name, 3).operation(24, "float32")
    library = kernel_of(directory, operation, replaced=IMPATIENT)
    for awaited in awaited_flags(PeerCluster(operation)):
        cluster = PeerCluster(operation)
        row = cluster.tables[awaited.me].instructions[awaited.row]
        address, number = int(row[1]), int(row[3])
        cluster.withhold(address, number)
        flag = awaited.flag
        action = AWAITED_ACTIONS[flag.kind].format(number=flag.number)
        words = cluster.abort_while_awaiting(library, address, number)
        assert words == f"block 0 waits in step {flag.step} for rank {flag.peer} {action}"


class Awaited(NamedTuple):
    """A flag that a rank awaits."""

    me: int
    row: int
    flag: Flag


def awaited_flags(cluster):
    for me, tables in enumerate(cluster.tables):
        for row in (tables.instructions[:, 0] == AWAIT).nonzero()[0].tolist():
            yield Awaited(me, row, tables.flags[row])
