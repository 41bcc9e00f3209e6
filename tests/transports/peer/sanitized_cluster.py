"""Weakens each flag of an operation in turn, and holds ThreadSanitizer against the clocks of peer_accesses.py.

    LD_PRELOAD=libtsan.so TSAN_OPTIONS=exitcode=66 python sanitized_cluster.py PROTOCOL NAME DIRECTORY

A weakened flag is awaited as before, without acquiring what was written before it was raised.
"""

import os
import sys
from pathlib import Path

from cpu_kernels import PEER_FLAGS
from peer_accesses import Ordered
from peer_cluster import PeerCluster, peer_library
from schedule_examples import case_of

from hpccoll.transports.peer.program import Await
from hpccoll.transports.peer.program_tables import AWAIT

RACE = 66
"""The exit code of a process in which ThreadSanitizer found a race."""

TRIES = 4
"""How often a weakened flag is tried: a rank that comes late reads a later count, which orders as much."""

WEAKENED = (
    (
        "value = __atomic_load_n(flag, __ATOMIC_ACQUIRE);",
        "value = weak ? __atomic_load_n(flag, __ATOMIC_RELAXED) : __atomic_load_n(flag, __ATOMIC_ACQUIRE);",
    ),
    ("Count acquired(const Count* flag)", "Count acquired(const Count* flag, bool weak)"),
    ("acquired(flag) < value", "acquired(flag, row[5]) < value"),
)
"""The sixth word of an instruction weakens it."""

TORN = (
    (
        "__atomic_store_n(word, value, __ATOMIC_RELAXED);",
        "((volatile unsigned*)word)[1] = value >> 32, *(volatile unsigned*)word = (unsigned)value;",
    ),
)
"""A word is stored in two halves, and the flag first."""


def finds_a_race(library, operation, weakened=None, protocol="simple"):
    """Return whether the sanitizer finds a race in a child that runs the operation three times."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        cluster = PeerCluster(operation, protocol)
        if weakened:
            me, row = weakened
            cluster.tables[me].instructions[row, 5] = 1
        cluster.run(library)
        sys.exit()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == RACE


def awaited_flags(cluster):
    """Yield the rank and the row of each flag that is awaited, and its place in the programs of one block."""
    for me, (program,) in enumerate(cluster.programs):
        rows = [
            row for row, values in enumerate(cluster.tables[me].instructions) if values[0] == AWAIT
        ]
        places = [
            (me, 0, position, flag)
            for position, instruction in enumerate(program.instructions)
            if isinstance(instruction, Await)
            for flag in instruction.flags
        ]
        for row, place in zip(rows, places, strict=True):
            yield me, row, place


def words(name, directory):
    """Hold words as they are against words that are stored in two halves."""
    operation = case_of(name, 3).operation(24, "float32")
    flags = (*PEER_FLAGS, "-fsanitize=thread")
    for label, replaced in (("right", ()), ("torn", TORN)):
        library = peer_library(Path(directory), "float32", "sum", replaced, flags=flags)
        found = finds_a_race(library, operation, protocol="ll")
        print(f"{label}:", "a race" if found else "no race")


def main(name, directory):
    operation = case_of(name, 3).operation(24, "float32")
    flags = (*PEER_FLAGS, "-fsanitize=thread")
    library = peer_library(Path(directory), "float32", "sum", WEAKENED, flags=flags)
    print("right:", "a race" if finds_a_race(library, operation) else "no race")
    cluster = PeerCluster(operation)
    for me, row, place in awaited_flags(cluster):
        needed = bool(Ordered(cluster.programs, place).races())
        tries = range(TRIES if needed else 1)
        found = any(finds_a_race(library, operation, (me, row)) for _ in tries)
        verdict = "found" if found else "missed" if needed else "not needed"
        print(f"{verdict}: rank {me}, {place[-1]}")


if __name__ == "__main__":
    check = words if sys.argv[1] == "ll" else main
    check(*sys.argv[2:])
