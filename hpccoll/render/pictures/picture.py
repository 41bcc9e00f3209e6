"""The complete picture of a view: the graph of messages, the messages over time, and the buffers after each step."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

from hpccoll.common.errors import BadInputError, writing
from hpccoll.render.colours import FAINT, INK, MUTED, PAPER
from hpccoll.render.pictures import svg
from hpccoll.render.pictures.buffer_state import BufferState, buffer_state
from hpccoll.render.pictures.communication_diagram import message_graphs
from hpccoll.render.pictures.message_timeline import Grid, rank_heads, spacetime
from hpccoll.render.pictures.schedule_text import cost_text, layout_text, part_sentence, rack_lines
from hpccoll.render.pictures.schedule_view import RANKS_OF_PART, ScheduleView
from hpccoll.render.pictures.style import FOLDS, REPLACES, Style
from hpccoll.render.pictures.svg import (
    Bounds,
    Box,
    LineStyle,
    Point,
    SvgShape,
    Text,
    bounds_of,
    straight,
)
from hpccoll.schedule.walk import Message, Trace
from hpccoll.store.durable_files import replacing_file

ENDINGS = (".svg", ".png")


def picture(view: ScheduleView, unit: int | None = None) -> str:
    """Return the picture of ``view`` as an SVG file; the cells follow ``unit`` [chosen], BadInputError without it."""
    traces = view.traces
    if view.is_part:
        traces = [_between_shown_ranks(trace) for trace in traces]
    style = Style.of(traces)
    grid = Grid.of(traces)
    time = spacetime(traces, grid, style)
    root = None if view.is_part else view.root
    graphs = [*message_graphs(traces, style, root), *_legend(traces, style)]
    graph = svg.stacked(graphs, top=bounds_of(time).top)
    columns = [("who talks to whom", graph), ("what happens in each step", time)]
    if not view.is_part:
        state = buffer_state(view.call, traces[0], unit)
        first = "slice 1: " if len(traces) > 1 else ""
        columns.append((first + state.title(_cell_width(grid)), cells(state, grid)))
    drawn = svg.place_side_by_side(columns)
    title = f"{view.title}, {layout_text(view.layout)}"
    cost = f"Cost: {cost_text(view)}."
    lines = [view.sentence, cost]
    lines += [f"B{line[1:]}." for line in rack_lines(view)]
    if view.is_part:
        lines.append(f"{part_sentence(view).capitalize()}; messages between them.")
    heading = _heading(title, lines, bounds_of(drawn))
    return svg.svg_document([*heading, *drawn], title, f"{view.sentence} {cost}".strip())


def _between_shown_ranks(trace: Trace) -> Trace:
    """Return the messages of a trace between the ranks of a part, on the layout of those ranks."""
    layout = trace.schedule.layout.subset(range(RANKS_OF_PART))
    departing = [_shown_messages(messages) for messages in trace.departing]
    landing = [_shown_messages(messages) for messages in trace.landing]
    return Trace(replace(trace.schedule, layout=layout), tuple(departing), tuple(landing))


def _shown_messages(messages: Iterable[Message]) -> list[Message]:
    return [m for m in messages if max(m.source, m.target) < RANKS_OF_PART]


def _heading(title: str, lines: Sequence[str], below: Bounds) -> Iterator[SvgShape]:
    size, small = 18.0, 12.5
    width = max(420.0, below.right - below.left)
    titles = wrap(title, int(width / size / svg.CHARACTER))
    paragraphs: list[str] = []
    for line in lines:
        paragraphs += wrap(line, int(width / small / svg.CHARACTER))
    y = below.top - 22 - 18 * len(paragraphs) - 26 * len(titles)
    for line in titles:
        y += 26
        yield Text(Point(below.left, y - 12), line, size=size, anchor="start", weight=700)
    for line in paragraphs:
        y += 18
        yield Text(Point(below.left, y - 8), line, size=small, anchor="start", colour=MUTED)


def _legend(traces: Sequence[Trace], style: Style) -> list[list[SvgShape]]:
    folds = copies = replaces = False
    for trace in traces:
        for m in trace.messages:
            folds |= m.folds
            copies |= m.copies
            replaces |= not m.folds and not m.copies
    by_arrival = style.by == "arrival"
    entries = [(LineStyle(colour, width=3.0), meaning) for colour, meaning in style.classes]
    if folds:
        entries.append((LineStyle(FOLDS if by_arrival else MUTED), "the arrival is reduced"))
    if replaces:
        line_style = LineStyle(
            REPLACES if by_arrival else MUTED, dashed=not by_arrival, hollow=True
        )
        entries.append((line_style, "the arrival replaces"))
    if copies:
        entries.append((LineStyle(REPLACES, hollow=True, width=1.2), "a loop is a copy"))
    rows: list[SvgShape] = []
    for number, (line_style, meaning) in enumerate(entries):
        y = 21.0 * number
        rows.append(
            straight(Point(0, y), Point(32, y), line_style, head=number >= len(style.classes))
        )
        rows.append(Text(Point(42, y), meaning, anchor="start"))
    return [rows] if rows else []


def draw(view: ScheduleView, path: Path, unit: int | None = None) -> None:
    """Draw ``view`` into a file, as SVG or PNG by its ending; BadInputError for another one, or a file that fails."""
    if path.suffix not in ENDINGS:
        raise BadInputError("--out", str(path), f"a file that ends in {' or '.join(ENDINGS)}")
    content = picture(view, unit).encode()
    if path.suffix == ".png":
        from hpccoll.render.chart_base import chart_engine

        content = chart_engine().svg_to_png(content.decode(), scale=2)
    with writing(path), replacing_file(path.resolve()) as unfinished:
        unfinished.write_bytes(content)


_PALE = 232, 241, 249
_DARK = 120, 176, 220
_FULL = "#1f6aa5"
_SIZE = 10.5


def _cell_width(grid: Grid) -> int:
    return 8 if grid.layout.ranks <= 9 else 6


def cells(state: BufferState, time: Grid) -> list[SvgShape]:
    """Return the cells, as wide as their text, and the ranks above them; one that a step changed has a dark edge."""
    texts = [[state.cell_text(symbols, _cell_width(time)) for symbols in row] for row in state.rows]
    across = max(8.0, time.across * 0.8)
    if time.layout.ranks <= 18:
        longest = max(len(text) for row in texts for text in row)
        across = max(30.0, longest * svg.CHARACTER * _SIZE + 14)
    grid = replace(time, across=across)
    half, tall = across / 2 - 1.5, min(14.0, 0.29 * grid.down)
    edge_width = min(1.2, across / 25)
    shapes = rank_heads(grid)
    for number, row in enumerate(state.rows):
        before = state.rows[max(0, number - 1)]
        for me, symbols in enumerate(row):
            at = grid.point(me, number)
            is_complete = bool(symbols) and symbols in (state.all_symbols, state.expected[me])
            fill = _FULL if is_complete else _shade(len(symbols) / max(1, len(state.all_symbols)))
            edge = "none" if symbols else FAINT
            if symbols != before[me]:
                edge = INK
            shapes.append(
                Box(
                    at.moved(-half, -tall),
                    at.moved(half, tall),
                    fill,
                    edge,
                    width=edge_width,
                    radius=3,
                )
            )
            text = texts[number][me]
            if across >= 30 and text:
                shapes.append(Text(at, text, size=_SIZE, colour=PAPER if is_complete else INK))
    return shapes


def _shade(share: float) -> str:
    if not share:
        return PAPER
    mixed = [round(pale + (dark - pale) * share) for pale, dark in zip(_PALE, _DARK, strict=True)]
    return "#" + "".join(f"{value:02x}" for value in mixed)
