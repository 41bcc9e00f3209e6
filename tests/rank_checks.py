"""Checks that all ranks of a launch make together."""

import time
import traceback
from contextlib import contextmanager

from hpccoll.measure.ranks import abort_job


@contextmanager
def named(case):
    """Say in whatever exception of a case which one it was."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{case.id}: {type(error).__name__}: {error}") from error


def run_on_all(comm, main):
    """Call ``main``; if it fails on one rank, the job ends, because the others wait for this one."""
    try:
        main()
    except BaseException:  # noqa: BLE001  whatever it is
        print(
            f"r{comm.rank} | {main.__name__.replace('_', ' ')}\n{traceback.format_exc()}",
            flush=True,
        )
        abort_job(comm)


def run_checks(comm, checks):
    """Make the checks one after the other; rank 0 prints the time of each."""
    for check in checks:
        started = time.monotonic()
        run_on_all(comm, check)
        comm.Barrier()
        if comm.rank == 0:
            print(f"{check.__name__} {time.monotonic() - started:.1f} s", flush=True)
