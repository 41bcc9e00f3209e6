"""Operations with a fault in one rank's data, and what the check of results says of them.

    mpiexec -n 3 python tests/measure/injected_ranks.py [--seed 1] [--faults 200]

Each fault is in a random place of a random case: in a message after it has arrived, in what a rank
has copied or folded, or in its result at the end. The case runs without the fault first. Rank 0
prints a line for each fault that the check does not see in the first operation, with the reason of
results/golden/detection.md, and at the end the counts as JSON. Ends with 1 if the check disagrees
with a comparison of the buffers of both runs, or if a fault that is not seen has no such reason.
"""

import argparse
import json
import random
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

sys.path.append(str(Path(__file__).parents[1]))

from catalogue_cases import ALL, BOTH

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import NATIVE, distinct_placements
from hpccoll.cases.memory_estimate import GENERATIONS
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.executor.barrier import ExecutorBarrier
from hpccoll.executor.compiled_executor import CompiledExecutor, ExecutorOptions
from hpccoll.executor.lowered_step import LocalCall, LocalCopy, LocalFold, LoweredStep
from hpccoll.executor.python_executor import PythonExecutor
from hpccoll.measure.ranks import Ranks
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS, collective, dtype_of
from hpccoll.transports.mpi import transport
from hpccoll.transports.mpi.shared_windows import SharedMemory
from hpccoll.transports.mpi.vendor import MpiVendorPlan

COMM = MPI.COMM_WORLD
PER_NODE = 2
"""The ranks of a node for the transport tiered."""

OPTIONS = ExecutorOptions(oversubscribed=True)
EVERY = (*DTYPES, BFLOAT16)
FOLDING = [(name, algorithm) for name, algorithm in ALL if collective(name).has_op]


class NodeMemory(SharedMemory):
    """The shared memory of nodes of PER_NODE ranks each."""

    def __init__(self, comm):
        self.comm, self.node = comm, comm.Split(comm.rank // PER_NODE, comm.rank)
        self.ranks = self.node.allgather(comm.rank)
        self._windows, self._buffers = [], []


def flipped(byte, bit):
    """Return the work that flips a bit of an array of one byte: the executors have no other operations than these."""
    found = np.empty_like(byte)
    fold = [
        (np.multiply, byte, 1 << 7 - bit),
        (np.maximum, found, 127),
        (np.add, found, 129),
        (np.minimum, found, 1),
    ]
    fold += [(np.multiply, found, -(2 << bit) % 256), (np.add, found, 1 << bit)]
    works = [LocalFold(ufunc, a, np.full_like(byte, b), found) for ufunc, a, b in fold]
    return [*works, LocalFold(np.add, byte, found, byte)]


@dataclass(frozen=True)
class Place:
    """Memory of a rank that holds elements at some time of an operation.

    Args:
        kind: whether the elements have arrived in a message, are those of a copy or a fold, or the
            result.
        memory: the elements.
        works: the list of work of a step, or of the end of the operation.
        at: the index in ``works`` from which on the memory holds the elements.
        before: the work that precedes the messages of the step.
    """

    kind: str
    memory: np.ndarray
    works: list
    at: int
    before: list

    def bytes(self, start=0, stop=None):
        return self.memory[start:stop].view(np.uint8)

    def insert(self, works):
        self.works[self.at : self.at] = works


def one_bit(place, draw):
    byte = draw.randrange(place.memory.nbytes)
    place.insert(flipped(place.bytes()[byte : byte + 1], draw.randrange(8)))


def displaced(place, draw):
    by = draw.randint(1, len(place.memory) - 1)
    kept = np.empty_like(place.bytes())
    tail = place.bytes(by)
    place.insert([LocalCopy(kept, place.bytes()), LocalCopy(tail, kept[: len(tail)])])


def zeroed(place, draw):
    n = draw.randint(1, min(16, len(place.memory)))
    start = draw.randint(0, len(place.memory) - n)
    lost = place.bytes(start, start + n)
    place.insert([LocalCopy(lost, np.zeros_like(lost))])


def never_done(place, _draw):
    """Undo a message, or leave out the copy or the fold that would write the memory."""
    if place.kind == "message":
        kept = np.empty_like(place.bytes())
        place.before.append(LocalCopy(kept, place.bytes()))
        place.insert([LocalCopy(place.bytes(), kept)])
    else:
        del place.works[place.at - 1]


FAULTS = {"one bit": one_bit, "zeroed": zeroed, "never done": never_done, "displaced": displaced}


def reason(case, fault):
    """Return why the fault of a case need not be seen; None if detection.md has no reason."""
    integers = dtype_of(case.dtype).kind == "i"
    if case.op in ("min", "max"):
        return "another rank decides the element"
    if case.op == "avg" or (case.op == "sum" and not integers and fault == "one bit"):
        return "it is rounded off"
    if case.op == "prod" and integers and fault == "one bit":
        return "it passes the range of the type"
    return "the numbers are equal by chance" if fault in ("displaced", "never done") else None


def places(sequences, dtype):
    """Return the places of all steps in which data arrive, are copied or folded."""
    found = []
    for step in chain.from_iterable(sequences):
        fences = next(
            (i for i, work in enumerate(step.after) if not isinstance(work, LocalCall)),
            len(step.after),
        )
        for message in step.messages:
            data, count, _ = message.data
            if not message.sends and count == message.nbytes == data.nbytes and count:
                found.append(Place("message", data.view(dtype), step.after, fences, step.before))
        for works in (step.before, step.after):
            for at, work in enumerate(works, 1):
                if isinstance(work, LocalCopy | LocalFold) and work.target.size:
                    found.append(Place("work", work.target, works, at, step.before))
    return found


class Injection:
    """Puts a fault into the next plan of this process.

    Args:
        draw: the source of chance, of this rank alone.
        case: the case of the plan.
    """

    def __init__(self, draw, case):
        self.draw, self.case, self.fault, self.where = draw, case, None, None

    def into(self, sequences, result):
        """Return the sequences with the fault; after the last one the result is complete."""
        sequences = [
            [replace(s, before=[*s.before], after=[*s.after]) for s in steps] for steps in sequences
        ] or [[]]
        sequences[-1].append(last := LoweredStep())
        fault = self.draw.choice([*FAULTS])
        found = places(sequences, dtype_of(self.case.dtype))
        if fault != "never done":
            found.append(Place("result", result, last.after, 0, last.before))
        found = [place for place in found if place.memory.size > (fault == "displaced")]
        if found:
            kind = self.draw.choice(sorted({place.kind for place in found}))
            place = self.draw.choice([place for place in found if place.kind == kind])
            FAULTS[fault](place, self.draw)
            self.fault, self.where = fault, kind
        return sequences


@contextmanager
def spoilt(plan_class, injection):
    """Have the next plan of a class contain the fault."""
    init, compiled_init, python_init = (
        plan_class.__init__,
        CompiledExecutor.__init__,
        PythonExecutor.__init__,
    )

    def faulty_init(self, comm, operation, src, dst, *more, **options):
        result = operation.result(dst, comm.rank) if plan_class is transport.MpiPlan else None

        def of_compiled(executor, comm, options, sequences=(), initial=None, **more):
            sequences = injection.into(sequences, self.result if result is None else result)
            compiled_init(
                executor, comm, options, sequences, max(1, initial or len(sequences)), **more
            )

        def of_python(executor, comm, sequences, initial, **more):
            python_init(executor, comm, injection.into(sequences, result), max(1, initial), **more)

        compiled = patch.object(CompiledExecutor, "__init__", of_compiled)
        with compiled, patch.object(PythonExecutor, "__init__", of_python):
            init(self, comm, operation, src, dst, *more, **options)
        if plan_class is MpiVendorPlan and self.executor is None:
            ((*_, last),) = injection.into([], self.result)
            run, works = self.run, [work.call() for work in (*last.before, *last.after)]
            self.run = lambda: (run(), [function(*arguments) for function, arguments in works])

    with patch.object(plan_class, "__init__", faulty_init):
        yield


def buffers(prepared):
    """Return what the check compares: the result, src out of place, and the guards."""
    guards = [np.asarray(guard.memory) for guard in prepared.guards]
    own = (
        []
        if prepared.case.in_place
        else [prepared.src[: prepared.operation.elements("src", COMM.rank)]]
    )
    return [array.view(np.uint8).copy() for array in (prepared.result, *own, *guards)]


class Trials:
    """Cases with and without a fault, on all ranks together."""

    def __init__(self, seed):
        self.seed, self.ranks, self.barrier = (
            seed,
            Ranks(COMM),
            ExecutorBarrier(COMM, SharedMemory(COMM), OPTIONS),
        )
        self.counts, self.reasons = Counter(), Counter()

    def draw_case(self, draw):
        """Return a random case that can run here, with its layout and executor."""
        while True:
            name, algorithm = draw.choice(draw.choice((ALL, FOLDING)))
            family, native = collective(name), algorithm == NATIVE
            transport = "mpi" if native else draw.choice(("mpi", "shm", "tiered"))
            nodes = [rank // PER_NODE if transport == "tiered" else 0 for rank in range(COMM.size)]
            layout = replace(self.ranks.layout(0), node=tuple(nodes), rack=(0,) * COMM.size)
            op, dtype = draw.choice([*REDUCTIONS]) if family.has_op else None, draw.choice(EVERY)
            case = Case(
                collective=name,
                algorithm=algorithm,
                transport=transport,
                dtype=dtype,
                op=op,
                params={} if native or family.uncut else {"channels": draw.choice((1, 1, 2, 3))},
                bytes=draw.choice((8, 24, 120, 1000, 4096, 9992, 40_000)),
                in_place=draw.choice([*distinct_placements(name, algorithm, BOTH)]),
            )
            # MPI folds no numbers of two bytes
            unknown = native and op and dtype_of(dtype).itemsize == 2
            if not (family.token or algorithm == "null" or unknown or unmet_needs(case, layout)):
                return case, layout, draw.choice((OPTIONS, None))

    def run(self, case, layout, compiled, generation, injection=None):
        """Run a case in one generation, then in others; return the wrong elements of both, and the buffers after one.

        The last generation is not the first one: its values may be in the memory that the next plan
            allocates.
        """
        plan_class = MpiVendorPlan if case.algorithm == NATIVE else transport.MpiPlan
        with spoilt(plan_class, injection) if injection else nullcontext():
            prepared = PreparedCase(
                COMM, layout, case, settings=RunSettings(executor_options=compiled)
            )
        prepared.check.generation = generation
        loop = prepared.loop(self.ranks, lambda: self.barrier, RankProgress())
        with np.errstate(all="ignore"):  # a fault may make any number
            wrong = int(COMM.allreduce(loop.run(1)[1]))
            left = buffers(prepared)
            later = int(COMM.allreduce(loop.run(GENERATIONS - 1)[1]))
        prepared.close()
        return wrong, later, left

    def trial(self, number):
        """Run a case without and with a fault."""
        draw = random.Random(f"{self.seed} {number}")  # noqa: S311
        case, layout, compiled = self.draw_case(draw)
        at, generation = draw.randrange(COMM.size), draw.randrange(GENERATIONS)
        transport.SharedMemory = NodeMemory if case.transport == "tiered" else SharedMemory
        wrong, later, right = self.run(case, layout, compiled, generation)
        self.counts["without a fault"] += 1
        self.counts["false alarms"] += bool(wrong or later)
        injection = Injection(draw, case) if COMM.rank == at else None
        wrong, later, left = self.run(case, layout, compiled, generation, injection)
        fault, where = COMM.bcast((injection.fault, injection.where) if injection else None, at)
        if not fault:
            return
        differ = COMM.allreduce(
            any((a != b).any() for a, b in zip(left, right, strict=True)), MPI.LOR
        )
        outcome = "seen" if wrong else "seen in a later operation" if later else "never seen"
        self.counts.update({"faults": 1, outcome: 1, "wrong verdicts": bool(wrong) != differ})
        if not wrong:
            why = reason(case, fault) or "no reason"
            self.reasons[why] += 1
            if COMM.rank == 0:
                executor = "compiled" if compiled else "python"
                print(
                    f"{number}: {fault} in a {where}, {case.id}, {executor}: {outcome}; {why}",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    arguments = parser.parse_args()
    trials = Trials(arguments.seed)
    for number in count():
        if trials.counts["faults"] == arguments.faults:
            break
        trials.trial(number)
    if COMM.rank == 0:
        print(json.dumps({**trials.counts, "reasons": trials.reasons}))
    counts = trials.counts
    return int(counts["wrong verdicts"] + counts["false alarms"] + trials.reasons["no reason"] > 0)


if __name__ == "__main__":
    sys.exit(main())
