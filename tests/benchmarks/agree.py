"""Do our numbers agree with C's: `hpccoll run` next to the plain C programs of c/, launch by launch.

``bench.py agree`` runs this. In each round every program is launched once for each thread level, in a random order, so
that what changes on the machine from minute to minute changes for all of them. A ratio is that of two medians of the
same round, and a table shows the median of these ratios. Where placements are not compared one by one, the faster of
in place and out of place counts, round by round.
"""

import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import floor, log10
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from launch import mpiexec, output, run_job
from settings import NATIVELY, Way

from hpccoll.cases.case import Case, Effort, Job
from hpccoll.cases.catalogue import distinct_placements
from hpccoll.common.units import format_size
from hpccoll.host.cpu_and_memory import cpu_model
from hpccoll.schedule import COLLECTIVES
from hpccoll.store.load_results import read_results
from hpccoll.store.statistics import median_ratio

SOURCES = Path(__file__).parent / "c"
LOOP, RING = "collectives", "ring"
"""The C programs: a loop of the library's own collectives, and a blocking ring."""
SKEW = ", skew"
"""What follows the name of a program where its skew is meant: see loop.h."""

OPTIMISATION = "-O3"

RANKS = 2
LEVELS = ("single", "multiple")
KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, *(4**k for k in range(2, 13)))  # to 16 MiB
FEW_SIZES = (8, 64 * KIB)
RING_SIZES = tuple(4**k for k in range(5, 14))  # 1 KiB to 64 MiB

EFFORT = Effort(warmup=5, min_iterations=10, max_iterations=10_000, seconds=0.1, precision=1e-6, rounds=1)
"""The effort for a case in a round, ours and C's (whose warm-up and most iterations are constants of loop.h). No median
becomes so precise: the time decides."""

SHARE, SECONDS = 0.15, 0.3e-6
"""How far ours may be from C's: so much of it, or so many seconds, or C's own spread, whichever is most."""

Times = tuple[float, ...]
"""Of each round, the median over iterations of the slowest rank, in seconds."""


def cases(collective: str, way: Way, sizes: Iterable[int]) -> tuple[Case, ...]:
    """Return the cases of a collective in all placements that it has."""
    family = COLLECTIVES[collective]
    return tuple(
        Case(
            collective=collective, algorithm=way.algorithm, transport=way.transport, bytes=nbytes, in_place=in_place,
            op="sum" if family.has_op else None, root=0 if family.rooted else None,
        )
        for nbytes in sizes for in_place in distinct_placements(collective, way.algorithm, (False, True))
    )  # fmt: skip


NATIVE_CASES = (
    *cases("all_reduce", NATIVELY, SIZES),
    *(case for name in ("broadcast", "all_gather", "all_to_all") for case in cases(name, NATIVELY, FEW_SIZES)),
    *cases("barrier", NATIVELY, FEW_SIZES[:1]),  # it has one size
)
DOUBLING, PIPELINED = Way("recursive_doubling"), Way("ring")
SHARED = tuple(Way(name, "shm") for name in ("direct", "ring", "recursive_doubling"))
RING_CASES = cases("all_reduce", PIPELINED, RING_SIZES)
OUR_CASES = (
    *NATIVE_CASES,
    *RING_CASES,
    *cases("all_reduce", DOUBLING, (8, KIB)),
    *(case for way in SHARED for case in cases("all_reduce", way, (KIB, 64 * KIB))),
)
C_CASES = {LOOP: NATIVE_CASES, RING: RING_CASES}


class Bound(NamedTuple):
    """How many times as long ours may take as something else, at one size of all_reduce."""

    level: str  # the thread level
    nbytes: int  # the size
    ours: tuple[Way, ...]  # the fastest of these counts
    other: tuple[Way, ...]  # likewise
    at_most: float | None  # the bound; None if the ratio is shown only
    program: str | None = None  # the C program that is ``other``; None for the same launch of hpccoll


BOUNDS = {
    "recursive_doubling and native, both by hpccoll": tuple(
        Bound(level, nbytes, (DOUBLING,), (NATIVELY,), at_most)
        for level, nbytes, at_most in (
            ("single", 8, 1.5), ("single", KIB, 1.35), ("multiple", 8, 1.0), ("multiple", KIB, 1.0),
        )
    ),
    "ring by hpccoll and the plain C ring": tuple(
        Bound(
            level, nbytes, (PIPELINED,), (PIPELINED,),
            None if level != "single" else 1 / 1.2 if nbytes == 64 * MIB else 1.0, RING,
        )
        for level in LEVELS for nbytes in RING_SIZES
    ),
    "Shared memory, native and messages, all by hpccoll": tuple(
        Bound(level, nbytes, SHARED, other, at_most if level == "single" else None)
        for level in LEVELS
        for nbytes, other, at_most in ((KIB, (PIPELINED, DOUBLING), 1.0), (64 * KIB, (NATIVELY,), 0.5))
    ),
}  # fmt: skip


@dataclass
class Found:
    """What was measured: for each program and thread level, one entry for each round, seconds by the id of a case."""

    rounds: dict[tuple[str, str], list[Mapping[str, float]]] = field(default_factory=dict)
    libraries: set[str] = field(default_factory=set)
    executors: dict[str, set[str]] = field(default_factory=dict)  # those that ran, by the requested one

    def add(self, program: str, level: str, library: str, seconds: Mapping[str, float]) -> None:
        self.libraries.add(re.sub(r"\s*Version:?\s*", " ", library))
        if len(self.libraries) > 1:
            raise SystemExit(f"MPI library: {' and '.join(sorted(self.libraries))}; valid: the same for all programs")
        self.rounds.setdefault((program, level), []).append(seconds)

    def times(self, program: str, level: str, of: Sequence[Case]) -> Times:
        """Return the time of the fastest of these cases in each round."""
        return tuple(min(seconds[case.id] for case in of) for seconds in self.rounds[program, level])

    def best(self, program: str, level: str, ways: Sequence[Way], nbytes: int) -> tuple[Way, Times]:
        """Return the fastest way of an all-reduce, and its times."""
        times = [(way, self.times(program, level, cases("all_reduce", way, (nbytes,)))) for way in ways]
        return min(times, key=lambda pair: median(pair[1]))


def compile_programs(into: Path) -> dict[str, Path] | str:
    """Return the compiled C programs by name, or the reason why there are none."""
    launcher = Path(mpiexec(RANKS)[0])
    compiler = launcher.with_name("mpicc")
    if not shutil.which(compiler):
        return f"there is no mpicc next to {launcher}; do: pip install mpich, or load the site's MPI with its compiler"
    programs = {name: into / name for name in C_CASES}
    for name, program in programs.items():
        output([str(compiler), OPTIMISATION, "-o", str(program), str(SOURCES / f"{name}.c")])
    return programs


def launch_c(found: Found, name: str, program: Path, level: str, order: random.Random) -> None:
    """Measure the cases of a C program in one launch."""
    named = {f"{case.collective}/{'in' if case.in_place else 'out'}/{case.bytes}": case.id for case in C_CASES[name]}
    words = order.sample([*named], len(named))
    command = [*mpiexec(RANKS), str(program), level, str(EFFORT.seconds), str(EFFORT.min_iterations), *words]
    first, *lines = map(json.loads, output(command).splitlines())
    for what, key in (("", "median_s"), (SKEW, "skew_s")):
        found.add(name + what, level, first["library"], {named[line["case"]]: line[key] for line in lines})


def launch_ours(found: Found, executor: str, raw: Path, level: str, seed: int) -> None:
    """Measure our cases in one launch; an empty ``executor`` is that which hpccoll uses by default."""
    job = Job(name="agree", ranks=RANKS, seed=seed, effort=EFFORT, executor=executor or None, cases=OUR_CASES)
    run_job(job, mpiexec(RANKS), raw, {"MPI4PY_RC_THREAD_LEVEL": level})
    results = read_results([raw])
    for row in results.rows:
        if row.status != "ok" or row.median_s is None or row.skew_s is None:
            raise SystemExit(f"{row.case_id}: {row.status}: {row.reason}")
    mpi = results.runs[0].provenance["mpi"]
    if mpi["threads"] != level:
        raise SystemExit(f"thread level of hpccoll run: {mpi['threads']}; valid: {level}, which the benchmark sets")
    found.executors.setdefault(executor, set()).update(row.executor for row in results.rows)
    found.add(executor, level, mpi["version"], {row.case_id: row.median_s for row in results.rows})
    found.add(executor + SKEW, level, mpi["version"], {row.case_id: row.skew_s for row in results.rows})


def measure(programs: Mapping[str, Path], executors: Sequence[str], rounds: int, keep: Path) -> Found:
    """Launch everything in turn, round by round; the medians of all rounds are left in ``keep``."""
    found = Found()
    for number in range(1, rounds + 1):
        order = random.Random(number)  # noqa: S311  an order, no secret
        for level in order.sample(LEVELS, len(LEVELS)):
            launches: list[Callable[[], None]] = [
                partial(launch_c, found, name, program, level, order) for name, program in programs.items()
            ]
            for executor in executors:
                raw = keep / f"agree-{level}-{executor or 'default'}-{number}.h5"
                launches.append(partial(launch_ours, found, executor, raw, level, number))
            for launch in order.sample(launches, len(launches)):
                launch()
        print(f"agree: round {number} of {rounds}", file=sys.stderr, flush=True)
    kept = {f"{program or 'hpccoll'}, {level}": seconds for (program, level), seconds in found.rounds.items()}
    (keep / "agree.json").write_text(json.dumps(kept, indent=1))
    return found


def microseconds(times: Times) -> str:
    """Format the median of times in us, with three significant digits."""
    value = float(f"{1e6 * median(times):.3g}")
    return f"{value:,.{max(0, 2 - floor(log10(value)))}f}" if value else "0"


def spread(times: Times) -> float:
    """Return the distance between the quartiles of the rounds, relative to their median."""
    if len(times) < 2:
        return 0.0
    low, _, high = quantiles(times, method="inclusive")
    return (high - low) / median(times)


def ratios(ours: Times, other: Times) -> Times:
    """Return the ratio of each round."""
    return tuple(a / b for a, b in zip(ours, other, strict=True))


class Line(NamedTuple):
    """A line of a table."""

    name: str  # its name in the summary
    cells: Sequence[str]  # what it shows
    verdict: str  # one of the words below
    # the times by each executor that is not judged, and their ratio to what ours is compared with
    others: Sequence[tuple[Times, float]]


REACHED, BY_SPREAD, BY_SKEW, MISSED, SHOWN = "reached", "by its spread", "faster, by its skew", "**missed**", "-"
"""The verdicts. If only C's own spread lets a line through, the machine was too busy to tell. If ours is faster than it
may be, but only by the larger skew with which ranks leave MPI_Barrier, which C's time includes, ours is not wrong."""

AGREEMENT = (
    "collective", "size:", "placement", "C loop, us:", "its spread:", "its skew, us:", "hpccoll, us:", "its skew, us:",
    "hpccoll / C:", "allowed:",
)  # fmt: skip
COMPARISON = (
    "thread level", "size:", "ours", "us:", "compared with", "us:", "ratio:", "at most:", "rounds within:",
)  # fmt: skip
"""The columns of tables; those that end with a colon are aligned to the right."""


def agreement(found: Found, executors: Sequence[str], level: str) -> Iterator[Line]:
    """Yield the lines that compare native by hpccoll with the C loop."""
    for case in NATIVE_CASES:
        family = COLLECTIVES[case.collective]
        loop = found.times(LOOP, level, [case])
        skew, our_skew = (found.times(name + SKEW, level, [case]) for name in (LOOP, executors[0]))
        (ours, ratio), *others = [
            (times, median_ratio(ratios(times, loop)))
            for times in (found.times(executor, level, [case]) for executor in executors)
        ]
        fixed = max(SHARE, SECONDS / median(loop))
        allowed = max(fixed, spread(loop))
        size = "-" if family.token else format_size(case.bytes)
        one_buffer = family.one_buffer or not family.out_of_place
        placement = "one buffer" if one_buffer else "in place" if case.in_place else "out of place"
        cells = [case.collective, size, placement, microseconds(loop), f"{spread(loop):.2f}", microseconds(skew)]
        cells += [microseconds(ours), microseconds(our_skew), f"{ratio:.2f}"]
        cells += [f"{max(0, 1 - allowed):.2f} to {1 + allowed:.2f}"]
        off, more_skew = abs(ratio - 1), (median(skew) - median(our_skew)) / median(loop)
        verdict = REACHED if off <= fixed else BY_SPREAD if off <= allowed else MISSED
        if verdict == MISSED and ratio < 1 and off <= fixed + more_skew:
            verdict = BY_SKEW
        name = " ".join(cell for cell in cells[:3] if cell not in ("-", "one buffer"))
        yield Line(name, cells, verdict, others)


def comparison(found: Found, executors: Sequence[str], bounds: Iterable[Bound]) -> Iterator[Line]:
    """Yield the lines of bounds."""
    for bound in bounds:
        judged, *others = [_compare(found, executor, bound) for executor in executors]
        size = format_size(bound.nbytes)
        cells = [bound.level, size, judged.way.name, microseconds(judged.times), judged.other.name]
        cells += [microseconds(judged.other_times), f"{judged.ratio:.2f}"]
        cells[4] = f"C {cells[4]}" if bound.program else cells[4]
        verdict = SHOWN
        if bound.at_most is None:
            cells += ["-", "-"]
        else:
            verdict = REACHED if judged.ratio <= bound.at_most else MISSED
            within = sum(ratio <= bound.at_most for ratio in ratios(judged.times, judged.other_times))
            cells += [f"{bound.at_most:.2f}", f"{within} of {len(judged.times)}"]
        yield Line(f"{bound.level} {size}", cells, verdict, [(other.times, other.ratio) for other in others])


class Compared(NamedTuple):
    """Ours and what it is compared with, each the fastest of its ways."""

    way: Way
    times: Times
    other: Way
    other_times: Times

    @property
    def ratio(self) -> float:
        return median_ratio(ratios(self.times, self.other_times))


def _compare(found: Found, executor: str, bound: Bound) -> Compared:
    return Compared(
        *found.best(executor, bound.level, bound.ours, bound.nbytes),
        *found.best(bound.program or executor, bound.level, bound.other, bound.nbytes),
    )


def print_table(columns: Sequence[str], lines: Iterable[Line], others: Sequence[str]) -> None:
    """Print lines with their verdicts; ``others`` are the executors that are not judged."""
    columns = [*columns, "verdict", *(column for name in others for column in (f"{name}, us:", "ratio:"))]
    print(f"| {' | '.join(column.rstrip(':') for column in columns)} |")
    print(f"| {' | '.join('--:' if column.endswith(':') else '---' for column in columns)} |")
    for line in lines:
        more = (cell for times, ratio in line.others for cell in (microseconds(times), f"{ratio:.2f}"))
        print(f"| {' | '.join((*line.cells, line.verdict, *more))} |")
    print()


def summary(lines: Sequence[Line]) -> str:
    """Return how many of the lines that have a bound are within it, and which are not."""
    verdicts = [line.verdict for line in lines if line.verdict != SHOWN]
    by_spread, by_skew = verdicts.count(BY_SPREAD), verdicts.count(BY_SKEW)
    missed = [line.name for line in lines if line.verdict == MISSED]
    words = f"{len(verdicts) - len(missed) - by_skew} of {len(verdicts)} reached"
    words += f" ({by_spread} of them only because C's own spread is larger)" if by_spread else ""
    words += f", {by_skew} faster than C by no more than its larger skew" if by_skew else ""
    return f"{words}; {MISSED}: {', '.join(missed)}" if missed else words


def load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def run(rounds: int, keep: Path, executors: Sequence[str] = ("",)) -> bool:
    """Measure, print the tables, and return whether all that is asked was reached.

    Args:
        rounds: the number of rounds.
        keep: the directory for raw files and compiled programs.
        executors: the executors of hpccoll, of which the first is judged and the others are shown.
    """
    programs = compile_programs(keep)
    missing = programs if isinstance(programs, str) else None
    before = load()
    found = measure({} if isinstance(programs, str) else programs, executors, rounds, keep)
    print(f"## agree: 1 x {RANKS} ranks\n")
    print(
        f"{len(os.sched_getaffinity(0))} CPUs of {cpu_model()}; load average {before} before, {load()} after;"
        f" {found.libraries.pop()}; hpccoll's executor: {' and '.join(sorted(found.executors[executors[0]]))};"
        f" C programs by mpicc {OPTIMISATION}; float32 sum; {rounds} rounds,"
        f" {EFFORT.seconds:g} s for a case in each.\n"
        "Times are medians over the rounds, ratios medians of the ratios of each round. A spread is the distance\n"
        "between the quartiles of the rounds over their median. Where no placement is named, the faster one counts.\n"
        "The skew is the time from the first rank's start to the last one's: a rank that leaves the barrier early\n"
        "waits in the operation, so that times include the skew.\n"
    )
    sections = [
        (f"native by hpccoll and the C loop, thread level {level}", AGREEMENT, partial(agreement, level=level), True)
        for level in LEVELS
    ]
    sections += [
        (title, COMPARISON, partial(comparison, bounds=bounds), any(bound.program for bound in bounds))
        for title, bounds in BOUNDS.items()
    ]
    all_lines, ends = list[Line](), list[str]()
    for title, columns, lines_of, needs_c in sections:
        print(f"### {title}\n")
        if missing and needs_c:
            print(f"Left out: {missing}\n")
            ends.append(f"- {title}: left out")
            continue
        lines = [*lines_of(found, executors)]
        print_table(columns, lines, executors[1:])
        ends.append(f"- {title}: {summary(lines)}")
        all_lines += lines
    print("\n".join(ends), end="\n\n", flush=True)
    return not missing and all(line.verdict != MISSED for line in all_lines)
