"""Raw files without a seal, of schema 1.10 and earlier: a child process with limits reads them first.

In a damaged index or heap HDF5 may loop for ever or take all memory; that ends the child, and not the command.
"""

import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from hpccoll.common.errors import UnusableError, format_value

CPU_S, BYTES_PER_CPU_S = 4, 10_000_000
"""The limit of CPU time of the child in seconds, and the size of a file that adds one second to it."""
MEMORY_BYTES = 8 << 30
"""The limit of memory of the child."""
TIMEOUT_S = 60
"""The wall-clock limit of the child beyond its CPU time, because processors may be busy."""

_CHILD = """
import sys
from pathlib import Path
from hpccoll.store.unsealed import limit_child
limit_child(int(sys.argv[2]))
from hpccoll.store.hdf5 import read_unsealed_file
sys.stdout.buffer.write(read_unsealed_file(Path(sys.argv[1])).encode())
"""


def check_in_child(path: Path) -> None:
    """Read a raw file in a child process, and raise what the reader raised there.

    Raises:
        UnusableError: if the file is refused, or the child ended at one of its limits or by a signal.
    """
    cpu_s = CPU_S + path.stat().st_size // BYTES_PER_CPU_S
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD, path.absolute(), str(cpu_s)],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=cpu_s + TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _unread(path, cpu_s) from None
    if child.returncode:
        raise _unread(path, cpu_s)
    if refusal := child.stdout.decode():
        raise UnusableError("path", refusal)


def _unread(path: Path, cpu_s: int) -> UnusableError:
    limits = f"{cpu_s} s of CPU time and {MEMORY_BYTES >> 30} GiB of memory"
    why = f"HDF5 failed to read this file of schema 1.10 or earlier within {limits}; it may be damaged"
    return UnusableError("path", f"{format_value(str(path))} cannot be read: {why}")


def limit_child(cpu_s: int) -> None:
    """Limit the time and memory of this process; stricter limits of its parent remain."""
    for limited, value in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, MEMORY_BYTES)):
        with suppress(ValueError):
            resource.setrlimit(limited, (value, value))
