"""Messages in words with flags: each word once, never overwritten unread; and what finds a fault of the protocol."""

import pytest
from peer_cases import SOME
from peer_cluster import SCHEDULED, PeerCluster
from peer_mutants import IMPATIENT, some_interleaving_is_wrong
from peer_operations import kernel_of, operations
from peer_words import OverwrittenWords
from schedule_examples import case_of

from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.program import Await
from hpccoll.transports.peer.program_tables import AWAIT, GATHER, PUSH

ONE_WAY = "all_reduce-ring", "broadcast-chain", "all_gather-bruck"
"""Schedules in which a rank sends to one that sends nothing back."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("ll")


def instructions_of(cluster, kind):
    """Yield the instructions of a kind, with their rank."""
    for me, programs in enumerate(cluster.programs):
        for program in programs:
            for instruction in program.instructions:
                if isinstance(instruction, kind):
                    yield me, instruction


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_no_word_of_any_schedule_is_overwritten_before_it_is_read_whatever_the_timing(ranks):
    for name, operation in operations(ranks, "float32"):
        cluster = PeerCluster(operation, "ll")
        assert OverwrittenWords(cluster.programs).overwritten_unread() == [], name


@pytest.mark.parametrize("name", ONE_WAY)
def test_each_flag_of_a_peer_that_has_begun_is_needed(name):
    cluster = PeerCluster(case_of(name, 4).operation(24, "float32"), "ll")
    awaited = [
        (me, flag.peer) for me, await_ in instructions_of(cluster, Await) for flag in await_.flags
    ]
    assert awaited
    for pair in awaited:
        assert OverwrittenWords(cluster.programs, pair).overwritten_unread() != []


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_elements_that_lie_at_different_places_of_words_are_folded_one_by_one(directory, dtype):
    for name in SOME:
        operation = case_of(name, 3).operation(37, dtype)
        cluster = PeerCluster(operation, "ll")
        for tables in cluster.tables:
            gathers = tables.instructions[:, 0] == GATHER
            tables.instructions[gathers, 5] = 1
            tables.instructions[gathers, 6] = 0
        assert cluster.wrong_ranks(cluster.run(kernel_of(directory, operation))) == [], name


def test_ranks_find_the_peers_that_move_messages_in_another_protocol():
    operation = case_of("all_reduce-ring", 3).operation(24, "float32")
    lowerings = []
    for me, protocol in enumerate(("simple", "ll", "ll")):
        lowerings.append(PeerLowering(me, operation, protocol))
    proposals = [lowering.proposals() for lowering in lowerings]
    mismatched = []
    for me, lowering in enumerate(lowerings):
        mismatched.append(lowering.mismatched_peers([proposal[me] for proposal in proposals]))
    assert mismatched == [[1, 2], [0], [0]]


def test_interleavings_after_other_operations_are_right(directory):
    for name in SOME:
        operation = case_of(name, 3).operation(24, "float32")
        library = kernel_of(directory, operation, scheduler=SCHEDULED)
        assert not some_interleaving_is_wrong(library, operation, "ll"), name


@pytest.mark.parametrize("name", SOME)
def test_every_wait_for_words_that_never_come_ends_with_an_abort_and_names_the_message(
    directory, name
):
    operation = case_of(name, 3).operation(24, "float32")
    library = kernel_of(directory, operation, replaced=IMPATIENT)
    tables_of_ranks = PeerCluster(operation, "ll").tables
    for me, tables in enumerate(tables_of_ranks):
        for position in (tables.instructions[:, 0] == PUSH).nonzero()[0]:
            cluster = PeerCluster(operation, "ll")
            row = cluster.tables[me].instructions[position]
            row[3] = 0  # nothing is written
            words = cluster.abort_while_awaiting_words(library, int(row[1]))
            assert words is not None, (name, me, position)
            assert f"for rank {me} to send it message" in words


@pytest.mark.parametrize("name", ONE_WAY)
def test_every_wait_for_a_peer_that_does_not_begin_ends_with_an_abort_and_names_it(directory, name):
    operation = case_of(name, 4).operation(24, "float32")
    library = kernel_of(directory, operation, replaced=IMPATIENT)
    kept = PeerCluster(operation, "ll")
    waits = 0
    for me, tables in enumerate(kept.tables):
        for row in (tables.instructions[:, 0] == AWAIT).nonzero()[0].tolist():
            waits += 1
            cluster = PeerCluster(operation, "ll")
            for epochs in cluster.epochs:
                epochs[:] = 1
            address = int(cluster.tables[me].instructions[row, 1])
            cluster.withhold(address, 0)
            words = cluster.abort_while_awaiting(library, address, 0)
            peer = tables.flags[row].peer
            assert words == f"block 0 waits in step 0 for rank {peer} to begin the operation before"
    assert waits
