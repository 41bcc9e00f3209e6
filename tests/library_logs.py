"""Logs of NCCL, libsharp and UCC, written after documented formats (not recorded), and their records."""

from pathlib import Path

from hpccoll.evidence.log_set import read_logs

LOGS = Path(__file__).parent / "evidence" / "logs"
TEXTS = {path.stem: path.read_text() for path in sorted(LOGS.glob("*.log"))}


def read_log(name, *more_lines):
    """Return the record of a log, with lines added at its end."""
    return read_logs({f"{name}.log": "\n".join((TEXTS[name], *more_lines))})
