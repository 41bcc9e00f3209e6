"""The communication wall: what synchronising the gradients of a model takes of a step, by closed formulas.

Every GPU holds all gradients, S bytes, computes for C seconds, and has a link of B bytes a second
to the others (one to its node's NVLink, where ``hierarchical`` says so); alpha is the latency of a
message. On n GPUs, m of them on a node:

| algorithm | seconds |
| --- | --- |
| ring | 2 (n - 1) alpha + 2 (n - 1)/n S/B |
| hierarchical | 2 (m - 1) (alpha + S/m/A) + 2 (n/m - 1) alpha + 2 (1 - m/n) S/m/B, with A the rate inside a node |
| in_network | 2 alpha + S/B: the network adds up what each GPU sends once and receives once |

Without overlap a step takes C and the seconds of the all-reduce; with it, at best, the longer of
both. The rate that would hide the all-reduce is that at which it takes C. If the batch is fixed, n
GPUs compute for C n0/n, where n0 is the least number of them: what n0 GPUs compute, over the
seconds of the all-reduce, bounds the speed-up over one GPU, as the serial part does in Amdahl's
law. A pipeline of p stages is idle for (p - 1)/(m + p - 1) of a step with m micro-batches.

R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH,
IJHPCA 19 (2005).
G. Amdahl: Validity of the single processor approach, AFIPS (1967). Y. Huang et al.: GPipe, NeurIPS
(2019).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypedDict

from hpccoll.common.errors import BadInputError
from hpccoll.store.schema import MODELLED


class WallPointJson(TypedDict):
    """A training step by closed formulas, as JSON has it."""

    gpus: int
    algorithm: str
    gradient_bytes: int
    communication_s: float
    exposed_s: float
    compute_s: float
    step_s: float
    share: float
    hide_rate_bps: float | None
    busbw_Bps: float
    link_Bps: float
    links: int
    overlapped_exposed_s: float
    overlapped_step_s: float
    overlapped_share: float
    scaling_efficiency: float
    fixed_batch_speedup: float
    amdahl_limit: float
    kind: str


@dataclass(frozen=True, slots=True)
class Wall:
    """Data-parallel training."""

    parameters: float  # the parameters of the model
    bytes_per_element: int  # the bytes of a gradient
    link: float  # B, the rate of the link of a GPU in bits a second
    compute_s: float  # C, the seconds that each GPU computes in a step, on the least number of them
    algorithm: str = "ring"  # one of ALGORITHMS
    latency_s: float = 0.0  # alpha, the seconds of a message without bytes
    gpus_per_node: int = 1  # m; each has a link of its own
    node_link: float | None = None  # A, the rate between the GPUs of a node in bits a second

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise BadInputError("--algorithm", self.algorithm, ALGORITHMS)
        if self.algorithm == "hierarchical" and (self.gpus_per_node < 2 or self.node_link is None):
            needed = "with --ranks-per-node of 2 or more, and --node-rate, the rate inside a node"
            raise BadInputError("--algorithm", self.algorithm, needed)

    @property
    def gradient_bytes(self) -> float:
        """S, the bytes of all gradients."""
        return self.parameters * self.bytes_per_element

    @property
    def links(self) -> int:
        """The links of a node that the all-reduce uses at once."""
        if self.algorithm == "hierarchical":
            return self.gpus_per_node
        return 1

    def point(self, gpus: int, least: int) -> "WallPoint":
        """Return the step on some GPUs; BadInputError if they do not fill nodes that the algorithm needs."""
        latency_s, inside_s, sent = ALGORITHMS[self.algorithm](self, gpus)
        fixed_s = latency_s + inside_s
        return WallPoint(self, gpus, fixed_s + 8 * sent / self.link, fixed_s, sent, least)


@dataclass(frozen=True, slots=True)
class WallPoint:
    """A step on a number of GPUs."""

    wall: Wall
    gpus: int  # the number of GPUs
    communication_s: float  # the seconds of the all-reduce
    fixed_s: float  # those of them that a faster link does not save
    sent: float  # the bytes that a GPU sends over its link
    least: int  # the least number of GPUs

    @property
    def step_s(self) -> float:
        """The seconds of a step without overlap."""
        return self.wall.compute_s + self.communication_s

    @property
    def overlapped_s(self) -> float:
        """The seconds of a step whose computation and communication overlap, at best."""
        return max(self.wall.compute_s, self.communication_s)

    @property
    def hide_rate(self) -> float | None:
        """The rate of a link in bits a second at which the all-reduce takes as long as the computation.

        None if no rate is enough.
        """
        left = self.wall.compute_s - self.fixed_s
        if left <= 0:
            return None
        return 8 * self.sent / left

    @property
    def busbw(self) -> float:
        """Bus bandwidth of the all-reduce in bytes a second."""
        factor = 2 * (self.gpus - 1) / self.gpus
        return factor * self.wall.gradient_bytes / self.communication_s

    @property
    def work_s(self) -> float:
        """The seconds that one GPU would compute for the batch of the least number of GPUs."""
        return self.wall.compute_s * self.least

    @property
    def fixed_batch_speedup(self) -> float:
        """How many times as fast as one GPU these are with the batch of the least number of GPUs."""
        step_s = self.work_s / self.gpus + self.communication_s
        return self.work_s / step_s

    def to_json(self) -> WallPointJson:
        """Return the step in SI units."""
        wall = self.wall
        exposed_s = self.overlapped_s - wall.compute_s
        return {
            "gpus": self.gpus,
            "algorithm": wall.algorithm,
            "gradient_bytes": round(wall.gradient_bytes),
            "communication_s": self.communication_s,
            "exposed_s": self.communication_s,
            "compute_s": wall.compute_s,
            "step_s": self.step_s,
            "share": self.communication_s / self.step_s,
            "hide_rate_bps": self.hide_rate,
            "busbw_Bps": self.busbw,
            "link_Bps": wall.link / 8,
            "links": wall.links,
            "overlapped_exposed_s": exposed_s,
            "overlapped_step_s": self.overlapped_s,
            "overlapped_share": exposed_s / self.overlapped_s,
            "scaling_efficiency": wall.compute_s / self.step_s,
            "fixed_batch_speedup": self.fixed_batch_speedup,
            "amdahl_limit": self.work_s / self.communication_s,
            "kind": MODELLED,
        }


def _ring(wall: Wall, gpus: int) -> tuple[float, float, float]:
    messages = 2 * (gpus - 1)
    return messages * wall.latency_s, 0.0, messages / gpus * wall.gradient_bytes


def _hierarchical(wall: Wall, gpus: int) -> tuple[float, float, float]:
    m = wall.gpus_per_node
    if gpus % m:
        raise BadInputError("--gpus", gpus, f"a multiple of --ranks-per-node {m}")
    messages = 2 * (m - 1 + gpus // m - 1)
    part = wall.gradient_bytes / m
    inside_s = 2 * (m - 1) * 8 * part / (wall.node_link or wall.link)
    return messages * wall.latency_s, inside_s, 2 * (1 - m / gpus) * part


def _in_network(wall: Wall, gpus: int) -> tuple[float, float, float]:
    sent = wall.gradient_bytes if gpus > 1 else 0.0
    return 2 * wall.latency_s, 0.0, sent


ALGORITHMS: Mapping[str, Callable[[Wall, int], tuple[float, float, float]]] = {
    "ring": _ring,
    "hierarchical": _hierarchical,
    "in_network": _in_network,
}
"""The algorithms with a formula: their seconds of latency and inside nodes, and the bytes on the link of a GPU."""


def wall_points(wall: Wall, gpus: Sequence[int]) -> list[WallPoint]:
    """Return the steps on numbers of GPUs, each of at least two."""
    return [wall.point(number, min(gpus)) for number in gpus]


def bubble_share(stages: int, micro_batches: int) -> float:
    """Return the part of a step for which the stages of a pipeline are idle."""
    return (stages - 1) / (micro_batches + stages - 1)


def bubble_rows() -> Iterator[dict[str, float]]:
    """Yield the bubble of pipelines by stages and micro-batches."""
    for stages, power in product((2, 4, 8, 16), range(9)):
        micro_batches = 1 << power
        yield {
            "stages": stages,
            "micro_batches": micro_batches,
            "share": bubble_share(stages, micro_batches),
        }
