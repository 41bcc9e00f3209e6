"""The table of collectives: the postcondition, size convention and bandwidth factor of each.

A contribution is a pair (origin, unit): unit ``unit`` of the source buffer of rank ``origin``. An
algorithm is written in place: dst starts with the contents of src, and ends with the result; it has
room for all units at every rank, and all else in it is workspace. Sizes and busbw factors are those
of nccl-tests (doc/PERFORMANCE.md there), so that curves can be laid over each other, but for its
rounding of blocks down to 16 bytes. It has no ping-pong: there S goes to and fro, and busbw is 2 S
/ t, what the wire carries in the direction that is in use (OSU halves the time instead). multi_pair
pairs ranks as osu_mbw_mr does, rank i with rank i + p/2, rounded down: of an odd number the last
rank is idle. Its S and its busbw are those of one pair, S / t, whatever the number of pairs.

The bytes in memory of ranks that share a node are those of a single copy: what a rank needs of
another it reads from that rank's buffer, and writes to its own. A copy of n bytes moves 2 n: it
reads n and writes n (as STREAM counts). To reduce k blocks of n bytes moves (k + 1) n: it reads
each once and writes the result once. From the postconditions follows, with p ranks and blocks of S
/ p:

- reduce_scatter: each rank reduces one block of p contributions, (p + 1) S / p: together (p + 1) S.
  So does a reduce, whose p blocks the ranks reduce into the root's buffer.
- all_gather: each rank copies p blocks, p - 1 in place, where its own is there already: together 2
  p S, 2 (p - 1) S. So do an all_to_all, and a broadcast, in which each of p - 1 ranks, and out of
  place the root, copies S.
- all_reduce: a reduce_scatter into the results, and an all_gather in place: (3 p - 1) S. In place
  saves nothing, because a reduction writes its result once in either placement.
- gather, scatter: p blocks are copied, p - 1 in place: together 2 S, 2 (p - 1) S / p.

Caches may save a part of the bytes, and so may a store of one loaded value to several ranks; a
library that copies through a buffer between two ranks moves more. A pair of ranks leaves the others
idle, a barrier moves nothing, and the busiest rank sets the time of an all_to_all_v: they have no
such number.
"""

from hpccoll.common.errors import BadInputError
from hpccoll.schedule.collective import ALL_RANKS, NO_RANK, Collective, CollectiveCall, UnitSelector
from hpccoll.schedule.lazy_table import LazyTable
from hpccoll.schedule.step import Index


def _all(_call: CollectiveCall, _me: int, units: int) -> range:
    return range(units)


def _own(_call: CollectiveCall, me: int, _units: int) -> range:
    return range(me, me + 1)


def _at_root(selector: UnitSelector) -> UnitSelector:
    def select(call: CollectiveCall, me: int, units: int) -> range:
        if me != call.root:
            return range(0)
        return selector(call, me, units)

    return select


def _of_pairs(call: CollectiveCall, me: int, units: int) -> range:
    if call.partner(me) is None:
        return range(0)
    return range(units)


def _by_all(_call: CollectiveCall, _me: int, unit: Index) -> tuple[Index, Index]:
    return ALL_RANKS, unit


def _owner(_call: CollectiveCall, _me: int, unit: Index) -> tuple[Index, Index]:
    return unit, unit


def _root(call: CollectiveCall, _me: int, unit: Index) -> tuple[Index, Index]:
    return call.root, unit


def _for_me(_call: CollectiveCall, me: int, unit: Index) -> tuple[Index, Index]:
    return unit, me


def _partner(call: CollectiveCall, me: int, unit: Index) -> tuple[Index, Index]:
    partner = call.partner(me)
    return NO_RANK if partner is None else partner, unit


def _all_but_one(p: int) -> float:
    return (p - 1) / p


def _once(p: int) -> float:
    return float(p > 1)


def _reduced(p: int, _in_place: bool) -> float:
    return p + 1.0


def _copied(p: int, in_place: bool) -> float:
    return 2.0 * (p - in_place)


def _copied_once(p: int, in_place: bool) -> float:
    return _copied(p, in_place) / p


all_reduce = Collective(
    "all_reduce",
    "divisible",
    _all,
    _all,
    _by_all,
    busbw=lambda p: 2 * (p - 1) / p,
    memory=lambda p, _: 3.0 * p - 1.0,
    reduces=True,
)
reduce_scatter = Collective(
    "reduce_scatter",
    "per_rank",
    _all,
    _own,
    _by_all,
    busbw=_all_but_one,
    memory=_reduced,
    reduces=True,
)
all_gather = Collective(
    "all_gather", "per_rank", _own, _all, _owner, busbw=_all_but_one, memory=_copied
)
broadcast = Collective(
    "broadcast",
    "divisible",
    _at_root(_all),
    _all,
    _root,
    busbw=_once,
    memory=_copied,
    rooted=True,
    one_buffer=True,
)
reduce = Collective(
    "reduce",
    "divisible",
    _all,
    _at_root(_all),
    _by_all,
    busbw=_once,
    memory=_reduced,
    reduces=True,
    rooted=True,
)
gather = Collective(
    "gather",
    "per_rank",
    _own,
    _at_root(_all),
    _owner,
    busbw=_all_but_one,
    memory=_copied_once,
    rooted=True,
)
scatter = Collective(
    "scatter",
    "per_rank",
    _at_root(_all),
    _own,
    _root,
    busbw=_all_but_one,
    memory=_copied_once,
    rooted=True,
)
all_to_all = Collective(
    "all_to_all", "per_rank", _all, _all, _for_me, busbw=_all_but_one, memory=_copied
)
all_to_all_v = Collective(
    "all_to_all_v",
    "per_rank",
    _all,
    _all,
    _for_me,
    busbw=_all_but_one,
    arguments={"traffic": "zipf"},
    in_place=False,
)
barrier = Collective(
    "barrier",
    "divisible",
    _all,
    _all,
    _by_all,
    busbw=None,
    reduces=True,
    idempotent=True,
    token=True,
    uncut=True,
    out_of_place=False,
)
send_recv = Collective(
    "send_recv",
    "divisible",
    _of_pairs,
    _of_pairs,
    _partner,
    busbw=lambda p: 2 * _once(p),
    rooted=True,
    arguments={"peer": -1},
    uncut=True,
    in_place=False,
)
bidirectional = Collective(
    "bidirectional",
    "divisible",
    _of_pairs,
    _of_pairs,
    _partner,
    busbw=_once,
    rooted=True,
    arguments={"peer": -1},
    uncut=True,
    in_place=False,
)
multi_pair = Collective(
    "multi_pair",
    "divisible",
    _of_pairs,
    _of_pairs,
    _partner,
    busbw=_once,
    arguments={"concurrent": 0},
    uncut=True,
    in_place=False,
)

COLLECTIVES = {
    collective.name: collective
    for collective in (
        all_reduce,
        reduce_scatter,
        all_gather,
        broadcast,
        reduce,
        gather,
        scatter,
        all_to_all,
        all_to_all_v,
        barrier,
        send_recv,
        bidirectional,
        multi_pair,
    )
}


WORKLOADS: LazyTable[Collective] = LazyTable()
"""Rows of workloads, which run many collectives and are one case each; extensions bring them."""


def is_workload(name: str) -> bool:
    """Return whether a case of this name is a workload and not a collective."""
    return name not in COLLECTIVES and name in WORKLOADS


def collective(name: str) -> Collective:
    """Return the collective, or the workload, of this name.

    Raises:
        BadInputError: if there is none.
    """
    if name in COLLECTIVES:
        return COLLECTIVES[name]
    if name in WORKLOADS:
        return WORKLOADS[name]
    raise BadInputError("collective", name, COLLECTIVES)
