"""How operations on a stream are timed: what is queued, waited for and checked, in which order."""

from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import raw_examples

from hpccoll.cases.case import AGGREGATED, SINGLE, Effort
from hpccoll.measure.run.stream_timing import FLOOR_READINGS, StreamTiming, event_floor_ns
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).with_name("nccl_on_host_ranks.py")
OPERATIONS = 5


class Recorded:
    """A GPU, a plan and a check that record what is queued, in order; a wait ends at once."""

    def __init__(self):
        self.log = []
        self.stream = SimpleNamespace()
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
        self.log.append("wait")
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
    found = StreamTiming(
        made, made, made, OPERATIONS if timing == "aggregated" else None, in_place=in_place
    )
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


@pytest.mark.parametrize(
    ("timing", "in_place"), [("single", False), ("aggregated", False), ("aggregated", True)]
)
def test_operations_are_queued_after_the_barrier_between_two_events_with_one_wait(timing, in_place):
    found, made = timed(timing, in_place=in_place)
    count = OPERATIONS if timing == "aggregated" else 1
    one_more = ["reset", "operation", "wait"] if in_place else []
    batch = ["start", *["operation"] * count, "end", "wait"]
    assert iteration(found, made) == ["reset", "barrier", *batch, *one_more, "check"]
    assert found.operations == count


def test_the_floor_of_times_between_events_is_that_of_two_in_a_row_on_an_idle_stream():
    made, elapsed = Recorded(), iter([9000, *[2500] * 30])
    made.await_work = partial(made.log.append, "wait")
    made.record = lambda event: event.record(None)
    made.elapsed_ns = lambda _start, _end: next(elapsed)
    assert event_floor_ns(made) == 2500
    assert made.log == ["wait", "start", "end", "wait"] * FLOOR_READINGS


def case(timing, in_place, graph):
    about = {
        "transport": "nccl",
        "device": "cuda",
        "op": "sum",
        "timing": timing,
        "in_place": in_place,
    }
    return raw_examples.case(4096, params={"graph": graph}, **about)


@pytest.mark.mpi
def test_every_timing_is_measured_checked_and_stored(mpiexec, nccl_library, tmp_path):
    cases, out = (
        [case(*each) for each in product((SINGLE, AGGREGATED), (False, True), (0, 1))],
        tmp_path / "F.h5",
    )
    effort = Effort(warmup=1, min_iterations=8, max_iterations=8, timeout=60, operations=OPERATIONS)
    (tmp_path / "job.json").write_text(raw_examples.job(*cases, effort=effort).to_json())
    ended = mpiexec(
        2, RANKS, nccl_library, "--device", "cuda", "--job", tmp_path / "job.json", "--out", out
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = {row.case_id: row for row in read_results([out]).rows}
    ((attempt, outcomes),) = hdf5.read_raw_file(out).attempts
    assert [(outcome.status, outcome.wrong) for outcome in outcomes] == [("ok", 0)] * len(cases)
    for outcome in outcomes:
        row, times, count = (
            rows[outcome.case.id],
            outcome.times,
            OPERATIONS if "aggr" in outcome.case.timing else 1,
        )
        assert (row.timing, row.rule, row.operations, outcome.operations) == (
            outcome.case.timing,
            "max",
            count,
            count,
        )
        assert (times.max_ns == (times.end_ns - times.start_ns).max(axis=1)).all()
        assert (times.device_ns <= times.end_ns - times.start_ns).all()
        assert row.device_floor_s == max(attempt.provenance["event_floor_ns_of_rank"]) / 1e9 / count
        assert row.median_s == pytest.approx(np.median(times.max_ns) / 1e9 / count)
