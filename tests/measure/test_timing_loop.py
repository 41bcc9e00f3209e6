"""The timing loop, with a simulated clock and simulated ranks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.case import Effort
from hpccoll.measure.timing_loop import PythonLoop, RankProgress, iterations_left, measure

US = 1000
EFFORT = Effort(warmup=3, min_iterations=6, max_iterations=40, seconds=1.0, precision=0.02)


class World:
    """A clock that only moves when something is done, and one rank's part of an operation."""

    def __init__(self, durations, wrong=lambda _iteration: 0, overhead=10 * US, peers=()):
        self.now, self.cpu, self.iteration = 1_000_000, 0, 0
        self.durations, self.overhead, self.wrong_at, self.peers = durations, overhead, wrong, peers
        self.log = []

    def clock(self):
        return self.now

    def cpu_clock(self):
        return self.cpu

    # the subject
    def reset(self):
        self.log.append("reset")
        self.now += self.overhead

    def run(self):
        self.log.append("run")
        self.now += self.durations(self.iteration)
        self.cpu += self.durations(self.iteration) // 2
        self.iteration += 1

    def wrong(self):
        self.log.append("check")
        self.now += self.overhead
        return self.wrong_at(self.iteration - 1)

    def device_ns(self):
        return self.durations(self.iteration - 1) - 3

    # the other ranks
    def barrier(self):
        self.log.append("barrier")
        self.now += self.overhead

    def gather(self, local):
        return np.stack([local, *(peer(local) for peer in self.peers)], axis=-1)

    def summarise(self, local, summary, iterations):
        return summary.of(self.gather(local), iterations)

    def agree(self, more):
        return more


def run(world, effort=EFFORT, progress=None):
    progress = progress or RankProgress()
    loop = PythonLoop(world, world, progress, world.clock, world.cpu_clock)
    return measure(loop.run, world, effort, progress, world.clock)


def durations(samples):
    return list(np.max(samples.times.end_ns - samples.times.start_ns, axis=1))


def test_times_cover_the_operation_alone_without_warm_up():
    world, progress = (
        World(lambda i: 999 * US if i < 3 else 7 * US, wrong=lambda i: 100 if i < 3 else 2),
        RankProgress(),
    )
    samples = run(world, progress=progress)
    assert world.log == ["reset", "barrier", "run", "check"] * 9
    begin = 1_000_000 + 3 * (999 + 30) * US + 20 * US
    assert list(samples.times.start_ns[:, 0]) == [begin + i * 37 * US for i in range(6)]
    assert durations(samples) == [7 * US] * 6
    assert samples.times.device_ns.ravel().tolist() == [7 * US - 3] * 6
    assert (samples.converged, samples.cpu_s, samples.wrong) == (True, pytest.approx(3.5e-6), 6 * 2)
    assert (progress.iteration, progress.heartbeats >= 9) == (9, True)


def test_a_case_that_does_not_converge_ends_when_its_time_is_over():
    samples = run(
        World(lambda i: (10 + 90 * (i % 2)) * 1000 * US), replace(EFFORT, max_iterations=1000)
    )
    assert 5 <= len(durations(samples)) <= 25
    assert not samples.converged


def test_convergence_is_judged_by_the_slowest_rank():
    def noisy(local):
        return np.stack([local[0], local[1] + 500 * US * (np.arange(local.shape[1]) % 2), local[2]])

    samples = run(World(lambda _i: 10 * US, peers=[noisy]))
    assert not samples.converged
    assert samples.times.start_ns.shape == (40, 2)
    assert max(durations(samples)) == 510 * US


efforts = st.builds(
    Effort,
    warmup=st.integers(0, 5),
    min_iterations=st.integers(1, 30),
    max_iterations=st.integers(30, 300),
    seconds=st.floats(1e-6, 10),
    precision=st.floats(1e-4, 0.5),
)


@given(efforts, st.randoms(use_true_random=False), st.integers(1, 10**8))
def test_the_loop_always_ends_with_a_number_of_iterations_within_the_limits(effort, random, scale):
    world = World(lambda _i: random.randint(1, scale))
    samples = run(world, effort)
    assert effort.min_iterations <= len(samples.times.start_ns) <= effort.max_iterations
    assert world.iteration == effort.warmup + len(samples.times.start_ns)


def test_fewer_than_six_iterations_never_converge():
    assert iterations_left(replace(EFFORT, min_iterations=1), np.array([7] * 5), 0.1) == (5, False)
    assert iterations_left(EFFORT, np.array([7] * 6), 0.1) == (0, True)
    assert iterations_left(EFFORT, np.array([1, 100, 1, 100, 1]), 0.0) == (5, False), (
        "of a clock that stands still"
    )


def test_the_monitor_observes_blocks_of_timed_iterations_between_operations():
    class Monitor:
        def begin(self):
            world.log.append("begin")

        def after_block(self, iterations):
            world.log.append(iterations)

    world, progress = World(lambda _i: 8 * US), RankProgress()
    loop = PythonLoop(world, world, progress, world.clock, world.cpu_clock)
    samples = measure(loop.run, world, EFFORT, progress, world.clock, monitor=Monitor())
    blocks = [entry for entry in world.log if isinstance(entry, int)]
    assert sum(blocks) == len(samples.times.start_ns)
    iteration = ["reset", "barrier", "run", "check"]
    of_blocks = [entry for block in blocks for entry in (*iteration * block, block)]
    assert world.log == [*iteration * EFFORT.warmup, "begin", *of_blocks]
