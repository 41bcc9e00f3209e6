"""How operations on a stream are timed: what is queued, waited for and checked, in which order."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import raw_examples

from hpccoll.cases.case import TIMINGS, Effort
from hpccoll.measure.stream_timing import StreamTiming
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).with_name("nccl_on_host_ranks.py")
OPERATIONS = 5


class Recorded:
    """A GPU, a plan and a check that record what is queued, in order; a wait ends at once."""

    def __init__(self):
        self.log = []
        self.stream = SimpleNamespace(synchronize=partial(self.log.append, "wait"))
        self.events = iter(("start", "end"))

    def queue(self, name):
        self.log.append(name)

    # the GPU
    def event(self):
        name = next(self.events)
        return SimpleNamespace(record=lambda _stream: self.queue(name))

    # the plan
    def enqueue(self):
        self.queue("operation")

    def repeated(self, count):
        return lambda: [self.queue("operation") for _ in range(count)]

    def idle(self):
        return True

    def error(self):
        return None

    # the check
    def reset(self):
        self.log.append("reset")

    def wrong(self):
        self.log.append("check")
        return 3


def timed(timing, *, in_place=False):
    made = Recorded()
    found = StreamTiming(made, made, made, OPERATIONS if timing == "aggregated" else None, in_place=in_place)
    made.log.clear()
    return found, made


def iteration(found, made):
    """Run an iteration as the loop does, and return what was done."""
    found.reset()
    made.log.append("barrier")
    found.run()
    assert found.wrong() == 3
    done, made.log[:] = [*made.log], []
    return done


def test_a_single_operation_is_queued_after_the_barrier():
    found, made = timed("single")
    assert iteration(found, made) == ["reset", "barrier", "start", "operation", "end", "wait", "check"]
    assert found.operations == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_aggregated_operations_are_queued_between_two_events_with_one_wait(in_place):
    found, made = timed("aggregated", in_place=in_place)
    one_more = ["reset", "operation", "wait"] if in_place else []
    batch = ["start", *["operation"] * OPERATIONS, "end", "wait"]
    assert iteration(found, made) == ["reset", "barrier", *batch, *one_more, "check"]
    assert found.operations == OPERATIONS


@pytest.mark.parametrize("timing", TIMINGS)
def test_every_timing_waits_as_it_is_told(timing):
    found, made = timed(timing)
    found.wait_by(lambda done, _error: made.log.append(f"wait until {done()}"))
    assert iteration(found, made)[-2] == "wait until True"


@pytest.fixture(scope="module")
def launch(mpiexec, nccl_library, tmp_path_factory):
    """Run the cases on two ranks over NCCL on the host; returns the outcomes and the rows by the ids of cases."""

    def launch(*cases):
        place = tmp_path_factory.mktemp("timed")
        effort = Effort(warmup=1, min_iterations=8, max_iterations=8, timeout=60, operations=OPERATIONS)
        (place / "job.json").write_text(raw_examples.job(*cases, effort=effort).to_json())
        out = place / "F.h5"
        arguments = ["--device", "cuda", "--job", place / "job.json", "--out", out, "--exit-zero"]
        ended = mpiexec(2, RANKS, nccl_library, *arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        ((_, outcomes),) = hdf5.read_raw_file(out).attempts if out.exists() else ((None, ()),)
        results = read_results([out])
        return {outcome.case.id: outcome for outcome in outcomes}, {row.case_id: row for row in results.rows}

    return launch


def case(timing, **more):
    return raw_examples.case(**{"size": 4096, "transport": "nccl", "device": "cuda", "op": "sum"} | more, timing=timing)


@pytest.mark.mpi
def test_every_timing_is_measured_checked_and_stored(launch):
    cases = [
        case(timing, in_place=in_place, params={"graph": graph})
        for timing in TIMINGS for in_place in (False, True) for graph in (0, 1)
    ]  # fmt: skip
    outcomes, rows = launch(*cases)
    for asked in cases:
        outcome, row = outcomes[asked.id], rows[asked.id]
        assert (outcome.case, outcome.status, outcome.wrong) == (asked, "ok", 0), outcome.reason
        times, on_host = outcome.times, (outcome.times.end_ns - outcome.times.start_ns).max(axis=1)
        aggregated = asked.timing == "aggregated"
        assert (row.timing, row.rule) == (asked.timing, "max")
        assert outcome.operations == row.operations == (OPERATIONS if aggregated else 1)
        assert (times.max_ns == on_host).all()
        assert (times.device_ns <= times.end_ns - times.start_ns).all()
        assert row.median_s == pytest.approx(np.median(times.max_ns) / 1e9 / row.operations)
