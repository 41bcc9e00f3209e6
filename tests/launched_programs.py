"""Programs that a test starts, and that end with it."""

import os
import signal
import subprocess
from contextlib import contextmanager, suppress


@contextmanager
def launched(command, **options):
    """Start a program as the leader of a process group; if the block fails, end the group, and note what it printed."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with subprocess.Popen(
        [*map(str, command)], text=True, start_new_session=True, **options
    ) as process:
        try:
            yield process
        # a launcher takes its ranks along, and if it cannot they go, too
        except BaseException as error:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                error.add_note("".join(filter(None, process.communicate(timeout=10))))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
