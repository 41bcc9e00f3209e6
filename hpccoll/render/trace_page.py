"""The page of a recorded job: who waits for whom, its operations by rank over time, and what is slow."""

from collections.abc import Iterator, Mapping, Sequence
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
from hpccoll.render.trace_text import JobFindings, hang_lines, headings, operation_text
from hpccoll.store.durable_files import replacing_file
from hpccoll.traces.hangs import Hang
from hpccoll.traces.slow import SlowParts

MAX_BARS, FEW = 4000, 3
"""The most bars of a chart: of later operations the tables tell. Fewer ranks that wait are no picture."""

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
    if lost := other_inputs(files, out):
        raise UnusableError("--out", f"{out} contains the report of {lost}; do: choose another directory")
    shown = [
        {"id": f"job-{number}", "heading": heading,
         "lines": [*hang_lines(each), *(slow_answers(each.slow, each.against) if each.slow else ())],
         "waits": waiting_chart(each.hangs), "chart": each.slow and timeline(each.slow),
         "tables": slow_tables(each.slow, each.against) if each.slow else {},
         "notes": [
             *(slow_notes(each.slow) if each.slow else ()), *(f"not recorded: {gap}" for gap in each.job.cannot_say),
         ]}
        for number, (each, heading) in enumerate(zip(jobs, headings(jobs), strict=True), 1)
    ]  # fmt: skip
    context = {
        "title": "A recorded job" if len(jobs) == 1 else "Recorded jobs",
        "inputs": inputs_text(files, out), "jobs": shown, "caption": CAPTION, "wait_caption": WAIT_CAPTION,
        "vega": vega_script() if any(each["chart"] or each["waits"] for each in shown) else "",
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with replacing_file((out / PAGE_NAME).resolve()) as unfinished:
        unfinished.write_text(render("trace.html", context), encoding="utf-8")
    return out / PAGE_NAME


def waiting_chart(hangs: Sequence[Hang]) -> Mapping[str, object] | None:
    """Return the chart of who waits for whom; None if fewer than three ranks wait."""
    waits = [wait for hang in hangs for wait in hang.waits]
    pairs = {(rank, other): wait for wait in reversed(waits) for rank in wait.ranks for other in wait.awaited}
    waiting, awaited = ([*dict.fromkeys(sorted(each))] for each in ((w for w, _ in pairs), (a for _, a in pairs)))
    if len(waiting) < FEW:
        return None
    data: list[ChartRecord] = [
        {"rank": rank, "awaited": other, "what": operation_text(wait.operation, {}),
         "part": WAITING if other in waiting else BLAMED}
        for (rank, other), wait in sorted(pairs.items(), key=lambda pair: pair[0])[:MAX_BARS]
    ]  # fmt: skip
    colours, step = chart_base.present(WAIT_COLOURS, data, "part"), max(8, min(24, WIDTH // len(awaited)))
    across = alt.Axis(labelAngle=0, labelOverlap=True)
    squares = alt.Chart().mark_square(size=step**2 / 2, opacity=1).encode(
        x=alt.X("awaited:O", title="rank that is waited for", sort=awaited, axis=across),
        y=alt.Y("rank:O", title="rank that waits", sort=waiting),
        color=chart_base.colour("part", colours, "square"), tooltip=chart_base.tooltip("rank", "awaited", "what"),
    )  # fmt: skip
    width, height = (step * len(each) for each in (awaited, waiting))
    chart = squares.properties(width=width, height=height, data=chart_base.inline_data(data))
    return chart_base.apply_theme(chart, "Who waits for whom", [], colours)


def timeline(parts: SlowParts) -> Mapping[str, object] | None:
    """Return the chart of operations by rank over time, with waiting and transfer apart; None without their times."""
    data = [*_bars(parts)]
    if not data:
        return None
    ranks, colours = sorted({each.rank for each in parts.ranks}), chart_base.present(COLOURS, data, "part")
    axis = alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL, tickCount=8)
    bars = alt.Chart().mark_bar(height={"band": 0.7}).encode(
        x=alt.X("begin:Q", title="time since the first operation", axis=axis), x2=alt.X2("end:Q"),
        y=alt.Y("rank:O", title="rank", sort=ranks), color=chart_base.colour("part", colours, "square"),
        tooltip=chart_base.tooltip("rank", "host", "what", "size", "group", "part", "takes"),
    )  # fmt: skip
    chart = bars.properties(width=WIDTH, height=max(80, 18 * len(ranks)), data=chart_base.inline_data(data))
    return chart_base.apply_theme(chart, "Operations by rank", [*slow_answers(parts)], colours)


def _bars(parts: SlowParts) -> Iterator[ChartRecord]:
    """Yield the bars of the earliest operations: of waiting, then of transfer."""
    left, origin = MAX_BARS, next((begin for begin, *_ in parts.in_order), 0)
    for _, of, row in parts.in_order:
        for rank, each in of.operations[row].records.items():
            begin, takes = parts.begin_ns(each), each.duration_s
            if begin is None or takes is None:
                continue
            waits = None if of.waiting is None else float(of.waiting.waiting_s[row, of.ranks.index(rank)])
            lengths = {"transfer or waiting": takes} if waits is None else {"waiting": waits, "transfer": takes - waits}
            at = (begin - origin) / 1e9
            for part, length in lengths.items():
                if length > 0:
                    yield {
                        "rank": rank, "host": parts.hosts.get(rank) or "unknown", "what": each.collective, "part": part,
                        "group": group_text(of.group), "begin": at, "end": at + length, "takes": format_seconds(length),
                        "size": "unknown" if each.bytes is None else format_rounded_size(each.bytes),
                    }  # fmt: skip
                    left -= 1
                at += length
        if left <= 0:
            return
