"""Ranks that add floats with every algorithm of ours, and hold each result against the trees of its schedule."""

from dataclasses import replace
from itertools import product

from mpi4py import MPI
from ordered_sums import FLOATS, REDUCING, OrderedSum, equal_bits, evaluate
from schedule_examples import case_of

from hpccoll.executor.compiled_executor import ExecutorOptions
from hpccoll.transports.mpi.transport import MpiTransport, TieredTransport

COMM = MPI.COMM_WORLD
CHANNELS = 1, 2, 3
OPTIONS = ExecutorOptions(oversubscribed=True)


def has_bits_of_trees(ordered, operation, transport):
    """Run an operation on the values of a sum, and return whether this rank ends with the bits of the trees."""
    source, target = ordered.buffers(COMM.rank)
    src = transport.empty(len(source), operation.dtype)
    dst = transport.empty(len(target), operation.dtype)
    src[:] = source
    dst[:] = target
    plan = transport.plan(operation, src, dst)
    plan.run()
    if COMM.rank < operation.call.p:
        alike = equal_bits(plan.result, ordered.expected(COMM.rank))
    else:
        alike = True  # an aggregator ends with nothing
    plan.close()
    return alike


def has_bits_of_another_order():
    """Return whether a star passes for a ring: with more than two ranks it must not."""
    ring = OrderedSum(case_of("all_reduce-ring", COMM.size), "float32", channels=1)
    evaluate([ring])
    star = case_of("all_reduce-star", COMM.size)
    transport = MpiTransport(COMM, options=OPTIONS)
    passes = has_bits_of_trees(ring, replace(ring.operation, slices=star.slices), transport)
    transport.close()
    return passes


def main():
    ran = 0
    wrong = []
    if COMM.size > 2 and has_bits_of_another_order():
        wrong.append("another order is not found")
    for name in REDUCING:
        case = case_of(name, COMM.size)
        if case is None:
            continue
        sums = [OrderedSum(case, dtype, channels) for channels, dtype in product(CHANNELS, FLOATS)]
        evaluate(sums)
        for way in (MpiTransport, TieredTransport):
            transport = way(COMM, options=OPTIONS)
            for ordered in sums:
                ran += 1
                if not has_bits_of_trees(ordered, ordered.operation, transport):
                    wrong.append(f"{name}: {way.__name__}: {ordered.name}")
            transport.close()
    wrong_anywhere = COMM.gather(wrong)
    if COMM.rank == 0:
        print(ran)
        for line in sorted({line for lines in wrong_anywhere for line in lines}):
            print(line)


if __name__ == "__main__":
    main()
