"""Ours beside the library's own, round by round, with what the wires allow, on one node and on the testbed.

By hand, on an idle machine; the testbed needs root:

    python tests/benchmarks/bench.py                # all of it, about 40 minutes
    python tests/benchmarks/bench.py node wire      # some settings of settings.py
    python tests/benchmarks/bench.py agree          # hpccoll next to plain C programs (agree.py), about 10 minutes
    python tests/benchmarks/bench.py --rounds 7 node > table.md

Each setting is one launch of the rank program: all cases take turns in rounds, each round in an order of its own, so
that a machine that others use as well slows all of them down. A ratio is that of two medians of the same round; what is
printed of several is their median. Of every way the better of in place and not counts. It ends with 1 where a setting
does not show what is asked of it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import agree
from bounds import bound_s
from launch import mpiexec, run_job
from settings import SETTINGS, Ask, Setting, Way

from hpccoll.cases.case import Effort, Job
from hpccoll.cases.catalogue import NATIVE
from hpccoll.common.units import format_size
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Row

TESTBED = Path(__file__).parents[2] / "slurm" / "testbed" / "testbed"
AGREE = "agree"
NAME = "bench"
"""Of the testbed, so that another one may be up."""

Times = tuple[float, ...]
"""Of each round, the median over iterations of the slowest rank, in seconds."""


@contextmanager
def launcher(setting: Setting) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Bring up what a setting runs on; yield what starts its ranks, and what the testbed says of its wires."""
    if not setting.testbed:
        yield mpiexec(setting.each), {}
        return
    subprocess.run([TESTBED, "up", "--name", NAME, *setting.testbed], check=True, stdout=subprocess.DEVNULL)
    try:
        said = subprocess.run([TESTBED, "status", "--name", NAME, "--json"], check=True, capture_output=True)
        hosts = [f"n{number + 1}" for number in range(setting.nodes) for _ in range(setting.each)]
        hosts += [f"a{number + 1}" for number in range(setting.aggregators)]
        everywhere = ["-p", "all"] if setting.aggregators else []
        yield [
            str(TESTBED), "run", "--name", NAME, "srun", "--mpi=pmi2", *everywhere, "--exclusive",
            "-n", str(len(hosts)), "--distribution=arbitrary", f"--nodelist={','.join(hosts)}",
        ], json.loads(said.stdout)["marker"]  # fmt: skip
    finally:
        subprocess.run([TESTBED, "down", "--name", NAME], check=False, stdout=subprocess.DEVNULL)


def measure(setting: Setting, rounds: int, start: Sequence[str], raw: Path) -> None:
    """Run all cases of a setting in one launch."""
    job = Job(
        name="bench", ranks=setting.nodes * setting.each, nodes=setting.nodes, aggregators=setting.aggregators,
        effort=Effort(
            warmup=1, min_iterations=setting.least,
            seconds=setting.seconds, precision=0.01, rounds=rounds,
        ),
        cases=tuple(setting.cases()),
    )  # fmt: skip
    run_job(job, start, raw)


def way_of(setting: Setting, row: Row) -> Way:
    return next(
        way
        for way in setting.ways
        if (way.algorithm, way.transport) == (row.algorithm, row.transport)
        and dict(way.params) == dict(row.params)
        and way.mapping in (None, row.mapping)
    )


def times(setting: Setting, rows: Sequence[Row]) -> dict[tuple[str, int], Times]:
    """Return of every way and size the faster placement of each round."""
    found: dict[tuple[str, int], Times] = {}
    for row in rows:
        if row.status != "ok":
            raise SystemExit(f"{row.case_id}: {row.status}: {row.reason}")
        key = way_of(setting, row).name, row.requested_bytes
        found[key] = tuple(map(min, zip(row.round_medians_s, found.get(key, row.round_medians_s), strict=True)))
    return found


def ratio(slower: Times, faster: Times) -> float:
    return median(a / b for a, b in zip(slower, faster, strict=True))


def bounds(setting: Setting, raw: Path, marker: Mapping[str, Any]) -> dict[tuple[str, int], float]:
    """Return what the wires allow every way of ours, by its name and size."""
    if not marker:
        return {}
    ((attempt, outcomes),) = hdf5.read_raw_file(raw).attempts
    by_id = {outcome.case.id: outcome for outcome in outcomes}
    found = {}
    for way in setting.ways:
        for case in setting.cases():
            ours = (case.algorithm, case.transport, case.params, case.mapping)
            if way.algorithm != NATIVE and ours == (way.algorithm, way.transport, way.params, way.mapping):
                found[way.name, case.bytes] = bound_s(case, attempt.layout, by_id[case.id].params, marker)
    return found


def table(setting: Setting, found: Mapping[tuple[str, int], Times], allowed: Mapping[tuple[str, int], float]) -> None:
    print("| size | way | ms, by round | median | wires allow | of that | native / it |")
    print("| --- | --- | --- | --: | --: | --: | --: |")
    for size in setting.sizes:
        natives = [found[name, size] for name, nbytes in found if nbytes == size and name.split()[0] == NATIVE]
        native = tuple(map(min, zip(*natives, strict=True)))
        for way in setting.ways:
            mine, bound = found[way.name, size], allowed.get((way.name, size))
            by_round = " ".join(f"{1e3 * t:.4g}" for t in mine)
            wires = f"{1e3 * bound:.4g} | {bound / median(mine):.1%}" if bound else "- | -"
            print(
                f"| {format_size(size)} | {way.name} | {by_round} | {1e3 * median(mine):.4g} | {wires} |"
                f" {ratio(native, mine):.2f} |"
            )
    print()


def shown(ask: Ask, found: Mapping[tuple[str, int], Times], allowed: Mapping[tuple[str, int], float]) -> bool:
    """Print whether what is asked was reached."""
    best = min(ask.ours, key=lambda name: median(found[name, ask.nbytes]))
    mine = found[best, ask.nbytes]
    if ask.of is None:
        got, what = median(allowed[best, ask.nbytes] / t for t in mine), "of what the wires allow"
    else:
        got, what = ratio(found[ask.of, ask.nbytes], mine), f"times as fast as {ask.of}"
    reached = got >= ask.at_least
    print(
        f"- {format_size(ask.nbytes)}: {best} {got:.3f} {what}, asked {ask.at_least:.2f}:"
        f" {'reached' if reached else '**missed**'}"
    )
    return reached


def run(name: str, rounds: int, keep: Path) -> bool:
    setting = SETTINGS[name]
    raw = keep / f"{name}.h5"
    load = os.getloadavg()[0]
    print(f"{name}: {sum(1 for _ in setting.cases())} cases, {rounds} rounds...", file=sys.stderr, flush=True)
    with launcher(setting) as (start, marker):
        measure(setting, rounds, start, raw)
    results = read_results([raw])
    ranks = f"{setting.nodes} x {setting.each}" + (f" + {setting.aggregators} aggregators" * bool(setting.aggregators))
    print(f"## {name}: {ranks} ranks\n")
    print(f"{results.runs[0].created}, {results.runs[0].machine}; load before it {load:.1f}; {results.runs[0].kind}.")
    if marker:
        carry = f"{marker['wire_Bps'] / 1e6:.2f} MB/s" + (
            f", uplinks {marker['uplink_Bps'] / 1e6:.2f} MB/s" if marker.get("uplink_Bps") else ""
        )
        print(f"`testbed up {' '.join(setting.testbed)}`: wires calibrated at {carry}.")
    print()
    found, allowed = times(setting, results.rows), bounds(setting, raw, marker)
    table(setting, found, allowed)
    reached = [shown(ask, found, allowed) for ask in setting.asks]
    print(flush=True)
    return all(reached)


def main() -> int:
    names = [AGREE, *SETTINGS]
    parse = argparse.ArgumentParser(description="Measure ours beside the library's own.")
    parse.add_argument("settings", nargs="*", default=names, metavar="SETTING", help=", ".join(names))
    parse.add_argument("--rounds", type=int, help=f"rounds of a setting [5; {AGREE}: 7]")
    parse.add_argument("--keep", type=Path, help="where raw files stay [nowhere]")
    parse.add_argument(
        "--executors", nargs="+", default=[""], metavar="E",
        help=f"{AGREE}: executors of hpccoll run, of which the first is judged [its default]",
    )  # fmt: skip
    asked = parse.parse_args()
    if strange := [name for name in asked.settings if name not in names]:
        parse.error(f"{strange[0]}: choose from {', '.join(names)}")
    with tempfile.TemporaryDirectory() as scratch:
        keep = asked.keep or Path(scratch)
        keep.mkdir(parents=True, exist_ok=True)
        reached = [  # all of them, whatever one shows
            agree.run(asked.rounds or 7, keep, asked.executors) if name == AGREE else run(name, asked.rounds or 5, keep)
            for name in asked.settings
        ]
        return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
