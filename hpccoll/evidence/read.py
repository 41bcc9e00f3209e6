"""Logs to one record: lines of NCCL, of libsharp and of UCC, in any mixture, from any number of files."""

import re
from collections.abc import Mapping, Sequence

from hpccoll.evidence import nccl_log, sharp_log, ucc_log
from hpccoll.evidence.lines import messages
from hpccoll.evidence.notes import Notes, Rule, apply
from hpccoll.evidence.records import Record

RULES: Mapping[str | None, Sequence[Rule]] = {
    "nccl": nccl_log.RULES,
    "sharp": sharp_log.RULES,
    "ucc": ucc_log.RULES,
    None: nccl_log.RULES[:1],  # the version is printed without a header too
}
"""Who wrote a message, and what can be read in it."""

_LIBRARIES = ("nccl", "ucc", "sharp")
"""Where several libraries write, the record is of the first of these: it is the one that was called."""


def read_logs(texts: Mapping[str, str]) -> Record:
    """Return what logs say together.

    Args:
        texts: by file name; a name that ends with ``.conf`` is a file of settings of NCCL (``NAME=value``). What is no
            line of a known library is passed over, and so is a line that is cut short.
    """
    notes = Notes()
    seen = set()
    for name, text in texts.items():
        if name.endswith(".conf"):
            _settings(notes, name, text)
            continue
        for message in messages(text, name):
            seen.add(message.origin)
            apply(RULES[message.origin], notes, message)
    notes.library = next((library for library in _LIBRARIES if library in seen), None)
    return notes.record()


def _settings(notes: Notes, name: str, text: str) -> None:
    """Note the settings of a file such as /etc/nccl.conf, where the environment says nothing else."""
    notes.say("files", name)
    for line in text.splitlines():
        if setting := re.fullmatch(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*", line):
            notes.settings.setdefault(setting[1], setting[2])
