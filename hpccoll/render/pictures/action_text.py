"""The actions of ranks in a round, as text: ``rank 0 sends unit 3 to 1, folds unit 2 of 3``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpccoll.render.pictures.buffer_state import spans
from hpccoll.schedule import Part
from hpccoll.schedule.walk import Message, Trace

_ONE = {"send": "sends", "fold": "folds", "receive": "receives", "copy": "copies"}
_JOINS = {"send": "to", "fold": "of", "receive": "from", "copy": "to"}


@dataclass(frozen=True, slots=True)
class _RankAction:
    """What one rank does: sends a part to peers, folds or receives it from one, or copies it to another part."""

    verb: str
    peers: tuple[int, ...]
    part: Part
    other: Part | None = None  # the target of a copy, or the operand of a fold if it is not the part itself


def round_lines(trace: Trace, number: int) -> list[str]:
    """Return the text of round ``number``, a line for all ranks whose actions are alike.

    If the actions of all workers differ by a rotation of ranks and units only, one line describes them, with rank 0 as
    the example.
    """
    actions = _rank_actions(trace, number)
    units, p = trace.schedule.units, trace.schedule.layout.workers
    ranks_by_text: dict[str, list[int]] = defaultdict(list)
    for me in sorted(actions):
        ranks_by_text[_text(actions[me], units, one=False)].append(me)
    if len(ranks_by_text) > 1 and sorted(actions) == list(range(p)) and p > 2 and (rule := _rotation(actions, units)):
        return [f"every rank r {rule} (modulo {p}): rank 0 {_text(actions[0], units, one=True)}"]
    return [
        f"rank {ranks[0]} {_text(actions[ranks[0]], units, one=True)}"
        if len(ranks) == 1
        else f"ranks {spans(ranks)} {text}"
        for text, ranks in ranks_by_text.items()
    ]


def _rank_actions(trace: Trace, number: int) -> dict[int, list[_RankAction]]:
    """Return the actions of every rank that has any: copies, then sends, then arrivals."""
    copies: dict[int, list[_RankAction]] = defaultdict(list)
    sends: dict[int, dict[Part, list[int]]] = defaultdict(lambda: defaultdict(list))
    arrivals: dict[int, list[_RankAction]] = defaultdict(list)
    for m in trace.departing[number]:
        if m.copies:
            copies[m.source].append(_RankAction("copy", (), m.sent, m.landed))
        else:
            sends[m.source][m.sent].append(m.target)
    for m in trace.landing[number]:
        if not m.copies:
            _append(arrivals[m.target], _arrival(m))
    return {
        me: [*copies[me], *(_RankAction("send", tuple(sorted(to)), at) for at, to in sends[me].items()), *arrivals[me]]
        for me in sorted({*copies, *sends, *arrivals})
    }


def _append(actions: list[_RankAction], action: _RankAction) -> None:
    """Append an action; join it with the last one if only the peers differ."""
    if actions and replace(actions[-1], peers=()) == replace(action, peers=()):
        action = replace(action, peers=actions.pop().peers + action.peers)
    actions.append(action)


def _arrival(m: Message) -> _RankAction:
    if m.operand is None:
        return _RankAction("receive", (m.source,), m.landed)
    return _RankAction("fold", (m.source,), m.landed, None if m.operand == m.landed else m.operand)


def _text(actions: Sequence[_RankAction], units: int, *, one: bool) -> str:
    """Return the text of ``actions``, in the singular or the plural."""
    return ", ".join(
        _sentence(
            action, one=one, peers=_in_order(action.peers), part=_part_text(action.part, units),
            other=_part_text(action.other, units) if action.other else None,
        )
        for action in actions
    )  # fmt: skip


def _sentence(action: _RankAction, *, one: bool, peers: str, part: str, other: str | None) -> str:
    verb = _ONE[action.verb] if one else action.verb
    if action.verb == "copy":
        return f"{verb} {part} to {other}"
    return f"{verb} {part} {_JOINS[action.verb]} {peers}" + (f" with {other}" if other else "")


def _part_text(part: Part, units: int) -> str:
    if part.units == tuple(range(units)):
        return "everything" if part.buffer == "dst" else f"all of {part.buffer}"
    return _named("unit" if len(part.units) == 1 else "units", _in_order(part.units), part.buffer)


def _named(noun: str, numbers: str, buffer: str) -> str:
    return f"{noun} {numbers}" + ("" if buffer == "dst" else f" of {buffer}")


def _in_order(numbers: Sequence[int]) -> str:
    """Return units or ranks in the order in which they are sent or folded: ``4..5, 0``."""
    breaks = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    ends = zip([0, *breaks], [*breaks, len(numbers)], strict=True)
    return ", ".join(spans(numbers[first:last]) for first, last in ends if first < last)


def _rotation(actions: Mapping[int, Sequence[_RankAction]], units: int) -> str | None:
    """Return the text of the actions of rank r if it is the same for all ranks, else None."""
    p = len(actions)
    if len({len(mine) for mine in actions.values()}) > 1:
        return None
    sentences = []
    for alike in zip(*(actions[me] for me in range(p)), strict=True):
        first = alike[0]
        if len({(action.verb, action.part.buffer, action.other and action.other.buffer) for action in alike}) > 1:
            return None
        peers = {tuple(sorted((peer - me) % p for peer in action.peers)) for me, action in enumerate(alike)}
        part = _rotated([action.part for action in alike], units)
        other = _rotated([action.other for action in alike if action.other], units) if first.other else ""
        if len(peers) > 1 or part is None or other is None:
            return None
        sentences.append(_sentence(first, one=True, peers=_relative(peers.pop(), p), part=part, other=other))
    return " and ".join(sentences)


def _rotated(parts: Sequence[Part], units: int) -> str | None:
    """Return the text of the parts of all ranks in terms of rank r, None if it is not the same for all."""
    if len(set(parts)) == 1:
        return _part_text(parts[0], units)
    offsets = {tuple((unit - me) % units for unit in part.units) for me, part in enumerate(parts)}
    if len(offsets) > 1 or units != len(parts):
        return None
    return _named("unit" if len(parts[0].units) == 1 else "units", _relative(offsets.pop(), units), parts[0].buffer)


def _relative(offsets: Sequence[int], p: int) -> str:
    """Return offsets from rank r modulo ``p``: ``r-1``, ``r..r+2``, ``r+1, r+3``."""
    breaks = [i for i in range(1, len(offsets)) if offsets[i] != (offsets[i - 1] + 1) % p]
    ends = zip([0, *breaks], [*breaks, len(offsets)], strict=True)
    runs = [(offsets[a], offsets[b - 1]) for a, b in ends if a < b]
    return ", ".join(_from_r(a, p) if a == b else f"{_from_r(a, p)}..{_from_r(b, p)}" for a, b in runs)


def _from_r(offset: int, p: int) -> str:
    near = offset if offset <= p // 2 else offset - p
    return f"r{near:+d}" if near else "r"
