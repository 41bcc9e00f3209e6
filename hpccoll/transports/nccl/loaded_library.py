"""The NCCL that is loaded into this process: its files, and its function that resets the log."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

RESET_NAMES = ("ncclResetDebugInit", "ncclResetDebugInitInternal")
"""The names of the function: NCCL exports the first since 2.24 (src/nccl.h.in of v2.24.3-1) and
calls it deprecated since 2.28, and the second since 2.30 (src/debug.cc:411 of v2.30.7-1). The wheel
of 2.32.3 has both."""


def loaded_nccl_files() -> list[str]:
    """Return the files of NCCL that are loaded into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if re.search(r"/libnccl\.so[.0-9]*$", path))


def debug_reset() -> Callable[[], None] | None:
    """Return NCCL's function after which it reads the variables of its log again.

    It is None before NCCL 2.24, and if more than one file of NCCL is loaded, because it is unknown
    which of them runs.

    Only messages up to the new level are logged: 2.24 to 2.26 read the variables within the call
    (src/debug.cc:231 of v2.24.3-1), later versions with the next message, before they decide
    whether to write it (src/debug.cc:45 and 392 of v2.27.7-1, 134 and 277 of v2.30.7-1). The level
    of every message is compared first (src/debug.cc:189 of v2.24.3-1, 272 of v2.30.7-1), and
    creating a communicator logs messages, so that timed operations compare a number, as they do in
    a launch that never logged.
    """
    files = loaded_nccl_files()
    if len(files) != 1:
        return None
    library = ctypes.CDLL(files[0])
    name = next((name for name in RESET_NAMES if hasattr(library, name)), None)
    return None if name is None else ctypes.CFUNCTYPE(None)((name, library))
