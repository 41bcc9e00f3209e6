"""``hpccoll run``: what a rank executes. It imports what a rank needs and nothing else, for thousands do the same."""

import argparse
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpccoll.case import MOST_ROUNDS, Case, Effort, Job, Shape
from hpccoll.errors import BadInputError
from hpccoll.evidence.verbose import TOLD_TO_END, forget, keep_quiet, leave_settings, log_into
from hpccoll.units import format_size, parse_parameter, parse_size

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.evidence.found import Found
    from hpccoll.measure.ranks import Ranks
    from hpccoll.schedule import Layout

EXAMPLES = """examples:
  mpiexec -n 4 hpccoll run -a ring,native -b 1K -e 64M
  mpiexec -n 2 hpccoll run -a recursive_doubling,null -b 8 -e 1K -n 1000 --in-place
  mpiexec -n 4 hpccoll run -a ring,native -e 1M --rounds 5    # algorithms in turn, five times: who is ahead each time?
  srun -N 4 -n 16 hpccoll run -a ring,native -b 1M -e 1G --param channels=8 --out ring.h5

Sizes are binary (1K is 1024 bytes), bandwidths are in GB/s of 1e9 bytes per second. Times are of the slowest rank.
Every result is checked. A library's own collective is the algorithm called native.
"""


OF_MPICH = ("MPICH", "MVAPICH", "Intel MPI")
"""Libraries that do not start under the launcher of Open MPI, which speaks PMIx."""


DEFAULT, ALL = "ring,recursive_doubling,native", "all"
"""Which algorithms are run unless named; and the word for all that the collective has."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BadInputError("hpccoll run", message, "see 'hpccoll run --help'")


def parser() -> argparse.ArgumentParser:
    """Return the parser; the letters are those of nccl-tests."""
    parse = _Parser(
        "hpccoll run", description="Measure collectives on the ranks of an MPI job.", epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parse.add_argument
    add("-c", "--collective", default="all_reduce", help="the collective [all_reduce]")
    add("-a", "--algorithms", help=f"names, by comma, or {ALL} [{DEFAULT}; {ALL} for others than all_reduce]")
    add("-t", "--transport", default="mpi", metavar="T,..", help="mpi, shm, tiered; of GPUs nccl, mpi, staged [mpi]")
    add(
        "--device",
        default="cpu",
        help="where buffers lie: cpu, cuda; with --job: on GPUs, taken before MPI starts [cpu]",
    )
    add("-b", "--begin", default="8", help="the smallest size [8]")
    add("-e", "--end", default="64M", help="the largest size [64M]")
    add("-f", "--factor", default="2", help="from one size to the next [2]")
    add("-d", "--dtype", default="float32", help="of the elements; bfloat16 over nccl alone [float32]")
    add("-o", "--op", default="sum", help="the reduction [sum]")
    add(
        "-n",
        "--iterations",
        help="timed, over all rounds, 6 in each at least [20 to 1000, until sure to 2 %%]",
    )
    add("-w", "--warmup", default="5", help="iterations thrown away for each round of a case [5]")
    add("-r", "--root", help="the root of a rooted collective, the first of two ranks [0]")
    add("--aggregators", default="0", metavar="A", help="the last A ranks only aggregate (sharp_emulated) [0]")
    add("--mapping", help="number ranks anew, well and badly: block,cyclic [as launched]")
    add("--in-place", action="store_true", help="in place only [both placements]")
    add("--table", type=Path, metavar="T.json", help="what the algorithm auto chooses by; hpccoll tune makes it")
    add("--param", action="append", default=[], metavar="K=V", help="a parameter, such as channels=4")
    add("--variant", metavar="V", help="set the variables of a named variant, such as nccl-ring; see hpccoll list")
    add("--communicator", action="append", default=[], metavar="K=V", help="what NCCL's are made with: max_ctas=4")
    add("--seconds", default="1", help="for a case, once it has its least iterations [1]")
    add("--timeout", default="120", help="seconds without progress until a rank is stuck [120]")
    add("--rounds", default="1", metavar="R", help="times that all cases are gone through, in another order each [1]")
    add("--seed", default="1", help="of the order of the cases [1]")
    add("--job", type=Path, help="run a job that 'hpccoll plan' wrote, instead of all the above")
    add("--shape", metavar="NxK[+A]", help="fail unless K ranks work on each of N nodes [whatever there is]")
    add("--hosts", metavar="A,B", help="with --shape: fail unless the nodes are these")
    add("--exit-zero", action="store_true", help="exit with 0 although results are wrong or missing: the file says it")
    add("--check", action="store_true", help="only see that the ranks know of each other and are where they should be")
    add("--probe", type=Path, metavar="DIR", help="only run the library's own, untimed, and have it log into DIR")
    add("--evidence", type=Path, metavar="PATH", help="what such a probe left: DIR, or the file that was made of it")
    add("--network", choices=("rdma", "tcp"), help="what nodes should talk by; the report says where it is not so")
    add("--out", type=Path, metavar="F.h5", help="the raw file; one of the same job is resumed")
    return parse


def job_of(arguments: argparse.Namespace, there: "Layout") -> Job:
    """Return the job that the command line describes, for ranks that are there already.

    Raises:
        BadInputError: for sizes and numbers that make no sense.
    """
    from hpccoll.choices.auto import check_table
    from hpccoll.choices.table import load_table
    from hpccoll.measure.catalogue import algorithms_of, mappings, placements, shared, transports
    from hpccoll.schedule import collective

    if arguments.job:
        return Job.load(arguments.job)
    family = collective(arguments.collective)
    sizes = _sizes(arguments)[:1] if family.token else _sizes(arguments)  # a barrier's size is its own
    op = arguments.op if family.has_op else None
    root = _whole("-r", arguments.root or "0", 0) if family.rooted or arguments.root else None
    aggregators = _whole("--aggregators", arguments.aggregators, 0)
    if aggregators >= there.ranks:
        raise BadInputError("--aggregators", aggregators, f"at most {there.ranks - 1}: at least one rank works")
    asked = arguments.algorithms
    if asked is None:
        asked = DEFAULT if arguments.collective == "all_reduce" else ALL
    algorithms = algorithms_of(family.name) if asked == ALL else asked.split(",")
    table = None if arguments.table is None else load_table(arguments.table, "--table")
    check_table("--table", arguments.table and str(arguments.table), algorithms)
    if arguments.in_place and not family.in_place:
        raise BadInputError("--in-place", family.name, "left out: its contribution and its result have a buffer each")
    layout = replace(there, aggregators=aggregators)
    cases = (
        Case(
            collective=arguments.collective, algorithm=algorithm, transport=transport, device=arguments.device,
            dtype=arguments.dtype, op=op, bytes=size, in_place=in_place, root=root,
            params=_numbered(params, layout.workers), mapping=mapping,
        )
        for algorithm, params in shared(family.name, algorithms, dict(map(parse_parameter, arguments.param)))
        for transport in transports(family.name, algorithm, arguments.transport.split(","), arguments.device)
        for size in sizes
        for in_place in placements(family.name, algorithm, (True,) if arguments.in_place else (False, True))
        for mapping in mappings(family.name, algorithm, arguments.mapping.split(",") if arguments.mapping else (None,))
    )  # fmt: skip
    once = {case.id: case for case in cases}
    return Job(
        name="run", ranks=layout.workers, nodes=layout.nodes, aggregators=aggregators,
        **_sets(arguments),
        seed=_whole("--seed", arguments.seed, 0), effort=_effort(arguments), table=table, cases=tuple(once.values()),
    )  # fmt: skip


def _numbered(params: dict[str, int | str], workers: int) -> dict[str, int | str]:
    """Return parameters with the peer by its number: -1 is the last rank."""
    peer = params.get("peer")
    return {**params, "peer": peer % workers} if isinstance(peer, int) and -workers <= peer < 0 else params


def _sets(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the variant of a command line, its variables, and what it has NCCL's communicators made with.

    Settings without a variant are one by the name of what they say: no row goes as NCCL at its defaults.

    Raises:
        BadInputError: for one that there is not, or a setting that there is not.
    """
    from hpccoll.evidence.environments import communicator_of
    from hpccoll.evidence.variants import VARIANTS

    if arguments.variant not in (None, *VARIANTS):
        raise BadInputError("--variant", arguments.variant, VARIANTS)
    settings = dict(map(parse_parameter, arguments.communicator))
    return {
        "variant": arguments.variant or ",".join(arguments.communicator) or None,
        "environment": VARIANTS[arguments.variant].environment if arguments.variant else {},
        "communicator": communicator_of(arguments.variant, settings, "--communicator"),
    }


def _shape(text: str) -> Shape:
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)(?:\+(\d+))?", text)
    if not found:
        raise BadInputError("--shape", text, "nodes x ranks on each, such as 4x2, or 1x4+1 with an aggregator")
    nodes, each, aggregators = (int(number or 0) for number in found.groups())
    return Shape(nodes, nodes * each, aggregators)


def _sizes(arguments: argparse.Namespace) -> list[int]:
    begin, end = parse_size(arguments.begin, "-b"), parse_size(arguments.end, "-e")
    factor = _whole("-f", arguments.factor, 2)
    if begin < 1:
        raise BadInputError("-b", arguments.begin, "at least one byte")
    if begin > end:
        raise BadInputError("-e", arguments.end, f"at least the first size, -b {format_size(begin)}")
    sizes = [begin]
    while sizes[-1] * factor <= end:
        sizes.append(sizes[-1] * factor)
    return sizes


def _effort(arguments: argparse.Namespace) -> Effort:
    warmup = _whole("-w", arguments.warmup, 0)
    seconds, timeout = _seconds("--seconds", arguments.seconds), _seconds("--timeout", arguments.timeout)
    rounds = _whole("--rounds", arguments.rounds, 1)
    if rounds > MOST_ROUNDS:
        raise BadInputError("--rounds", rounds, f"at most {MOST_ROUNDS}")
    if arguments.iterations is None:
        return Effort(warmup=warmup, seconds=seconds, timeout=timeout, rounds=rounds)
    n = _whole("-n", arguments.iterations, 1)
    return Effort(warmup=warmup, min_iterations=n, max_iterations=n, timeout=timeout, rounds=rounds)


def _whole(key: str, text: str, least: int) -> int:
    if not (text.isdecimal() and int(text) >= least):
        raise BadInputError(key, text, f"a whole number from {least} up")
    return int(text)


def _seconds(key: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadInputError(key, text, "a number of seconds above 0")
    return seconds


def _rank() -> int:
    """Return the rank that the launcher gave this process, before MPI is up."""
    names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMIX_RANK")
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), 0)


FIRST_WORD_S = 3.0
"""How long other ranks leave rank 0 to complain before they end: a launcher may end all the rest at the first end."""


def main(argv: Sequence[str]) -> int:
    """Run one rank of ``hpccoll run`` and return its exit code.

    A complaint about the input is printed by rank 0 alone; any other exception ends all ranks with its traceback.
    """
    try:
        arguments = parser().parse_args(argv)
        if arguments.probe:
            log_into(arguments.probe)  # before any library reads its variables
        return _measure(arguments)
    except BadInputError as error:
        if _rank() == 0:
            print(f"hpccoll: {error}", file=sys.stderr, flush=True)
        elif not _connected():
            time.sleep(FIRST_WORD_S)
        return _end_in_turn() if _connected() else 2


LAST_END_S = 0.3
"""How long rank 0 leaves the others to end: srun kills who is left when one ends badly, and has a code for that."""


def _end_in_turn() -> int:
    """Part from the other ranks, which is done together, and return this one's exit code: rank 0 speaks for all."""
    sys.modules["mpi4py.MPI"].Finalize()
    if _rank():
        return 0
    time.sleep(LAST_END_S)
    return 2


def _connected() -> bool:
    """Return whether the ranks end together, as MPI sees to where it is up and they have found each other."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized() and mpi.COMM_WORLD.size > 1


def _world(device: str) -> "MPI.Intracomm":
    """Start MPI and return its world; where buffers are to lie on a GPU, each rank has taken its own before.

    Raises:
        BadInputError: where there is no library, or one that would abort under this launcher before it can be asked.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    warnings.filterwarnings("ignore", r"\s*suspicious MPI", RuntimeWarning)  # on every rank, in three lines
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        remedy = "pip install 'hpccoll[local]', or load your site's MPI module"
        raise BadInputError("MPI library", str(error), f"one that mpi4py can load: {remedy}") from None
    vendor, version = MPI.get_vendor()
    if vendor in OF_MPICH and "OMPI_COMM_WORLD_SIZE" in os.environ:
        library = f"{vendor} {'.'.join(map(str, version))}"
        raise BadInputError("launcher", "mpiexec of Open MPI", f"the library is {library}: use the mpiexec of that")
    if device == "cuda":
        from hpccoll.measure.gpus import take_early

        take_early()
    if not MPI.Is_initialized():
        MPI.Init_thread(getattr(MPI, f"THREAD_{mpi4py.rc.thread_level.upper()}"))
    return MPI.COMM_WORLD


class _Told:
    """Remembers the first signal that asks for an end; the round of the case under way is finished before it.

    Slurm sends SIGUSR1 some time before a job's limit, if asked with ``sbatch --signal=USR1@60``.
    """

    def __init__(self) -> None:
        self.signal = 0
        signal.signal(signal.SIGUSR1, self._note)  # before MPI starts: it would end this process

    def _note(self, number: int, _frame: object) -> None:
        self.signal = self.signal or number


def _measure(arguments: argparse.Namespace) -> int:
    told = _Told()
    shape = _shape(arguments.shape) if arguments.shape else None
    if arguments.hosts and not shape:
        raise BadInputError("--hosts", arguments.hosts, "hosts of a --shape, such as 4x2")
    os.environ.update(_sets(arguments)["environment"])  # libraries read them when they start, and MPI starts some
    comm = _world(arguments.device)  # --help and a misspelt option need no MPI
    from hpccoll.measure.program import Program
    from hpccoll.measure.ranks import Ranks, abort, check_launch, check_shape
    from hpccoll.measure.table import Table

    table = Table()
    program: Program | None = None
    code = 1
    try:
        check_launch(comm)
        ranks = Ranks(comm)
        if shape:
            check_shape(ranks, shape, arguments.hosts.split(",") if arguments.hosts else ())
        if arguments.check:
            return _checked(ranks)
        # Rank 0 alone reads the job: a complaint is then every rank's, and the file may lie on its node alone.
        job = ranks.at_root(lambda: job_of(arguments, ranks.layout(0)))
        if not arguments.job:
            _check_room(comm, job, ranks.layout(job.aggregators))
        if arguments.probe:
            return _probed(ranks, job, told, arguments.probe)
        about = _known(arguments, ranks, job)
        program = Program(ranks, job, arguments.out, table.show, lambda: told.signal, *about)
        code = 0 if program.run() or arguments.exit_zero else 3
    except BadInputError:
        raise
    except BaseException as error:  # noqa: BLE001  whatever it is, the other ranks must not wait for this one
        if program:
            what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
            program.last_words(f"{what} (case {program.progress.case})")
        traceback.print_exc()
        abort(comm)
    if comm.rank == 0:
        _say_what_is_left(told, arguments.out if table.empty else None, timed=bool(program and program.timed))
    return code


def _say_what_is_left(told: _Told, complete: Path | None, *, timed: bool) -> None:
    if not (timed or told.signal):
        print("# nothing was measured: each case has its reason")
    elif told.signal:
        print(f"# told to end by {signal.Signals(told.signal).name}: the same command measures what is left")
    elif complete:
        print(f"# {complete} is complete: there is nothing left to measure")


def _probed(ranks: "Ranks", job: Job, told: _Told, place: Path) -> int:
    from hpccoll.measure.probe import probe

    ranks.at_root(lambda: forget(place))  # before NCCL opens its files
    leave_settings(place)
    probe(ranks, job, lambda: told.signal)
    if not ranks.largest(told.signal):
        return 0
    ranks.at_root((place / TOLD_TO_END).touch)
    return 3


def _known(arguments: argparse.Namespace, ranks: "Ranks", job: Job) -> "tuple[Found | None, str | None]":
    """Return what is known of the library and the network before anything is timed, and keep the library quiet.

    Raises:
        BadInputError: on all ranks, where the evidence cannot be read.
    """
    from hpccoll.evidence.found import Found

    if any(case.transport == "nccl" for case in job.cases):
        keep_quiet()
    found = ranks.at_root(lambda: Found.load(arguments.evidence)) if arguments.evidence else None
    return found, arguments.network


def _checked(ranks: "Ranks") -> int:
    if ranks.comm.rank == 0:
        crowds = ", ".join(f"{crowd} on {name}" for (name, _), crowd in ranks.crowds.items())
        if ranks.comm.size > 1:
            print(f"# {ranks.comm.size} ranks know of each other: {crowds}")
        else:
            print(f"# MPI works, and this rank is alone: {crowds}; start more to see that they know of each other,")
            print("# such as mpiexec -n 2 hpccoll run --check")
    return 0


def _check_room(comm: "MPI.Intracomm", job: Job, layout: "Layout") -> None:
    """See that something can run, and every node has room for the largest case.

    Who has just typed a size or a root is told, where a sweep goes on.

    Raises:
        BadInputError: on all ranks, where a node has not, nothing can run, or a word of a case is not known.
    """
    from mpi4py import MPI

    from hpccoll.choices.auto import concrete
    from hpccoll.choices.table import TuneTable
    from hpccoll.measure.catalogue import check_case, idle, unmet
    from hpccoll.measure.machine import available_memory
    from hpccoll.measure.memory import check_memory
    from hpccoll.measure.varied import unvaried

    table = None if job.table is None else TuneTable.from_json(job.table)
    found: list[str | None] = []
    for case in job.cases:
        check_case(case)
        try:
            made, _ = concrete(case, layout, table)
        except BadInputError as error:
            found.append(str(error))
        else:
            strange = unvaried(job.variant, job.sets, case, job.shape(case))
            found.append(unmet(made, layout) or strange or idle(case, layout))
    reasons = list(dict.fromkeys(found))
    if all(reasons):
        why = "; ".join(filter(None, reasons))
        raise BadInputError("hpccoll run", f"{len(job.cases)} cases", f"something that can run here: {why}")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    complaint = None
    try:
        check_memory(job.cases, job.ranks, node.size, available_memory())
    except BadInputError as error:
        complaint = error
    node.Free()
    for said in filter(None, comm.allgather(complaint)):
        raise said
