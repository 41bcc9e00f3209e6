"""What every rank of a launched command does, from the command line to the exit code."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from hpccoll.common.errors import (
    BadInputError,
    GpuFailedError,
    StalledError,
    check_arguments,
    check_resources,
    refusal_of,
)
from hpccoll.measure import mpi_startup

if TYPE_CHECKING:
    from hpccoll.measure.ranks import Ranks
    from hpccoll.measure.run.job_runner import JobRunner

ROOT_FIRST_S = 10.0
"""Seconds that other ranks give rank 0 to print an error: a launcher may kill all ranks when the first one exits."""


GRACE_S = 2.0
"""Seconds between the report of a stall and the end of the launch, so that every rank with one can report."""


class RankProgram(Protocol):
    """The program of a command, made of its options on each rank."""

    runner: "JobRunner | None"  # what keeps notes of failures; None if nothing does

    @property
    def device(self) -> str:
        """The device of the buffers: cpu, cuda."""

    def run_before_mpi(self, *, first: bool) -> int | None:
        """Do what MPI is not needed for, on the ``first`` rank or others; return the exit code if that is all."""

    def run(self, ranks: "Ranks", stop: mpi_startup.StopSignal) -> int:
        """Do the work of this rank, and return its exit code; all ranks call this together."""

    def end(self, code: int) -> None:
        """End the launch after ``run``, which returned this exit code."""


def run_rank(argv: Sequence[str], make: Callable[[Sequence[str]], RankProgram]) -> int:
    """Run the program that ``make`` returns for the options ``argv`` on this rank, and return its exit code.

    Only rank 0 prints errors of the input; any other exception aborts all ranks after its
    traceback.
    """
    try:
        code = _run(argv, make)
        sys.stdout.flush()  # the MPI standard leaves open what happens to output after MPI_Finalize
        if code and mpi_startup.is_connected():
            return mpi_startup.finalize_mpi(code)
        return code
    finally:
        mpi_startup.cancel_deadline()


def _run(argv: Sequence[str], make: Callable[[Sequence[str]], RankProgram]) -> int:
    first = mpi_startup.launcher_rank() == 0
    try:
        check_arguments(argv)
        program = make(argv)
        if (done := program.run_before_mpi(first=first)) is not None:
            return done
    except BadInputError as error:
        if first:
            for single_error in (error, *error.others):
                print(f"hpccoll: {single_error}", file=sys.stderr, flush=True)
        # All ranks have these arguments, and a launcher may kill all when one of them fails.
        return error.exit_code if first else 0
    try:
        return _run_ranks(program)
    except BadInputError as error:
        if first:
            print(f"hpccoll: {error}", file=sys.stderr, flush=True)
        elif not mpi_startup.is_connected():
            time.sleep(ROOT_FIRST_S)
        return error.exit_code


def _run_ranks(program: RankProgram) -> int:
    check_resources("MPI", files=16, threads=4)
    stop = mpi_startup.StopSignal()
    mpi_startup.start_deadline()
    # only now: --help and errors of options need no MPI
    comm = mpi_startup.start_mpi(program.device)
    from hpccoll.measure.ranks import Ranks, abort_job
    from hpccoll.measure.roll_call import call_roll

    code = 1
    try:
        mpi_startup.check_launch(comm)
        call_roll(comm)
        code = program.run(Ranks(comm), stop)
    except BadInputError:
        raise
    except BaseException as error:
        if _report_failure(program.runner, error, alone=comm.size == 1):
            raise
        if isinstance(error, StalledError):
            time.sleep(GRACE_S)
        abort_job(comm)
    program.end(code)
    return code


def _report_failure(
    runner: "JobRunner | None", error: BaseException, *, alone: bool = False
) -> bool:
    """Report the exception that ends this rank: in one line if the rank stalled, or if its GPU or the system failed.

    Any other exception is reported with its traceback.

    Return whether it shall be raised: what the system refuses to a rank that is ``alone``, for
    which no other waits.
    """
    refusal = refusal_of(error)
    if alone and refusal:
        if runner:
            runner.note_failure(f"{refusal} ({runner.progress.task})")
        return True
    in_one_line = bool(refusal) or isinstance(error, GpuFailedError | StalledError)
    reason = f"{'' if in_one_line else f'{type(error).__name__}: '}{refusal or error}"
    if runner:
        runner.report_failure(f"{reason} ({runner.progress.task})")
    elif in_one_line:  # such as in a probe
        print(f"r{mpi_startup.launcher_rank()} | {reason}", file=sys.stderr, flush=True)
    if not in_one_line:
        import traceback  # no rank that ends well needs it

        traceback.print_exc()
    return False
