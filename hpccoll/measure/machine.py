"""The machine: facts that need no MPI, so that a login node can ask for them too."""

import platform
import re
import sys
from pathlib import Path


def cpu_model() -> str:
    """Return the processor's name."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def available_memory() -> int:
    """Return the bytes of memory that new processes of this host can have."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else sys.maxsize
