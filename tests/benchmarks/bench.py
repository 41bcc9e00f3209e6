"""Ours beside the library's own, round by round, with what the wires allow, on one node and on the testbed.

By hand, on an idle machine; the testbed needs root:

    python tests/benchmarks/bench.py                # all of it, about 40 minutes
    python tests/benchmarks/bench.py node wire      # some settings of settings.py; node: with Intel MPI and Open MPI
    python tests/benchmarks/bench.py libraries      # the last part of node alone (libraries.py), a minute for 3 rounds
    python tests/benchmarks/bench.py agree          # hpccoll next to plain C programs (agree.py), about 10 minutes
    python tests/benchmarks/bench.py --rounds 7 node > table.md

Each setting is one launch of the rank program: all cases take turns in rounds, each round in an
order of its own, so that a machine that others use as well slows all of them down. A ratio is that
of two medians of the same round; what is printed of several is their median. Of every way the
better of in place and not counts. It ends with 1 where a setting does not show what is asked of it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import agree
import libraries
from bounds import bound_s
from launch import mpiexec, run_job
from settings import SETTINGS, Ask, Setting, Way
from tables import Times, fastest, print_table, ratio, verdict
from testbed_bench import TESTBED, setting_parser

from hpccoll.cases.case import Case, Effort, Job
from hpccoll.cases.catalogue import NATIVE
from hpccoll.common.units import format_size
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Row

AGREE, LIBRARIES, NODE = "agree", "libraries", "node"
NAME = "bench"
"""Of the testbed, so that another one may be up."""


@contextmanager
def launcher(setting: Setting) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Bring up what a setting runs on; yield what starts its ranks, and what the testbed says of its wires."""
    if not setting.testbed:
        yield mpiexec(setting.each), {}
        return
    subprocess.run(
        [TESTBED, "up", "--name", NAME, *setting.testbed], check=True, stdout=subprocess.DEVNULL
    )
    try:
        said = subprocess.run(
            [TESTBED, "status", "--name", NAME, "--json"], check=True, capture_output=True
        )
        hosts = [f"n{number + 1}" for number in range(setting.nodes) for _ in range(setting.each)]
        hosts += [f"a{number + 1}" for number in range(setting.aggregators)]
        everywhere = ["-p", "all"] if setting.aggregators else []
        yield (
            [
                str(TESTBED),
                "run",
                "--name",
                NAME,
                "srun",
                "--mpi=pmi2",
                *everywhere,
                "--exclusive",
                "-n",
                str(len(hosts)),
                "--distribution=arbitrary",
                f"--nodelist={','.join(hosts)}",
            ],
            json.loads(said.stdout)["marker"],
        )
    finally:
        subprocess.run([TESTBED, "down", "--name", NAME], check=False, stdout=subprocess.DEVNULL)


def measure(setting: Setting, rounds: int, start: Sequence[str], raw: Path) -> None:
    """Run all cases of a setting in one launch."""
    job = Job(
        name="bench",
        ranks=setting.nodes * setting.each,
        nodes=setting.nodes,
        aggregators=setting.aggregators,
        effort=Effort(
            warmup=1,
            min_iterations=setting.least,
            seconds=setting.seconds,
            precision=0.01,
            rounds=rounds,
        ),
        cases=tuple(setting.cases()),
    )
    run_job(job, start, raw)


def way_of(setting: Setting, of: Case | Row) -> Way:
    return next(
        way
        for way in setting.ways
        if (way.algorithm, way.transport, dict(way.params))
        == (of.algorithm, of.transport, dict(of.params))
        and way.mapping in (None, of.mapping)
    )


def times(setting: Setting, rows: Sequence[Row]) -> dict[tuple[str, int], Times]:
    """Return of every way and size the faster placement of each round."""
    found = defaultdict[tuple[str, int], list[Times]](list)
    for row in rows:
        if row.status != "ok":
            raise SystemExit(f"{row.case_id}: {row.status}: {row.reason}")
        found[way_of(setting, row).name, row.requested_bytes].append(tuple(row.round_medians_s))
    return {key: fastest(placements) for key, placements in found.items()}


def bounds(setting: Setting, raw: Path, marker: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """Return what the wires allow every way of ours, by its name and size."""
    if not marker:
        return {}
    ((attempt, outcomes),) = hdf5.read_raw_file(raw).attempts
    by_id = {outcome.case.id: outcome for outcome in outcomes}
    return {
        (way_of(setting, case).name, case.bytes): bound_s(
            case, attempt.layout, by_id[case.id].params, marker
        )
        for case in setting.cases()
        if case.algorithm != NATIVE
    }


def rows_of(
    setting: Setting,
    found: Mapping[tuple[str, int], Times],
    allowed: Mapping[tuple[str, int], float],
) -> Iterator[tuple[str, ...]]:
    for size in setting.sizes:
        native = fastest(
            mine
            for (name, nbytes), mine in found.items()
            if (name.split()[0], nbytes) == (NATIVE, size)
        )
        for way in setting.ways:
            mine, bound = found[way.name, size], allowed.get((way.name, size))
            in_ms = [f"{1e3 * t:.4g}" for t in (*mine, median(mine))]
            wires = (f"{1e3 * bound:.4g}", f"{bound / median(mine):.1%}") if bound else ("-", "-")
            yield (
                format_size(size),
                way.name,
                " ".join(in_ms[:-1]),
                in_ms[-1],
                *wires,
                f"{ratio(native, mine):.2f}",
            )


def shown(
    ask: Ask, found: Mapping[tuple[str, int], Times], allowed: Mapping[tuple[str, int], float]
) -> bool:
    """Print whether what is asked was reached."""
    best = min(ask.ours, key=lambda name: median(found[name, ask.nbytes]))
    mine = found[best, ask.nbytes]
    if ask.of is None:
        got, what = ratio((allowed[best, ask.nbytes],) * len(mine), mine), "of what the wires allow"
    else:
        got, what = ratio(found[ask.of, ask.nbytes], mine), f"times as fast as {ask.of}"
    return verdict(
        format_size(ask.nbytes),
        f"{best} {got:.3f} {what}, asked {ask.at_least:.2f}",
        got >= ask.at_least,
    )


def run(name: str, rounds: int, keep: Path) -> bool:
    setting = SETTINGS[name]
    raw = keep / f"{name}.h5"
    load = os.getloadavg()[0]
    print(
        f"{name}: {sum(1 for _ in setting.cases())} cases, {rounds} rounds...",
        file=sys.stderr,
        flush=True,
    )
    with launcher(setting) as (start, marker):
        measure(setting, rounds, start, raw)
    results = read_results([raw])
    ranks = f"{setting.nodes} x {setting.each}" + (
        f" + {setting.aggregators} aggregators" * bool(setting.aggregators)
    )
    print(f"## {name}: {ranks} ranks\n")
    print(
        f"{results.runs[0].created}, {results.runs[0].machine}; load before it {load:.1f}; {results.runs[0].kind}."
    )
    if marker:
        uplink = marker.get("uplink_Bps")
        carry = f"{marker['wire_Bps'] / 1e6:.2f} MB/s" + (
            f", uplinks {uplink / 1e6:.2f} MB/s" if uplink else ""
        )
        print(f"`testbed up {' '.join(setting.testbed)}`: wires calibrated at {carry}.")
    print()
    found, allowed = times(setting, results.rows), bounds(setting, raw, marker)
    head = "size", "way", "ms, by round", "median:", "wires allow:", "of that:", "native / it:"
    print_table(head, rows_of(setting, found, allowed))
    reached = [shown(ask, found, allowed) for ask in setting.asks]
    print(flush=True)
    return all(reached) and (name != NODE or libraries.run(rounds, keep))


def main() -> int:
    parse = setting_parser("Measure ours beside the library's own.", [AGREE, LIBRARIES, *SETTINGS])
    parse.add_argument("--rounds", type=int, help=f"rounds of a setting [5; {AGREE}: 7]")
    parse.add_argument("--keep", type=Path, help="where raw files stay [nowhere]")
    asked = parse.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        keep = asked.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        programs = {
            AGREE: partial(agree.run, asked.rounds or 7),
            LIBRARIES: partial(libraries.run, asked.rounds or 7),
        }
        settings = {name: partial(run, name, asked.rounds or 5) for name in SETTINGS}
        # all of them, whatever one shows
        reached = [(programs | settings)[name](keep) for name in asked.settings]
        return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
