"""The entry point of ``hpccoll`` and of ``python -m hpccoll``, and the one place where errors become lines."""

import errno
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress

from hpccoll.common.errors import check_resources, refusal_of
from hpccoll.common.terminal import OutputError, PrintableStream


def main() -> None:
    """Run a command and exit; an error of the input or of the system is printed as one line.

    stdout and stderr pass through streams that escape the control characters of files. A command
    whose stdout cannot be written ends with 1; if the reader of a pipe has closed it, as ``head``
    does, it ends without a message.
    """
    _use_utf8()
    _open_streams()
    with (
        redirect_stdout(PrintableStream(sys.stdout)),
        redirect_stderr(PrintableStream(sys.stderr, must_succeed=False)),
    ):
        sys.exit(_exit_code())


def _use_utf8() -> None:
    """Start Python again in UTF-8 mode where the locale would give files and their names another encoding."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # for children
        os.execv(sys.executable, [sys.orig_argv[0], "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606


def _open_streams() -> None:
    """Open streams that are closed: otherwise the next file would get their descriptors, and messages would enter it.

    Only writing to stdout is an error then.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, flags)  # it gets the lowest number, this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _exit_code() -> int:
    try:
        try:
            check_resources("memory")
            code = _dispatch()
        except SystemExit as end:  # of --help
            if isinstance(end.code, str):
                raise
            code = end.code or 0
        sys.stdout.flush()
    except Exception as error:
        if isinstance(error, OutputError) and error.number == errno.EPIPE:
            return 1
        if not (refusal := refusal_of(error)):
            raise
        for single_refusal in (refusal, *refusal.others):
            print(f"hpccoll: {single_refusal}", file=sys.stderr)
        return refusal.exit_code
    return code


def _dispatch() -> int:
    """Run what ranks run without the command line of the other commands: each rank starts here and imports little."""
    name, *words = sys.argv[1:] or [""]
    if name == "diagnose":
        _end_at_interrupt()
        from hpccoll.cli.diagnose import main as diagnose

        return diagnose(words)
    if name == "order":
        _end_at_interrupt()
        from hpccoll.cli.order import main as order

        return order(words)
    if name == "run":
        _end_at_interrupt()
        from hpccoll.cli.job_program import main as run

        return run(words)
    from hpccoll.cli.extension_commands import is_job_command

    if is_job_command(name):
        _end_at_interrupt()
        from hpccoll.cli.job_program import main as run

        return run(words, name)
    if name in ("sweep", "launch"):
        check_resources(name, files=16, threads=16)
    else:  # ranks inherit no variable; a thread per core would do nothing, and fail under limits
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hpccoll.cli.launch import is_of_workflow, start_job

    if is_of_workflow(sys.argv[1:]):
        return start_job(sys.argv[1:])
    from hpccoll.cli.main import main as run_command

    return run_command()


def _end_at_interrupt() -> None:
    """Let Ctrl-C end a rank as the system does: a traceback from every rank is noise."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
