"""The command count."""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.command import Command
from hpccoll.cli.common import check_suffix, show_found
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.options import Option, PositionalArgument

if TYPE_CHECKING:
    from hpccoll.store.counted_job import CountedJob
    from hpccoll.sweep.counted_launch import CommandRun

DEFAULT_NAME = "count"


def count(
    rest: Sequence[str],
    recorded: Path | None = None,
    out: Path | None = None,
    *,
    barrier: bool = False,
    library: bool = False,
    as_json: bool = False,
) -> int:
    """Count the collectives of an unchanged MPI program: calls, sizes and seconds of each kind.

    The command after -- runs as it would without hpccoll: same results, output and exit code. A
    library that LD_PRELOAD brings into its processes counts what they call, in C and Fortran, with
    MPICH, Open MPI and the ABI of MPI 5. The counts of all ranks become one file, with a page
    beside it, and one line on stderr. Without a command, hpccoll count shows RECORDED: a file that
    it wrote, or the directory that HPCCOLL_COUNT named in a job script. --out joins the latter.
    """
    if library:
        from hpccoll.sweep.counted_launch import library_to_preload

        print(library_to_preload())
        return 0
    if bool(rest) == bool(recorded):
        raise UnusableError(
            "count", "either -- and a command to count, or RECORDED, a file or a directory"
        )
    check_suffix(out, ".h5")
    if recorded:
        if barrier:
            raise BadInputError("--barrier", "", "it goes with a command")
        return _show(recorded, out, as_json=as_json)
    return _count(rest, _free_path(out), barrier=barrier, as_json=as_json)


def _free_path(out: Path | None) -> Path:
    """Return where to write: a new name, because a count is never replaced."""
    if out:
        if out.exists():
            raise BadInputError("--out", str(out), "a file that does not exist yet")
        return out
    path = Path(f"{DEFAULT_NAME}.h5")
    number = 2
    while path.exists():
        path = Path(f"{DEFAULT_NAME}-{number}.h5")
        number += 1
    return path


def _count(command: Sequence[str], out: Path, *, barrier: bool, as_json: bool) -> int:
    """Run the command, write its file and page, and end as it did."""
    from hpccoll.sweep.counted_launch import join_rank_files, run_counted

    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        # beside the file: the nodes share it
        directory = tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.stem}-")
    with directory as ranks:
        run = run_counted(command, Path(ranks), barrier=barrier)
        try:
            _write(join_rank_files(Path(ranks), run), out, as_json=as_json)
        except BadInputError as error:  # the program has run: its exit code is what counts
            print(f"hpccoll: {error}", file=sys.stderr)
    return _ended_like(run)


def _ended_like(run: "CommandRun") -> int:
    """Return the exit code of the command; if a signal ended it, end by the same one."""
    if run.exit_code >= 0:
        return run.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    number = -run.exit_code
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _write(job: "CountedJob", out: Path, *, as_json: bool) -> None:
    """Write the file and the page, and print one line on stderr."""
    from hpccoll.analysis.counted_shares import counted_shares
    from hpccoll.render.count_text import count_record, last_line, write_count_page
    from hpccoll.store.count_file import write_counted_job

    shares = counted_shares(job)
    page = out.with_suffix(".html")
    with writing(out):
        write_counted_job(job, out)
        write_count_page(shares, page)
    if as_json:
        show_found(count_record(shares), (), as_json=True)
    print(last_line(shares, out, page), file=sys.stderr)


def _show(recorded: Path, out: Path | None, *, as_json: bool) -> int:
    """Print what a file or a directory of ranks' files says; with --out, join the latter to a file."""
    from hpccoll.analysis.counted_shares import counted_shares
    from hpccoll.render.count_text import count_lines, count_record
    from hpccoll.store.count_file import read_counted_job
    from hpccoll.sweep.counted_launch import join_rank_files

    job = join_rank_files(recorded) if recorded.is_dir() else read_counted_job(recorded)
    if out:
        _write(job, _free_path(out), as_json=False)
    shares = counted_shares(job)
    show_found(count_record(shares), count_lines(shares), as_json=as_json)
    return 0


COUNT = Command(
    name="count",
    run=count,
    example="Example: hpccoll count -- mpiexec -n 8 ./app\n         hpccoll count count.h5",
    arguments=(
        PositionalArgument(
            "recorded",
            "file of a count, or directory of the ranks' files",
            "[RECORDED]",
            "path",
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(
                ("--out",),
                "file of the count, with its page beside it [count.h5, or count-2.h5, ...]",
                metavar="F.h5",
                kind="path",
            ),
            Option(
                ("--barrier",),
                "a barrier before each blocking collective, to tell waiting from transfer",
                kind="flag",
            ),
            Option(
                ("--library",),
                "print the library for LD_PRELOAD in a job script or a module file",
                kind="flag",
            ),
            Option(("--json",), "JSON output, in SI units", name="as_json", kind="flag"),
        )
    },
)
