"""Synthetic results: an alpha-beta model of two algorithms, the library and the floor, with seeded noise."""

import random
from dataclasses import replace

import pytest

from hpccoll.store.rows import Missing, Results, Row, Run

MODELS = {  # alpha in s and beta in s per byte, from p
    "ring": (lambda p: 2 * (p - 1) * 1.8e-6, lambda p: 2 * (p - 1) / p * 2.6e-10),
    "recursive_doubling": (lambda p: (p - 1).bit_length() * 2.4e-6, lambda p: (p - 1).bit_length() * 3.1e-10),
    "native": (lambda p: 1.3e-6 * p, lambda p: 2 * (p - 1) / p * 3.9e-10),
    "null": (lambda _p: 4e-7, lambda _p: 0.0),
}
CORES = 2
SIZES = (*(8 * 4**i for i in range(10)), 4 << 20)
MISSING = (
    Missing(case="ring 4 MiB 4 ranks in place", job="local", status="failed", reason="rank 2 was killed"),
    Missing(case="ring 4 MiB 4 ranks", job="local", status="not run", reason="the job reached its time limit"),
)
SKIPPED = (Missing(case="recursive_doubling 3 ranks", job="local", status="skipped", reason="needs a power of two"),)


def modelled_seconds(algorithm, ranks, nbytes, in_place, noise):
    alpha, beta = MODELS[algorithm]
    seconds = 6e-7 + alpha(ranks) + beta(ranks) * nbytes + (0.0 if in_place else 4e-11 * nbytes)
    return seconds * max(1, 1.6 * ranks / CORES - 0.6) * noise.lognormvariate(0, 0.05)


@pytest.fixture(scope="session")
def make_row():
    """A row by its coordinates and its time; anything else may be changed."""

    def make(algorithm="ring", ranks=2, nbytes=1024, in_place=False, seconds=1e-5, half_interval=0.03, **changes):
        row = Row(
            case_id=f"{algorithm}-{ranks}-{nbytes}-{in_place:d}",
            run_id="run-1",
            job="local",
            attempt=1,
            collective="all_reduce",
            algorithm=algorithm,
            transport="vendor" if algorithm == "native" else "mpi",
            device="host",
            dtype="float32",
            op="sum",
            in_place=in_place,
            mapping="block",
            root=None,
            params={},
            variant=None,
            bytes=nbytes,
            requested_bytes=nbytes,
            ranks=ranks,
            nodes=1,
            ranks_per_node=ranks,
            aggregators=0,
            iterations=400,
            timing="max",
            median_s=seconds,
            p99_s=seconds * 1.7,
            ci_low_s=seconds * (1 - half_interval),
            ci_high_s=seconds * (1 + half_interval),
            algbw_Bps=nbytes / seconds,
            busbw_Bps=nbytes / seconds * 2 * (ranks - 1) / ranks,
            cpu_s=seconds,
            wire_bytes_predicted=0,
            wire_bytes_measured=None,
            wrong=0,
            status="ok",
            reason=None,
            converged=True,
            oversubscribed=ranks > CORES,
            executed=algorithm,
            evidence="schedule run by us",
            kind="measured",
            floor=algorithm == "null",
        )
        return replace(row, **changes)

    return make


@pytest.fixture(scope="session")
def make_run():
    """A run on one machine; anything may be changed."""

    def make(**changes):
        run = Run(
            run_id="run-1",
            job="local",
            attempt=1,
            created="2026-01-05T10:00:00Z",
            status="complete",
            kind="measured",
            machine="2 cores of Intel Xeon Platinum 8481C on 1 node (alpha)",
            path="results/quick/raw/local.h5",
            provenance={"python": "3.12.3", "mpi": {"library": "MPICH 5.0.2"}, "hosts": ["alpha"]},
        )
        return replace(run, **changes)

    return make


@pytest.fixture(scope="session")
def of_rows(make_run):
    """Results of the rows given, of one run unless others are named."""

    def make(*rows, runs=None, missing=(), skipped=()):
        runs = (make_run(),) if runs is None else tuple(runs)
        return Results(rows=rows, runs=runs, planned=len(rows) + len(missing), missing=missing, skipped=skipped)

    return make


@pytest.fixture(scope="session")
def results(make_row, of_rows):
    """A sweep as the product measures it: two ranks fit on the cores, three and four do not."""
    noise = random.Random(7)  # noqa: S311 - not cryptography
    rows = [
        make_row(algorithm, ranks, nbytes, in_place, seconds, noise.uniform(0.01, 0.1 if ranks <= CORES else 0.2))
        for ranks in (2, 3, 4)
        for nbytes in SIZES
        for algorithm in MODELS
        for in_place in (False, True)
        if (algorithm, ranks) != ("recursive_doubling", 3)
        for seconds in [modelled_seconds(algorithm, ranks, nbytes, in_place, noise)]
    ]
    return of_rows(*rows, missing=MISSING, skipped=SKIPPED)
