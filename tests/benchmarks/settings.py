"""What the benchmarks measure: settings, each one launch or several, and what is asked of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import NATIVE


@dataclass(frozen=True)
class Ask:
    """What a setting is to show at one size; of both sides the better of in place and not counts, round by round."""

    nbytes: int  # the size
    ours: tuple[str, ...]  # the name of the way that is to be fast, or of several: the best of them
    of: str | None  # the name of what it is compared with; None for what the wires allow
    at_least: float  # how many times faster than that it has to be


@dataclass(frozen=True)
class Setting:
    """One launch of cases that take turns."""

    testbed: tuple[str, ...]  # the options of ``testbed up``; empty for this machine alone
    nodes: int  # that work
    each: int  # ranks on each of them
    ways: tuple["Way", ...]  # the algorithms, each with a transport, parameters and a mapping
    sizes: tuple[int, ...]  # in bytes
    asks: tuple[Ask, ...] = ()  # what it is to show
    aggregators: int = 0  # hosts beside the nodes
    seconds: float = 10.0  # of a case, in all rounds
    least: int = 6  # iterations of a case in a round
    in_place: tuple[bool, ...] = (False, True)  # which placements

    def cases(self) -> Iterator[Case]:
        for way, size, in_place in product(self.ways, self.sizes, self.in_place):
            yield Case(
                collective="all_reduce",
                algorithm=way.algorithm,
                transport=way.transport,
                bytes=size,
                in_place=in_place,
                params=way.params,
                mapping=way.mapping,
            )


@dataclass(frozen=True)
class Way:
    """An algorithm, and how it is run."""

    algorithm: str
    transport: str = "mpi"
    mapping: str | None = None
    params: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        words = (
            "" if self.transport == "mpi" else self.transport,
            self.mapping or "",
            *self._params(),
        )
        return " ".join(filter(None, (self.algorithm, *words)))

    def _params(self) -> Iterator[str]:
        return (f"{name}={value}" for name, value in self.params.items())


NATIVELY = Way(NATIVE)

HIERARCHICAL = tuple(
    f"hierarchical{over}{cut}" for over in ("", " tiered") for cut in ("", " channels=8")
)

SETTINGS = {
    "node": Setting(
        testbed=(), nodes=1, each=2, sizes=(1 << 10, 64 << 10, 1 << 20, 64 << 20), seconds=5,
        ways=(
            NATIVELY, Way("ring"), Way("recursive_doubling"),
            Way("direct", "shm"), Way("ring", "shm"), Way("recursive_doubling", "shm"),
        ),
        asks=(
            Ask(64 << 20, ("ring", "direct shm", "ring shm"), NATIVE, 2.2),
            Ask(1 << 10, ("recursive_doubling", "direct shm", "recursive_doubling shm"), NATIVE, 1 / 1.3),
        ),
    ),
    "wire": Setting(
        testbed=("--nodes", "4", "--cpus", "2", "--rate", "1gbit"), nodes=4, each=1, sizes=(16 << 20,),
        ways=(NATIVELY, Way("ring"), Way("rabenseifner")),
        asks=(Ask(16 << 20, ("ring",), None, 0.96), Ask(16 << 20, ("ring",), NATIVE, 1.0)),
    ),
    "tiers": Setting(
        testbed=("--nodes", "4", "--cpus", "2", "--rate", "1gbit"), nodes=4, each=2, sizes=(16 << 20,),
        ways=(
            NATIVELY, Way("hierarchical"), Way("hierarchical", "tiered"),
            Way("hierarchical", params={"channels": 8}), Way("hierarchical", "tiered", params={"channels": 8}),
        ),
        asks=(
            Ask(16 << 20, HIERARCHICAL, None, 0.93),
            Ask(16 << 20, HIERARCHICAL, NATIVE, 1.4),
        ),
    ),
    "aggregation": Setting(
        testbed=("--nodes", "8", "--cpus", "1", "--rate", "100mbit", "--aggregators", "3"),
        nodes=8, each=1, aggregators=3, sizes=(4 << 20,), seconds=20,
        ways=(
            NATIVELY, Way("ring"),
            Way("sharp_emulated", params={"radix": 8}), Way("sharp_emulated", params={"radix": 4}),
        ),
        asks=(
            Ask(4 << 20, ("sharp_emulated radix=8",), "ring", 1.6),
            Ask(4 << 20, ("sharp_emulated radix=4",), "ring", 1.6),
        ),
    ),
    "racks": Setting(
        testbed=("--nodes", "8", "--cpus", "1", "--rate", "1gbit", "--racks", "2", "--uplink", "200mbit"),
        # an operation takes 5 s
        nodes=8, each=1, sizes=(16 << 20,), seconds=30, least=2, in_place=(False,),
        ways=tuple(
            Way(algorithm, mapping=mapping)
            for algorithm in (NATIVE, "ring", "hierarchical") for mapping in ("block", "cyclic")
        ),
        asks=(
            Ask(16 << 20, ("hierarchical block", "hierarchical cyclic"), "ring cyclic", 2.0),
            Ask(16 << 20, ("ring block",), "ring cyclic", 2.0),
        ),
    ),
}  # fmt: skip
"""The settings by name."""

ALIKE = (NATIVELY, Way("ring"), Way("rabenseifner"), Way("recursive_doubling"))
"""What tables choose among."""

CHOICES = {
    "node": Setting(
        testbed=(),
        nodes=1,
        each=2,
        sizes=tuple(1 << k for k in range(10, 27)),
        seconds=1.0,
        least=8,
        ways=(*ALIKE, *(Way(way.algorithm, "shm") for way in ALIKE[1:]), Way("direct", "shm")),
    ),
    "testbed": Setting(
        testbed=("--nodes", "6", "--cpus", "1", "--rate", "100mbit"),
        nodes=6,
        each=1,
        sizes=tuple(1 << k for k in range(10, 21)),
        seconds=2.0,
        least=8,
        ways=(*ALIKE, Way("double_binary_tree")),
    ),
}
"""Where a table is made at every other of the sizes, and judged at all of them."""
