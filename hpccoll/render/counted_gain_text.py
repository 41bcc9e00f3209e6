"""What a counted program would gain, as text and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.analysis.counted_gain import CallGain, ProgramGain
from hpccoll.analysis.counted_shares import call_text, element_text, reduction_text
from hpccoll.common.records import to_builtins
from hpccoll.common.text import (
    Columns,
    Finding,
    filled_columns,
    finding_line,
    table_lines,
    table_of,
)
from hpccoll.common.units import format_count, format_factor, format_interval, format_seconds


def _faster(gain: CallGain) -> str:
    """Return how many times as fast as the default the best algorithm was, marked if that is noise."""
    factor = format_factor(gain.default_s / gain.best_s)
    if gain.gain_s and not gain.is_clear:
        return f"{factor} (noise)"
    return factor


COLUMNS: Columns[CallGain] = (
    ("call", lambda gain: call_text(gain.share)),
    ("type", lambda gain: element_text(gain.share)),
    ("op", lambda gain: reduction_text(gain.share)),
    ("calls", lambda gain: f"{gain.share.calls:,}"),
    ("in the program", lambda gain: format_seconds(gain.share.call_s)),
    ("default", lambda gain: format_seconds(gain.default_s)),
    ("best", lambda gain: format_seconds(gain.best_s)),
    ("algorithm", lambda gain: gain.best),
    ("faster", _faster),
    ("saves", lambda gain: format_seconds(gain.gain_s)),
    ("from .. to", lambda gain: format_interval(gain.interval_s)),
)
"""The columns of the calls that were measured."""


def gain_lines(gain: ProgramGain) -> Iterator[str]:
    """Yield what a program would gain, and by which calls."""
    for finding in gain.findings:
        yield finding_line(finding)
    if gain.gains:
        yield from table_lines(*filled_columns(*table_of(COLUMNS, gain.gains)))
        runs = format_count(len(gain.shares.job.ranks), "rank")
        launches = format_count(max(call.launches for call in gain.gains), "launch")
        run = format_seconds(gain.shares.run_s)
        yield f"  of a run of {run} on {runs}; times are medians over {launches}, faster is the median of their ratios"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramGainJson:
    """What a program would gain as JSON has it."""

    run_s: float
    worth_it: bool
    gain_s: float
    interval_s: tuple[float, float]
    at_most: float
    gains: Sequence[CallGain]
    findings: Sequence[Finding]


def gain_record(gain: ProgramGain) -> Any:
    """Return what a program would gain as JSON has it; times are seconds."""
    record = ProgramGainJson(
        run_s=gain.shares.run_s,
        worth_it=gain.is_worth_it,
        gain_s=gain.gain_s,
        interval_s=gain.interval_s,
        at_most=gain.at_most,
        gains=gain.gains,
        findings=gain.findings,
    )
    return to_builtins(record)
