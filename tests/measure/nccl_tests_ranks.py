"""The calls of the timing nccl-tests on the test library of NCCL, beside those of nccl-tests: run on two ranks."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from nccl_on_host import HostGpu
from rank_checks import run_checks

from hpccoll.cases.case import Case, Effort
from hpccoll.measure.run import nccl_tests_timing
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.timing_loop import RankProgress, measure
from hpccoll.schedule import Layout
from hpccoll.transports.nccl import communicators, vendor
from hpccoll.transports.stream_wait import wait_with_limit
from hpccoll.transports.transport_interface import address

COMM, GPU = MPI.COMM_WORLD, HostGpu(Path(sys.argv[1]))
LAYOUT = Layout.of(COMM.size)
LOG: list[object] = []
CAPTURED: list[tuple[int, int]] = []
"""The buffers of the calls that were made to prepare a case; those of its graph are the last ones."""
ORIGINAL = dict(vendor.CALLS)
WAIT, BARRIER, FILL, CHECK = "wait", "barrier", "fill", "check"


def recorded(name):
    """Return what makes the calls of a collective, which note their buffers."""

    def make(arguments):
        call = ORIGINAL[name](arguments)

        def queue():
            LOG.append((arguments.source, arguments.target))
            call()

        return queue

    return make


def silently(function, word):
    """Return a function that notes ``word``, and nothing that ``function`` does."""

    def run():
        kept = [*LOG]
        result = function()
        LOG[:] = [*kept, word]
        return result

    return run


def waiting(done, error):
    LOG.append(WAIT)
    wait_with_limit(done, error)


class Sync:
    """The ranks of COMM, with barriers that are noted."""

    def barrier(self):
        LOG.append(BARRIER)
        COMM.Barrier()

    def gather(self, local):
        gathered = COMM.gather(local)
        return None if gathered is None else np.stack(gathered, axis=-1)

    def summarise(self, local, summary, iterations):
        gathered = self.gather(local)
        return None if gathered is None else summary.of(gathered, iterations)

    def agree(self, more):
        return COMM.bcast(more)


def rounds_calls(collective, nbytes, largest, effort, *, in_place=False, graph=0):
    """Return the prepared case, what a round did after it was prepared, and how many calls NCCL had for it."""
    vendor.CALLS[collective] = recorded(collective)
    reduces = collective == "all_reduce"
    case = Case(
        collective=collective,
        algorithm="native",
        transport="nccl",
        device="cuda",
        timing="nccl-tests",
        bytes=nbytes,
        in_place=in_place,
        op="sum" if reduces else None,
        params={"graph": graph},
    )
    prepared = PreparedCase(
        COMM, LAYOUT, case, GPU, RunSettings(effort=effort, largest_bytes=largest)
    )
    prepared.set_wait(waiting)
    check = prepared.check
    check.reset, check.wrong = silently(check.reset, FILL), silently(check.wrong, CHECK)
    GPU.calls()
    CAPTURED[:] = [each for each in LOG if isinstance(each, tuple)]
    LOG.clear()
    progress = RankProgress()
    loop = prepared.loop(Sync(), None, progress)
    samples = measure(loop.run, Sync(), prepared.effort_of_round, progress)
    done, calls = [*LOG], len([call for call in GPU.calls() if call.startswith("All")])
    assert (samples.wrong, samples.iterations) == (0, 1)
    return prepared, done, calls


def closed(prepared):
    prepared.close()
    vendor.CALLS.update(ORIGINAL)
    communicators.close_all_worlds()


def calls_of_nccl_tests(nbytes, largest, warmup, calls):
    """Return what TimeTest and BenchTime of src/common.cu do for a size (nccl-tests 2.19.6): offsets, and the rest.

    startColl shifts both buffers by ``totalnbytes * (iter % steps)``; completeColl waits.
    """

    def start(number):
        steps = largest // nbytes
        return nbytes * (number % steps)

    warm_up = [*map(start, range(warmup)), WAIT]
    synced = [FILL, start(0), WAIT, BARRIER]
    timed = [*map(start, range(calls)), WAIT]
    checked = [FILL, start(0), WAIT, CHECK]
    return warm_up + synced + timed + checked


def offsets(done, source, target):
    """Return what was done with the offset of each call, which is the same in both buffers, in place of its buffers."""
    found = []
    for each in done:
        if isinstance(each, tuple):
            assert each[0] - source == each[1] - target
            found.append(each[0] - source)
        else:
            found.append(each)
    return found


def agrees(collective, nbytes, largest, effort, numbers, **how):
    prepared, done, calls = rounds_calls(collective, nbytes, largest, effort, **how)
    operation, me = prepared.operation, COMM.rank
    source = address(operation.contribution(prepared.src, prepared.dst, me))
    expected = calls_of_nccl_tests(nbytes, largest, *numbers)
    assert offsets(done, source, address(prepared.result)) == expected
    assert calls == len([each for each in expected if isinstance(each, int)])
    assert (prepared.operations, prepared.operations_with_check) == (numbers[1], numbers[1] + 2)
    closed(prepared)


def the_calls_are_those_of_nccl_tests():
    agrees("all_reduce", 4096, 1 << 16, Effort(), (1, 20))
    agrees("all_reduce", 4096, 1 << 20, Effort(), (1, 20))
    agrees("all_reduce", 4096, 4096, Effort(), (1, 20), in_place=True)
    agrees("all_gather", 8192, 3 * 8192, Effort(), (1, 20))


def the_numbers_of_the_user_hold():
    agrees(
        "all_reduce", 1024, 1 << 14, Effort(loop_warmup=3, loop_iterations=7), (3, 7), in_place=True
    )
    agrees("all_reduce", 1024, 1 << 14, Effort(loop_warmup=0, loop_iterations=1), (0, 1))


def a_graph_replays_the_calls_at_their_offsets():
    prepared, _, calls = rounds_calls(
        "all_reduce", 1024, 1 << 14, Effort(loop_iterations=4), graph=1
    )
    assert calls == 0  # all are replayed
    sources = [source - address(prepared.src) for source, _ in CAPTURED[-4:]]
    assert sources == [0, 1024, 2048, 3072]
    closed(prepared)


def the_memory_is_that_of_nccl_tests_and_the_evidence_says_so():
    prepared, *_ = rounds_calls("all_reduce", 1024, 1024, Effort())
    assert "memory of ncclMemAlloc" in prepared.evidence(None)[1]
    closed(prepared)
    original = nccl_tests_timing.memory_of_nccl_tests
    nccl_tests_timing.memory_of_nccl_tests = lambda _comm: (
        None,
        "memory of cudaMalloc: no nccl4py",
    )
    prepared, *_ = rounds_calls("all_reduce", 1024, 1024, Effort())
    assert prepared.transport.buffers is None
    assert "cudaMalloc" in prepared.evidence(None)[1]
    closed(prepared)
    nccl_tests_timing.memory_of_nccl_tests = original


if __name__ == "__main__":
    run_checks(
        COMM,
        [
            the_calls_are_those_of_nccl_tests,
            the_numbers_of_the_user_hold,
            a_graph_replays_the_calls_at_their_offsets,
            the_memory_is_that_of_nccl_tests_and_the_evidence_says_so,
        ],
    )
