"""Do our numbers agree with C's: `hpccoll run` next to the plain C programs of c/, launch by launch.

``bench.py agree`` runs this. In each round every program is launched once for each thread level, in
a random order, so that what changes on the machine from minute to minute changes for all of them. A
ratio is that of two medians of the same round, and a table shows the median of these ratios. Where
placements are not compared one by one, the faster of in place and out of place counts, round by
round.
"""

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

from launch import mpiexec, output, run_job
from settings import NATIVELY, Way
from tables import Times, print_table, ratio, ratios

from hpccoll.cases.case import Case, Effort, Job
from hpccoll.cases.catalogue import distinct_placements
from hpccoll.common.text import join_words
from hpccoll.common.units import format_seconds, format_size
from hpccoll.host.cpu_and_memory import cpu_model
from hpccoll.schedule import COLLECTIVES
from hpccoll.store.load_results import read_results

SOURCES = Path(__file__).parent / "c"
OURS, LOOP, RING = "hpccoll", "collectives", "ring"
"""The programs: ``hpccoll run``, and in C a loop of the library's own collectives, and a blocking ring."""

OPTIMISATION = "-O3"

RANKS = 2
LEVELS = ("single", "multiple")
KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, *(4**k for k in range(2, 13)))  # to 16 MiB
FEW_SIZES = (8, 64 * KIB)
RING_SIZES = tuple(4**k for k in range(5, 14))  # 1 KiB to 64 MiB

EFFORT = Effort(
    warmup=5, min_iterations=10, max_iterations=10_000, seconds=0.1, precision=1e-6, rounds=1
)
"""The effort for a case in a round, ours and C's (whose warm-up and most iterations are constants
of loop.h). No median becomes so precise: the time decides."""

SHARE, SECONDS = 0.15, 0.3e-6
"""How far ours may be from C's: so much of it, or so many seconds, or C's own spread, whichever is most."""


def cases(collective: str, way: Way, sizes: Iterable[int]) -> tuple[Case, ...]:
    """Return the cases of a collective in all placements that it has."""
    family = COLLECTIVES[collective]
    return tuple(
        Case(
            collective=collective,
            algorithm=way.algorithm,
            transport=way.transport,
            bytes=nbytes,
            in_place=in_place,
            op="sum" if family.has_op else None,
            root=0 if family.rooted else None,
        )
        for nbytes in sizes
        for in_place in distinct_placements(collective, way.algorithm, (False, True))
    )


NATIVE_CASES = (
    *cases("all_reduce", NATIVELY, SIZES),
    *(
        case
        for name in ("broadcast", "all_gather", "all_to_all")
        for case in cases(name, NATIVELY, FEW_SIZES)
    ),
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
    program: str = OURS  # that of ``other``


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


class Launch(NamedTuple):
    """What was measured in one launch of a program."""

    library: str  # the version of the MPI library
    # the median and the skew (see loop.h) by the id of a case
    seconds: Mapping[str, tuple[float, float]]
    executors: frozenset[str] = frozenset()  # of hpccoll


class Found:
    """The launches of each program and thread level, one for each round."""

    def __init__(self) -> None:
        self.launches: dict[tuple[str, str], list[Launch]] = {}

    def add(self, program: str, level: str, launch: Launch) -> None:
        self.launches.setdefault((program, level), []).append(launch)
        libraries = {launch.library for launches in self.launches.values() for launch in launches}
        if len(libraries) > 1:
            raise SystemExit(
                f"MPI library: {' and '.join(sorted(libraries))}; valid: the same for all programs"
            )

    def times(self, program: str, level: str, of: Sequence[Case], *, skew: bool = False) -> Times:
        """Return the time, or the skew, of the fastest of these cases in each round."""
        return tuple(
            min(at.seconds[case.id][skew] for case in of) for at in self.launches[program, level]
        )

    def best(self, program: str, level: str, ways: Sequence[Way], nbytes: int) -> tuple[Way, Times]:
        """Return the fastest way of an all-reduce, and its times."""
        times = [
            (way, self.times(program, level, cases("all_reduce", way, (nbytes,)))) for way in ways
        ]
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


def launch_c(name: str, program: Path, level: str, order: random.Random) -> Launch:
    """Measure the cases of a C program in one launch."""
    named = {
        f"{case.collective}/{'in' if case.in_place else 'out'}/{case.bytes}": case.id
        for case in C_CASES[name]
    }
    words = order.sample([*named], len(named))
    command = [
        *mpiexec(RANKS),
        str(program),
        level,
        str(EFFORT.seconds),
        str(EFFORT.min_iterations),
        *words,
    ]
    first, *lines = map(json.loads, output(command).splitlines())
    return Launch(
        version(first["library"]),
        {named[at["case"]]: (at["median_s"], at["skew_s"]) for at in lines},
    )


def launch_ours(raw: Path, level: str, seed: int) -> Launch:
    """Measure our cases in one launch."""
    job = Job(name="agree", ranks=RANKS, seed=seed, effort=EFFORT, cases=OUR_CASES)
    run_job(job, mpiexec(RANKS), raw, {"MPI4PY_RC_THREAD_LEVEL": level})
    results = read_results([raw])
    seconds = {}
    for row in results.rows:
        if row.status != "ok" or row.median_s is None or row.skew_s is None:
            raise SystemExit(f"{row.case_id}: {row.status}: {row.reason}")
        seconds[row.case_id] = row.median_s, row.skew_s
    mpi = results.runs[0].provenance["mpi"]
    if mpi["threads"] != level:
        raise SystemExit(
            f"thread level of hpccoll run: {mpi['threads']}; valid: {level}, which the benchmark sets"
        )
    return Launch(version(mpi["version"]), seconds, frozenset(row.executor for row in results.rows))


def version(library: str) -> str:
    return re.sub(r"\s*Version:?\s*", " ", library)


def measure(programs: Mapping[str, Path], rounds: int, keep: Path) -> Found:
    """Launch everything in turn, round by round; the times of all launches are left in ``keep``."""
    found = Found()
    for number in range(1, rounds + 1):
        order = random.Random(number)  # noqa: S311  an order, no secret
        for level in order.sample(LEVELS, len(LEVELS)):
            for name in order.sample([OURS, *programs], 1 + len(programs)):
                raw = keep / f"agree-{level}-{number}.h5"
                ours = name == OURS
                launch = (
                    launch_ours(raw, level, number)
                    if ours
                    else launch_c(name, programs[name], level, order)
                )
                found.add(name, level, launch)
        print(f"agree: round {number} of {rounds}", file=sys.stderr, flush=True)
    kept = {
        ", ".join(key): [launch.seconds for launch in launches]
        for key, launches in found.launches.items()
    }
    (keep / "agree.json").write_text(json.dumps(kept, indent=1))
    return found


def spread(times: Times) -> float:
    """Return the distance between the quartiles of the rounds, relative to their median."""
    if len(times) < 2:
        return 0.0
    low, _, high = quantiles(times, method="inclusive")
    return (high - low) / median(times)


def shown(times: Times) -> str:
    return format_seconds(median(times))


class Line(NamedTuple):
    """A line of a table."""

    name: str  # its name in the summary
    cells: Sequence[str]  # what it shows
    verdict: str  # one of the words below


REACHED, BY_SPREAD, BY_SKEW, MISSED, SHOWN = (
    "reached",
    "by its spread",
    "faster, by its skew",
    "**missed**",
    "-",
)
"""The verdicts. If only C's own spread lets a line through, the machine was too busy to tell. If
ours is faster than it may be, but only by the larger skew with which ranks leave MPI_Barrier, which
C's time includes, ours is not wrong."""

AGREEMENT = (
    "collective",
    "size:",
    "placement",
    "C loop:",
    "its spread:",
    "its skew:",
    "hpccoll:",
    "its skew:",
    "hpccoll / C:",
    "allowed:",
    "verdict",
)
COMPARISON = (
    "thread level",
    "size:",
    "ours",
    "time:",
    "compared with",
    "time:",
    "ratio:",
    "at most:",
    "rounds within:",
    "verdict",
)


def agreement(found: Found, level: str) -> Iterator[Line]:
    """Yield the lines that compare native by hpccoll with the C loop."""
    for case in NATIVE_CASES:
        family = COLLECTIVES[case.collective]
        loop, ours = (found.times(name, level, [case]) for name in (LOOP, OURS))
        skew, our_skew = (found.times(name, level, [case], skew=True) for name in (LOOP, OURS))
        quotient = ratio(ours, loop)
        fixed = max(SHARE, SECONDS / median(loop))
        allowed = max(fixed, spread(loop))
        one_buffer = family.one_buffer or not family.out_of_place
        where = (
            case.collective,
            "-" if family.token else format_size(case.bytes),
            "one buffer" if one_buffer else "in place" if case.in_place else "out of place",
        )
        cells = (
            *where,
            shown(loop),
            f"{spread(loop):.2f}",
            shown(skew),
            shown(ours),
            shown(our_skew),
            f"{quotient:.2f}",
            f"{max(0, 1 - allowed):.2f} to {1 + allowed:.2f}",
        )
        off, more_skew = abs(quotient - 1), (median(skew) - median(our_skew)) / median(loop)
        verdict = REACHED if off <= fixed else BY_SPREAD if off <= allowed else MISSED
        if verdict == MISSED and quotient < 1 and off <= fixed + more_skew:
            verdict = BY_SKEW
        yield Line(
            " ".join(cell for cell in where if cell not in ("-", "one buffer")), cells, verdict
        )


def comparison(found: Found, bounds: Iterable[Bound]) -> Iterator[Line]:
    """Yield the lines of bounds."""
    for bound in bounds:
        way, ours = found.best(OURS, bound.level, bound.ours, bound.nbytes)
        other_way, other = found.best(bound.program, bound.level, bound.other, bound.nbytes)
        by_round, quotient, size = (
            ratios(ours, other),
            ratio(ours, other),
            format_size(bound.nbytes),
        )
        prefix = "" if bound.program == OURS else "C "
        cells = (
            bound.level,
            size,
            way.name,
            shown(ours),
            prefix + other_way.name,
            shown(other),
            f"{quotient:.2f}",
        )
        if bound.at_most is None:
            cells, verdict = (*cells, "-", "-"), SHOWN
        else:
            within = f"{sum(each <= bound.at_most for each in by_round)} of {len(by_round)}"
            cells = *cells, f"{bound.at_most:.2f}", within
            verdict = REACHED if quotient <= bound.at_most else MISSED
        yield Line(f"{bound.level} {size}", cells, verdict)


def summary(lines: Sequence[Line]) -> str:
    """Return how many of the lines that have a bound are within it, and which are not."""
    count = Counter(line.verdict for line in lines)
    judged = len(lines) - count[SHOWN]
    words = f"{judged - count[MISSED] - count[BY_SKEW]} of {judged} reached"
    words += (
        f" ({count[BY_SPREAD]} of them only because C's own spread is larger)"
        if count[BY_SPREAD]
        else ""
    )
    words += (
        f", {count[BY_SKEW]} faster than C by no more than its larger skew"
        if count[BY_SKEW]
        else ""
    )
    missed = ", ".join(line.name for line in lines if line.verdict == MISSED)
    return f"{words}; {MISSED}: {missed}" if missed else words


def run(rounds: int, keep: Path) -> bool:
    """Measure, print the tables, and return whether all that is asked was reached.

    Args:
        rounds: the number of rounds.
        keep: the directory for raw files and compiled programs.
    """
    programs = compile_programs(keep)
    missing = programs if isinstance(programs, str) else None
    before = os.getloadavg()[0]
    found = measure({} if isinstance(programs, str) else programs, rounds, keep)
    launch = found.launches[OURS, LEVELS[0]][0]
    print(f"## agree: 1 x {RANKS} ranks\n")
    print(
        f"{len(os.sched_getaffinity(0))} CPUs of {cpu_model()}; load average {before:.1f} before,"
        f" {os.getloadavg()[0]:.1f} after; {launch.library}; hpccoll's executor:"
        f" {join_words(sorted(launch.executors))}; C programs by mpicc {OPTIMISATION}; float32 sum; {rounds} rounds,"
        f" {EFFORT.seconds:g} s for a case in each.\n"
        "Times are medians over the rounds, ratios medians of the ratios of each round. A spread is the distance\n"
        "between the quartiles of the rounds over their median. Where no placement is named, the faster one counts.\n"
        "The skew is the time from the first rank's start to the last one's: a rank that leaves the barrier early\n"
        "waits in the operation, so that times include the skew.\n"
    )
    tables = [
        (
            f"native by hpccoll and the C loop, thread level {level}",
            AGREEMENT,
            agreement(found, level),
            True,
        )
        for level in LEVELS
    ] + [
        (title, COMPARISON, comparison(found, bounds), bounds[0].program != OURS)
        for title, bounds in BOUNDS.items()
    ]
    all_lines, ends = list[Line](), list[str]()
    for title, head, made, needs_c in tables:
        print(f"### {title}\n")
        if missing and needs_c:
            print(f"Left out: {missing}\n")
            ends.append(f"- {title}: left out")
            continue
        lines = [*made]
        print_table(head, [(*line.cells, line.verdict) for line in lines])
        ends.append(f"- {title}: {summary(lines)}")
        all_lines += lines
    print("\n".join(ends), end="\n\n", flush=True)
    return not missing and all(line.verdict != MISSED for line in all_lines)
