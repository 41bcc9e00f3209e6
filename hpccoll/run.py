"""``hpccoll run``: what a rank executes. It imports what a rank needs and nothing else: thousands of ranks do the same."""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from hpccoll.case import Case, Effort, Job
from hpccoll.errors import BadInputError
from hpccoll.units import format_size, parse_size

EXAMPLES = """examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 2 hpccoll run -a recursive_doubling,null -b 8 -e 1K -n 1000 --in-place
  srun -N 4 -n 16 hpccoll run -a ring,native -b 1M -e 1G --param channels=8 --out ring.h5

Sizes are binary (1K is 1024 bytes), bandwidths are in GB/s of 1e9 bytes per second. Times are of the slowest rank.
Every result is checked. A library's own collective is the algorithm called native.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BadInputError("hpccoll run", " ".join(sys.argv[2:]), message)


def parser() -> argparse.ArgumentParser:
    """Return the parser; the letters are those of nccl-tests."""
    parse = _Parser(
        "hpccoll run", description="Measure collectives on the ranks of an MPI job.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parse.add_argument
    add("-c", "--collective", default="all_reduce", help="the collective [all_reduce]")
    add("-a", "--algorithms", default="ring,recursive_doubling,native", help="names, by comma [%(default)s]")
    add("-t", "--transport", default="mpi", help="how bytes move [mpi]")
    add("-b", "--begin", default="8", help="the smallest size [8]")
    add("-e", "--end", default="64M", help="the largest size [64M]")
    add("-f", "--factor", type=int, default=2, help="from one size to the next [2]")
    add("-d", "--dtype", default="float32", help="of the elements [float32]")
    add("-o", "--op", default="sum", help="the reduction [sum]")
    add("-n", "--iterations", type=int, help="timed iterations [20 to 1000, until the median is sure to 2 %%]")
    add("-w", "--warmup", type=int, default=5, help="iterations thrown away for each case [5]")
    add("-r", "--root", type=int, help="the root of a rooted collective")
    add("--in-place", action="store_true", help="in place only [both placements]")
    add("--param", action="append", default=[], metavar="K=V", help="a parameter, such as channels=4")
    add("--seconds", type=float, default=1.0, help="for a case, once it has its least iterations [1]")
    add("--timeout", type=float, default=120.0, help="seconds without progress until a rank is stuck [120]")
    add("--seed", type=int, default=1, help="of the order of the cases [1]")
    add("--job", type=Path, help="run a job that 'hpccoll plan' wrote, instead of all the above")
    add("--out", type=Path, metavar="F.h5", help="the raw file; one of the same job is resumed")
    return parse


def job_of(arguments: argparse.Namespace, ranks: int) -> Job:
    """Return the job that the command line describes.

    Raises:
        BadInputError: for sizes and numbers that make no sense.
    """
    if arguments.job:
        return Job.load(arguments.job)
    begin, end = parse_size(arguments.begin, "-b"), parse_size(arguments.end, "-e")
    if begin > end:
        raise BadInputError("-e", arguments.end, f"at least the first size, -b {format_size(begin)}")
    for key, value, least in (("-f", arguments.factor, 2), ("-b", begin, 1), ("-w", arguments.warmup, 0)):
        if value < least:
            raise BadInputError(key, value, f"a whole number from {least} up")
    if arguments.iterations is not None and arguments.iterations < 1:
        raise BadInputError("-n", arguments.iterations, "a whole number from 1 up")
    sizes = [begin]
    while sizes[-1] * arguments.factor <= end:
        sizes.append(sizes[-1] * arguments.factor)
    n = arguments.iterations
    effort = Effort(warmup=arguments.warmup, seconds=arguments.seconds, timeout=arguments.timeout)
    if n:
        effort = Effort(warmup=arguments.warmup, min_iterations=n, max_iterations=n, timeout=arguments.timeout)
    cases = tuple(
        Case(
            collective=arguments.collective, algorithm=algorithm, transport=arguments.transport, dtype=arguments.dtype,
            op=arguments.op, bytes=size, in_place=in_place, root=arguments.root,
            params={} if algorithm == "native" else dict(map(_parameter, arguments.param)),
        )
        for algorithm in arguments.algorithms.split(",")
        for size in sizes
        for in_place in ((True,) if arguments.in_place else (False, True))
    )  # fmt: skip
    return Job(name="run", ranks=ranks, seed=arguments.seed, effort=effort, cases=cases)


def _parameter(text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInputError("--param", text, "a name and a value, such as channels=4")
    return name, int(value) if value.isdecimal() else value


def _rank() -> int:
    """Return the rank that the launcher gave this process, before MPI is up."""
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


def main(argv: Sequence[str]) -> int:
    """Run one rank of ``hpccoll run`` and return its exit code.

    A complaint about the input is printed by rank 0 alone; any other exception ends all ranks with its traceback.
    """
    try:
        arguments = parser().parse_args(argv)
        return _measure(arguments)
    except BadInputError as error:
        if _rank() == 0:
            print(f"hpccoll: {error}", file=sys.stderr, flush=True)
        return 2


def _measure(arguments: argparse.Namespace) -> int:
    from mpi4py import MPI  # noqa: PLC0415  --help and a misspelt option need no MPI

    from hpccoll.measure.program import Program  # noqa: PLC0415
    from hpccoll.measure.table import Table  # noqa: PLC0415

    comm = MPI.COMM_WORLD
    job = job_of(arguments, comm.size)
    program = Program(comm, job, arguments.out, Table().show)
    try:
        fine = program.run()
    except BadInputError:
        raise
    except BaseException as error:  # noqa: BLE001  whatever it is, the other ranks must not wait for this one
        program.last_words(f"{type(error).__name__}: {error} (case {program.progress.case})")
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
    return 0 if fine else 3
