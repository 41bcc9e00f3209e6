"""The log of the NCCL in this process: a file of its warnings, which is named and kept if NCCL does not connect.

Without it warnings of all ranks would be mixed in the output of the launch, far from the message
that needs them.
"""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from hpccoll.evidence.log_settings import log_variables_of_user

FILE_VARIABLE = "NCCL_DEBUG_FILE"

FILE_NAME = "nccl.%h.%p.log"

LAST_BYTES, MOST_WARNINGS = 256 << 10, 3
"""The end of the log in which warnings are looked for, and the number of those that a message has."""

MARK = "NCCL WARN "

LAST_WARNINGS = "NCCL's last warnings: "
"""What precedes warnings in a message."""


def log_path() -> Path | None:
    """Return the file into which NCCL logs in this process, by its variable; None if it logs to the output.

    NCCL replaces %h by the name of the host without its domain, and %p by the process id
    (ncclDebugInit in src/debug.cc of 2.20 to 2.30).
    """
    name = os.environ.get(FILE_VARIABLE)
    if not name:
        return None
    host = platform.node().partition(".")[0]
    return Path(name.replace("%h", host).replace("%p", str(os.getpid())))


def last_warnings(path: Path, begin: int = 0) -> list[str]:
    """Return the texts of the last warnings in a log of NCCL, without repetitions; none if it cannot be read.

    ``begin`` is the byte of the log from which on they count.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begin, size - LAST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    warnings = [line.partition(MARK)[2].strip() for line in text.splitlines() if MARK in line]
    return list(dict.fromkeys(warnings))[-MOST_WARNINGS:]


class OwnNcclLog:
    """The log of this process; ``begin`` precedes the first call of NCCL, and ``end`` follows the last one."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._marked_bytes = 0
        self.is_named = False
        """Whether a message has named the log, which is kept then."""

    def begin(self) -> None:
        """Have NCCL log warnings into a file of this process, unless the user or a probe has chosen another log."""
        if self._directory or log_variables_of_user():
            os.environ.setdefault("NCCL_DEBUG", "WARN")
            return
        os.environ["NCCL_DEBUG"] = "WARN"
        try:
            self._directory = Path(mkdtemp(prefix="hpccoll-nccl-"))
        except OSError:
            return  # NCCL logs to the output
        os.environ[FILE_VARIABLE] = str(self._directory / FILE_NAME)

    def mark(self) -> None:
        """Leave earlier warnings out of reports: the operations that caused them have succeeded."""
        path = log_path()
        self._marked_bytes = path.stat().st_size if path and path.exists() else 0

    def report(self) -> str:
        """Return NCCL's last warnings since the mark, and where its log is, which is kept from now on."""
        self.is_named = True
        path = log_path()
        if path is None:
            return "NCCL's log is in the output of this launch"
        warnings = last_warnings(path, self._marked_bytes)
        summary = LAST_WARNINGS + " | ".join(warnings) if warnings else "NCCL has logged no warning"
        return f"{summary}; its log: {platform.node()}:{path}"

    def end(self) -> None:
        """Print the warnings of a log that no message has named, and remove it."""
        if self._directory is None or self.is_named:
            return
        for line in _lines(self._directory):
            print(line, file=sys.stderr, flush=True)
        shutil.rmtree(self._directory, ignore_errors=True)
        os.environ.pop(FILE_VARIABLE, None)
        self._directory = None


def _lines(directory: Path) -> Sequence[str]:
    """Return the lines of warnings in the log of this process."""
    path = log_path()
    if path is None or path.parent != directory:
        return ()
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ()
    return [line for line in text.splitlines() if MARK in line]


OWN_LOG = OwnNcclLog()
"""NCCL has one log in a process."""
