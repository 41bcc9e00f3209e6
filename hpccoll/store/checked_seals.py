"""The seals that this user's commands have checked: while a file is unchanged, its bytes are not read again for it.

A line of ``~/.cache/hpccoll/seals`` (``XDG_CACHE_HOME``) is a digest of the path of a file and what
changes with it: device, inode, size, and the times of its content and of its entry. A damaged line
matches no file, so that at worst the file is checked again. Processes append without a lock: a line
is shorter than what systems append as a whole.
"""

import hashlib
import os
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

MAX_BYTES = 1 << 20
"""The size from which the older half of the lines is dropped: 16,000 files."""

SETTLED_S = 2.0
"""How old a change must be: clocks of file systems tick so slowly that two changes may have one time."""


def content_state(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes when another file replaces a file, or a program writes to it."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def seal_key(path: Path, status: os.stat_result) -> str:
    """Return the digest that stands for a file in its present state."""
    state = *content_state(status), status.st_ctime_ns
    return hashlib.sha256(
        f"{os.path.realpath(path)}\0{state}".encode(errors="surrogateescape")
    ).hexdigest()


def is_checked(key: str) -> bool:
    """Return whether the seal of the file with this key was checked, and the file is as it was then."""
    return key in _checked()


def remember_checked(key: str, status: os.stat_result) -> None:
    """Remember that the seal of a file is right; not if the file has just been changed, and may change unseen."""
    changed = max(status.st_mtime, status.st_ctime)
    if not 0 <= changed < time.time() - SETTLED_S:
        return
    _checked().add(key)
    with suppress(OSError):  # a home that cannot be written
        _append(key)


def _cache_file() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = named if named.is_absolute() else Path("~/.cache").expanduser()
    return base / "hpccoll" / "seals"


@lru_cache(maxsize=1)  # directories hold thousands of files
def _checked() -> set[str]:
    """Return the keys that the list had when this process first asked, and those that it has added."""
    try:
        with _open(_cache_file(), os.O_RDONLY) as lines:
            return set(lines.read(2 * MAX_BYTES).decode(errors="replace").split())
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return set()


def _append(key: str) -> None:
    try:
        file = _cache_file()
    except RuntimeError:  # the user has no home
        return
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT) as appended:
        appended.write(f"{key}\n".encode())
        if appended.tell() > MAX_BYTES:
            appended.seek(0)
            _replace(file, appended.read().splitlines(keepends=True))


def _replace(file: Path, lines: list[bytes]) -> None:
    """Leave the later half of the lines in the file; what others append meanwhile may be lost."""
    shorter = file.with_name(f"{file.name}.{os.getpid()}")
    shorter.write_bytes(b"".join(lines[len(lines) // 2 :]))
    shorter.replace(file)


def _open(file: Path, flags: int) -> IO[bytes]:
    """Open a file of this user.

    Raises:
        OSError: if it cannot be opened, is a link, or belongs to somebody else, who could name
            files as checked.
    """
    opened = os.fdopen(
        os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600),
        "rb+",
        buffering=0,
    )
    if os.fstat(opened.fileno()).st_uid != os.geteuid():
        opened.close()
        raise PermissionError(f"{file} belongs to another user")
    return opened
