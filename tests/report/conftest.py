"""Synthetic results: an alpha-beta model of three algorithms and the library, with seeded noise."""

import random
from dataclasses import replace

import pytest

from hpccoll.store.rows import Missing, Results, Row, Run

MACHINE = "2 cores of Intel Xeon Platinum 8481C on 1 node (hpc-login-3)"
MODELS = {  # alpha (s) and beta (s per byte) per rank, gains over out of place when in place
    "ring": (lambda p: 2 * (p - 1) * 1.8e-6, lambda p: 2 * (p - 1) / p * 2.6e-10),
    "recursive_doubling": (lambda p: (p - 1).bit_length() * 2.4e-6, lambda p: (p - 1).bit_length() * 3.1e-10),
    "native": (lambda p: 1.3e-6 * p, lambda p: 2 * (p - 1) / p * 3.9e-10),
    "null": (lambda _p: 4e-7, lambda _p: 0.0),
}
SIZES = tuple(8 * 4**i for i in range(10)) + (4 << 20,)


@pytest.fixture(scope="session")
def make_row():
    """A row by its coordinates; anything else may be replaced."""

    def make(algorithm="ring", ranks=2, nbytes=1024, in_place=False, median_s=1e-5, **changes):
        factor = 2 * (ranks - 1) / ranks
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
            median_s=median_s,
            p99_s=median_s * 1.7,
            ci_low_s=median_s * 0.97,
            ci_high_s=median_s * 1.03,
            algbw_Bps=nbytes / median_s,
            busbw_Bps=nbytes / median_s * factor,
            cpu_s=median_s,
            wire_bytes_predicted=0,
            wire_bytes_measured=None,
            wrong=0,
            status="ok",
            reason=None,
            converged=True,
            oversubscribed=ranks > 2,
            executed=algorithm,
            evidence="schedule run by us",
            kind="measured",
            floor=algorithm == "null",
        )
        return replace(row, **changes)

    return make


@pytest.fixture(scope="session")
def make_run():
    def make(run_id="run-1", machine=MACHINE, **changes):
        provenance = {"python": "3.12.3", "mpi": {"library": "MPICH 5.0.2", "abi": "mpich"}, "hosts": ["hpc-login-3"]}
        run = Run(
            run_id=run_id,
            job="local",
            attempt=1,
            created="2026-01-05T10:00:00Z",
            status="complete",
            kind="measured",
            machine=machine,
            path="results/quick/raw/local.h5",
            provenance=provenance,
        )
        return replace(run, **changes)

    return make


@pytest.fixture(scope="session")
def make_results(make_row, make_run):
    """Results of three algorithms and the library on some ranks; a row may be left out by ``keep``."""

    def make(ranks=(2, 3, 4), sizes=SIZES, keep=lambda row: True):
        noise = random.Random(7)  # noqa: S311 - not cryptography
        rows = []
        for p in ranks:
            for nbytes in sizes:
                for algorithm, (alpha, beta) in MODELS.items():
                    for in_place in (False, True):
                        t = alpha(p) + beta(p) * nbytes + 6e-7 + (0.0 if in_place else 4e-11 * nbytes)
                        t *= (1 if p <= 2 else 3.2 * p / 4) * noise.lognormvariate(0, 0.05)
                        ci = noise.uniform(0.01, 0.09 if p <= 2 else 0.25)
                        rows.append(
                            make_row(algorithm, p, nbytes, in_place, t, ci_low_s=t * (1 - ci), ci_high_s=t * (1 + ci))
                        )
        rows = [row for row in rows if keep(row)]
        missing = (
            Missing(
                case="all_reduce ring mpi 4 MiB 4 ranks in place",
                job="local",
                status="failed",
                reason="rank 2 was killed: out of memory",
            ),
            Missing(
                case="all_reduce ring mpi 4 MiB 4 ranks",
                job="local",
                status="not run",
                reason="the job reached its time limit",
            ),
        )
        skipped = (
            Missing(
                case="all_reduce recursive_doubling 3 ranks",
                job="local",
                status="skipped",
                reason="recursive_doubling needs a power-of-two number of workers",
            ),
        )
        return Results(
            rows=tuple(rows), runs=(make_run(),), planned=len(rows) + len(missing), missing=missing, skipped=skipped
        )

    return make


@pytest.fixture(scope="session")
def results(make_results):
    return make_results(keep=lambda row: (row.algorithm, row.ranks) != ("recursive_doubling", 3))
