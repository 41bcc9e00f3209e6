"""What was published that is nearest to a call: too little, or of machines too unlike, for a verdict.

``published_rates`` has what a verdict follows from: two sources with the call's own class and size.
Where these are lacking, a figure that differs in a thing or two says what somebody reached, and its
source is named with what differs.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpccoll.common.units import format_size
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import (
    FEW_NODES,
    NEAR,
    OLD,
    PublishedCall,
    PublishedFigure,
    SourceRates,
    figures_of,
    figures_of_network,
    figures_of_section,
    is_old,
    node_class,
    ratio,
    sources_of,
    usual_for,
)
from hpccoll.schedule import itemsize

MOST_UNLIKE = 3
"""The most things in which a figure may differ from a call."""

FARTHEST = 64
"""The largest ratio of two sizes between which a rate is interpolated: tables of eight lines have
steps of up to 64."""

PLATEAU = 1 << 30
"""The size from which on bandwidth grows little: a figure of a smaller size says something of a
larger one."""

EXCHANGES = "all_reduce", "all_gather", "reduce_scatter", "all_to_all"
"""The collectives that are one exchange between two nodes of a rank each: their bus bandwidth is the
rate of the port. (Between two GPUs of a node they differ: B200 has 480 GB/s of all-gather, B300 640
of all-reduce.)"""

UNJUDGED = "nobody called it healthy"
"""What is said of a figure whose machine nobody judged."""

NEWER = f"NCCL {'.'.join(map(str, OLD))} or newer"
"""What is said of a figure of a recent NCCL across nodes, beside a call of an old one, which is slower there."""


@dataclass(frozen=True, slots=True)
class NearestRates:
    """The figures nearest to a call."""

    unlike: tuple[str, ...]  # in what they differ from the call, in words; empty if in nothing
    by_source: dict[str, SourceRates]  # the bus bandwidths, by independent source
    # the sources without a figure near the size, whose rates are those between distant sizes
    interpolated: frozenset[str]


def nearest_rates(machine: MachineFile, call: PublishedCall) -> NearestRates | None:
    """Return the figures that differ least from a call and have its size; None without such figures.

    They are of the same network and library, across nodes no older than that of the call, and of as
    many ranks a node. They may differ

    - in the version of NCCL, across nodes, if that of the call is old;
    - in the GPU of the same fabric, or in any GPU where the ports are narrower than the fabric: with
      one GPU a node, and beyond FEW_NODES;
    - in the type of elements, unless NVLS folds them;
    - beyond FEW_NODES by a factor of NEAR in the nodes;
    - in the algorithm, if a setting chose that of the call;
    - between two nodes of a rank each, in the collective, as all of EXCHANGES are alike;
    - in the size, if it is smaller, and from PLATEAU on.
    """
    like = machine.machine_class
    compared = _ComparedCall.of(like, call)
    by_difference: dict[tuple[str, ...], list[PublishedFigure]] = defaultdict(list)
    for figure in _candidates(machine, call):
        if compared.is_comparable(figure):
            unlike = tuple(compared.differences(figure))
            by_difference[unlike].append(figure)
    largest: list[NearestRates] = []
    for unlike in sorted(by_difference, key=lambda words: (len(words), words)):
        if len(unlike) > MOST_UNLIKE:
            break
        figures = by_difference[unlike]
        nearest = _of_figures(figures, unlike, call, like)
        if nearest.by_source:
            return nearest
        largest += _of_largest_size(figures, unlike, call, like)
    return largest[0] if largest else None


def _of_figures(
    figures: Sequence[PublishedFigure],
    unlike: tuple[str, ...],
    call: PublishedCall,
    like: ClassSection | None,
) -> NearestRates:
    """Return what figures have at the size of a call; without a source if none is within FARTHEST."""
    by_source = sources_of(figures, call, like, FARTHEST)
    near = sources_of(figures, call, like, NEAR)
    return NearestRates(unlike, by_source, frozenset(by_source.keys() - near.keys()))


def _of_largest_size(
    figures: Sequence[PublishedFigure],
    unlike: tuple[str, ...],
    call: PublishedCall,
    like: ClassSection | None,
) -> Iterator[NearestRates]:
    """Yield what figures have at their largest size, if it is below that of a call and on the plateau."""
    nbytes = max(figure.nbytes for figure in figures)
    if PLATEAU <= nbytes < call.nbytes:
        unlike_size = (*unlike, format_size(nbytes))
        yield _of_figures(figures, unlike_size, replace(call, nbytes=nbytes), like)


def _candidates(machine: MachineFile, call: PublishedCall) -> Iterator[PublishedFigure]:
    """Yield the figures of the network and the fabric, of whatever GPU, and those of the machine's file."""
    like = machine.machine_class
    if like is None:
        yield from figures_of(machine)
        return
    crosses, _ = node_class(like, call.nodes)
    fabrics = call.nodes / like.fabric_nodes
    ports_are_narrowest = call.ranks_per_node == 1 or fabrics > FEW_NODES
    needs_fabric = not (crosses and ports_are_narrowest)
    yield from figures_of_network(like, crosses=crosses, fabric=like.fabric if needs_fabric else "")
    for section in machine.published:
        yield from figures_of_section(machine, section)


@dataclass(frozen=True, slots=True)
class _ComparedCall:
    """A call, to be compared with figures."""

    call: PublishedCall
    like: ClassSection | None  # the class of its machine
    usual: str | None  # what NCCL takes for it without a setting; None if unknown
    crosses: bool  # whether it uses the network
    scale: int | None  # the class of its number of nodes; None if it has none
    is_exchange: bool  # whether it is one exchange between two ports, whatever the algorithm
    is_folded_in_switches: bool  # whether NVLS folds it, if no setting changes that

    @classmethod
    def of(cls, like: ClassSection | None, call: PublishedCall) -> "_ComparedCall":
        """Return a call on a machine of a class."""
        usual = usual_for(like, call)
        crosses, scale = node_class(like, call.nodes)
        is_between_two_ports = (call.nodes, call.ranks_per_node) == (2, 1)
        return cls(
            call=call,
            like=like,
            usual=usual,
            crosses=crosses,
            scale=scale,
            is_exchange=is_between_two_ports and call.collective in EXCHANGES,
            is_folded_in_switches=(usual or "").startswith("NVLS"),
        )

    def is_comparable(self, figure: PublishedFigure) -> bool:
        """Return whether a figure says something of the call, whatever differs."""
        call = self.call
        if figure.gpus_per_node != call.ranks_per_node or not self._has_like_collective(figure):
            return False
        if not self._has_like_type(figure) or not self._has_like_nodes(figure):
            return False
        if figure.forced and not figure.ran(call.algorithm, self.usual):
            return False
        figure_crosses, _ = node_class(self.like, figure.nodes)
        if figure_crosses != self.crosses or (figure.network is not None) != self.crosses:
            return False
        return not self.crosses or is_old(call.library) or not is_old(figure.library)

    def _has_like_collective(self, figure: PublishedFigure) -> bool:
        is_exchange = self.is_exchange and figure.collective in EXCHANGES
        return is_exchange or figure.collective == self.call.collective

    def _has_like_type(self, figure: PublishedFigure) -> bool:
        if not self.is_folded_in_switches or figure.dtype == self.call.dtype:
            return True
        return itemsize(figure.dtype) == itemsize(self.call.dtype)

    def _has_like_nodes(self, figure: PublishedFigure) -> bool:
        if figure.nodes == self.call.nodes:
            return True
        are_near = ratio(figure.nodes, self.call.nodes) <= NEAR
        return are_near and min(figure.nodes, self.call.nodes) > FEW_NODES

    def differences(self, figure: PublishedFigure) -> Iterator[str]:
        """Yield in what a figure differs from the call, in words."""
        call = self.call
        if figure.collective != call.collective:
            yield figure.collective
        if not self.is_exchange and not figure.ran(call.algorithm, self.usual):
            yield "by default"
        if figure.dtype != call.dtype:
            yield figure.dtype
        _, scale_of_figure = node_class(self.like, figure.nodes)
        has_class = self.crosses and self.scale is not None and self.scale == scale_of_figure
        if figure.nodes != call.nodes and not has_class:
            yield f"{figure.nodes} nodes"
        gpus = self.like.gpus if self.like else []
        if gpus and figure.gpu and figure.gpu not in gpus:
            yield figure.gpu
        if self.crosses and is_old(call.library) and not is_old(figure.library):
            yield NEWER
        if not figure.healthy:
            yield UNJUDGED
