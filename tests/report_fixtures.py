"""Synthetic results: an alpha-beta model of two algorithms, the library and the floor, with seeded noise."""

import random
from dataclasses import replace

import altair as alt
import pytest
import row_examples
from altair.utils.schemapi import validate_jsonschema

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.wire_bandwidth import add_headers
from hpccoll.store.rows import Gap, Results, Run

MODELS = {  # alpha in s and beta in s per byte, from p
    "ring": (lambda p: 2 * (p - 1) * 1.8e-6, lambda p: 2 * (p - 1) / p * 2.6e-10),
    "recursive_doubling": (
        lambda p: (p - 1).bit_length() * 2.4e-6,
        lambda p: (p - 1).bit_length() * 3.1e-10,
    ),
    "native": (lambda p: 1.3e-6 * p, lambda p: 2 * (p - 1) / p * 3.9e-10),
    "null": (lambda _p: 4e-7, lambda _p: 0.0),
}
CROSSED = {  # bytes over the wires by all nodes together, over S, from p
    "ring": lambda p: 2 * (p - 1),
    "recursive_doubling": lambda p: p * (p - 1).bit_length(),
    "native": lambda p: 2 * (p - 1),
}
CORES = 2
SIZES = (*(8 * 4**i for i in range(10)), 4 << 20)
MISSING = (
    Gap(
        case="ring 4 MiB 4 ranks in place", job="local", status="failed", reason="rank 2 was killed"
    ),
    Gap(
        case="ring 4 MiB 4 ranks",
        job="local",
        status="not run",
        reason="the job reached its time limit",
    ),
)
SKIPPED = (
    Gap(
        case="recursive_doubling 3 ranks",
        job="local",
        status="left out",
        reason="needs a power of two",
    ),
)


def modelled_seconds(algorithm, ranks, nbytes, in_place, noise):
    alpha, beta = MODELS[algorithm]
    seconds = 6e-7 + alpha(ranks) + beta(ranks) * nbytes + (0.0 if in_place else 4e-11 * nbytes)
    return seconds * max(1, 1.6 * ranks / CORES - 0.6) * noise.lognormvariate(0, 0.05)


@pytest.fixture(scope="session")
def valid():
    """Hold a chart against the schema of Vega-Lite, for which a report does not take the time, and return it."""
    schema = alt.load_schema()

    def valid(specification):
        validate_jsonschema(specification, schema)
        return specification

    return valid


@pytest.fixture(scope="session")
def make_row():
    """A row by its coordinates and its time; anything else may be changed."""

    return row_examples.make_row


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

    def make(*rows, runs=None, missing=(), skipped=(), scheduled=()):
        runs = (make_run(),) if runs is None else tuple(runs)
        planned = len(rows) + len(missing)
        return Results(
            rows=rows,
            runs=runs,
            planned=planned,
            missing=missing,
            skipped=skipped,
            scheduled=tuple(scheduled),
        )

    return make


@pytest.fixture
def group_of(of_rows):
    """``group_of(*rows, runs=None)`` returns the only group of some rows."""

    def make(*rows, runs=None):
        (group,) = chart_groups(of_rows(*rows, runs=runs))
        return group

    return make


def bed(**changes):
    """What a testbed of 100 Mbit/s says of itself; anything may be changed."""
    calibration = [
        {"bytes": n, "Bps": rate}
        for n, rate in ((1 << 18, 12780000), (1 << 20, 12500000), (4 << 20, WIRE))
    ]
    facts = {
        "name": "bed",
        "nodes": 8,
        "cpus": 2,
        "rate": "100mbit",
        "rate_bps": 100_000_000,
        "mtu": 9000,
    }
    return facts | {"wire_Bps": WIRE, "calibration": calibration} | changes


WIRE = 12_400_000


@pytest.fixture(scope="session")
def make_bed_run(make_run):
    """A run on the first nodes of a testbed; anything of the testbed may be changed."""

    def make(run_id="run-1", nodes=8, job="mpi.n8x1", hosts=None, **changes):
        provenance = {
            "hosts": hosts or [f"n{i + 1}" for i in range(nodes)],
            "testbed": bed(**changes),
            "ports": [
                {
                    "hosts": ["n1"],
                    "ports": [{"name": "eth0", "kind": "netdev", "mtu": 9000, "speed": 10000}],
                }
            ],
        }
        machine = "cluster bed, 2 CPUs of AMD EPYC a node"
        kind = "measured on a testbed"
        return make_run(run_id=run_id, job=job, kind=kind, machine=machine, provenance=provenance)

    return make


@pytest.fixture(scope="session")
def make_node_row(make_row):
    """A row with one rank on each of some nodes of a testbed; anything else may be changed."""

    def make(algorithm="ring", nodes=2, nbytes=4 << 20, **changes):
        crossed = CROSSED[algorithm](nodes) * nbytes
        usual = {
            "ranks": nodes,
            "nodes": nodes,
            "ranks_per_node": 1,
            "oversubscribed": False,
            "job": "mpi.n8x1",
            "kind": "measured on a testbed",
            "wire_bytes_predicted": None if algorithm == "native" else crossed,
            "wire_bytes_measured": round(add_headers(crossed, 9000)),
            "worker_sent_predicted": None if algorithm == "native" else crossed / nodes,
            "worker_sent_measured": add_headers(crossed, 9000) / nodes,
            "port_sent": {"eth0": add_headers(crossed, 9000) / nodes},
        }
        return make_row(algorithm, nbytes=nbytes, **(usual | changes))

    return make


@pytest.fixture(scope="session")
def testbed_results(make_node_row, make_bed_run, of_rows):
    """A sweep on a testbed: one job, a launch for each number of nodes, at what the wire lets through."""
    rows, runs = [], []
    for nodes, reached in ((2, 0.98), (4, 0.97), (8, 0.95)):
        run_id = f"run-{nodes}"
        runs.append(make_bed_run(run_id, nodes))
        for algorithm, crossed in CROSSED.items():
            for nbytes in (4096, 65536, 1 << 20, 4 << 20):
                seconds = 1e-4 * nodes + nbytes * crossed(nodes) / nodes / WIRE / reached
                rows.append(make_node_row(algorithm, nodes, nbytes, seconds=seconds, run_id=run_id))
    return of_rows(*rows, runs=runs)


@pytest.fixture(scope="session")
def results(make_row, of_rows):
    """A sweep as the product measures it: two ranks fit on the cores, three and four do not."""
    noise = random.Random(7)  # noqa: S311 - not cryptography
    rows = [
        make_row(
            algorithm,
            ranks,
            nbytes,
            in_place,
            seconds,
            noise.uniform(0.01, 0.1 if ranks <= CORES else 0.2),
        )
        for ranks in (2, 3, 4)
        for nbytes in SIZES
        for algorithm in MODELS
        for in_place in (False, True)
        if (algorithm, ranks) != ("recursive_doubling", 3)
        for seconds in [modelled_seconds(algorithm, ranks, nbytes, in_place, noise)]
    ]
    return of_rows(*rows, missing=MISSING, skipped=SKIPPED)
