"""The table of who holds what, for people who read it in a terminal of 120 columns."""

from hpccoll.draw.buffer_state import Holdings
from hpccoll.draw.trace import Message, Story

WIDTH = 120
NOTHING = "."
_MOST_ARROWS = 4
"""A row names its messages where they are no more than this."""


def table_lines(holdings: Holdings, story: Story) -> list[str]:
    """Return a title, the ranks, and a row for the start and each round, with the messages that make the difference."""
    ranks = range(story.schedule.layout.ranks)
    heads = ["start", *(f"round {number + 1}" for number in range(story.rounds))]
    left = max(map(len, [*heads, "rank"])) + 1
    room = max(2, (WIDTH - left) // len(ranks) - 1)
    cells = [[holdings.words(held, room) or NOTHING for held in row] for row in holdings.rows]
    widest = max(len(words) for row in [*cells, [str(ranks[-1])]] for words in row)
    gap = max(1, min(3, (WIDTH - left) // len(ranks) - widest))

    def line(head: str, words: list[str], note: str = "") -> str:
        columns = "".join(word.ljust(widest + gap) for word in words)
        whole = f"{head.ljust(left)}{columns}"
        return (whole + note if len(whole + note) <= WIDTH else whole).rstrip()

    notes = ["", *(_arrows(holdings, story, number) for number in range(story.rounds))]
    return [f"{holdings.title(room)}:", line("rank", list(map(str, ranks))), *map(line, heads, cells, notes)]


def _arrows(holdings: Holdings, story: Story, number: int) -> str:
    """Return the messages that land in a round and carry the unit that is followed: ``0 -> 1, 2 <-> 3``."""
    pairs = [(m.source, m.target) for m in story.landing(number) if not m.copies and _carries(m, holdings.unit)]
    if not 0 < len(pairs) <= _MOST_ARROWS:
        return ""
    both = [(a, b) for a, b in pairs if a < b and (b, a) in pairs]
    single = [(a, b) for a, b in pairs if (b, a) not in pairs]
    return ", ".join([*(f"{a} <-> {b}" for a, b in both), *(f"{a} -> {b}" for a, b in single)])


def _carries(m: Message, unit: int | None) -> bool:
    return unit is None or unit in m.landed.units or unit in m.sent.units
