"""How often ``hpccoll trace`` is wrong about jobs that are simulated: healthy ones, and those with one late rank.

    python tests/benchmarks/simulated_traces.py --processes 2 > simulated_traces.md     # 2,000 and 500 jobs
    python tests/benchmarks/simulated_traces.py --healthy 60 --late 20                  # a first look
    python tests/benchmarks/simulated_traces.py --show 17 [--is-late]                   # what it says of one of them

The jobs are those of ``tests/simulated_jobs.py``, which lists the assumptions, in the files of
``tests/simulated_recorders.py``. It ends with 1 where what is asked is missed.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1]))  # simulated_recorders.py

from simulated_jobs import FORMATS, SHAPES, JobPlan, drawn_plan
from simulated_recorders import FIRST_PROCESS, record_job
from tables import print_table, verdict

from hpccoll.render.slow_text import slow_record
from hpccoll.render.trace_text import JobFindings, trace_lines
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from hpccoll.traces.slow import slow_parts

ASKED = 0.95


class Verdict(NamedTuple):
    """What is said of a simulated job."""

    plan: JobPlan
    late: tuple[int, ...]  # the ranks that are called late
    stuck: tuple[int, ...]  # that are said to keep others waiting
    perhaps: tuple[int, ...]  # likewise, if the job was not running any more
    jobs: int
    damaged: int

    @property
    def is_right(self) -> bool:
        expected = () if self.plan.late is None else (self.plan.late,)
        return (self.late, self.stuck, self.damaged) == (expected, (), 0) and self.jobs > 0


def findings_of(paths: Iterable[Path]) -> tuple[list[JobFindings], int]:
    """Return what ``hpccoll trace`` finds, and how many files it cannot read."""
    files = read_job(paths)
    return [JobFindings(job, find_hangs(job), slow_parts(job)) for job in files.jobs], len(
        files.damaged
    )


def judged(seed: int, *, is_late: bool) -> Verdict:
    """Return what is said of the job of a seed."""
    plan = drawn_plan(seed, is_late=is_late)
    with TemporaryDirectory() as scratch:
        record_job(plan, Path(scratch) / "job")
        findings, damaged = findings_of([Path(scratch) / "job"])
    hangs = [
        (hang.may_be_late(each.job), [_process(each, rank) for rank in hang.ranks])
        for each in findings
        for hang in each.hangs
        if hang.is_absence
    ]
    late = {
        _process(each, of["rank"])
        for each in findings
        if each.slow
        for of in slow_record(each.slow)["late"]
    }
    return Verdict(
        plan,
        tuple(sorted(late)),
        *(
            tuple(
                sorted(
                    {
                        rank
                        for may_be_late, ranks in hangs
                        if may_be_late == perhaps
                        for rank in ranks
                    }
                )
            )
            for perhaps in (False, True)
        ),
        len(findings),
        damaged,
    )


def _process(findings: JobFindings, rank: int) -> int:
    """Return the simulated rank: files of NCCL say only which process it is."""
    places = {each.rank: each.place for each in findings.job.ranks}
    place = places.get(rank)
    return rank if place is None else int(place[2].split(":")[-1]) - FIRST_PROCESS


def all_judged(
    seeds: Sequence[int], processes: int, minutes: float, *, is_late: bool
) -> Iterator[Verdict]:
    """Yield what is said of the jobs of all seeds, or of those that are judged in so many minutes."""
    until = time.monotonic() + 60 * minutes
    with get_context("forkserver").Pool(processes) as pool:
        for number, each in enumerate(
            pool.imap(partial(judged, is_late=is_late), seeds, chunksize=5), 1
        ):
            yield each
            if number % 50 == 0:
                print(f"{number} of {len(seeds)} jobs", file=sys.stderr, flush=True)
            if time.monotonic() > until:
                return


def show_table(verdicts: Sequence[Verdict]) -> None:
    """Print how many jobs of each shape and recorder are right."""
    right, every = defaultdict[tuple[str, str], int](int), Counter[tuple[str, str]]()
    for each in verdicts:
        every[each.plan.shape, each.plan.format] += 1
        right[each.plan.shape, each.plan.format] += each.is_right
    print_table(
        ("recorder", *SHAPES),
        (
            (
                recorder,
                *(f"{right[shape, recorder]} of {every[shape, recorder]}" for shape in SHAPES),
            )
            for recorder in FORMATS
            if any(every[shape, recorder] for shape in SHAPES)
        ),
    )


def show(seed: int, *, is_late: bool) -> None:
    """Print what is said of one job."""
    print(drawn_plan(seed, is_late=is_late))
    with TemporaryDirectory() as scratch:
        record_job(drawn_plan(seed, is_late=is_late), Path(scratch) / "job")
        findings, _ = findings_of([Path(scratch) / "job"])
        for line in trace_lines(findings):
            print(line)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--healthy", type=int, default=2000)
    parser.add_argument("--late", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="for the healthy jobs, and for the others"
    )
    parser.add_argument("--show", type=int)
    parser.add_argument("--is-late", action="store_true")
    parser.add_argument("--list", action="store_true", help="print the wrong ones")
    asked = parser.parse_args()
    if asked.show is not None:
        show(asked.show, is_late=asked.is_late)
        return 0
    reached = []
    for is_late, wanted in ((False, asked.healthy), (True, asked.late)):
        if not wanted:
            continue
        seeds = range(asked.first, asked.first + wanted)
        verdicts = [*all_judged(seeds, asked.processes, asked.minutes, is_late=is_late)]
        count = len(verdicts)
        print(f"\n## {'One rank is late' if is_late else 'Healthy'}: {count} jobs\n")
        show_table(verdicts)
        right = sum(each.is_right for each in verdicts)
        blamed = sum(bool({*each.late, *each.stuck} - {each.plan.late}) for each in verdicts)
        perhaps = sum(bool(each.perhaps) for each in verdicts)
        print(
            f"\nranks are said to keep others waiting, unless the job was still running: {perhaps} jobs\n"
        )
        if is_late:
            reached.append(
                verdict(
                    "the late rank alone is named", f"{right} of {count}", right >= ASKED * count
                )
            )
        else:
            reached.append(
                verdict("jobs in which a rank is wrongly named", f"{blamed} of {count}", not blamed)
            )
        for each in verdicts if asked.list else ():
            if not each.is_right:
                print(each)
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
