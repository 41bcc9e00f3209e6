"""What ThreadSanitizer finds in the peer kernel as it is, and with one fault after the other.

    LD_PRELOAD=libtsan.so TSAN_OPTIONS='exitcode=66 halt_on_error=1' python sanitized_cluster.py CHECK ...

Its arguments are CHECK PROTOCOL NAME DIRECTORY.

Args:
    CHECK: ``flags``: each flag in turn is awaited as before without acquire, or raised as before
        without release; ``words``: words are stored in two halves; ``threads``: a block of several
        threads lacks one wait for each other.
    PROTOCOL: that of the kernel.
    NAME: the schedule.
    DIRECTORY: where kernels are compiled.

Whether a flag is needed is what clocks say: those of peer_accesses.py over ``simple``, and those of
peer_words.py over ``ll``. There a word is stored and loaded in two halves, its flag with release and
acquire, so that the sanitizer sees accesses to its data. On a GPU words order less: some flags are
needed there and not here. All flags that are not awaited are found by the clocks alone
(test_ll_protocol.py).
"""

import os
import signal
import sys
from pathlib import Path

from cpu_kernels import PEER_FLAGS
from peer_accesses import Ordered
from peer_cluster import PeerCluster, peer_library
from peer_mutants import BARRIERS, ELEMENTS, OF_INSTRUCTIONS, RANKS, SHORT_CHUNKS, THREADS
from peer_words import OverwrittenWords
from schedule_examples import case_of

from hpccoll.transports.peer.program import Await, Raise
from hpccoll.transports.peer.program_tables import AWAIT, RAISE

RACE = 66
"""The exit code of a process in which ThreadSanitizer found a race."""

LIMIT_S = 120
"""The seconds after which a child is ended: without a wait, threads of a block may wait for ever."""

TRIES = 4
"""How often a weakened flag is tried: a rank that comes late reads a later count, which orders as much."""

OPERATIONS = 5
"""Words are overwritten two operations later."""

MANY_ELEMENTS = 203
"""Of folds that the threads of a block share in another way from fold to fold."""

WEAK = 5
"""The word of an instruction that weakens its flag."""

WEAKENED = (
    (
        "value = __atomic_load_n(flag, __ATOMIC_ACQUIRE);",
        "value = weak ? __atomic_load_n(flag, __ATOMIC_RELAXED) : __atomic_load_n(flag, __ATOMIC_ACQUIRE);",
    ),
    ("Count acquired(const Count* flag)", "Count acquired(const Count* flag, bool weak)"),
    ("acquired(flag) < value", f"acquired(flag, row[{WEAK}]) < value"),
    (
        "__atomic_store_n(flag, value, __ATOMIC_RELEASE);",
        """
        if (weak) __atomic_store_n(flag, value, __ATOMIC_RELAXED);
        else __atomic_store_n(flag, value, __ATOMIC_RELEASE);
        """,
    ),
    ("void release(Count* flag, Count value)", "void release(Count* flag, Count value, bool weak)"),
    (
        "flag_value(row + i * WORDS, epoch));",
        f"flag_value(row + i * WORDS, epoch), row[i * WORDS + {WEAK}]);",
    ),
)
"""A kernel whose instructions can weaken their flags."""

STORED_WORD = "__atomic_store_n(word, value, __ATOMIC_RELAXED);"

HALVES = (
    (
        STORED_WORD,
        """
        *(unsigned*)word = (unsigned)value;
        __atomic_store_n((unsigned*)word + 1, (unsigned)(value >> 32), __ATOMIC_RELEASE);
        """,
    ),
    (
        "value = __atomic_load_n(word, __ATOMIC_RELAXED);\n    return value;\n}\n\n__device__ __forceinline__ void put",
        """
        value = (Count)__atomic_load_n((const unsigned*)word + 1, __ATOMIC_ACQUIRE) << 32;
        if (value >> 32 == flag) value |= *(const unsigned*)word;
        return value;
        }

        __device__ __forceinline__ void put
        """,
    ),
    ("Count looked_at(const Count* word)", "Count looked_at(const Count* word, unsigned flag)"),
    (
        "(input[1] + first) / GROUP * GROUP_WORDS + k)",
        "(input[1] + first) / GROUP * GROUP_WORDS + k, flag)",
    ),
    ("looked_at(words + k)", "looked_at(words + k, flag)"),
)
"""The data of a word are an access of their own, which its flag orders."""

TORN = (
    (
        STORED_WORD,
        "((volatile unsigned*)word)[1] = value >> 32, *(volatile unsigned*)word = (unsigned)value;",
    ),
)
"""A word is stored in two halves, and the flag first."""


def finds_a_race(library, operation, protocol, weakened=None):
    """Return whether the sanitizer finds a race in a child that runs the operation several times."""
    child = os.fork()
    if not child:
        signal.alarm(LIMIT_S)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        cluster = PeerCluster(operation, protocol)
        if weakened:
            me, row = weakened
            cluster.tables[me].instructions[row, WEAK] = 1
        results = cluster.run(library, operations=OPERATIONS)
        sys.exit(0 if results else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, RACE, -signal.SIGALRM), f"a cluster ends with {code}"
    return code == RACE


def compiled(directory, replaced, threads=1):
    flags = (*PEER_FLAGS, "-fsanitize=thread")
    return peer_library(Path(directory), "float32", "sum", replaced, flags=flags, threads=threads)


def flags_of(cluster, row_kind, instruction_kind):
    """Yield the rank and the row of each flag that is awaited, or raised, and its place in the program."""
    for me, (program,) in enumerate(cluster.programs):
        rows = (cluster.tables[me].instructions[:, 0] == row_kind).nonzero()[0].tolist()
        places = []
        for position, instruction in enumerate(program.instructions):
            if isinstance(instruction, instruction_kind):
                places += [(me, 0, position, flag) for flag in instruction.flags]
        for row, place in zip(rows, places, strict=True):
            yield me, row, place


def is_needed(cluster, protocol, place, *, awaited):
    """Return whether something is not ordered without the flag, by clocks."""
    me, _, _, flag = place
    if protocol == "ll":
        pair = (me, flag.peer) if awaited else (flag.peer, me)
        words = OverwrittenWords(cluster.programs, pair, words_order=True)
        return bool(words.overwritten_unread())
    if awaited:
        return bool(Ordered(cluster.programs, dropped=place).races())
    return bool(Ordered(cluster.programs, unreleased=place).races())


def check_flags(protocol, operation, directory):
    library = compiled(directory, WEAKENED + (HALVES if protocol == "ll" else ()))
    print("right:", "a race" if finds_a_race(library, operation, protocol) else "no race")
    cluster = PeerCluster(operation, protocol)
    for order, row_kind, kind in (("acquire", AWAIT, Await), ("release", RAISE, Raise)):
        for me, row, place in flags_of(cluster, row_kind, kind):
            needed = is_needed(cluster, protocol, place, awaited=kind is Await)
            found = False
            for _ in range(TRIES if needed else 1):
                found = found or finds_a_race(library, operation, protocol, (me, row))
            print(f"{verdict_of(needed=needed, found=found)}: {order}: rank {me}, {place[-1]}")


def verdict_of(*, needed, found):
    if needed:
        return "found" if found else "missed"
    return "unexpected" if found else "not needed"


def check_words(protocol, operation, directory):
    for label, replaced in (("right", ()), ("torn", TORN)):
        found = finds_a_race(compiled(directory, replaced), operation, protocol)
        print(f"{label}:", "a race" if found else "no race")


def check_threads(protocol, operation, directory):
    whole = compiled(directory, SHORT_CHUNKS, THREADS)
    print("right:", "a race" if finds_a_race(whole, operation, protocol) else "no race")
    for name, fault in BARRIERS.items():
        # loads of instructions are waits, too
        chunks = SHORT_CHUNKS if name in OF_INSTRUCTIONS else ()
        library = compiled(directory, (*chunks, fault), THREADS)
        found = False
        for _ in range(TRIES):
            found = found or finds_a_race(library, operation, protocol)
        print(f"{'found' if found else 'not found'}: {name}")


CHECKS = {"flags": check_flags, "words": check_words, "threads": check_threads}


if __name__ == "__main__":
    check_name, chosen_protocol, schedule, place_of_kernels = sys.argv[1:]
    elements = MANY_ELEMENTS if check_name == "threads" else ELEMENTS
    checked = case_of(schedule, RANKS).operation(elements, "float32")
    CHECKS[check_name](chosen_protocol, checked, place_of_kernels)
