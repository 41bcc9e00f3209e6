"""The entry point of ``hpccoll`` and of ``python -m hpccoll``."""

import os
import signal
import sys
from contextlib import redirect_stdout

from hpccoll.terminal import PrintableStream


def main() -> None:
    """Run a command; its stdout passes through a stream that escapes the control characters of files."""
    with redirect_stdout(PrintableStream(sys.stdout)):
        _dispatch()


def _dispatch() -> None:
    """Run what ranks run without the command line of the other commands: each rank starts here and imports little."""
    if sys.argv[1:2] in (["run"], ["train"]):
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a traceback from every rank is noise
        if sys.argv[1] == "run" and not any(word.startswith("--job") for word in sys.argv):
            # Only steps of training, which job files may have, multiply matrices; elsewhere the library of NumPy that
            # does it would start a thread for every core in every rank for nothing.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from hpccoll.run import main as run

        sys.exit(run(sys.argv[2:], sys.argv[1]))
    from hpccoll.cli.main import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
