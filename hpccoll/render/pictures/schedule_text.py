"""The description of a view as text: its cost, the actions of each step, and the buffers after it as a table."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from sys import maxsize
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count
from hpccoll.render.pictures.buffer_state import BufferState, buffer_state, spans
from hpccoll.render.pictures.schedule_view import (
    MAX_DRAWN,
    RANKS_OF_PART,
    STEPS_OF_PART,
    ScheduleView,
)
from hpccoll.schedule import Cost, Counts, Cut, Layout, Part, count
from hpccoll.schedule.collective import parameter_choices
from hpccoll.schedule.layout import TIERS
from hpccoll.schedule.order import ranks_agree
from hpccoll.schedule.walk import Message, Trace

WIDTH = 120
NOTHING = "."
_MAX_ARROWS = 4
"""The most messages that a row names."""

_ITEMSIZE = 4
_GRAINS = 32
"""Elements of a unit for counting bytes: whole grains, so that all units are equal."""

MOST_ORDERED = 1024
"""The most workers whose orders are compared."""

_SINGULAR = {
    "send": "sends",
    "fold": "folds",
    "receive": "receives",
    "copy": "copies",
    "add": "adds",
}
_JOINS = {"send": "to", "fold": "of", "receive": "from"}


def describe(view: ScheduleView, unit: int | None = None) -> str:
    """Return ``view`` as text; tables follow ``unit`` [chosen]; BadInputError without it, or for a wrong schedule."""
    view.check()
    return "\n".join([*_heading(view), *step_and_buffer_lines(view, unit)])


def _heading(view: ScheduleView) -> Iterator[str]:
    yield f"{view.title} on {layout_text(view.layout, view.root)}"
    if view.sentence:
        yield view.sentence
    yield f"cost, on the critical path: {cost_text(view)}"
    yield from rack_lines(view)
    units = format_count(view.slices[0].units, "unit")
    if len(view.slices) == 1:
        yield f"{units} in one slice"
    else:
        yield f"{units} in each of {len(view.slices)} slices"
    name = view.collective.name
    if view.floor:
        yield f"floor: the schedule is empty, and the postcondition of {name} does not hold"
    else:
        yield f"proven: the postcondition of {name}{_agreement_words(view)}"
    choices = parameter_choices(view.algorithm) if view.algorithm else {}
    if view.algorithm and choices:
        defaults = view.algorithm.parameters
        parameters = "; ".join(
            f"{parameter}={defaults[parameter]} ({values})" for parameter, values in choices.items()
        )
        yield from wrap(f"parameters: {parameters}", WIDTH, subsequent_indent="  ")
    also_in = []
    for candidate, family in COLLECTIVES.items():
        if candidate != name and view.name in family.algorithms:
            also_in.append(candidate)
    if also_in:
        sentence = f"{view.name} is one of {', '.join(also_in)}, too: -c {also_in[0]}"
        yield from wrap(sentence, WIDTH, subsequent_indent="  ")


def _agreement_words(view: ScheduleView) -> str:
    """Return whether all ranks get the same bits, in words; nothing if nothing is added, or there are many ranks."""
    every_rank_has_it = view.collective.has_op and view.collective.units == "divisible"
    if not every_rank_has_it or view.collective.rooted or view.layout.workers > MOST_ORDERED:
        return ""
    if ranks_agree(view.call, view.slices):
        return "; all ranks add in the same order, and get the same bits"
    return "; but ranks add in DIFFERENT orders: the last bits of a sum of floats may differ between them"


def step_and_buffer_lines(view: ScheduleView, unit: int | None = None) -> Iterator[str]:
    """Yield the actions of each step and the table of buffers, of each slice; the schedule may be unproven."""
    for number, trace in enumerate(view.traces):
        yield ""
        if len(view.slices) > 1:
            yield f"slice {number + 1} of {len(view.slices)}"
        if not trace.steps:
            yield "nothing is sent"
        for step in range(trace.steps):
            head = f"step {step + 1}: "
            indent = " " * len(head)
            lines = part_lines(trace, step) if view.is_part else action_lines(trace, step)
            for i, line in enumerate(lines):
                yield from wrap(
                    line,
                    WIDTH,
                    initial_indent=indent if i else head,
                    subsequent_indent=f"{indent}  ",
                )
        if view.is_part:
            continue
        yield ""
        yield from buffer_lines(buffer_state(view.call, trace, unit), trace)
    if view.is_part:
        yield ""
        yield part_sentence(view)


def part_sentence(view: ScheduleView) -> str:
    """Return what is left out of a view of many ranks."""
    shown = f"what the first {RANKS_OF_PART} of {view.layout.ranks:,} ranks do in the first {STEPS_OF_PART} steps"
    return f"shown in part: {shown}, without the buffers; at most {MAX_DRAWN} ranks are shown whole"


def layout_text(layout: Layout, root: int | None = None) -> str:
    """Return where the ranks, and a root, are: ``8 workers on 4 nodes of 2, 2 racks of 6 and 2, 1 aggregator``."""
    nodes = format_count(layout.nodes, "node")
    if layout.nodes > 1:
        nodes += f" of {layout.ranks_per_node or 'unequal size'}"
    parts = [f"{format_count(layout.workers, 'worker')} on {nodes}"]
    if layout.racks > 1:
        _, sizes = np.unique(layout.rack[: layout.workers], return_counts=True)
        racks = f"{layout.racks} racks"
        if len(set(sizes)) > 1:
            racks += f" of {join_words(sizes)}"
        parts.append(racks)
        if root is not None:
            parts.append(f"the root in rack {layout.rack[root]}")
    if layout.aggregators:
        parts.append(format_count(layout.aggregators, "aggregator"))
    return ", ".join(parts)


def rack_lines(view: ScheduleView) -> Iterator[str]:
    """Yield what crosses between racks, in one line; nothing if there is one rack."""
    if view.layout.racks == 1:
        return
    counts, size = _counted(view)
    fabric = TIERS.index("fabric")
    messages = format_count(int(counts.messages[:, fabric].sum()), "message")
    if view.collective.token:
        yield f"between racks: {messages}"
        return
    sent = (counts.sent / size)[:, fabric]
    most = max(np.bincount(view.layout.rack, sent))
    yield f"between racks: {messages}, {sent.sum():.4g} S; the most from one rack: {most:.4g} S"


def _counted(view: ScheduleView) -> tuple[Counts, int]:
    """Return the counts of an operation of equal units, and its S."""
    units, lanes = view.slices[0].units, len(view.slices)
    elements = _GRAINS * units
    if view.collective.units == "divisible":
        elements *= lanes
    counts = count(view.slices, Cut(view.call, elements, units, lanes, _ITEMSIZE))
    return counts, view.call.bytes(elements, _ITEMSIZE)


def cost_text(view: ScheduleView) -> str:
    """Return the counted cost of the critical path, and the declared one if it differs, as text."""
    lanes = len(view.slices)
    counts, size = _counted(view)
    counted = _cost(
        view, Cost(counts.steps, counts.critical_bytes / size, counts.critical_reduced / size)
    )
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
    steps = format_count(round(cost.steps), "step")
    if view.collective.token:
        return steps
    return f"{steps}, {cost.sent:.4g} S sent, {cost.reduced:.4g} S reduced"


def buffer_lines(state: BufferState, trace: Trace) -> list[str]:
    """Return a title, the ranks, and a row for the start and each step, with the messages that change it."""
    ranks = range(trace.schedule.layout.ranks)
    heads = ["start", *(f"step {number + 1}" for number in range(trace.steps))]
    left = max(map(len, [*heads, "rank"])) + 1
    room = (WIDTH - left) // len(ranks)
    width = max(2, room - 1)
    widest = len(str(ranks[-1]))
    cells = []
    for row in state.rows:
        texts = [state.cell_text(symbols, width) or NOTHING for symbols in row]
        widest = max(widest, *map(len, texts))
        cells.append(texts)
    gap = max(1, min(3, room - widest))

    def line(head: str, texts: list[str], note: str = "") -> str:
        columns = "".join(cell.ljust(widest + gap) for cell in texts)
        text = f"{head.ljust(left)}{columns}"
        if len(text + note) <= WIDTH:
            text += note
        return text.rstrip()

    notes = ["", *(_message_notes(state, landing) for landing in trace.landing)]
    return [
        f"{state.title(width)}:",
        line("rank", list(map(str, ranks))),
        *map(line, heads, cells, notes),
    ]


def _message_notes(state: BufferState, landing: Sequence[Message]) -> str:
    """Return the messages of a step that carry the followed unit: ``0 -> 1, 2 <-> 3``."""
    pairs = []
    for m in landing:
        carries_unit = (
            state.unit is None or state.unit in m.landed.units or state.unit in m.sent.units
        )
        if carries_unit and not m.copies:
            pairs.append((m.source, m.target))
    if len(pairs) > _MAX_ARROWS:
        return ""
    exchanges = [f"{a} <-> {b}" for a, b in pairs if a < b and (b, a) in pairs]
    one_way = [f"{a} -> {b}" for a, b in pairs if (b, a) not in pairs]
    return ", ".join([*exchanges, *one_way])


class _Action(NamedTuple):
    """What one rank does: sends a part to peers, folds or receives it from them, or copies it to another part.

    Of a local fold, the part is where the sum goes, and the other two are what it adds.
    """

    verb: str
    part: Part
    # the target of a copy, or the operand of a fold if it is not the part itself
    second_part: Part | None = None
    peers: tuple[int, ...] = ()
    third_part: Part | None = None  # of a local fold


def part_lines(trace: Trace, number: int) -> list[str]:
    """Return the text of step ``number`` of the first ranks, a line for all of them whose actions are alike."""
    actions = {me: mine for me, mine in _rank_actions(trace, number).items() if me < RANKS_OF_PART}
    units, p = trace.schedule.units, trace.schedule.layout.workers
    lines = _lines(actions, units)
    rule = (
        _rotation(actions, units, p) if len(lines) > 1 and len(actions) == RANKS_OF_PART else None
    )
    if not rule:
        return lines
    example = _text(actions[0], units, _SINGULAR)
    return [f"every rank r of the first {RANKS_OF_PART} {rule} (modulo {p}): rank 0 {example}"]


def action_lines(trace: Trace, number: int) -> list[str]:
    """Return the text of step ``number``, a line for all ranks whose actions are alike.

    If the actions of all workers differ by a rotation of ranks and units only, one line describes
    them, with rank 0 as the example.
    """
    actions = _rank_actions(trace, number)
    units, p = trace.schedule.units, trace.schedule.layout.workers
    lines = _lines(actions, units)
    all_act = sorted(actions) == list(range(p))
    rule = _rotation(actions, units, p) if len(lines) > 1 and all_act and p > 2 else None
    if not rule:
        return lines
    return [f"every rank r {rule} (modulo {p}): rank 0 {_text(actions[0], units, _SINGULAR)}"]


def _lines(actions: Mapping[int, Sequence["_Action"]], units: int) -> list[str]:
    """Return a line for all ranks whose actions are alike."""
    ranks_by_text: dict[str, list[int]] = defaultdict(list)
    for me in sorted(actions):
        ranks_by_text[_text(actions[me], units)].append(me)
    lines = []
    for text, ranks in ranks_by_text.items():
        if len(ranks) > 1:
            lines.append(f"ranks {spans(ranks)} {text}")
        else:
            me = ranks[0]
            lines.append(f"rank {me} {_text(actions[me], units, _SINGULAR)}")
    return lines


def _rank_actions(trace: Trace, number: int) -> dict[int, list[_Action]]:
    """Return the actions of every rank that has any: copies, then sends, then arrivals; alike ones with all peers."""
    peers: dict[int, dict[_Action, list[int]]] = defaultdict(lambda: defaultdict(list))
    for m in sorted(trace.departing[number], key=lambda m: not m.copies):
        if m.copies and not m.folds:
            peers[m.source][_Action("copy", m.sent, m.landed)] = []
        elif not m.copies:
            peers[m.source][_Action("send", m.sent)].append(m.target)
    for sends in peers.values():
        for targets in sends.values():
            targets.sort()
    for m in trace.landing[number]:
        if m.copies and m.folds:
            peers[m.target][_Action("add", m.landed, m.sent, third_part=m.operand)] = []
        elif not m.copies:
            verb = "fold" if m.folds else "receive"
            operand = None if m.operand == m.landed else m.operand
            peers[m.target][_Action(verb, m.landed, operand)].append(m.source)
    actions = {}
    for me, peers_of_action in peers.items():
        actions[me] = [
            action._replace(peers=tuple(ranks)) for action, ranks in peers_of_action.items()
        ]
    return actions


def _text(actions: Sequence[_Action], units: int, verbs: Mapping[str, str] | None = None) -> str:
    sentences = []
    for action in actions:
        verb = verbs[action.verb] if verbs else action.verb
        second_part = _part_text(action.second_part, units) if action.second_part else ""
        part = _part_text(action.part, units)
        third_part = _part_text(action.third_part, units) if action.third_part else ""
        if third_part:
            second_part = f"{second_part} and {third_part}"
        sentences.append(
            _sentence(action, verb, peers=_runs(action.peers), part=part, second_part=second_part)
        )
    return ", ".join(sentences)


def _sentence(action: _Action, verb: str, *, peers: str, part: str, second_part: str) -> str:
    if action.verb == "copy":
        return f"{verb} {part} to {second_part}"
    if action.verb == "add":
        return f"{verb} {second_part}, into {part}"
    sentence = f"{verb} {part} {_JOINS[action.verb]} {peers}"
    return f"{sentence} with {second_part}" if second_part else sentence


def _part_text(part: Part, units: int) -> str:
    if part.units == tuple(range(units)):
        return "everything" if part.buffer == "dst" else f"all of {part.buffer}"
    return _named(part, _runs(part.units))


def _named(part: Part, numbers: str) -> str:
    noun = "unit" if len(part.units) == 1 else "units"
    buffer_words = "" if part.buffer == "dst" else f" of {part.buffer}"
    return f"{noun} {numbers}{buffer_words}"


def _runs(numbers: Sequence[int], name: Callable[[int], str] = str, modulo: int = maxsize) -> str:
    """Return units or ranks in the order in which they are sent or folded, as runs modulo ``modulo``: ``4..5, 0``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == (runs[-1][-1] + 1) % modulo:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = []
    for run in runs:
        word = name(run[0])
        if len(run) > 1:
            word += f"..{name(run[-1])}"
        words.append(word)
    return ", ".join(words)


def _rotation(actions: Mapping[int, Sequence[_Action]], units: int, p: int) -> str | None:
    """Return the text of the actions of rank r, modulo ``p``, if it is the same for the ranks from 0 on; else None."""
    if len({len(mine) for mine in actions.values()}) > 1:
        return None
    sentences = []
    if any(action.third_part for mine in actions.values() for action in mine):
        return None
    for alike in zip(*(actions[me] for me in range(len(actions))), strict=True):
        verbs = {
            (action.verb, action.part.buffer, action.second_part and action.second_part.buffer)
            for action in alike
        }
        peers = {
            tuple(sorted((peer - me) % p for peer in action.peers))
            for me, action in enumerate(alike)
        }
        part = _rotated([action.part for action in alike], units, p)
        second_part = _rotated(
            [action.second_part for action in alike if action.second_part], units, p
        )
        if len(verbs) > 1 or len(peers) > 1 or part is None or second_part is None:
            return None
        verb = _SINGULAR[alike[0].verb]
        sentences.append(
            _sentence(
                alike[0], verb, peers=_relative(peers.pop(), p), part=part, second_part=second_part
            )
        )
    return " and ".join(sentences)


def _rotated(parts: Sequence[Part], units: int, p: int) -> str | None:
    """Return the text of the parts of all ranks in terms of rank r, None if it is not the same for all."""
    if not parts:
        return ""
    if len(set(parts)) == 1:
        return _part_text(parts[0], units)
    offsets = {tuple((unit - me) % units for unit in part.units) for me, part in enumerate(parts)}
    if len(offsets) > 1 or units != p:
        return None
    return _named(parts[0], _relative(offsets.pop(), units))


def _relative(offsets: Sequence[int], p: int) -> str:
    """Return offsets from rank r modulo ``p``: ``r-1``, ``r..r+2``, ``r+1, r+3``."""

    def name(offset: int) -> str:
        nearest = offset if offset <= p // 2 else offset - p
        return f"r{nearest:+d}" if nearest else "r"

    return _runs(offsets, name, p)
