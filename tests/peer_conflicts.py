"""Whether threads of a block of the peer kernel wait for each other between accesses to the same memory."""

from itertools import pairwise

from hpccoll.transports.peer.program_tables import FOLD, GATHER, PUSH


def conflicts_between_threads(tables, itemsize):
    """Return the pairs of rows without a wait between them, one of which writes what the other reads or writes."""
    conflicts = []
    for first, last in pairwise(tables.programs.tolist()):
        since_wait = []
        for row in tables.instructions[first:last].tolist():
            if row[0] not in (FOLD, GATHER, PUSH):
                since_wait = []
                continue
            reads, writes = accesses(row, tables.inputs.tolist(), itemsize)
            for earlier, earlier_reads, earlier_writes in since_wait:
                if overlap(writes, earlier_reads + earlier_writes) or overlap(
                    reads, earlier_writes
                ):
                    conflicts.append((earlier, row))
            since_wait.append((row, reads, writes))
    return conflicts


def accesses(row, inputs, itemsize):
    """Return the bytes of buffers that an instruction reads, and those that it writes."""
    kind, target, first, count, elements, *_ = row
    if kind == PUSH:
        source, elements = row[2:4]
        return [range(source, source + elements * itemsize)], []
    if kind == FOLD:
        sources = inputs[first : first + count]
    else:
        numbers = inputs[first : first + 3 * count]
        sources = [
            address
            for address, place in zip(numbers[::3], numbers[1::3], strict=True)
            if place < 0  # elements as they are
        ]
    nbytes = elements * itemsize
    return [range(source, source + nbytes) for source in sources], [range(target, target + nbytes)]


def overlap(some, others):
    return any(a.start < b.stop and b.start < a.stop for a in some for b in others)
