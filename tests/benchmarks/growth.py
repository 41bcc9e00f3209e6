"""How the cost of hpccoll grows with its inputs, outside the collectives: CPU, memory and exponent of each step.

By hand:

    python tests/benchmarks/growth.py                      # all stages
    python tests/benchmarks/growth.py store --json F.json  # some of them, and the figures for programs

A stage makes its inputs by the package's own writers, from a seed, at several sizes, and runs its
steps on them. Each step is a process of its own, so that CPU (user and system) and peak memory are
its own. The first size is so small that it shows what a step costs without input: that is
subtracted before the exponent is taken from the largest two sizes, 1 where the cost grows with the
input. Seals are checked by each step, as if nobody had read the files before, but for steps that
are named "again".

To add a stage, add an entry to STAGES.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpccoll.cases.case import Job

SEED = 61


@dataclass(frozen=True)
class Size:
    """A size of an input."""

    label: str
    amount: float  # what exponents refer to
    about: Mapping[str, int]  # what the steps need to know


@dataclass(frozen=True)
class Stage:
    """What is measured of one part of hpccoll."""

    sizes: Sequence[Size]  # the smallest one has no input to speak of
    # a function of a size and a directory, which may return the CPU seconds of what counts in it;
    # or the arguments of hpccoll, in which {} stands for the directory
    steps: Mapping[str, "Callable[[Size, Path], float | None] | Sequence[str]"]
    usual: int | None = None  # how many of the sizes are measured unless --most says so [all]


@dataclass(frozen=True)
class Figures:
    """What a step of a stage has taken with an input."""

    stage: str
    step: str
    size: str
    cpu_s: float
    wall_s: float
    mib: float
    exponent: float | None = None  # of CPU, from the size before; None of the smallest ones


ROUNDS, ITERATIONS, AT_ONCE = 5, 1000, 1 << 18


def store_size(ranks: int, cases: int, iterations: int = ITERATIONS) -> Size:
    """Return the size of a job with so many ranks, cases, and iterations of each."""
    about = {"ranks": ranks, "cases": cases, "iterations": iterations}
    return Size(
        f"{ranks:,} ranks x {cases} cases x {iterations:,}", ranks * cases * iterations, about
    )


def write_results(size: Size, directory: Path) -> float:
    """Write a job as rank 0 does; this process plays the other ranks. Returns the CPU seconds of rank 0's writing."""
    import numpy as np

    from hpccoll.cases.case import Case, Effort, Job
    from hpccoll.measure.run.job_results import JobResults
    from hpccoll.store.case_times import CaseTimes, SummaryRule, samples_of_round
    from hpccoll.store.raw_results import Attempt, Outcome, RankLocation

    ranks, iterations = size.about["ranks"], size.about["iterations"]
    per_node = min(8, ranks)
    cases = [
        Case(collective="all_reduce", algorithm="ring", bytes=4 * (n + 1))
        for n in range(size.about["cases"])
    ]
    rounds = min(ROUNDS, iterations)
    effort = Effort(min_iterations=iterations, max_iterations=iterations, rounds=rounds)
    job = Job(
        name=f"mpi.p{ranks}",
        ranks=ranks,
        nodes=ranks // per_node,
        effort=effort,
        cases=tuple(cases),
    )
    places = tuple(
        RankLocation(
            host=f"n{rank // per_node}",
            node=rank // per_node,
            clock=rank // per_node,
            pid=rank + 1,
            affinity="0",
        )
        for rank in range(ranks)
    )
    attempt = Attempt(
        run_id="made-up",
        number=1,
        kind="measured",
        machine="made up",
        ranks=ranks,
        nodes=ranks // per_node,
        ranks_per_node=per_node,
        mapping="block",
        aggregators=0,
        oversubscribed=False,
        places=places,
        provenance={
            "hosts": [f"n{node}" for node in range(ranks // per_node)],
            "executor": "compiled",
        },
    )
    draw = np.random.default_rng(SEED)
    clocks = [place.clock for place in places]
    offset = draw.integers(10**14, 10**15, max(clocks) + 1)[clocks]

    def times_of_round(number: int) -> CaseTimes:
        """Return the times of a round, as the ranks that gather them send them to rank 0."""
        summary = SummaryRule(number, clocks=clocks, limit=samples_of_round(rounds))
        count, parts = iterations // rounds, []
        length = max(1, AT_ONCE // ranks)
        for begin in range(0, count, length):
            shape = min(length, count - begin), ranks
            begins = 10**6 * (begin + np.arange(shape[0]))[:, None]
            start = offset + begins + draw.integers(0, 2000, shape)
            end = start + 10**5 + draw.gamma(2.0, 5000, shape).astype(np.int64)
            parts.append(summary.of(np.stack([start, end, np.full(shape, -1)]), count))
        return CaseTimes.joined(parts).in_memory()

    results, cpu_s = JobResults(job, directory / "raw" / f"{job.name}.h5"), 0.0
    results.open()
    results.records.begin(attempt)
    for number in range(1, rounds + 1):
        for case in cases:
            results.records.start(case)
            outcome = Outcome(
                case=case,
                status="ok",
                bytes=case.bytes,
                params={},
                wrong=0,
                converged=True,
                executed="ring",
                times=times_of_round(number),
                cpu_s=np.full(ranks, 1e-6),
                executor="compiled",
            )
            began = time.process_time()
            results.record(outcome)
            cpu_s += time.process_time() - began
    began = time.process_time()
    results.finish()
    return cpu_s + time.process_time() - began


def open_and_read_a_row(_size: Size, directory: Path) -> None:
    """Open results in Python, and read the times of one row."""
    import warnings

    import hpccoll

    warnings.simplefilter("ignore")
    results = hpccoll.open(directory)
    results.times(results.rows.iloc[0])


SERIES, SIZES_OF_SERIES = 25, 20
ROWS_OF_JOB = SERIES * SIZES_OF_SERIES


def rows_size(rows: int) -> Size:
    """Return the size of results with so many rows, in jobs of ROWS_OF_JOB rows at most."""
    return Size(f"{rows:,} rows", rows, {"rows": rows})


def rows_job(number: int, rows: int) -> "tuple[Job, tuple[int, int]]":
    """Return the job with this number, which has ``rows`` cases, and its ranks and nodes.

    Four jobs in a row differ in their nodes, and make the curves of one setting; the next four have
    another setting.
    """
    from itertools import product

    from hpccoll.cases.case import Case, Effort, Job

    nodes = 1 << number % 4
    settings = list(
        product(
            ("all_reduce", "reduce_scatter"), ("float32", "float64", "int32", "int64", "int8"), _OPS
        )
    )
    collective, dtype, op = settings[number // 4 % len(settings)]
    of_parameters = [("ring", {"channels": n}) for n in range(2, 21)]
    choices = [*((name, {}) for name in ("native", *_ALGORITHMS)), *of_parameters][:SERIES]
    every = [
        Case(
            collective=collective,
            algorithm=name,
            dtype=dtype,
            op=op,
            bytes=1 << (6 + size),
            params=params,
        )
        for name, params in choices
        for size in range(SIZES_OF_SERIES)
    ]
    effort = Effort(min_iterations=30, max_iterations=30, rounds=3)
    job = Job(
        name=f"job{number}", ranks=2 * nodes, nodes=nodes, effort=effort, cases=tuple(every[:rows])
    )
    return job, (2 * nodes, nodes)


_OPS = "sum", "max", "min", "prod"
_ALGORITHMS = "ring", "recursive_halving", "direct", "rabenseifner", "recursive_doubling"


def write_rows(size: Size, directory: Path, run: str = "raw", factor: float = 1.0) -> None:
    """Write jobs with so many rows in all, whose times are ``factor`` times as long."""
    import numpy as np

    from hpccoll.cases.algorithm_registry import collective
    from hpccoll.schedule.reduction import itemsize
    from hpccoll.store.case_times import CaseTimes
    from hpccoll.store.hdf5 import write_raw_file
    from hpccoll.store.raw_results import Attempt, Outcome, RankLocation, RawResults

    draw = np.random.default_rng(SEED)
    (directory / run).mkdir()
    for number, begin in enumerate(range(0, size.about["rows"], ROWS_OF_JOB)):
        job, (ranks, nodes) = rows_job(number, min(ROWS_OF_JOB, size.about["rows"] - begin))
        places = tuple(
            RankLocation(
                host=f"n{rank // 2}", node=rank // 2, clock=rank // 2, pid=rank + 1, affinity="0"
            )
            for rank in range(ranks)
        )
        attempt = Attempt(
            run_id=f"{run}-{number}",
            number=1,
            kind="measured",
            machine="made up",
            ranks=ranks,
            nodes=nodes,
            ranks_per_node=2,
            mapping="block",
            aggregators=0,
            oversubscribed=False,
            places=places,
            provenance={"hosts": [f"n{node}" for node in range(nodes)], "executor": "compiled"},
        )
        outcomes = []
        for case in job.cases:
            family, item = collective(case.collective), itemsize(case.dtype)
            moved = family.elements(case.bytes, item, ranks) * family.blocks(ranks) * item
            speed = 1 + len(outcomes) // SIZES_OF_SERIES % 7 / 10
            typical_ns = factor * nodes * (8000 * speed + case.bytes * (2 - speed))
            rounds = []
            for of_round in range(1, job.effort.rounds + 1):
                end = (typical_ns * draw.gamma(400, 1 / 400, (10, ranks))).astype(np.int64)
                rounds.append(
                    CaseTimes.from_samples(
                        np.zeros_like(end), end, one_clock=nodes == 1, round_number=of_round
                    )
                )
            outcomes.append(
                Outcome(
                    case=case,
                    status="ok",
                    bytes=moved,
                    params=case.params,
                    wrong=0,
                    converged=True,
                    executed=case.algorithm,
                    times=CaseTimes.joined(rounds).in_memory(),
                    cpu_s=np.full(ranks, 1e-6),
                    executor="compiled",
                )
            )
        path = directory / run / f"{job.name}.h5"
        write_raw_file(RawResults(path=path, job=job, attempts=[(attempt, outcomes)]), path)


def write_slower_rows(size: Size, directory: Path) -> None:
    """Write a second run of the same jobs, in which all times are 2 % longer."""
    write_rows(size, directory, "later", 1.02)


def start_size(ranks: int) -> Size:
    """Return the size of a launch with a number of ranks, all on this machine."""
    return Size(f"{ranks} ranks", ranks, {"ranks": ranks})


RANK = "run", "-a", "ring", "-b", "1K", "-e", "1K", "-n", "5", "--rounds", "1", "--exit-zero"


def cpu_of(command: Sequence[str]) -> float:
    """Run a command, and return the CPU seconds of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def start_ranks(size: Size, directory: Path) -> float:
    """Start ranks that measure one small case, and write it."""
    ranks = ["mpiexec", "-n", str(size.about["ranks"]), sys.executable, "-m", "hpccoll"]
    return cpu_of([*ranks, *RANK, "--out", str(directory / "one.h5")])


def plan_size(jobs: int) -> Size:
    """Return the size of a sweep with a number of jobs of 1,000 cases each."""
    return Size(f"{jobs} jobs x 1,000 cases", jobs, {"jobs": jobs})


def write_sweep(size: Size, directory: Path) -> None:
    """Write a sweep file, whose jobs differ in their ranks."""
    ranks = list(range(2, size.about["jobs"] + 2))
    sizes = [4 * number for number in range(1, 501)]
    sweep = {"algorithms": ["ring", "native"], "bytes": sizes, "in_place": True, "ranks": ranks}
    (directory / "sweep.yaml").write_text(json.dumps(sweep))


EMPTY_JOBS = """
rule all:
    input: expand("raw/{{n}}", n=range({jobs}))
rule job:
    output: "raw/{{n}}"
    shell: "touch {{output}}"
"""


def dry_run_of_empty_jobs(size: Size, directory: Path) -> float:
    """Let Snakemake plan as many jobs that do nothing: what a dry run of a sweep is compared with."""
    file = directory / "Snakefile"
    file.write_text(EMPTY_JOBS.format(jobs=size.about["jobs"]))
    snakemake = [
        sys.executable,
        "-m",
        "snakemake",
        "-s",
        str(file),
        "-d",
        str(directory),
        "-c1",
        "-n",
        "-q",
    ]
    return cpu_of(snakemake)


STAGES: Mapping[str, Stage] = {
    "store": Stage(
        sizes=(
            store_size(8, 1, 5),
            store_size(16384, 4),
            store_size(16384, 20),
            store_size(16384, 100),
        ),
        steps={
            "write": write_results,
            "status": ("status", "{}/raw"),
            "status again": ("status", "{}/raw"),
            "export": ("export", "{}/raw", "--format", "csv"),
            "open": open_and_read_a_row,
            "report": ("report", "{}/raw", "--out", "{}/report"),
        },
    ),
    "rows": Stage(
        sizes=tuple(map(rows_size, (20, 2000, 8000, 32000, 100000))),
        steps={
            "write": write_rows,
            "write later": write_slower_rows,
            "export": ("export", "{}/raw", "--format", "csv"),
            "status": ("status", "{}/raw"),
            "tune": ("tune", "{}/raw", "--out", "{}/table.json"),
            "report": ("report", "{}/raw", "--out", "{}/report"),
            "compare": ("compare", "{}/raw", "{}/later"),
        },
        usual=4,
    ),
    "start": Stage(
        sizes=(start_size(1), start_size(2), start_size(4)),
        steps={"ranks": start_ranks, "launch --help": ("launch", "--help")},
    ),
    "plan": Stage(
        sizes=(plan_size(1), plan_size(10), plan_size(30), plan_size(100)),
        steps={
            "sweep file": write_sweep,
            "empty jobs": dry_run_of_empty_jobs,
            "plan": ("plan", "{}/sweep.yaml", "--out", "{}/out"),
            "dry run": ("sweep", "{}/sweep.yaml", "--out", "{}/out", "--", "-n"),
        },
    ),
}
"""The stages by their names."""


ENDED_WELL = 0, 3
"""The exit codes of commands: 3 where something is missing."""


def run_step(
    words: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, float, float, float]:
    """Run Python with these arguments; return what it printed, CPU and wall seconds, and its peak memory in MiB."""
    with tempfile.TemporaryFile("w+") as printed:
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, *words],
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
        )
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        text = printed.read()
    if child.returncode not in ENDED_WELL:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}\n{text[-4000:]}")
    return text, usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024


def measured(stage: str, size: Size) -> Iterator[Figures]:
    """Run the steps of a stage on an input of a size, and yield what each has taken."""
    with tempfile.TemporaryDirectory() as directory:
        for step, does in STAGES[stage].steps.items():
            words = [__file__, "--step", stage, step, size.label, directory]
            if not callable(does):
                words = ["-m", "hpccoll", *(word.replace("{}", directory) for word in does)]
            cache = Path(directory, "cache")
            if not step.endswith("again"):
                (cache / "hpccoll" / "seals").unlink(missing_ok=True)
            environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OPENBLAS_NUM_THREADS": "1"}
            text, cpu_s, wall_s, mib = run_step(words, environment)
            if callable(does):
                cpu_s = json.loads(text.splitlines()[-1]) or cpu_s
            yield Figures(stage, step, size.label, cpu_s, wall_s, mib)


def with_exponents(stage: str, of_sizes: Sequence[Mapping[str, Figures]]) -> Iterator[Figures]:
    """Yield the figures of each step at each size, from the third size on with the exponent."""
    sizes = STAGES[stage].sizes
    for step in STAGES[stage].steps:
        start_s = of_sizes[0][step].cpu_s
        for number, figures in enumerate(of_sizes):
            mine = figures[step]
            if number < 2:
                yield mine
                continue
            now_s, before_s = (
                max(of[step].cpu_s - start_s, 1e-3) for of in (figures, of_sizes[number - 1])
            )
            growth = sizes[number].amount / sizes[number - 1].amount
            yield replace(mine, exponent=math.log(now_s / before_s) / math.log(growth))


def print_figures(figures: Sequence[Figures]) -> None:
    print(
        "| stage | step | input | CPU s | wall s | MiB | exponent |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for each in figures:
        exponent = "" if each.exponent is None else f"{each.exponent:.1f}"
        about = f"{each.cpu_s:.1f} | {each.wall_s:.1f} | {each.mib:.0f} | {exponent}"
        print(f"| {each.stage} | {each.step} | {each.size} | {about} |")


def do_step(stage: str, step: str, label: str, directory: str) -> None:
    """Do a step in this process, and print the CPU seconds of what counts in it, null for all of it."""
    does = STAGES[stage].steps[step]
    size = next(size for size in STAGES[stage].sizes if size.label == label)
    if callable(does):
        print(json.dumps(does(size, Path(directory))))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"[all] {', '.join(STAGES)}")
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures there, too")
    parser.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="only the smallest N sizes of each stage [the usual ones]",
    )
    parser.add_argument("--step", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        do_step(*arguments.step)
        return
    if unknown := set(arguments.stages) - set(STAGES):
        parser.error(f"stages are {', '.join(STAGES)}, not {', '.join(sorted(unknown))}")
    figures: list[Figures] = []
    for stage in arguments.stages or STAGES:
        of_sizes = []
        for size in STAGES[stage].sizes[: arguments.most or STAGES[stage].usual]:
            of_size = {}
            for each in measured(stage, size):
                print(
                    f"# {each.stage} {each.step}, {each.size}: {each.cpu_s:.1f} s, {each.mib:.0f} MiB",
                    flush=True,
                )
                of_size[each.step] = each
            of_sizes.append(of_size)
        figures += with_exponents(stage, of_sizes)
    print_figures(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in figures], indent=1))


if __name__ == "__main__":
    main()
