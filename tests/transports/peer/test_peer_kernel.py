"""The programs of the peer kernel: their bits, their order of memory, and their end, on threads of the host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from peer_accesses import Ordered
from peer_cluster import SCHEDULED, PeerCluster
from peer_conflicts import conflicts_between_threads
from peer_operations import IMPATIENT, SOME, kernel_of, operations
from schedule_examples import case_of

from hpccoll.schedule import Copy
from hpccoll.schedule.count import count
from hpccoll.transports.peer.program import FoldWave
from hpccoll.transports.peer.program_tables import RAISE

HERE = Path(__file__).parent
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


@pytest.mark.parametrize("ranks", [3, 4])
def test_each_byte_is_read_from_a_peer_once_and_each_fold_is_that_of_the_schedule(ranks):
    for name, operation in operations(ranks, "float32"):
        schedules = [operation.lane_schedule(number) for number in range(len(operation.slices))]
        counted = count(schedules, operation.cut)
        folds = [
            fold
            for program in PeerCluster(operation).programs
            for block in program
            for wave in block.instructions
            if isinstance(wave, FoldWave)
            for fold in wave.folds
        ]
        inputs = [span for fold in folds for span in fold.inputs]
        read = sum(len(span) for span in inputs if " of rank " in span.buffer)
        reduced = sum(len(fold.out) * (len(fold.inputs) - 1) for fold in folds)
        itemsize = operation.dtype.itemsize
        assert reduced * itemsize == int(counted.reduced.sum()), name
        steps = [
            step for schedule in schedules for me in range(ranks) for step in schedule.steps(me)
        ]
        copies = any(isinstance(action, Copy) for step in steps for action in step.actions)
        sent = int(counted.sent.sum())  # with what ranks copy to themselves
        assert read * itemsize <= sent if copies else read * itemsize == sent, name


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


def test_an_interleaving_finds_flags_that_forget_the_operations_before(directory):
    operation = case_of("all_reduce-ring", 3).operation(24, "float32")
    forgotten = [("return epoch * (Count)row[2] + (Count)row[3];", "return (Count)row[3];")]
    library = kernel_of(directory, operation, replaced=forgotten, scheduler=SCHEDULED)
    seen = False
    for seed in range(20):
        cluster = PeerCluster(operation)
        results = cluster.run(library, seed=seed)
        seen = seen or results is None or cluster.wrong_ranks(results) != []
    assert seen


@pytest.mark.parametrize("name", SOME)
def test_every_wait_for_a_flag_that_never_comes_ends_with_an_abort(directory, name):
    operation = case_of(name, 3).operation(24, "float32")
    library = kernel_of(directory, operation, replaced=IMPATIENT)
    for me in range(3):
        for position in last_raises(PeerCluster(operation).tables[me]).values():
            cluster = PeerCluster(operation)
            row = cluster.tables[me].instructions[position]
            flag, number = int(row[1]), int(row[3])
            row[3] = number - 1  # raised without the last message
            assert cluster.abort_while_awaiting(library, flag, number)


def last_raises(tables):
    """Return the last instruction that raises each flag, by the address of the flag."""
    last = {}
    for position, row in enumerate(tables.instructions):
        if row[0] == RAISE:
            last[int(row[1])] = position
    return last


# ---- order of memory, by ThreadSanitizer


def sanitizer():
    """Return the library of ThreadSanitizer; None without one."""
    path = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return path if Path(path).is_absolute() else None


def sanitized(require, protocol, name, directory):
    """Return what the sanitizer finds in a schedule, with and without faults."""
    library = sanitizer()
    require(library is not None, "there is no libtsan: apt install gcc")
    environment = {**os.environ, "LD_PRELOAD": str(library), "TSAN_OPTIONS": "exitcode=66"}
    program = [sys.executable, str(HERE / "sanitized_cluster.py"), protocol, name, str(directory)]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_the_sanitizer_finds_every_flag_that_orders_nothing_any_more(directory, name, require):
    right, *weakened = sanitized(require, "simple", name, directory)
    assert right == "right: no race"
    assert not [line for line in weakened if line.startswith("missed")]


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_the_sanitizer_finds_words_that_are_stored_in_halves(directory, name, require):
    assert sanitized(require, "ll", name, directory) == ["right: no race", "torn: a race"]
