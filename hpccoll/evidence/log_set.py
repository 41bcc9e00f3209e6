"""Logs to one record: lines of NCCL, of libsharp and of UCC, in any mixture, from any number of files."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hpccoll.evidence import nccl_log, sharp_log, ucc_log
from hpccoll.evidence.log_lines import LogMessage, messages
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.parser_state import ParserState, Rule, apply_rules

RULES: Mapping[str | None, Sequence[Rule]] = {
    "nccl": nccl_log.RULES,
    "sharp": sharp_log.RULES,
    "ucc": ucc_log.RULES,
    None: nccl_log.RULES[:1],  # the version is printed without a header too
}
"""Who wrote a message, and what can be read in it."""

SETTINGS = ".conf"
"""How the name of a file of settings of NCCL ends, such as /etc/nccl.conf, which NCCL reads in silence."""

_LIBRARIES = ("nccl", "ucc", "sharp")
"""Where several libraries write, the record is of the first of these: it is the one that was called."""


def read_logs(texts: Mapping[str, str]) -> LogRecord:
    """Return what logs of one launch say together.

    Args:
        texts: by file name; a name that ends with ``.conf`` is a file of settings of NCCL (``NAME=value``). What is no
            line of a known library is passed over, and so is a line that is cut short.
    """
    settings = {name: text for name, text in texts.items() if name.endswith(SETTINGS)}
    logs = (text for name, text in texts.items() if name not in settings)
    return record_of((line for text in logs for line in messages(text.splitlines())), settings)


def record_of(lines: Iterable[LogMessage], settings: Mapping[str, str]) -> LogRecord:
    """Return what the messages of one launch say together.

    Args:
        lines: the messages.
        settings: the texts of files of settings, by their names: they hold where the environment says nothing else.
    """
    notes, seen = ParserState(), set()
    for message in lines:
        seen.add(message.origin)
        apply_rules(RULES[message.origin], notes, message)
    for name, text in settings.items():
        _settings(notes, name, text)
    notes.library = next((library for library in _LIBRARIES if library in seen), None)
    return notes.record()


def _settings(notes: ParserState, name: str, text: str) -> None:
    notes.say("files", name)
    for line in text.splitlines():
        if setting := re.fullmatch(r"\s*(NCCL_\w+)\s*=\s*(.*?)\s*", line):
            notes.settings.setdefault(setting[1], setting[2])
