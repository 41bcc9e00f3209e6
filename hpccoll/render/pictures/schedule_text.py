"""The description of a view as text: its cost, the actions of each round, and the buffers after it as a table."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.units import format_count
from hpccoll.render.pictures.action_text import round_lines
from hpccoll.render.pictures.buffer_state import BufferState, buffer_state
from hpccoll.render.pictures.schedule_view import ScheduleView
from hpccoll.schedule import Cost, Cut, Layout, count
from hpccoll.schedule.collective import parameter_choices
from hpccoll.schedule.walk import Message, Trace, trace_schedule

WIDTH = 120
NOTHING = "."
_MAX_ARROWS = 4
"""The most messages that a row names."""

_ITEMSIZE = 4
_GRAINS = 32
"""Elements of a unit for counting bytes: whole grains, so that all units are equal."""


def describe(view: ScheduleView, unit: int | None = None) -> str:
    """Return ``view`` as text, lines without a newline at the end; tables follow ``unit`` [chosen].

    Raises:
        BadInputError: if there is no such unit, or the schedule is invalid or does not do what its collective requires.
    """
    view.check()
    return "\n".join([*_heading(view), *round_and_buffer_lines(view, unit)])


def _heading(view: ScheduleView) -> Iterator[str]:
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
    if view.algorithm and (choices := parameter_choices(view.algorithm)):
        defaults = view.algorithm.parameters
        parameters = "; ".join(f"{parameter}={defaults[parameter]} ({values})" for parameter, values in choices.items())
        yield from wrap(f"parameters: {parameters}", WIDTH, subsequent_indent="  ")
    also_in = [other for other, family in COLLECTIVES.items() if other != name and view.name in family.algorithms]
    if also_in:
        sentence = f"{view.name} is one of {', '.join(also_in)}, too: -c {also_in[0]}"
        yield from wrap(sentence, WIDTH, subsequent_indent="  ")


def round_and_buffer_lines(view: ScheduleView, unit: int | None = None) -> Iterator[str]:
    """Yield the actions of each round and the table of buffers, of each slice; the schedule may be unproven."""
    for number, schedule in enumerate(view.slices):
        trace = trace_schedule(schedule)
        yield ""
        if len(view.slices) > 1:
            yield f"slice {number + 1} of {len(view.slices)}"
        if not trace.rounds:
            yield "nothing is sent"
        for round_ in range(trace.rounds):
            head = f"round {round_ + 1}: "
            indent = " " * len(head)
            for i, line in enumerate(round_lines(trace, round_)):
                yield from wrap(line, WIDTH, initial_indent=indent if i else head, subsequent_indent=f"{indent}  ")
        yield ""
        yield from buffer_lines(buffer_state(view.call, trace, unit), trace)


def layout_text(layout: Layout) -> str:
    """Return where the ranks are, as text: ``8 workers on 4 nodes of 2, 2 racks, 1 aggregator``."""
    nodes = format_count(layout.nodes, "node")
    if layout.nodes > 1:
        nodes += f" of {layout.ranks_per_node or 'unequal size'}"
    parts = [f"{format_count(layout.workers, 'worker')} on {nodes}"]
    if layout.racks > 1:
        parts.append(f"{layout.racks} racks")
    if layout.aggregators:
        parts.append(format_count(layout.aggregators, "aggregator"))
    return ", ".join(parts)


def cost_text(view: ScheduleView) -> str:
    """Return the counted cost of the critical path, and the declared one if it differs, as text."""
    units, lanes = view.slices[0].units, len(view.slices)
    elements = _GRAINS * units * (lanes if view.collective.units == "divisible" else 1)
    counts = count(view.slices, Cut(view.call, elements, units, lanes, _ITEMSIZE))
    size = view.call.bytes(elements, _ITEMSIZE)
    counted = _cost(view, Cost(counts.rounds, counts.critical_bytes / size, counts.critical_reduced / size))
    one_by_one = ", bytes of slices in turn" if lanes > 1 else ""
    if view.declared is None:
        return f"{counted} (counted{one_by_one})"
    declared = _cost(view, view.declared)
    if declared == counted:
        return f"{counted} (declared and counted)"
    if lanes > 1:  # the sums of slices, and one of them
        return f"{counted} (counted{one_by_one}), {declared} (declared, slices at once)"
    return f"{counted} (counted; DIFFERS from the declared cost: {declared})"


def _cost(view: ScheduleView, cost: Cost) -> str:
    rounds = format_count(round(cost.rounds), "round")
    return rounds if view.collective.token else f"{rounds}, {cost.sent:.4g} S sent, {cost.reduced:.4g} S reduced"


def buffer_lines(state: BufferState, trace: Trace) -> list[str]:
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

    notes = ["", *(_message_notes(state, landing) for landing in trace.landing)]
    return [f"{state.title(width)}:", line("rank", list(map(str, ranks))), *map(line, heads, cells, notes)]


def _message_notes(state: BufferState, landing: Sequence[Message]) -> str:
    """Return the messages of a round that carry the followed unit: ``0 -> 1, 2 <-> 3``."""
    carriers = [m for m in landing if state.unit is None or state.unit in {*m.landed.units, *m.sent.units}]
    pairs = [(m.source, m.target) for m in carriers if not m.copies]
    if len(pairs) > _MAX_ARROWS:
        return ""
    both = [f"{a} <-> {b}" for a, b in pairs if a < b and (b, a) in pairs]
    return ", ".join([*both, *(f"{a} -> {b}" for a, b in pairs if (b, a) not in pairs)])
