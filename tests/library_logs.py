"""Logs of NCCL, libsharp and UCC, written after documented formats (not recorded), and their records."""

import json
from pathlib import Path

from hpccoll.evidence.log_set import read_logs

LOGS = Path(__file__).parent / "evidence" / "logs"
GOLDEN = LOGS.parent / "golden"
TEXTS = {path.stem: path.read_text() for path in sorted(LOGS.glob("*.log"))}


def read_log(name, *more_lines):
    """Return the record of a log, with lines added at its end."""
    return read_logs({f"{name}.log": "\n".join((TEXTS[name], *more_lines))})


def ran(record):
    """Return collective, bytes, algorithm, protocol and channels of the calls of a record."""
    return [
        (one.collective, one.bytes, one.algorithm, one.protocol, one.channels)
        for one in record.collectives
    ]


def record_lines(record):
    """Yield the facts of a record, a line for each value that is not empty, for a golden page."""
    for name, value in sorted(record.items()):
        for each in value if isinstance(value, list | tuple) else [value]:
            one = (
                {key: part for key, part in each.items() if part is not None}
                if isinstance(each, dict)
                else each
            )
            if one not in (None, "", {}):
                yield f"{name}: {one if isinstance(one, str) else json.dumps(one)}"
