"""The page of a recorded job: who waits for whom, its operations by rank over time, and what is slow."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import altair as alt

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_rounded_size, format_seconds
from hpccoll.render import chart_base
from hpccoll.render.chart_base import ChartRecord
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import GREY, PALETTE
from hpccoll.render.output_directory import PAGE_NAME, inputs_text, other_inputs
from hpccoll.render.page_frame import render, vega_script
from hpccoll.render.slow_text import group_text, slow_answers, slow_notes, slow_tables
from hpccoll.render.trace_text import (
    JobFindings,
    hang_lines,
    headings,
    known_defect_sentences,
    operation_text,
)
from hpccoll.store.durable_files import replacing_file
from hpccoll.traces.hangs import Hang
from hpccoll.traces.operation_times import OperationTimes
from hpccoll.traces.recorded_job import RecordedOperation
from hpccoll.traces.slow import SlowParts

MAX_BARS = 4000
"""The most bars of a chart; later operations are in the tables only."""

FEWEST_WAITING = 3
"""The fewest waiting ranks for which a chart is drawn."""

BLAMED, WAITING = "who is waited for waits for no rank", "who is waited for waits, too"
WAIT_COLOURS = {BLAMED: PALETTE[1], WAITING: GREY}
WAIT_CAPTION = (
    "A mark is a rank, at the left, that waits for another one, below; its colour says whether that one waits, too. "
    "Ranks that wait for no rank hold up the others."
)

COLOURS = {"waiting": PALETTE[1], "transfer": PALETTE[0], "transfer or waiting": GREY}

CAPTION = (
    "A bar is an operation of a rank. Its transfer is the shortest duration over all ranks; what is before that is "
    "waiting for ranks that came later: the rank without waiting came last. Broadcasts, reduces and messages are not "
    "divided so, because their shortest duration bounds nothing. The clocks of hosts are aligned by ends of "
    "collectives; without any, clocks that share no moment begin together."
)


def write_trace_page(jobs: Sequence[JobFindings], files: Sequence[Path], out: Path) -> Path:
    """Write the page of the jobs in ``files`` into a directory, which is made; return its path.

    Raises:
        UnusableError: if the directory has another page, which would be lost.
        OSError: if the page cannot be written.
    """
    lost = other_inputs(files, out)
    if lost:
        raise UnusableError(
            "--out", f"{out} contains the report of {lost}; do: choose another directory"
        )
    shown = []
    for number, (findings, heading) in enumerate(zip(jobs, headings(jobs), strict=True), 1):
        shown.append({"id": f"job-{number}", "heading": heading} | _job_context(findings))
    has_chart = any(job["chart"] or job["waits"] for job in shown)
    context = {
        "title": "A recorded job" if len(jobs) == 1 else "Recorded jobs",
        "inputs": inputs_text(files, out),
        "jobs": shown,
        "caption": CAPTION,
        "wait_caption": WAIT_CAPTION,
        "vega": vega_script() if has_chart else "",
    }
    out.mkdir(parents=True, exist_ok=True)
    with replacing_file((out / PAGE_NAME).resolve()) as unfinished:
        unfinished.write_text(render("trace.html", context), encoding="utf-8")
    return out / PAGE_NAME


def _job_context(findings: JobFindings) -> dict[str, object]:
    """Return what the page shows of a job; without times it has no timeline, tables and notes on them."""
    lines = list(hang_lines(findings))
    notes: list[str] = []
    tables = {}
    chart = None
    if findings.slow:
        lines += slow_answers(findings.slow, findings.against)
        notes += slow_notes(findings.slow)
        tables = slow_tables(findings.slow, findings.against)
        chart = timeline(findings.slow)
    lines += known_defect_sentences(findings)
    notes += [f"not recorded: {gap}" for gap in findings.job.cannot_say]
    waits = waiting_chart(findings.hangs)
    return {"lines": lines, "waits": waits, "chart": chart, "tables": tables, "notes": notes}


def waiting_chart(hangs: Sequence[Hang]) -> Mapping[str, object] | None:
    """Return the chart of who waits for whom; None if fewer than three ranks wait."""
    operations = _awaited_operations(hangs)
    waiting = sorted({rank for rank, _ in operations})
    awaited = sorted({rank for _, rank in operations})
    if len(waiting) < FEWEST_WAITING:
        return None
    data: list[ChartRecord] = []
    for rank, awaited_rank in sorted(operations)[:MAX_BARS]:
        description = operation_text(operations[rank, awaited_rank], {})
        part = WAITING if awaited_rank in waiting else BLAMED
        data.append({"rank": rank, "awaited": awaited_rank, "what": description, "part": part})
    colours = chart_base.present(WAIT_COLOURS, data, "part")
    step = max(8, min(24, WIDTH // len(awaited)))
    across = alt.Axis(labelAngle=0, labelOverlap=True)
    x = alt.X("awaited:O", title="rank that is waited for", sort=awaited, axis=across)
    y = alt.Y("rank:O", title="rank that waits", sort=waiting)
    colour = chart_base.colour("part", colours, "square")
    squares = alt.Chart().mark_square(size=step**2 / 2, opacity=1)
    chart = squares.encode(
        x=x, y=y, color=colour, tooltip=chart_base.tooltip("rank", "awaited", "what")
    )
    chart = chart.properties(
        width=step * len(awaited), height=step * len(waiting), data=chart_base.inline_data(data)
    )
    return chart_base.apply_theme(chart, "Who waits for whom", [], colours)


def _awaited_operations(hangs: Iterable[Hang]) -> dict[tuple[int, int], RecordedOperation]:
    """Return the first operation in which a rank waits for another one, by the waiting and the awaited rank."""
    operations: dict[tuple[int, int], RecordedOperation] = {}
    for hang in hangs:
        for wait in hang.waits:
            for pair in itertools.product(wait.ranks, wait.awaited):
                operations.setdefault(pair, wait.operation)
    return operations


def timeline(parts: SlowParts) -> Mapping[str, object] | None:
    """Return the chart of operations by rank over time, with waiting and transfer apart; None without their times."""
    data = list(_bars(parts))
    if not data:
        return None
    ranks = sorted({rank_times.rank for rank_times in parts.ranks})
    colours = chart_base.present(COLOURS, data, "part")
    axis = alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL, tickCount=8)
    x = alt.X("begin:Q", title="time since the first operation", axis=axis)
    y = alt.Y("rank:O", title="rank", sort=ranks)
    colour = chart_base.colour("part", colours, "square")
    fields = chart_base.tooltip("rank", "host", "what", "size", "group", "part", "takes")
    bars = alt.Chart().mark_bar(height={"band": 0.7})
    chart = bars.encode(x=x, x2=alt.X2("end:Q"), y=y, color=colour, tooltip=fields)
    chart = chart.properties(
        width=WIDTH, height=max(80, 18 * len(ranks)), data=chart_base.inline_data(data)
    )
    return chart_base.apply_theme(chart, "Operations by rank", list(slow_answers(parts)), colours)


def _bars(parts: SlowParts) -> Iterator[ChartRecord]:
    """Yield the bars of the earliest operations: of waiting, then of transfer."""
    left = MAX_BARS
    origin = next((begin for begin, *_ in parts.in_order), 0)
    for _, times, row in parts.in_order:
        for rank, record in times.operations[row].records.items():
            begin = parts.begin_ns(record)
            if begin is None or record.duration_s is None:
                continue
            operation: ChartRecord = {
                "rank": rank,
                "host": parts.hosts.get(rank) or "unknown",
                "what": record.collective,
                "group": group_text(times.group),
                "size": "unknown" if record.bytes is None else format_rounded_size(record.bytes),
            }
            begin_s = (begin - origin) / 1e9
            for part, length in _durations(times, row, rank, record.duration_s).items():
                end_s = begin_s + length
                if length > 0:
                    bar = {
                        "part": part,
                        "begin": begin_s,
                        "end": end_s,
                        "takes": format_seconds(length),
                    }
                    yield operation | bar
                    left -= 1
                begin_s = end_s
        if left <= 0:
            return


def _durations(times: OperationTimes, row: int, rank: int, duration_s: float) -> dict[str, float]:
    """Return how long a rank waited and transferred in an operation; without that division, both as one."""
    if times.waiting is None:
        return {"transfer or waiting": duration_s}
    waiting_s = float(times.waiting.waiting_s[row, times.ranks.index(rank)])
    return {"waiting": waiting_s, "transfer": duration_s - waiting_s}
