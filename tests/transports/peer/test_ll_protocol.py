"""Messages in words with flags: each word once, never overwritten unread; and what finds a fault of the protocol."""

import pytest
from peer_cluster import SCHEDULED, PeerCluster
from peer_operations import IMPATIENT, SOME, kernel_of, operations
from peer_words import OverwrittenWords
from schedule_examples import case_of

from hpccoll.schedule import Copy
from hpccoll.schedule.count import count
from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.peer_plan import Waits
from hpccoll.transports.peer.program import Await, FoldWave, Push, words_from
from hpccoll.transports.peer.program_tables import GATHER, PUSH

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


@pytest.mark.parametrize("ranks", [3, 4])
def test_each_byte_is_written_once_to_a_peer_and_each_fold_is_that_of_the_schedule(ranks):
    for name, operation in operations(ranks, "float32"):
        schedules = [operation.lane_schedule(number) for number in range(len(operation.slices))]
        counted = count(schedules, operation.cut)
        cluster = PeerCluster(operation, "ll")
        pushed = sum(
            len(span.source) for _, push in instructions_of(cluster, Push) for span in push.spans
        )
        folds = [fold for _, wave in instructions_of(cluster, FoldWave) for fold in wave.folds]
        words = set(map(words_from, range(operation.layout.ranks)))
        inputs = [span for fold in folds for span in fold.inputs]
        taken = sum(len(span) for span in inputs if span.buffer in words)
        reduced = sum(len(fold.out) * (len(fold.inputs) - 1) for fold in folds)
        itemsize = operation.dtype.itemsize
        assert reduced * itemsize == int(counted.reduced.sum()), name
        assert pushed == taken, name
        steps = [
            step for schedule in schedules for me in range(ranks) for step in schedule.steps(me)
        ]
        copies = any(isinstance(action, Copy) for step in steps for action in step.actions)
        sent = int(counted.sent.sum())  # with what ranks copy to themselves
        assert pushed * itemsize <= sent if copies else pushed * itemsize == sent, name


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


FAULTS = {
    "a flag that is the same in all operations": (
        "return (unsigned)epoch + 1;",
        "return 1;",
    ),
    "the flag of the operation before": (
        "const Count flag = (Count)word_flag(epoch) << 32;",
        "const Count flag = (Count)word_flag(epoch - 1) << 32;",
    ),
    "words that all operations share": (
        "(long long)(epoch & 1) * stride",
        "0 * stride",
    ),
    "a word whose flag is stored before its data": (
        "put(words + first / GROUP * GROUP_WORDS + k, flag | group.data[k]);",
        """{
            Count* word = words + first / GROUP * GROUP_WORDS + k;
            const Count before = looked_at(word);
            put(word, flag | (before & 0xffffffffu));
            put(word, flag | group.data[k]);
        }""",
    ),
}
"""What is changed in the kernel, and how."""


def some_interleaving_is_wrong(library, operation):
    for seed in range(30):
        cluster = PeerCluster(operation, "ll")
        cluster.follow_two_operations()
        results = cluster.run(library, seed=seed)
        if results is None or cluster.wrong_ranks(results):
            return True
    return False


def test_interleavings_after_other_operations_are_right(directory):
    for name in SOME:
        operation = case_of(name, 3).operation(24, "float32")
        library = kernel_of(directory, operation, scheduler=SCHEDULED)
        assert not some_interleaving_is_wrong(library, operation), name


@pytest.mark.parametrize("fault", FAULTS)
def test_interleavings_find_each_fault_of_flags_and_words(directory, fault):
    operation = case_of("broadcast-chain", 3).operation(24, "float32")
    library = kernel_of(directory, operation, replaced=[FAULTS[fault]], scheduler=SCHEDULED)
    assert some_interleaving_is_wrong(library, operation)


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
            receiver = cluster.abort_while_awaiting_words(library, int(row[1]))
            assert receiver is not None, (name, me, position)
            waits = Waits(cluster.abort, cluster.waits[receiver], cluster.tables[receiver].flags)
            assert f"for rank {me} to send it message" in waits.described()
