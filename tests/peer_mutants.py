"""Faults of the peer kernel and of its programs, each with the check that has to find it.

Faults of the kernel are pairs of a text in it and what takes its place.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from peer_cases import SOME
from peer_cluster import SCHEDULED, PeerCluster, peer_library
from peer_conflicts import conflicts_between_threads
from schedule_examples import case_of

from hpccoll.transports.peer.program_tables import SYNC

RANKS, ELEMENTS = 3, 24
"""Those of the operations in which faults are sought."""


class KernelFault(NamedTuple):
    """A text in the kernel, what takes its place, and the protocol and the schedule in which that is sought."""

    before: str
    after: str
    protocol: str
    schedule: str


EPOCHS: Mapping[str, KernelFault] = {
    "flags forget the operations before": KernelFault(
        "return epoch * (Count)row[2] + (Count)row[3];",
        "return (Count)row[3];",
        "simple",
        "all_reduce-ring",
    ),
    "the number of the operation does not count up": KernelFault(
        "epochs[blockIdx.x] = epoch + 1;",
        "epochs[blockIdx.x] = epoch;",
        "simple",
        "all_reduce-ring",
    ),
    "a flag is awaited with the number of the operation before": KernelFault(
        "const Count value = flag_value(row, epoch);",
        "const Count value = flag_value(row, epoch ? epoch - 1 : 0);",
        "simple",
        "all_reduce-ring",
    ),
    "a flag is awaited up to the message before": KernelFault(
        "while (acquired(flag) < value)",
        "while (acquired(flag) + 1 < value)",
        "simple",
        "all_reduce-ring",
    ),
    "words have the same flag in all operations": KernelFault(
        "return (unsigned)epoch + 1;",
        "return 1;",
        "ll",
        "broadcast-chain",
    ),
    "words have the flag of the operation before": KernelFault(
        "const Count flag = (Count)word_flag(epoch) << 32;",
        "const Count flag = (Count)word_flag(epoch - 1) << 32;",
        "ll",
        "broadcast-chain",
    ),
    "even and odd operations share words": KernelFault(
        "(long long)(epoch & 1) * stride",
        "0 * stride",
        "ll",
        "broadcast-chain",
    ),
    "the flag of a word is stored before its data": KernelFault(
        "put(words + first / GROUP * GROUP_WORDS + k, flag | group.data[k]);",
        """{
            Count* word = words + first / GROUP * GROUP_WORDS + k;
            const Count before = looked_at(word);
            put(word, flag | (before & 0xffffffffu));
            put(word, flag | group.data[k]);
        }""",
        "ll",
        "broadcast-chain",
    ),
}
"""Faults that a seeded order of the blocks finds: it ends with other bits, or does not end."""

SEEDS = 30
"""The orders of blocks that are tried."""


def some_interleaving_is_wrong(library, operation, protocol):
    """Return whether an order of the blocks, one at a time, ends with other bits than lockstep or does not end."""
    for seed in range(SEEDS):
        cluster = PeerCluster(operation, protocol)
        if protocol == "ll":
            cluster.follow_two_operations()
        results = cluster.run(library, seed=seed)
        if results is None or cluster.wrong_ranks(results):
            return True
    return False


def is_found_by_interleavings(fault, directory):
    """Return whether orders of the blocks find a fault of EPOCHS."""
    operation = case_of(fault.schedule, RANKS).operation(ELEMENTS, "float32")
    replaced = [(fault.before, fault.after)]
    library = peer_library(directory, "float32", "sum", replaced, scheduler=SCHEDULED)
    return some_interleaving_is_wrong(library, operation, fault.protocol)


BARRIERS: Mapping[str, tuple[str, str]] = {
    "before instructions are loaded": (
        "__syncthreads();  // all threads have read the last chunk",
        "",
    ),
    "after instructions are loaded": (
        "chunk[word] = instructions[base * WORDS + word];\n            __syncthreads();",
        "chunk[word] = instructions[base * WORDS + word];",
    ),
    "after flags are awaited": (
        "if (__syncthreads_or(aborted)) return;\n        } else if (kind == RAISE)",
        "if (aborted) return;\n        } else if (kind == RAISE)",
    ),
    "before flags are raised": (
        "__syncthreads();  // all threads have written what the flags release,",
        "//",
    ),
    "between folds": (
        "} else if (__syncthreads_or(aborted)) {",
        "} else if (aborted) {",
    ),
}
"""The waits of the threads of a block for each other, and the kernel without each."""

OF_INSTRUCTIONS = ("before instructions are loaded", "after instructions are loaded")
"""Those of BARRIERS that concern the instructions themselves."""

THREADED = "all_reduce-ring", "all_to_all-bruck"
"""Schedules that need all of BARRIERS between them."""

SHORT_CHUNKS = (("#define MOST 32", "#define MOST 4"), ("#define CHUNK 128", "#define CHUNK 8"))
"""A kernel that loads its instructions in several turns also in small programs."""

THREADS = 4
"""The threads of a block where they are several."""

IMPATIENT = (
    ("#define LOOKS 1024", "#define LOOKS 1"),
    ("#define PATIENCE 65536", "#define PATIENCE 2"),
)
"""A thread yields after each look at a flag: on a busy core the looks of the GPU's kernel take minutes."""

UNLOOKED_ABORT = "const bool aborted = peeked(waiting.abort);", "const bool aborted = false;"
"""A kernel that never looks at the abort."""


WITH_WAITS = (*SOME, "all_reduce-recursive_multiplying", "all_to_all-bruck")
"""Schedules of which some wait between two folds, in each protocol."""


def without_waits(tables):
    """Yield the tables without one of the waits between folds each."""
    for position in (tables.instructions[:, 0] == SYNC).nonzero()[0]:
        instructions = np.delete(tables.instructions, position, axis=0)
        programs = tables.programs - (tables.programs > position)
        yield tables._replace(programs=programs, instructions=instructions)


def missing_waits_with_conflicts(protocol):
    """Return how many missing waits between folds leave a conflict, and how many waits there are."""
    found = 0
    waits = 0
    for name in WITH_WAITS:
        operation = case_of(name, RANKS).operation(ELEMENTS, "float32")
        for tables_of_rank in PeerCluster(operation, protocol).tables:
            for tables in without_waits(tables_of_rank):
                waits += 1
                found += bool(conflicts_between_threads(tables, operation.dtype.itemsize))
    return found, waits


def ignored_abort_is_found(directory):
    """Return whether a wait for a flag that never comes is found to go on if the kernel never looks at the abort."""
    operation = case_of("all_reduce-ring", RANKS).operation(ELEMENTS, "float32")
    replaced = [*IMPATIENT, UNLOOKED_ABORT]
    library = peer_library(directory, "float32", "sum", replaced)
    cluster = PeerCluster(operation)
    first = cluster.tables[0].instructions[0]
    number = int(first[3])
    cluster.withhold(first[1], number)
    try:
        cluster.abort_while_awaiting(library, int(first[1]), number, patience_s=1.0)
    except AssertionError:
        return True
    return False


# ---- order of memory, by ThreadSanitizer


def sanitizer():
    """Return the library of ThreadSanitizer; None without one."""
    path = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return path if Path(path).is_absolute() else None


def sanitized(*words):
    """Return the lines that transports/peer/sanitized_cluster.py prints: what the sanitizer finds."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(sanitizer()),
        "TSAN_OPTIONS": "exitcode=66 halt_on_error=1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    child = Path(__file__).parent / "transports" / "peer" / "sanitized_cluster.py"
    program = [sys.executable, str(child), *map(str, words)]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()
