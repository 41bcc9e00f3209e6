"""The actions of ranks in a round, as text: ``rank 0 sends unit 3 to 1, folds unit 2 of 3``."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import NamedTuple

from hpccoll.render.pictures.buffer_state import spans
from hpccoll.schedule import Part
from hpccoll.schedule.walk import Trace

_SINGULAR = {"send": "sends", "fold": "folds", "receive": "receives", "copy": "copies"}
_JOINS = {"send": "to", "fold": "of", "receive": "from"}


class _Action(NamedTuple):
    """What one rank does: sends a part to peers, folds or receives it from them, or copies it to another part."""

    verb: str
    part: Part
    other: Part | None = None  # the target of a copy, or the operand of a fold if it is not the part itself
    peers: tuple[int, ...] = ()


def round_lines(trace: Trace, number: int) -> list[str]:
    """Return the text of round ``number``, a line for all ranks whose actions are alike.

    If the actions of all workers differ by a rotation of ranks and units only, one line describes them, with rank 0 as
    the example.
    """
    actions = _rank_actions(trace, number)
    units, p = trace.schedule.units, trace.schedule.layout.workers
    ranks_by_text: dict[str, list[int]] = defaultdict(list)
    for me in sorted(actions):
        ranks_by_text[_text(actions[me], units)].append(me)
    if len(ranks_by_text) > 1 and sorted(actions) == list(range(p)) and p > 2 and (rule := _rotation(actions, units)):
        return [f"every rank r {rule} (modulo {p}): rank 0 {_text(actions[0], units, _SINGULAR)}"]
    return [
        f"rank {ranks[0]} {_text(actions[ranks[0]], units, _SINGULAR)}"
        if len(ranks) == 1
        else f"ranks {spans(ranks)} {text}"
        for text, ranks in ranks_by_text.items()
    ]


def _rank_actions(trace: Trace, number: int) -> dict[int, list[_Action]]:
    """Return the actions of every rank that has any: copies, then sends, then arrivals; alike ones with all peers."""
    peers: dict[int, dict[_Action, list[int]]] = defaultdict(lambda: defaultdict(list))
    for m in sorted(trace.departing[number], key=lambda m: not m.copies):
        if m.copies:
            peers[m.source][_Action("copy", m.sent, m.landed)] = []
        else:
            peers[m.source][_Action("send", m.sent)].append(m.target)
    for sends in peers.values():
        for to in sends.values():
            to.sort()
    for m in trace.landing[number]:
        if not m.copies:
            verb, other = "fold" if m.folds else "receive", None if m.operand == m.landed else m.operand
            peers[m.target][_Action(verb, m.landed, other)].append(m.source)
    return {me: [action._replace(peers=(*to,)) for action, to in mine.items()] for me, mine in peers.items()}


def _text(actions: Sequence[_Action], units: int, verbs: Mapping[str, str] | None = None) -> str:
    """Return the text of ``actions``, with verbs in the plural unless others are given."""
    return ", ".join(
        _sentence(
            action, (verbs or {}).get(action.verb, action.verb), peers=_runs(action.peers),
            part=_part_text(action.part, units), other=_part_text(action.other, units) if action.other else "",
        )
        for action in actions
    )  # fmt: skip


def _sentence(action: _Action, verb: str, *, peers: str, part: str, other: str) -> str:
    if action.verb == "copy":
        return f"{verb} {part} to {other}"
    return f"{verb} {part} {_JOINS[action.verb]} {peers}" + (f" with {other}" if other else "")


def _part_text(part: Part, units: int) -> str:
    if part.units == tuple(range(units)):
        return "everything" if part.buffer == "dst" else f"all of {part.buffer}"
    return _named(part, _runs(part.units))


def _named(part: Part, numbers: str) -> str:
    noun = "unit" if len(part.units) == 1 else "units"
    return f"{noun} {numbers}" + ("" if part.buffer == "dst" else f" of {part.buffer}")


def _runs(numbers: Sequence[int], name: Callable[[int], str] = str, modulo: int = maxsize) -> str:
    """Return units or ranks in the order in which they are sent or folded, as runs modulo ``modulo``: ``4..5, 0``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == (runs[-1][-1] + 1) % modulo:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(name(run[0]) if len(run) == 1 else f"{name(run[0])}..{name(run[-1])}" for run in runs)


def _rotation(actions: Mapping[int, Sequence[_Action]], units: int) -> str | None:
    """Return the text of the actions of rank r if it is the same for all ranks, else None."""
    p = len(actions)
    if len({len(mine) for mine in actions.values()}) > 1:
        return None
    sentences = []
    for alike in zip(*(actions[me] for me in range(p)), strict=True):
        verbs = {(action.verb, action.part.buffer, action.other and action.other.buffer) for action in alike}
        peers = {tuple(sorted((peer - me) % p for peer in action.peers)) for me, action in enumerate(alike)}
        part = _rotated([action.part for action in alike], units)
        other = _rotated([action.other for action in alike if action.other], units)
        if len(verbs) > 1 or len(peers) > 1 or part is None or other is None:
            return None
        verb = _SINGULAR[alike[0].verb]
        sentences.append(_sentence(alike[0], verb, peers=_relative(peers.pop(), p), part=part, other=other))
    return " and ".join(sentences)


def _rotated(parts: Sequence[Part], units: int) -> str | None:
    """Return the text of the parts of all ranks in terms of rank r, None if it is not the same for all."""
    if len(set(parts)) <= 1:
        return _part_text(parts[0], units) if parts else ""
    offsets = {tuple((unit - me) % units for unit in part.units) for me, part in enumerate(parts)}
    return _named(parts[0], _relative(offsets.pop(), units)) if len(offsets) == 1 and units == len(parts) else None


def _relative(offsets: Sequence[int], p: int) -> str:
    """Return offsets from rank r modulo ``p``: ``r-1``, ``r..r+2``, ``r+1, r+3``."""
    near = {offset: offset if offset <= p // 2 else offset - p for offset in offsets}
    return _runs(offsets, lambda offset: f"r{near[offset]:+d}" if near[offset] else "r", p)
