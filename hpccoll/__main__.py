"""The entry point of ``hpccoll`` and of ``python -m hpccoll``."""

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
        from hpccoll.run import main as run

        sys.exit(run(sys.argv[2:], sys.argv[1]))
    from hpccoll.cli.main import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
