"""A subject in words: what it is, what it costs, what happens in each round, and who holds what after it."""

from collections.abc import Iterator
from textwrap import wrap

from hpccoll.draw.actions import round_lines
from hpccoll.draw.buffer_state import follow
from hpccoll.draw.table import WIDTH, table_lines
from hpccoll.draw.trace import Story, tell
from hpccoll.draw.view import Subject
from hpccoll.schedule import Cost, Layout


def describe(subject: Subject, unit: int | None = None) -> str:
    """Return ``subject`` in words, lines without a newline at the end.

    Args:
        subject: that is shown.
        unit: that the tables follow; chosen unless given.

    Raises:
        BadInputError: where there is no such unit.
    """
    return "\n".join(_lines(subject, unit))


def _lines(subject: Subject, unit: int | None) -> Iterator[str]:
    yield f"{subject.title} on {layout_words(subject.layout)}"
    if subject.sentence:
        yield subject.sentence
    yield f"cost, on the critical path: {cost_words(subject)}"
    slices, units = subject.slices, counted(subject.slices[0].units, "unit")
    yield f"{units} in one slice" if len(slices) == 1 else f"{units} in each of {len(slices)} slices"
    fault = subject.fault()
    name = subject.collective.name
    if subject.floor:
        yield f"a floor: it does nothing, and not what {name} promises"
    else:
        yield f"WRONG, {name} promises something else: {fault}" if fault else f"proven: it does what {name} promises"
    if subject.parameters:
        yield from wrap("parameters: " + "; ".join(subject.parameters), WIDTH, subsequent_indent="  ")
    if subject.namesakes:
        namesakes = f"{subject.name} is one of {', '.join(subject.namesakes)}, too: -c {subject.namesakes[0]}"
        yield from wrap(namesakes, WIDTH, subsequent_indent="  ")
    for number, schedule in enumerate(slices):
        story = tell(schedule)
        yield ""
        if len(slices) > 1:
            yield f"slice {number + 1} of {len(slices)}"
        yield from _rounds(story)
        yield ""
        yield from table_lines(follow(subject, story, unit), story)


def _rounds(story: Story) -> Iterator[str]:
    if not story.rounds:
        yield "nothing is sent"
    for number in range(story.rounds):
        head = f"round {number + 1}: "
        indent = " " * len(head)
        for i, line in enumerate(round_lines(story, number)):
            yield from wrap(line, WIDTH, initial_indent=indent if i else head, subsequent_indent=f"{indent}  ")


def layout_words(layout: Layout) -> str:
    """Return in words where the ranks are: ``8 workers on 4 nodes of 2, 2 racks, 1 aggregator``."""
    each = layout.ranks_per_node
    nodes = counted(layout.nodes, "node")
    if layout.nodes > 1:
        nodes += f" of {each}" if each else " of unequal size"
    words = [f"{counted(layout.workers, 'worker')} on {nodes}"]
    if (racks := len(set(layout.rack[: layout.workers]))) > 1:
        words.append(f"{racks} racks")
    if layout.aggregators:
        words.append(counted(layout.aggregators, "aggregator"))
    return ", ".join(words)


def cost_words(subject: Subject) -> str:
    """Return what the schedule takes on its critical path, counted, and what the algorithm declares if it differs."""
    counts, size = subject.counted()
    rounds = Cost(counts.rounds, counts.critical_bytes / size, counts.critical_reduced / size)
    words = _cost(rounds, bytes_too=not subject.collective.token)
    several = len(subject.slices) > 1
    one_by_one = ", bytes of slices in turn" if several else ""
    at_once = ", slices at once" if several else ""
    if subject.declared is None:
        return f"{words} (counted{one_by_one})"
    declared = _cost(subject.declared, bytes_too=not subject.collective.token)
    if declared == words:
        return f"{words} (declared and counted)"
    return f"{words} (counted{one_by_one}), {declared} (declared{at_once})"


def _cost(cost: Cost, *, bytes_too: bool) -> str:
    words = counted(round(cost.rounds), "round")
    return f"{words}, {cost.sent:.4g} S sent, {cost.reduced:.4g} S reduced" if bytes_too else words


def counted(number: int, noun: str) -> str:
    """Return ``number`` of something in words: ``1 rank``, ``2 ranks``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
