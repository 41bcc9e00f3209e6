"""A collective, and a call of it: the contributions of every rank, and the postcondition."""

import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_BYTES
from hpccoll.common.units import format_size
from hpccoll.schedule import unequal_blocks
from hpccoll.schedule.compose import only_active, relabel
from hpccoll.schedule.layout import Layout
from hpccoll.schedule.lazy_table import LazyTable
from hpccoll.schedule.reduction import itemsize
from hpccoll.schedule.registry import Algorithm, Cost, Emulation, Parameter, Program, Requirement
from hpccoll.schedule.regularity import Regularity
from hpccoll.schedule.schedule import Schedule
from hpccoll.schedule.step import Index

if TYPE_CHECKING:
    from hpccoll.schedule.contribution_sets import Contribution

NATIVE = "native"
"""The algorithm name of a library's own collective."""

AUTO = "auto"
"""The algorithm name that stands for the choice of a table: a policy, not an algorithm."""

ALL_RANKS, NO_RANK = -1, -2
"""In the place of the rank that a result comes from: the contributions of all workers are folded in it, or of none."""

UnitSelector: TypeAlias = Callable[["CollectiveCall", int, int], range]


@dataclass(frozen=True, slots=True, eq=False)  # a row is itself: calls of it are keys of caches
class Collective:
    """A row of the table of collectives, and the decorator that registers an algorithm for it."""

    name: str  # the field's name of the collective
    # ``divisible`` if the buffer may be cut anywhere, ``per_rank`` if unit i is the block of rank i
    units: Literal["divisible", "per_rank"]
    source: UnitSelector  # the units that a rank contributes, from (call, me, units)
    target: UnitSelector  # the units of dst that are defined at a rank at the end
    # the contribution that such a unit holds, as its origin and its unit, from (call, me, unit):
    # the unit, and with it the result, may be an array; ALL_RANKS as the origin stands for the
    # contributions of all workers, folded
    result: Callable[["CollectiveCall", int, Index], tuple[Index, Index]]
    # the factor on algbw as a function of p (0 for 1 rank); None if bandwidth is undefined
    busbw: Callable[[int], float] | None
    # the bytes that a call reads and writes in the memory of one node, in units of S, if it copies
    # each datum once: a function of p > 1 and of in_place; None if ranks are idle meanwhile, or if
    # the blocks are unequal
    memory: Callable[[int, bool], float] | None = None
    reduces: bool = False  # whether contributions are reduced
    idempotent: bool = False  # whether a contribution may be folded twice, as in a barrier
    token: bool = False  # whether S is always one element, so that no message is empty
    uncut: bool = False  # whether the message is never cut into channels
    rooted: bool = False  # whether a call has a root
    # the other arguments of a call, with their defaults
    arguments: Mapping[str, Parameter] = field(default_factory=dict)
    in_place: bool = True  # whether contribution and result can share a buffer
    out_of_place: bool = True  # whether they can have separate buffers
    one_buffer: bool = False  # whether libraries implement it in place only
    _algorithms: LazyTable[Algorithm] = field(default_factory=partial(LazyTable, (NATIVE, AUTO)))

    def __call__(
        self,
        name: str,
        *,
        cost: Callable[..., Cost | None] | None = None,
        needs: Iterable[Requirement] = (),
        floor: bool = False,
        aggregates: bool = False,
        pipelined: bool = False,
        emulation: Emulation | None = None,
        vectorised: bool = True,
        regularity: Regularity | None = None,
        sizes: tuple[int, int] = (0, MAX_BYTES),
    ) -> Callable[[Program], Algorithm]:
        """Return the decorator that registers a function as algorithm ``name``, with its declarations."""

        def register(program: Program) -> Algorithm:
            algorithm = Algorithm(
                name,
                self.name,
                program,
                cost=cost,
                needs=tuple(needs),
                floor=floor,
                aggregates=aggregates,
                pipelined=pipelined,
                emulation=emulation,
                vectorised=vectorised,
                regularity=regularity,
                sizes=sizes,
            )
            if self.has_registered(name):
                raise ValueError(f"{self.name} has an algorithm {name} already")
            self._algorithms[name] = algorithm
            return algorithm

        return register

    def announce(self, name: str, register: Callable[[], None]) -> None:
        """Announce an algorithm, which ``register`` registers when it is first asked for."""
        self._algorithms.announce(name, register)

    def announce_later(self, announce_more: Callable[[], None]) -> None:
        """Call ``announce_more``, which announces algorithms, once: if one is not known, or all are asked for."""
        self._algorithms.announce_later(announce_more)

    def has_registered(self, name: str) -> bool:
        """Return whether an algorithm is registered, not only announced."""
        return self._algorithms.has_made(name)

    @property
    def has_op(self) -> bool:
        """Whether a call has an op argument; idempotent collectives have only one op."""
        return self.reduces and not self.idempotent

    @property
    def algorithms(self) -> MutableMapping[str, Algorithm]:
        """The algorithms by name; the page of one is imported when its value is first asked for.

        Raises:
            RuntimeError: if there is none, because the registry has not been imported.
        """
        if not self._algorithms:
            raise RuntimeError(
                f"{self.name} has no registered algorithm; import the table from hpccoll.cases.algorithm_registry"
            )
        return self._algorithms

    def algorithm(self, name: str) -> Algorithm:
        """Return the algorithm of this name.

        Raises:
            BadInputError: if there is none.
        """
        if name not in self.algorithms:
            raise BadInputError("algorithm", name, sorted(self.algorithms))
        return self.algorithms[name]

    def component(self, name: str) -> Algorithm:
        """Return the algorithm of this name as a component of another one.

        Raises:
            BadInputError: if there is none, or it is a floor.
        """
        if not self.has_component(name):
            raise BadInputError(f"{self.name} algorithm", name, sorted(self.components))
        return self.components[name]

    def has_component(self, name: object) -> bool:
        """Return whether an algorithm of this name can be a component of others."""
        return isinstance(name, str) and name in self.algorithms and not self.algorithms[name].floor

    @property
    def components(self) -> dict[str, Algorithm]:
        """The algorithms that can be components of others, by name: all but floors."""
        return {
            algorithm.name: algorithm
            for algorithm in self.algorithms.values()
            if not algorithm.floor
        }

    def call(self, p: int, root: int | None = None, **arguments: Parameter) -> "CollectiveCall":
        """Return a call on ``p`` workers.

        Raises:
            BadInputError: if the collective has no root or no such argument, or a value does not
                fit p.
        """
        if root is not None and not self.rooted:
            raise BadInputError("root", root, f"{self.name} has no root")
        root = root or 0
        if not 0 <= root < p:
            raise BadInputError("root", root, f"a rank from 0 to {p - 1}")
        for name in arguments:
            if name not in self.arguments:
                raise BadInputError(
                    f"argument of {self.name}", name, self.arguments or "it has none"
                )
        values = {**self.arguments, **arguments}
        peer = _peer_rank(values.get("peer"), p, root, is_given="peer" in arguments)
        traffic = None
        if "traffic" in values:
            traffic = str(values["traffic"])
            unequal_blocks.blocks(traffic, p, 1)  # raises the errors of the pattern
        concurrent = _concurrent_pairs(values.get("concurrent"), p)
        return CollectiveCall(self, p, root, peer, traffic, concurrent)

    def elements(self, nbytes: int, itemsize: int, p: int) -> int:
        """Return the elements of the whole buffer (divisible units) or a block (per-rank units) at S = ``nbytes``."""
        if self.token:
            return 1
        return nbytes // itemsize // self.blocks(p)

    def unmoved_reason(self, nbytes: int, dtype: str, p: int) -> str | None:
        """Return why a call at S = ``nbytes`` moves nothing between p workers; None if it moves something."""
        if p == 1:
            return "one rank sends no messages"
        if self.elements(nbytes, itemsize(dtype), p) < 1:
            needed = f"one {dtype}"
            if self.units != "divisible":
                needed += f" for each of {p} ranks"
            return f"{format_size(nbytes)} is less than {needed}"
        return None

    def buffer_share(self, p: int, *, in_place: bool) -> float:
        """Return the mean over ranks of the bytes of the contribution and the result, in units of S: one in place."""
        call = self.call(p)
        units = 0
        for me in range(p):
            contributed = len(call.source(me, p))
            defined = len(call.target(me, p))
            units += max(contributed, defined) if in_place else contributed + defined
        return units / p**2

    def blocks(self, p: int) -> int:
        """Return S in units of ``elements``: 1 or the number of blocks."""
        return 1 if self.units == "divisible" else p


def _peer_rank(peer: Parameter | None, p: int, root: int, *, is_given: bool) -> int | None:
    """Return the rank that the argument ``peer`` names, which may count from the end; None for a call without it.

    Raises:
        BadInputError: if it is the root, or not a rank.
    """
    if peer is None:
        return None
    if p < 2 or not isinstance(peer, int) or not -p <= peer < p or peer % p == root:
        default = "" if is_given else " (unless given, it is the last one)"
        raise BadInputError("peer", peer, f"another rank of {p} than the root, {root}{default}")
    return peer % p


def _concurrent_pairs(concurrent: Parameter | None, p: int) -> int | None:
    """Return the number of pairs that the argument ``concurrent`` asks for, where 0 means all; None without it.

    Raises:
        BadInputError: if ``p`` ranks do not make as many pairs.
    """
    if concurrent is None:
        return None
    pairs = p // 2
    if pairs == 0:
        raise BadInputError("concurrent", concurrent, f"left out: {p} rank has no partner")
    if concurrent not in range(pairs + 1):
        raise BadInputError("concurrent", concurrent, f"a number of pairs from 0 (all) to {pairs}")
    return int(concurrent) or pairs


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One call of a collective: the contributions of every rank, and the postcondition."""

    collective: Collective
    p: int
    root: int = 0  # the root, or the first of two ranks that exchange messages
    peer: int | None = None  # the second of them, if any
    traffic: str | None = None  # the pattern of unequal blocks; None if they are equal
    # the number of pairs of ranks that exchange messages at once; None for other calls
    concurrent: int | None = None

    def source(self, me: int, units: int) -> range:
        """Return which of the ``units`` rank ``me`` contributes."""
        if me >= self.p:
            return range(0)
        return self.collective.source(self, me, units)

    def target(self, me: int, units: int) -> range:
        """Return which of the ``units`` of dst are defined at rank ``me`` at the end."""
        if me >= self.p:
            return range(0)
        return self.collective.target(self, me, units)

    def result(self, me: int, unit: int) -> "set[Contribution]":
        """Return the contributions that are folded in a unit of ``target``."""
        origin, contributed = self.collective.result(self, me, unit)
        if origin == NO_RANK:
            return set()
        origins = range(self.p) if origin == ALL_RANKS else [int(origin)]
        return {(rank, int(contributed)) for rank in origins}

    def partner(self, me: int) -> int | None:
        """Return the rank that rank ``me`` exchanges messages with; None if it has none."""
        if self.peer is not None:
            return {self.root: self.peer, self.peer: self.root}.get(me)
        if self.concurrent is None:
            return None
        half = self.p // 2
        if me < 2 * half and me % half < self.concurrent:
            return (me + half) % (2 * half)
        return None

    def blocks(self, count: int) -> NDArray[np.int64] | None:
        """Return the elements [from, to] of unequal blocks, ``count`` on average; None if all have ``count``."""
        if self.traffic is None:
            return None
        return unequal_blocks.blocks(self.traffic, self.p, count)

    def bytes(self, count: int, itemsize: int) -> int:
        """Return S for ``count`` elements of the whole buffer, or of a block."""
        unequal = self.blocks(count)
        if unequal is not None:
            return int(unequal.sum()) * itemsize // self.p
        return count * self.collective.blocks(self.p) * itemsize

    def slices(
        self, algorithm: Algorithm, layout: Layout, **parameters: Parameter
    ) -> tuple[Schedule, ...]:
        """Return the schedules of an algorithm, one for each slice of the buffer, for the root of this call.

        Algorithms are written for root 0 and, between two ranks, peer 1; ranks are relabelled for
        others. Those of pairs are written for all pairs at once; the ranks of other pairs are idle.

        Raises:
            BadInputError: if the algorithm has no such parameter, or cannot run on the layout.
        """
        check_parameters(algorithm, parameters)
        schedules = algorithm.slices(layout, **parameters)
        if self.concurrent is not None:
            half = self.p // 2
            concurrent = self.concurrent
            return tuple(
                only_active(schedule, lambda me: me % half < concurrent) for schedule in schedules
            )
        workers = self._workers_by_role()
        actual = [*workers, *range(self.p, layout.ranks)]
        if actual == list(range(layout.ranks)):
            return schedules
        units = workers if self.collective.units == "per_rank" else None
        return tuple(relabel(schedule, actual, units) for schedule in schedules)

    def _workers_by_role(self) -> list[int]:
        """Return which worker plays each role: the root role 0, and the peer, if the call has one, role 1."""
        if self.peer is None:
            return [(role + self.root) % self.p for role in range(self.p)]
        ends = [self.root, self.peer]
        return ends + [me for me in range(self.p) if me not in ends]


def parameter_choices(algorithm: Algorithm) -> dict[str, str]:
    """Return the valid values of each parameter of an algorithm, as text: ``1 to 3``, ``ring, bruck``."""
    choices = {}
    for name in algorithm.parameters:
        for valid in _annotations(algorithm, name):
            values = _listed(valid)
            if isinstance(values, range):
                choices[name] = f"{values[0]} to {values[-1]}"
            else:
                choices[name] = ", ".join(values)
    return choices


Valid: TypeAlias = range | tuple[str, ...] | Collective
"""The valid numbers or words of a parameter, or the collective of valid algorithms."""


def _annotations(algorithm: Algorithm, parameter: str) -> Sequence[Valid]:
    """Return what a parameter is annotated with, if it is.

    The annotation is ``Annotated[int, range(1, 4)]``, ``Annotated[str, ("near", "far")]``, or
    ``Annotated[str, all_reduce]``.
    """
    annotation = inspect.signature(algorithm.program).parameters[parameter].annotation
    return get_args(annotation)[1:]  # of Annotated


def _listed(valid: Valid) -> range | list[str]:
    if isinstance(valid, Collective):
        return sorted(valid.components)
    if isinstance(valid, tuple):
        return list(valid)
    return valid


def word_parameters(algorithm: Algorithm) -> dict[str, tuple[str, ...]]:
    """Return the parameters of an algorithm that are one of some words, each with these words."""
    words = {}
    for name in algorithm.parameters:
        for valid in _annotations(algorithm, name):
            if isinstance(valid, tuple):
                words[name] = valid
    return words


def check_parameters(algorithm: Algorithm, parameters: Mapping[str, Parameter]) -> None:
    """Check the names and the values of the parameters of an algorithm.

    Raises:
        BadInputError: if a parameter is unknown or its value is invalid.
    """
    for parameter, value in parameters.items():
        if parameter not in algorithm.parameters:
            choices = (
                algorithm.parameters
                or "it has none of its own; channels, window and segment belong to runs"
            )
            raise BadInputError(f"parameter of {algorithm.name}", parameter, choices)
        for valid in _annotations(algorithm, parameter):
            _check_value(f"parameter {parameter} of {algorithm.name}", value, valid)


def _check_value(key: str, value: Parameter, valid: Valid) -> None:
    if isinstance(valid, Collective):
        if not valid.has_component(value):
            raise BadInputError(key, value, _listed(valid))
    elif isinstance(valid, tuple):
        if value not in valid:
            raise BadInputError(key, value, valid)
    elif value not in valid:
        raise BadInputError(key, value, f"a whole number from {valid[0]} to {valid[-1]}")
