"""The peer kernel on the host: all ranks of an operation in one process, each block a thread."""

import ctypes
import threading
import time
from hashlib import sha256
from itertools import count

import numpy as np
from cpu_kernels import FREE_RUN, PEER_FLAGS, compiled, peer_program
from schedule_examples import buffers, defined_part

from hpccoll.schedule.lockstep import run_lockstep
from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.peer_plan import Waits
from hpccoll.transports.peer.program import FLAG_KINDS, buffer_of_peer, words_from
from hpccoll.transports.peer.program_tables import (
    AWAIT,
    GATHER,
    INPUT_BITS,
    RAISE,
    FlagMemory,
    program_tables,
)
from hpccoll.transports.peer.transport import word_memory
from hpccoll.transports.peer.words import words_of

SCHEDULED = """
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
static std::mutex baton;
static std::condition_variable changed;
static std::mt19937 dice;
static std::vector<int> present;
static int missing, running;
static thread_local int own;
static int threads;
static std::atomic<int> turns, ended;
static int blocks_of_all_ranks;
extern "C" int turns_taken() { return turns; }
extern "C" void forget_turns() { turns = 0; }
static void choose() {
    if ((int)present.size() + ended == blocks_of_all_ranks) ++turns; // no rank is between two operations
    running = present.empty() ? -1 : present[dice() % present.size()];
    changed.notify_all();
}
static void begin_schedule(unsigned seed, int expected) {
    dice.seed(seed), missing = blocks_of_all_ranks = expected, running = -1, threads = 0, ended = 0;
    present.clear();
}
static void begin_thread() {
    std::unique_lock<std::mutex> lock(baton);
    own = threads++;
    present.push_back(own);
    if (missing > 0 && --missing == 0) choose();
    else if (running == -1 && missing == 0) choose();
    changed.wait(lock, [] { return running == own; });
}
static void point() {
    std::unique_lock<std::mutex> lock(baton);
    choose();
    changed.wait(lock, [] { return running == own; });
}
static void point_of_word() { point(); }
static void end_thread() {
    std::unique_lock<std::mutex> lock(baton);
    for (auto at = present.begin(); at != present.end(); ++at)
        if (*at == own) { present.erase(at); break; }
    choose();
}
static void end_rank(int blocks) { ended += blocks; }
"""
"""One block runs at a time, up to its next access to a flag; a seed decides which one is next, whose turn it is."""

MOST_TURNS = 100_000
"""The turns after which scheduled blocks hang.

Turns count while all blocks take part, so that the host has no say in their number.
"""


INSTRUCTION = (1 << INPUT_BITS) - 1
"""The bits of the number of an instruction in what a block says that it awaits."""

INPUT_NUMBERS = 3
"""The numbers of an input of words in the tables."""


OTHER_VALUE = 0x42F60000
"""Data of a word: 123 as a float32."""

ABORT_S = 20.0
"""The seconds after which a wait that goes on ignores the abort."""

ENDS_WAITS = 1 << 40
"""A count that no flag is awaited beyond."""


class Rank(ctypes.Structure):
    """The structure of the same name in cpu_kernels.py."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in (
                "programs",
                "instructions",
                "inputs",
                "epochs",
                "waits",
                "src",
                "dst",
                "contribution",
                "before",
                "results",
            )
        ),
        ("src_elements", ctypes.c_longlong),
        ("dst_elements", ctypes.c_longlong),
    )


def peer_library(
    directory, element, op, replaced=(), scheduler=FREE_RUN, flags=PEER_FLAGS, threads=1
):
    """Return the kernel and its clusters for a dtype and a reduction, compiled once for each set of arguments."""
    program = peer_program(element, op, replaced, scheduler, threads)
    variant = sha256(" ".join([program, *flags]).encode()).hexdigest()[:16]
    name = f"cluster-{element}-{op}-{variant}"
    return ctypes.CDLL(str(compiled(directory, name, program, *flags)))


class PeerCluster:
    """The ranks of an operation, with their buffers and programs."""

    def __init__(self, operation, protocol="simple"):
        self.operation = operation
        ranks = range(operation.layout.ranks)
        self.contributions, self.before = buffers(operation)
        lowerings = [PeerLowering(me, operation, protocol) for me in ranks]
        proposals = [lowering.proposals() for lowering in lowerings]
        self.programs = []
        for me in ranks:
            received = [proposal[me] for proposal in proposals]
            assert not lowerings[me].mismatched_peers(received)
            self.programs.append(lowerings[me].programs(received))
        self.blocks = len(self.programs[0])
        self.memory = [self._buffers(lowering, me) for me, lowering in enumerate(lowerings)]
        flag_count = FlagMemory.count(self.blocks, len(ranks))
        self.flags = [np.zeros(flag_count, np.uint64) for _ in ranks]
        self.words = list(map(self._words, lowerings))
        self.tables = list(map(self._tables, lowerings))
        self.epochs = [np.zeros(self.blocks, np.uint64) for _ in ranks]
        self.waits = [np.zeros(self.blocks, np.uint64) for _ in ranks]
        self.abort = np.zeros(1, np.int32)

    def _buffers(self, lowering, me):
        dtype = self.operation.dtype
        scratch = {
            name: np.empty(length, dtype) for name, length in lowering.scratch_lengths.items()
        }
        src = np.empty(0 if self.operation.in_place else len(self.contributions[me]), dtype)
        tmp = np.empty(lowering.tmp_length, dtype)
        return {"src": src, "dst": np.empty(len(self.before[me]), dtype), "tmp": tmp, **scratch}

    def follow_two_operations(self):
        """Leave flags and words as two operations on other values leave them."""
        for epochs in self.epochs:
            epochs[:] = 2
        begun = FLAG_KINDS.index("begun")
        for flags in self.flags:
            flags[begun :: len(FLAG_KINDS)] = 2
        for words in self.words:
            for array in words.values():
                even, odd = np.split(array, 2)
                even[:] = (1 << 32) + OTHER_VALUE
                odd[:] = (2 << 32) + OTHER_VALUE

    def _words(self, lowering):
        """Return the words that each peer writes for a rank, for even and odd operations."""
        words = {}
        for peer in range(self.operation.layout.ranks):
            elements = lowering.word_elements.get(words_from(peer), 0)
            count = 2 * words_of(elements, self.operation.dtype.itemsize)
            words[words_from(peer)] = np.zeros(count, np.uint64)
        return words

    def _tables(self, lowering):
        me = lowering.me
        addresses = {name: array.ctypes.data for name, array in self.memory[me].items()}
        for peer, memory in enumerate(self.memory):
            addresses |= {
                buffer_of_peer(peer, name): array.ctypes.data for name, array in memory.items()
            }
        flags = FlagMemory(me, [array.ctypes.data for array in self.flags])
        places = []
        for words in self.words:
            places.append({name: array.ctypes.data for name, array in words.items()})
        return program_tables(
            self.programs[me],
            addresses,
            flags,
            self.operation.dtype.itemsize,
            word_memory(lowering, places),
        )

    def run(self, library, operations=3, seed=0, limit_s=60.0):
        """Return the buffers dst after each operation, by rank: [operation, element]; None if the kernel hangs.

        A kernel that hangs is aborted: if its blocks are SCHEDULED, after MOST_TURNS, however long
        they take; else after ``limit_s`` seconds.
        """
        results = [np.zeros((operations, len(dst)), dst.dtype) for dst in self.before]
        records = (Rank * len(results))(*map(self._record, count(), results))
        arguments = (len(results), records, self.blocks, operations)
        pointer = ctypes.c_void_p(self.abort.ctypes.data)
        running = threading.Thread(target=library.run_cluster, args=(*arguments, pointer, seed))
        is_scheduled = hasattr(library, "turns_taken")
        if is_scheduled:
            library.forget_turns()
        running.start()
        if is_scheduled:
            while running.is_alive() and library.turns_taken() <= MOST_TURNS:
                running.join(0.01)
        else:
            running.join(limit_s)
        if not running.is_alive():
            return results
        self.abort[0] = 1
        running.join()
        return None

    def withhold(self, address, number):
        """Have no rank raise the flag at ``address`` as far as ``number``."""
        for tables in self.tables:
            rows = tables.instructions
            raises = (rows[:, 0] == RAISE) & (rows[:, 1] == address) & (rows[:, 3] >= number)
            rows[raises, 3] = number - 1

    def abort_while_awaiting(self, library, address, number, patience_s=ABORT_S):
        """Run once, and abort as soon as a rank says that it awaits message ``number`` of the flag at ``address``.

        Returns:
            what this rank says that it awaits; None if no rank comes to await it.

        Raises:
            AssertionError: if a wait goes on ``patience_s`` after the abort.
        """

        def awaits(tables, told):
            row = tables.instructions[told & INSTRUCTION]
            return row[0] == AWAIT and (int(row[1]), int(row[3])) == (address, number)

        return self._abort_when(library, awaits, patience_s)

    def abort_while_awaiting_words(self, library, address):
        """Likewise for words at ``address``."""

        def awaits(tables, told):
            row = tables.instructions[told & INSTRUCTION]
            number = int(row[2]) + INPUT_NUMBERS * (told >> INPUT_BITS)
            return row[0] == GATHER and int(tables.inputs[number]) == address

        return self._abort_when(library, awaits)

    def _abort_when(self, library, awaits, patience_s=ABORT_S):
        """Run once, and abort when ``awaits`` is true for a rank's tables and what it tells; return its words."""
        results = [np.zeros((1, len(dst)), dst.dtype) for dst in self.before]
        records = (Rank * len(results))(*map(self._record, count(), results))
        pointer = ctypes.c_void_p(self.abort.ctypes.data)
        arguments = (len(results), records, self.blocks, 1, pointer, 0)
        running = threading.Thread(target=library.run_cluster, args=arguments)
        running.start()
        words = None
        while running.is_alive() and words is None:
            time.sleep(0.001)
            words = self._words_of_waiting_rank(awaits)
        self.abort[0] = 1
        running.join(patience_s)
        if not running.is_alive():
            return words
        while running.is_alive():  # blocks that go on raise flags less far
            self._end_all_waits()
            running.join(0.1)
        raise AssertionError(f"a wait goes on after the abort: {words}")

    def _end_all_waits(self):
        """Raise all flags, and write all words of the operation before the one that runs."""
        for flags in self.flags:
            flags[:] = ENDS_WAITS
        for epochs, words in zip(self.epochs, self.words, strict=True):
            for array in words.values():
                array[:] = (int(epochs[0]) + 1) << 32

    def _words_of_waiting_rank(self, awaits):
        for tables, told in zip(self.tables, self.waits, strict=True):
            if any(awaits(tables, number - 1) for number in told[told > 0].tolist()):
                return Waits(self.abort, told.copy(), tables.flags).described()
        return None

    def _record(self, me, results):
        tables, memory = self.tables[me], self.memory[me]
        arrays = (
            tables.programs,
            tables.instructions,
            tables.inputs,
            self.epochs[me],
            self.waits[me],
            memory["src"],
            memory["dst"],
            self.contributions[me],
            self.before[me],
            results,
        )
        pointers = [array.ctypes.data for array in arrays]
        return Rank(*pointers, len(memory["src"]), len(memory["dst"]))

    def wrong_ranks(self, results):
        """Return the ranks whose results differ in a bit from lockstep after any operation."""
        expected = [values.copy() for values in self.before]
        given = [values[:0] if self.operation.in_place else values for values in self.contributions]
        run_lockstep(self.operation, given, expected)
        wrong = []
        for me in range(self.operation.call.p):
            right = defined_part(self.operation, expected[me], me).tobytes()
            parts = [defined_part(self.operation, result, me).tobytes() for result in results[me]]
            if any(part != right for part in parts):
                wrong.append(me)
        return wrong
