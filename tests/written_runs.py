"""Raw files of runs of one sweep, whose rounds scatter and whose cases may be slower, written without MPI."""

import uuid
from functools import reduce

import numpy as np
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.store import hdf5
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import RawResults

SIZES = 1024, 4096, 16384, 65536
ITERATIONS, RANKS = 8, 2


def write_run(
    path, factors=(), *, seed=1, rounds=5, noise=0.005, between=0.0, provenance=None, **changes
):
    """Write the raw file of a run of two algorithms.

    Args:
        path: the file.
        factors: by algorithm and size, what its times are multiplied by; None leaves its result
            out.
        seed: the seed of all noise.
        rounds: the rounds of each case.
        noise: the standard deviation of the logarithms of round medians.
        between: that of the logarithms of the times of a case in further runs.
        provenance: what the run was measured with.
        changes: what differs in the outcomes.
    """
    generator, factors = np.random.default_rng(seed), dict(factors)
    cases = [
        raw_examples.case(size, algorithm=name)
        for name in ("ring", "recursive_doubling")
        for size in SIZES
    ]
    about = {"provenance": provenance} if provenance else {}
    raw = RawResults(path=path, job=raw_examples.job(*cases, effort=Effort(rounds=rounds)))
    raw.attempts.append((raw_examples.attempt(**{"run_id": str(uuid.uuid4()), **about}), []))
    for case in cases:
        factor = factors.get((case.algorithm, case.bytes), 1.0)
        level_ns = (case.bytes + 2000 * (case.algorithm == "ring")) * np.exp(
            between * generator.standard_normal()
        )
        of_rounds = [
            _round_times(
                level_ns * np.exp(noise * generator.standard_normal()) * (factor or 1),
                number,
                generator,
            )
            for number in range(1, rounds + 1)
        ]
        if factor is not None:
            times = reduce(CaseTimes.merge, of_rounds)
            raw.record(raw_examples.outcome(case, times=times, executed=case.algorithm, **changes))
    path.parent.mkdir(parents=True, exist_ok=True)
    hdf5.write_raw_file(raw, path)
    return path


def _round_times(level_ns, number, generator):
    """Return the times of a round, whose iterations scatter by 1 % around its median."""
    start = 10**9 * number + np.arange(ITERATIONS)[:, None] * 10**6 + np.arange(RANKS)
    durations = level_ns * np.exp(0.01 * generator.standard_normal((ITERATIONS, RANKS)))
    return CaseTimes.from_samples(
        start, start + durations.astype(np.int64), one_clock=True, round_number=number
    )
