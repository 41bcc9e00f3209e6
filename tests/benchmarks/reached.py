"""The parts of ``gpu.py`` that reached all that they ask for, how often, and with which files: ``reached.json``.

A part that was reached twice is not run again before a file that it depends on changes.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from bare import ROOT

ENOUGH = 2
"""After how many calls a part need not run again."""


def digest_of(patterns: Sequence[str], root: Path = ROOT) -> str:
    """Return a digest of the names and contents of the files that match patterns below ``root``."""
    found = sha256()
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_dir() or path.suffix == ".pyc":
                continue
            found.update(f"{path.relative_to(root)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


class ReachedParts:
    """The table of one kind of GPU.

    Args:
        out: the directory of the page.
    """

    def __init__(self, out: Path) -> None:
        self._path = out / "reached.json"
        self._parts: dict[str, dict[str, str | int]] = {}
        if self._path.exists():
            self._parts = json.loads(self._path.read_text())

    def is_settled(self, name: str, digest: str) -> bool:
        """Whether a part was reached often enough with these files."""
        known = self._parts.get(name, {})
        return known.get("digest") == digest and int(known.get("calls", 0)) >= ENOUGH

    def add(self, name: str, digest: str) -> None:
        """Count a call that has reached all of a part."""
        known = self._parts.get(name, {})
        calls = int(known["calls"]) if known.get("digest") == digest else 0
        self._parts[name] = {"digest": digest, "calls": calls + 1}
        lines = (
            f"  {json.dumps(part)}: {json.dumps(entry)}"
            for part, entry in sorted(self._parts.items())
        )
        self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
