"""The page of a recorded job: who waits for whom, its operations by rank over time, and what is slow."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import altair as alt

from hpccoll.common.units import format_rounded_size, format_seconds
from hpccoll.render import chart_base
from hpccoll.render.chart_base import ChartRecord
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.colours import GREY, PALETTE
from hpccoll.render.output_directory import PAGE_NAME
from hpccoll.render.page_frame import render, vega_script
from hpccoll.render.slow_text import group_text, slow_notes, slow_tables, summary
from hpccoll.store.durable_files import replacing_file
from hpccoll.traces.against_curve import AgainstCurve
from hpccoll.traces.slow import SlowParts

MAX_BARS = 4000
"""The most bars of a chart: of later operations the tables tell."""

COLOURS = {"waiting": PALETTE[1], "transfer": PALETTE[0], "not told apart": GREY}

CAPTION = (
    "A bar is an operation of a rank. Its transfer is the shortest duration over all ranks, what is before that is "
    "waiting for ranks that came later: the rank without waiting came last. Of broadcasts, reduces and messages the "
    "two are not told apart. Clocks of hosts are aligned by the ends of collectives."
)


def write_trace_page(
    jobs: Sequence[tuple[str, Sequence[str], SlowParts | None, Sequence[AgainstCurve] | None]], out: Path
) -> Path:
    """Write the page of recorded jobs into a directory; return its path.

    Args:
        jobs: the heading of each, its lines about hangs and about what its files do not tell, and what is slow.
        out: the directory, which is made.

    Raises:
        OSError: if the page cannot be written.
    """
    shown = [
        {"id": f"job-{number}", "heading": heading, "lines": lines, "chart": timeline(parts) if parts else None,
         "summary": summary(parts) if parts else "", "notes": [*slow_notes(parts)] if parts else [],
         "tables": slow_tables(parts, against) if parts else {}}
        for number, (heading, lines, parts, against) in enumerate(jobs, 1)
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    page = out / PAGE_NAME
    context = {
        "title": "A recorded job", "jobs": shown, "caption": CAPTION,
        "vega": vega_script() if any(each["chart"] for each in shown) else "",
    }  # fmt: skip
    with replacing_file(page.resolve()) as unfinished:
        unfinished.write_text(render("trace.html", context), encoding="utf-8")
    return page


def timeline(parts: SlowParts) -> Mapping[str, object] | None:
    """Return the chart of operations by rank over time, with waiting and transfer apart; None without their times."""
    data = [*_bars(parts)]
    if not data:
        return None
    ranks = sorted({each.rank for each in parts.ranks})
    axis = alt.Axis(labelExpr=chart_base.LINEAR_TIME_LABEL, tickCount=8)
    bars = alt.Chart().mark_bar(height={"band": 0.7}).encode(
        x=alt.X("begin:Q", title="time since the first operation", axis=axis), x2=alt.X2("end:Q"),
        y=alt.Y("rank:O", title="rank", sort=ranks), color=chart_base.colour("part", COLOURS, "square"),
        tooltip=chart_base.tooltip("rank", "host", "what", "size", "group", "part", "takes"),
    )  # fmt: skip
    chart = bars.properties(width=WIDTH, height=max(80, 18 * len(ranks)), data=chart_base.inline_data(data))
    return chart_base.apply_theme(chart, "Operations by rank", [summary(parts)], [*COLOURS])


def _bars(parts: SlowParts) -> Iterator[ChartRecord]:
    """Yield the bars of the earliest operations: of waiting, then of transfer."""
    hosts = {each.rank: each.host for each in parts.ranks}
    starts = {
        (of_number, row): min(begins)
        for of_number, of in enumerate(parts.times)
        for row, operation in enumerate(of.operations)
        if (begins := [begin for each in operation.records.values() if (begin := parts.begin_ns(each)) is not None])
    }
    left, origin = MAX_BARS, min(starts.values(), default=0)
    for of_number, row in sorted(starts, key=starts.__getitem__):
        of = parts.times[of_number]
        for rank, each in of.operations[row].records.items():
            begin, takes = parts.begin_ns(each), each.duration_s
            if begin is None or takes is None:
                continue
            waits = None if of.waiting is None else float(of.waiting.waiting_s[row, of.ranks.index(rank)])
            lengths = {"not told apart": takes} if waits is None else {"waiting": waits, "transfer": takes - waits}
            at = (begin - origin) / 1e9
            for part, length in lengths.items():
                if length > 0:
                    yield {
                        "rank": rank, "host": hosts.get(rank) or "unknown", "what": each.collective, "part": part,
                        "group": group_text(of.group), "begin": at, "end": at + length, "takes": format_seconds(length),
                        "size": "unknown" if each.bytes is None else format_rounded_size(each.bytes),
                    }  # fmt: skip
                    left -= 1
                at += length
        if left <= 0:
            return
