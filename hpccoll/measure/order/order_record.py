"""The record of what ranks revealed, made at rank 0 alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any, NamedTuple

from hpccoll.cases.case import Case
from hpccoll.common.version import __version__
from hpccoll.order.alike_schedules import is_as_scheduled, same_bits_as
from hpccoll.order.epochs import Epoch
from hpccoll.order.order_file import (
    CallEpoch,
    OrderOfCollective,
    OrderOfSizes,
    ProbedSize,
    RevealedOrder,
)
from hpccoll.order.request import OrderRequest
from hpccoll.order.revealed import Block, Kind, OrderAtSize, digest_of
from hpccoll.order.size_ranges import OrderedSizes
from hpccoll.schedule import Layout
from hpccoll.schedule.summation_tree import SummationTree
from hpccoll.store.raw_results import Attempt

NO_TREE = -1
"""The number of the tree of a block without one."""


class FurtherProbes(NamedTuple):
    """What is probed once for a range of sizes."""

    in_place: list[Block] | None  # in place, if that differs
    history: list[tuple[Epoch, list[Block]]]  # with the blocks of epochs that sum otherwise


def revealed_order(
    request: OrderRequest,
    attempt: Attempt,
    layout: Layout,
    collectives: Sequence[OrderOfCollective],
) -> RevealedOrder:
    """Return the record of all collectives."""
    provenance = attempt.provenance
    mpi = provenance["mpi"]
    hosts = tuple(provenance["hosts"])
    ranks_of_nodes = Counter(layout.node)
    ranks_per_node = tuple(ranks_of_nodes.values())
    nccl = None
    if request.transport == "nccl":
        nccl = _nccl_version(provenance)
    return RevealedOrder(
        algorithm=request.algorithm,
        created=attempt.created,
        hpccoll=__version__,
        library=mpi["version"],
        nccl=nccl,
        thread_level=mpi["threads"],
        machine=attempt.machine,
        hosts=hosts,
        ranks=layout.workers,
        nodes=layout.nodes,
        ranks_per_node=ranks_per_node,
        mapping=layout.mapping,
        transport=request.transport,
        device=request.device,
        dtype=request.dtype,
        root=request.root,
        params=dict(request.params),
        variant=request.variant,
        variables=provenance["variables"],
        collectives=tuple(collectives),
    )


def _nccl_version(provenance: Mapping[str, Any]) -> str:
    """Return the version of NCCL on the first host that tells it."""
    for entry in provenance.get("nccl") or ():
        return str(entry["library"]["version"])
    return "unknown"


def order_of_collective(
    case: Case,
    layout: Layout,
    ranges: Sequence[OrderedSizes[OrderAtSize]],
    blocks: Mapping[int, Sequence[Block]],
    further: Sequence[FurtherProbes],
) -> OrderOfCollective:
    """Return the record of a collective.

    Args:
        case: one of its calls.
        layout: of the ranks.
        ranges: of sizes with one order.
        blocks: of the whole result, by size.
        further: of each range.
    """
    orders = [
        _order_of_sizes(case, layout, alike, blocks, probes)
        for alike, probes in zip(ranges, further, strict=True)
    ]
    return OrderOfCollective(collective=case.collective, ranges=tuple(orders))


def _order_of_sizes(
    case: Case,
    layout: Layout,
    alike: OrderedSizes[OrderAtSize],
    blocks: Mapping[int, Sequence[Block]],
    probes: FurtherProbes,
) -> OrderOfSizes:
    digests: dict[int, str | None] = {}
    for nbytes in alike.sizes:
        digests[nbytes] = digest_of(blocks[nbytes]) if alike.order.ranks_agree else None
    largest = blocks[alike.last]
    trees = _trees(largest)
    sizes = [ProbedSize(bytes=size, digest=digest) for size, digest in digests.items()]
    repeats: bool | None = None
    if probes.history:
        last_epoch, _ = probes.history[-1]
        repeats = last_epoch.is_final
    in_place_trees = _trees(probes.in_place or ())
    return OrderOfSizes(
        sizes=tuple(sizes),
        kinds=_kinds(blocks[size] for size in alike.sizes),
        trees=_expressions(trees),
        blocks=_numbered(largest, trees),
        ranks_agree=alike.order.ranks_agree,
        in_place_agrees=alike.order.in_place_agrees,
        in_place_trees=_expressions(in_place_trees),
        repeats=repeats,
        history=tuple(starmap(_epoch_record, probes.history)),
        as_scheduled=is_as_scheduled(case, digests, layout),
        same_bits_as=same_bits_as(case, digests, layout),
    )


def _epoch_record(epoch: Epoch, blocks: Sequence[Block]) -> CallEpoch:
    trees = _expressions(_trees(blocks))
    return CallEpoch(
        first_call=epoch.first, last_call=epoch.last, as_later=epoch.is_final, trees=trees
    )


def _numbered(
    blocks: Sequence[Block], trees: Sequence[SummationTree]
) -> tuple[tuple[int, int], ...]:
    """Return the first element of each block, and the number of its tree."""
    numbers: dict[SummationTree | None, int] = {tree: n for n, tree in enumerate(trees)}
    numbers[None] = NO_TREE
    return tuple((block.start, numbers[block.tree]) for block in blocks)


def _kinds(blocks_of_sizes: Iterable[Sequence[Block]]) -> tuple[Kind, ...]:
    """Return what is known of elements, each once."""
    kinds: dict[Kind, None] = {}
    for blocks in blocks_of_sizes:
        kinds |= dict.fromkeys(block.kind for block in blocks)
    return tuple(kinds)


def _trees(blocks: Iterable[Block]) -> list[SummationTree]:
    """Return the different trees, in the order of the first elements that have them."""
    return list(dict.fromkeys(block.tree for block in blocks if block.tree is not None))


def _expressions(trees: Iterable[SummationTree]) -> tuple[str, ...]:
    return tuple(map(str, trees))
