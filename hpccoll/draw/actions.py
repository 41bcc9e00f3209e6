"""The deeds of ranks in a round, in words: ``rank 0 sends unit 3 to 1, folds unit 2 of 3``."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpccoll.draw.buffer_state import spans
from hpccoll.draw.trace import Message, Place, Story

_ONE = {"send": "sends", "fold": "folds", "receive": "receives", "copy": "copies"}
_JOINS = {"send": "to", "fold": "of", "receive": "from", "copy": "to"}


@dataclass(frozen=True, slots=True)
class _Deed:
    """What one rank does: sends a place to peers, folds or receives it from one, or copies it to another place."""

    verb: str
    peers: tuple[int, ...]
    place: Place
    other: Place | None = None  # where a copy goes, or what an arrival is folded with if not what was there


def round_lines(story: Story, number: int) -> list[str]:
    """Return what happens in round ``number``, a line for all ranks that do the same.

    Where all workers do the same but for a rotation of ranks and units, one line says so, with rank 0 as the example.
    """
    deeds = _deeds(story, number)
    units, p = story.schedule.units, story.schedule.layout.workers
    doers: dict[str, list[int]] = defaultdict(list)
    for me in sorted(deeds):
        doers[_words(deeds[me], units, one=False)].append(me)
    if len(doers) > 1 and sorted(deeds) == list(range(p)) and p > 2 and (rule := _rotation(deeds, units)):
        return [f"every rank r {rule} (modulo {p}): rank 0 {_words(deeds[0], units, one=True)}"]
    return [
        f"rank {ranks[0]} {_words(deeds[ranks[0]], units, one=True)}"
        if len(ranks) == 1
        else f"ranks {spans(ranks)} {words}"
        for words, ranks in doers.items()
    ]


def _deeds(story: Story, number: int) -> dict[int, list[_Deed]]:
    """Return the deeds of every rank that has any: what it copies, what it sends, what arrives."""
    copies: dict[int, list[_Deed]] = defaultdict(list)
    sends: dict[int, dict[Place, list[int]]] = defaultdict(lambda: defaultdict(list))
    arrivals: dict[int, list[_Deed]] = defaultdict(list)
    for m in story.departing(number):
        if m.copies:
            copies[m.source].append(_Deed("copy", (), m.sent, m.landed))
        else:
            sends[m.source][m.sent].append(m.target)
    for m in story.landing(number):
        if not m.copies:
            _append(arrivals[m.target], _arrival(m))
    return {
        me: [*copies[me], *(_Deed("send", tuple(sorted(to)), at) for at, to in sends[me].items()), *arrivals[me]]
        for me in sorted({*copies, *sends, *arrivals})
    }


def _append(deeds: list[_Deed], deed: _Deed) -> None:
    """Append a deed, in one with the last where it only differs in its peer."""
    if deeds and replace(deeds[-1], peers=()) == replace(deed, peers=()):
        deed = replace(deed, peers=deeds.pop().peers + deed.peers)
    deeds.append(deed)


def _arrival(m: Message) -> _Deed:
    if m.operand is None:
        return _Deed("receive", (m.source,), m.landed)
    return _Deed("fold", (m.source,), m.landed, None if m.operand == m.landed else m.operand)


def _words(deeds: Sequence[_Deed], units: int, *, one: bool) -> str:
    """Return ``deeds`` in words, of one rank or of many."""
    return ", ".join(
        _sentence(
            deed, one=one, peers=_in_order(deed.peers), place=_place(deed.place, units),
            other=_place(deed.other, units) if deed.other else None,
        )
        for deed in deeds
    )  # fmt: skip


def _sentence(deed: _Deed, *, one: bool, peers: str, place: str, other: str | None) -> str:
    verb = _ONE[deed.verb] if one else deed.verb
    if deed.verb == "copy":
        return f"{verb} {place} to {other}"
    return f"{verb} {place} {_JOINS[deed.verb]} {peers}" + (f" with {other}" if other else "")


def _place(place: Place, units: int) -> str:
    if place.units == tuple(range(units)):
        return "everything" if place.buffer == "dst" else f"all of {place.buffer}"
    return _named("unit" if len(place.units) == 1 else "units", _in_order(place.units), place.buffer)


def _named(noun: str, numbers: str, buffer: str) -> str:
    return f"{noun} {numbers}" + ("" if buffer == "dst" else f" of {buffer}")


def _in_order(numbers: Sequence[int]) -> str:
    """Return units or ranks in the order in which they are sent or folded: ``4..5, 0``."""
    breaks = [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1] + 1]
    ends = zip([0, *breaks], [*breaks, len(numbers)], strict=True)
    return ", ".join(spans(numbers[first:last]) for first, last in ends if first < last)


def _rotation(deeds: Mapping[int, Sequence[_Deed]], units: int) -> str | None:
    """Return in words, of rank r, what every rank does, or None where it is not the same for all."""
    p = len(deeds)
    if len({len(mine) for mine in deeds.values()}) > 1:
        return None
    sentences = []
    for alike in zip(*(deeds[me] for me in range(p)), strict=True):
        first = alike[0]
        if len({(deed.verb, deed.place.buffer, deed.other and deed.other.buffer) for deed in alike}) > 1:
            return None
        peers = {tuple(sorted((peer - me) % p for peer in deed.peers)) for me, deed in enumerate(alike)}
        place = _rotated([deed.place for deed in alike], units)
        other = _rotated([deed.other for deed in alike if deed.other], units) if first.other else ""
        if len(peers) > 1 or place is None or other is None:
            return None
        sentences.append(_sentence(first, one=True, peers=_relative(peers.pop(), p), place=place, other=other))
    return " and ".join(sentences)


def _rotated(places: Sequence[Place], units: int) -> str | None:
    """Return the places of all ranks in words of rank r, None where there are none that fit."""
    if len(set(places)) == 1:
        return _place(places[0], units)
    offsets = {tuple((unit - me) % units for unit in place.units) for me, place in enumerate(places)}
    if len(offsets) > 1 or units != len(places):
        return None
    return _named("unit" if len(places[0].units) == 1 else "units", _relative(offsets.pop(), units), places[0].buffer)


def _relative(offsets: Sequence[int], p: int) -> str:
    """Return offsets from rank r modulo ``p``: ``r-1``, ``r..r+2``, ``r+1, r+3``."""
    breaks = [i for i in range(1, len(offsets)) if offsets[i] != (offsets[i - 1] + 1) % p]
    ends = zip([0, *breaks], [*breaks, len(offsets)], strict=True)
    runs = [(offsets[a], offsets[b - 1]) for a, b in ends if a < b]
    return ", ".join(_from_r(a, p) if a == b else f"{_from_r(a, p)}..{_from_r(b, p)}" for a, b in runs)


def _from_r(offset: int, p: int) -> str:
    near = offset if offset <= p // 2 else offset - p
    return f"r{near:+d}" if near else "r"
