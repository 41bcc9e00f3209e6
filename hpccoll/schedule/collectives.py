"""The table of collectives: what each promises, how its size is counted, and how its bandwidth is compared.

A contribution is a pair (origin, unit): unit ``unit`` of the source buffer of rank ``origin``. An algorithm is written
in place: dst begins with what src holds, and ends with what the collective promises. Sizes and busbw factors are those
of nccl-tests (doc/PERFORMANCE.md there), so that curves can be laid over each other.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from hpccoll.errors import BadInputError
from hpccoll.schedule.registry import Algorithm, Cost, Need, Program

Contribution = tuple[int, int]


def _everyone(p: int, unit: int) -> set[Contribution]:
    return {(origin, unit) for origin in range(p)}


@dataclass(frozen=True, slots=True)
class Collective:
    """A row of the table, and the decorator that registers an algorithm for it.

    Args:
        name: the field's name.
        units: ``free`` where any cut of the buffer will do, ``owned`` where unit i is the block of rank i.
        source: whether src holds ``all`` units or only the rank's ``own``.
        target: the same for dst.
        promises: the contributions folded in unit ``unit`` of dst at rank ``me`` at the end, from (p, me, unit).
        busbw: the factor on algbw from p (1 rank: 0); None where a bandwidth means nothing.
        reduces: whether there is an op.
        idempotent: whether a contribution may be folded twice (to have heard twice is to have heard).
        token: whether S is given: one byte a unit, so that no message is empty.
    """

    name: str
    units: Literal["free", "owned"]
    source: Literal["all", "own"]
    target: Literal["all", "own"]
    promises: Callable[[int, int, int], set[Contribution]]
    busbw: Callable[[int], float] | None
    reduces: bool = False
    idempotent: bool = False
    token: bool = False
    algorithms: dict[str, Algorithm] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        *,
        cost: Callable[[int], Cost] | None = None,
        needs: Iterable[Need] = (),
        floor: bool = False,
        aggregates: bool = False,
    ) -> Callable[[Program], Algorithm]:
        """Register the function below as algorithm ``name``, with what it declares of itself."""

        def register(program: Program) -> Algorithm:
            algorithm = Algorithm(name, self.name, program, cost, tuple(needs), floor, aggregates)
            if self.algorithms.setdefault(name, algorithm) is not algorithm:
                raise ValueError(f"{self.name} has an algorithm {name} already")
            return algorithm

        return register

    def algorithm(self, name: str) -> Algorithm:
        """Return the algorithm of that name.

        Raises:
            BadInputError: where there is none.
        """
        if name not in self.algorithms:
            raise BadInputError("algorithm", name, sorted(self.algorithms))
        return self.algorithms[name]

    def holds(self, buffer: str, me: int, units: int) -> range:
        """Return the units that ``buffer`` of rank ``me`` has room for."""
        held = {"src": self.source, "dst": self.target}.get(buffer, "all")
        return range(me, me + 1) if held == "own" else range(units)

    def elements(self, nbytes: int, itemsize: int, p: int) -> int:
        """Return the elements of one cut (free: the whole buffer; owned: one block) for a size S of ``nbytes``."""
        if self.token:
            return p
        return nbytes // itemsize // (1 if self.units == "free" else p)

    def blocks(self, p: int) -> int:
        """Return how many times S holds what ``elements`` returns."""
        return 1 if self.units == "free" else p


def _ring_factor(p: int) -> float:
    return (p - 1) / p


all_reduce = Collective(
    name="all_reduce",
    units="free",
    source="all",
    target="all",
    promises=lambda p, _me, unit: _everyone(p, unit),
    busbw=lambda p: 2 * (p - 1) / p,
    reduces=True,
)
all_gather = Collective(
    name="all_gather",
    units="owned",
    source="own",
    target="all",
    promises=lambda _p, _me, unit: {(unit, unit)},
    busbw=_ring_factor,
)
barrier = Collective(
    name="barrier",
    units="free",
    source="all",
    target="all",
    promises=lambda p, _me, unit: _everyone(p, unit),
    busbw=None,
    reduces=True,
    idempotent=True,
    token=True,
)

COLLECTIVES = {collective.name: collective for collective in (all_reduce, all_gather, barrier)}


def collective(name: str) -> Collective:
    """Return the collective of that name.

    Raises:
        BadInputError: where there is none.
    """
    if name not in COLLECTIVES:
        raise BadInputError("collective", name, COLLECTIVES)
    return COLLECTIVES[name]
