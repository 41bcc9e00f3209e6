"""``hpccoll``, also as ``python -m hpccoll``."""

import signal
import sys
from contextlib import redirect_stdout

from hpccoll.terminal import PrintableStream


def main() -> None:
    """Run a command; ``run`` by itself, because every rank of a job comes this way and must import little.

    Whatever a command prints on stdout passes through one stream, which lets no control character of a file through.
    """
    with redirect_stdout(PrintableStream(sys.stdout)):
        _main()


def _main() -> None:
    if sys.argv[1:2] == ["run"]:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a traceback of each rank would tell nothing
        from hpccoll.run import main as run

        sys.exit(run(sys.argv[2:]))
    from hpccoll.cli.main import main as command

    sys.exit(command())


if __name__ == "__main__":
    main()
