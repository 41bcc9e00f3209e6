"""The description of a view as text: its cost, the actions of each round, and the buffers after it as a table."""

from collections.abc import Iterator
from textwrap import wrap

from hpccoll.common.units import format_count
from hpccoll.render.pictures.action_text import round_lines
from hpccoll.render.pictures.buffer_state import BufferState, buffer_state
from hpccoll.render.pictures.schedule_view import ScheduleView
from hpccoll.schedule import Cost, Layout
from hpccoll.schedule.walk import Message, Trace, trace_schedule


def describe(view: ScheduleView, unit: int | None = None) -> str:
    """Return ``view`` as text, lines without a newline at the end.

    Args:
        view: the view of a schedule.
        unit: the unit that the tables follow [chosen].

    Raises:
        BadInputError: if there is no such unit, or the schedule is invalid or does not do what its collective requires.
    """
    view.check()
    return "\n".join(_lines(view, unit))


def _lines(view: ScheduleView, unit: int | None) -> Iterator[str]:
    yield f"{view.title} on {layout_text(view.layout)}"
    if view.sentence:
        yield view.sentence
    yield f"cost, on the critical path: {cost_text(view)}"
    slices, units = view.slices, format_count(view.slices[0].units, "unit")
    yield f"{units} in one slice" if len(slices) == 1 else f"{units} in each of {len(slices)} slices"
    name = view.collective.name
    if view.floor:
        yield f"floor: the schedule is empty, and the postcondition of {name} does not hold"
    else:
        yield f"proven: the postcondition of {name}"
    if view.parameters:
        yield from wrap("parameters: " + "; ".join(view.parameters), WIDTH, subsequent_indent="  ")
    if view.also_in:
        also_in = f"{view.name} is one of {', '.join(view.also_in)}, too: -c {view.also_in[0]}"
        yield from wrap(also_in, WIDTH, subsequent_indent="  ")
    yield from round_and_buffer_lines(view, unit)


def round_and_buffer_lines(view: ScheduleView, unit: int | None = None) -> Iterator[str]:
    """Yield the actions of each round and the table of buffers, of each slice; the schedule may be unproven."""
    for number, schedule in enumerate(view.slices):
        trace = trace_schedule(schedule)
        yield ""
        if len(view.slices) > 1:
            yield f"slice {number + 1} of {len(view.slices)}"
        yield from _rounds(trace)
        yield ""
        yield from table_lines(buffer_state(view, trace, unit), trace)


def _rounds(trace: Trace) -> Iterator[str]:
    if not trace.rounds:
        yield "nothing is sent"
    for number in range(trace.rounds):
        head = f"round {number + 1}: "
        indent = " " * len(head)
        for i, line in enumerate(round_lines(trace, number)):
            yield from wrap(line, WIDTH, initial_indent=indent if i else head, subsequent_indent=f"{indent}  ")


def layout_text(layout: Layout) -> str:
    """Return where the ranks are, as text: ``8 workers on 4 nodes of 2, 2 racks, 1 aggregator``."""
    each = layout.ranks_per_node
    nodes = format_count(layout.nodes, "node")
    if layout.nodes > 1:
        nodes += f" of {each}" if each else " of unequal size"
    parts = [f"{format_count(layout.workers, 'worker')} on {nodes}"]
    if (racks := len(set(layout.rack[: layout.workers]))) > 1:
        parts.append(f"{racks} racks")
    if layout.aggregators:
        parts.append(format_count(layout.aggregators, "aggregator"))
    return ", ".join(parts)


def cost_text(view: ScheduleView) -> str:
    """Return the counted cost of the critical path, and the declared one if it differs, as text."""
    counts, size = view.operation_counts()
    rounds = Cost(counts.rounds, counts.critical_bytes / size, counts.critical_reduced / size)
    counted_text = _cost(rounds, bytes_too=not view.collective.token)
    several = len(view.slices) > 1
    one_by_one = ", bytes of slices in turn" if several else ""
    if view.declared is None:
        return f"{counted_text} (counted{one_by_one})"
    declared = _cost(view.declared, bytes_too=not view.collective.token)
    if declared == counted_text:
        return f"{counted_text} (declared and counted)"
    if several:  # the sums of slices, and one of them
        return f"{counted_text} (counted{one_by_one}), {declared} (declared, slices at once)"
    return f"{counted_text} (counted; DIFFERS from the declared cost: {declared})"


def _cost(cost: Cost, *, bytes_too: bool) -> str:
    rounds = format_count(round(cost.rounds), "round")
    return f"{rounds}, {cost.sent:.4g} S sent, {cost.reduced:.4g} S reduced" if bytes_too else rounds


WIDTH = 120
NOTHING = "."
_MAX_ARROWS = 4
"""The most messages that a row names."""


def table_lines(state: BufferState, trace: Trace) -> list[str]:
    """Return a title, the ranks, and a row for the start and each round, with the messages that change it."""
    ranks = range(trace.schedule.layout.ranks)
    heads = ["start", *(f"round {number + 1}" for number in range(trace.rounds))]
    left = max(map(len, [*heads, "rank"])) + 1
    width = max(2, (WIDTH - left) // len(ranks) - 1)
    cells = [[state.cell_text(symbols, width) or NOTHING for symbols in row] for row in state.rows]
    widest = max(len(cell) for row in [*cells, [str(ranks[-1])]] for cell in row)
    gap = max(1, min(3, (WIDTH - left) // len(ranks) - widest))

    def line(head: str, texts: list[str], note: str = "") -> str:
        columns = "".join(cell.ljust(widest + gap) for cell in texts)
        text = f"{head.ljust(left)}{columns}"
        return (text + note if len(text + note) <= WIDTH else text).rstrip()

    notes = ["", *(_message_notes(state, trace, number) for number in range(trace.rounds))]
    return [f"{state.title(width)}:", line("rank", list(map(str, ranks))), *map(line, heads, cells, notes)]


def _message_notes(state: BufferState, trace: Trace, number: int) -> str:
    """Return the messages of a round that carry the followed unit: ``0 -> 1, 2 <-> 3``."""
    pairs = [(m.source, m.target) for m in trace.landing[number] if not m.copies and _carries(m, state.unit)]
    if not 0 < len(pairs) <= _MAX_ARROWS:
        return ""
    both = [(a, b) for a, b in pairs if a < b and (b, a) in pairs]
    single = [(a, b) for a, b in pairs if (b, a) not in pairs]
    return ", ".join([*(f"{a} <-> {b}" for a, b in both), *(f"{a} -> {b}" for a, b in single)])


def _carries(m: Message, unit: int | None) -> bool:
    return unit is None or unit in m.landed.units or unit in m.sent.units
