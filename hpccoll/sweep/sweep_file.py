"""The sweep file: what to measure, as a person writes it. Where and how is the business of profiles and sites.

``python -m hpccoll.sweep.sweep_file`` prints its JSON schema, which workflows/schemas keeps for editors.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, ModelWrapValidatorHandler, Tag, model_validator

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import CommunicatorSettings
from hpccoll.limits import (
    AGGREGATORS,
    FACTOR,
    ITERATIONS,
    PRECISION,
    RANK,
    RANKS,
    RANKS_PER_NODE,
    ROUNDS,
    SECONDS,
    SEED,
    WARMUP,
)
from hpccoll.spec.case import Effort, Shape
from hpccoll.sweep import validators
from hpccoll.sweep.sweep_variants import Variants
from hpccoll.sweep.yaml_model import Bounded, OneOrMore, YamlSection, load_yaml
from hpccoll.tuning.auto import check_table_given
from hpccoll.tuning.table import load_table
from hpccoll.units import format_size, parse_size

Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
NodeCount = Annotated[int, Bounded(RANKS)]
RanksOnNode = Annotated[int, Bounded(RANKS_PER_NODE)]
Rank = Annotated[int, Bounded(RANK)]


def _check_pairs(value: object) -> object:
    """See that the value is a word for pairs of ranks, or a list of them."""
    pairs = value if isinstance(value, list) else [value]
    ranks = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2 and pair[0] != pair[1]]
    if value in PAIR_SETS or (
        len(ranks) == len(pairs) and all(type(me) is int and me >= 0 for pair in ranks for me in pair)
    ):
        return value
    raise ValueError(f"{', '.join(PAIR_SETS)}, or a list of pairs of different ranks, such as [[0, 1], [0, 2]]")


PAIR_SETS = ("ends", "all")
"""Words for pairs of ranks: the first and the last one, or every two."""

Pairs = Annotated[Literal["ends", "all"] | list[tuple[Rank, Rank]], BeforeValidator(_check_pairs)]


def _load_table(value: object) -> object:
    """Read the file now: a plan needs no other."""
    return load_table(Path(str(value)), "table") if value is not None else None


class SizeRange(YamlSection):
    """Sizes from one to another, each ``factor`` times the last."""

    first: Size = Field(alias="from", gt=0, description="the smallest size, such as 8 or 64K (powers of 1024)")
    last: Size = Field(alias="to", description="the largest size; reached if the factor hits it")
    factor: Annotated[int, Bounded(FACTOR)] = Field(2, description="from one size to the next")

    @model_validator(mode="after")
    def _rises(self) -> "SizeRange":
        if self.last < self.first:
            raise ValueError("'to' must be at least 'from'")
        return self

    def sizes(self) -> list[int]:
        sizes = [self.first]
        while sizes[-1] * self.factor <= self.last:
            sizes.append(sizes[-1] * self.factor)
        return sizes


Sizes = Annotated[
    Annotated[OneOrMore[Size], Tag("[list]")] | Annotated[SizeRange, Tag("[range]")],
    Discriminator(lambda value: "[range]" if isinstance(value, dict) else "[list]"),
]


class EffortSection(YamlSection):
    """How long each case is measured, in all of its rounds together."""

    warmup: Annotated[int, Bounded(WARMUP)] = Field(
        default=5, description="iterations thrown away, in each round of a case"
    )
    min_iterations: Annotated[int, Bounded(ITERATIONS)] = Field(default=10, description="timed at least")
    max_iterations: Annotated[int, Bounded(ITERATIONS)] = Field(default=1000, description="timed at most")
    seconds: Annotated[float, Bounded(SECONDS)] = Field(
        default=0.5, description="wall time for a case, once it has its least iterations"
    )
    precision: Annotated[float, Bounded(PRECISION)] = Field(
        default=0.02, description="95 % interval of the median, half of it over the median"
    )
    timeout: Annotated[float, Bounded(SECONDS)] = Field(
        default=120.0, description="seconds without progress until a rank is said to be stuck"
    )

    @model_validator(mode="after")
    def _least_is_least(self) -> "EffortSection":
        if self.max_iterations < self.min_iterations:
            raise ValueError("'max_iterations' must be at least 'min_iterations'")
        return self


class Sweep(YamlSection):
    """A sweep: every combination of what the lists name is a case."""

    collectives: OneOrMore[validators.CollectiveName] = Field(
        ["all_reduce"], description="see 'hpccoll list', or all of them: all"
    )
    algorithms: OneOrMore[validators.AlgorithmName] = Field(
        description="see 'hpccoll list'; native is the library's own; each collective takes those that it has, or all"
    )
    devices: OneOrMore[Literal["cpu", "cuda"]] = Field(["cpu"], description="where buffers lie: on the host or a GPU")
    transports: OneOrMore[validators.TransportName] = Field(
        ["mpi"], description="how bytes move: mpi, shm, tiered; on device cuda nccl, mpi (CUDA-aware), staged"
    )
    dtypes: OneOrMore[validators.DtypeName] = Field(
        ["float32"], description="int32, int64, float16, float32, float64; over nccl bfloat16, too"
    )
    ops: OneOrMore[validators.OpName] = Field(["sum"], description="sum, prod, min, max, avg")
    bytes: Sizes = Field(description="sizes: a list, or {from: 8, to: 4M, factor: 2}")
    in_place: OneOrMore[bool] = Field([False, True], description="whether contribution and result share a buffer")
    ranks: OneOrMore[RanksOnNode] | None = Field(
        None, description="numbers of ranks on one node; each is a job of its own"
    )
    nodes: OneOrMore[NodeCount] | None = Field(None, description="numbers of nodes, instead of 'ranks'")
    ranks_per_node: OneOrMore[RanksOnNode] = Field([1], description="with 'nodes': how many ranks on each of them")
    scaling: Literal["nested", "separate"] = Field(
        "nested",
        description="with 'nodes': all on the first nodes of one allocation, or separate ones",
    )
    mapping: OneOrMore[Literal["block", "cyclic"]] | None = Field(
        None,
        description="numbers ranks anew over racks and nodes, well (block) and badly (cyclic); left out: as launched",
    )
    roots: OneOrMore[Rank] = Field([0], description="the roots of rooted collectives")
    pairs: Pairs = Field(
        "ends", description="who exchanges messages point to point: the first and the last rank, all pairs, or [[0, 1]]"
    )
    traffic: OneOrMore[validators.TrafficName] = Field(
        ["zipf"], description="unequal blocks of all_to_all_v: uniform, zipf, random, or a file *.csv of p x p weights"
    )
    aggregators: Annotated[int, Bounded(AGGREGATORS)] = Field(
        0, description="ranks beside the workers that only aggregate; with 'nodes', each on a host of its own"
    )
    params: validators.ParameterLists = Field(
        {}, description="parameters by algorithm, each with the values to try: {ring: {channels: [1, 4]}}"
    )
    table: Annotated[dict[str, Any] | None, BeforeValidator(_load_table, json_schema_input_type=str | None)] = Field(
        None, description="what auto chooses by: a file that 'hpccoll tune' has made"
    )
    variants: Variants = Field(
        {},
        description="environments to compare, each a job of its own: {name: {VARIABLE: value}}; a name that 'hpccoll "
        "list' knows brings its variables along, and needs none behind it",
    )
    effort: EffortSection = Field(EffortSection(), description="how long each case is measured")
    rounds: Annotated[int, Bounded(ROUNDS)] = Field(
        3, description="times that all cases are gone through, which share the effort"
    )
    seed: Annotated[int, Bounded(SEED)] = Field(
        1, description="of the order of the measurements, which is random, and another in each round"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _auto_has_a_table(cls, written: Any, read: ModelWrapValidatorHandler["Sweep"]) -> "Sweep":
        sweep = read(written)
        check_table_given("table", None if sweep.table is None else str(written["table"]), sweep.algorithms)
        return sweep

    @model_validator(mode="after")
    def _has_ranks_or_nodes(self) -> "Sweep":
        if (self.ranks is None) == (self.nodes is None):
            raise BadInputError("ranks", self.ranks, "one of the two: 'ranks' (on one node) or 'nodes'")
        if self.ranks is not None and "ranks_per_node" in self.model_fields_set:
            raise BadInputError("ranks_per_node", self.ranks_per_node, "a key that goes with 'nodes', not with 'ranks'")
        if self.nodes and max(self.nodes) * max(self.ranks_per_node) > RANKS.maximum:
            raise BadInputError(
                "ranks_per_node", self.ranks_per_node, f"nodes with at most {RANKS.maximum} ranks in all"
            )
        return self

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """The variables of the variants."""
        return {name: variant.environment for name, variant in self.variants.items()}

    @property
    def communicators(self) -> Mapping[str, CommunicatorSettings]:
        """What NCCL's communicators are made with in them."""
        return {name: variant.communicator for name, variant in self.variants.items()}

    def case_effort(self) -> Effort:
        return Effort(**self.effort.model_dump(), rounds=self.rounds)

    def sizes(self) -> list[int]:
        return self.bytes.sizes() if isinstance(self.bytes, SizeRange) else self.bytes

    def notes(self) -> Iterator[str]:
        """Yield what a reader of the file may take it to ask for, and it does not."""
        if isinstance(self.bytes, SizeRange) and self.sizes()[-1] != self.bytes.last:
            last, to = format_size(self.sizes()[-1]), format_size(self.bytes.last)
            yield f"the largest size is {last}: {to} is not reached by factors of {self.bytes.factor}"

    def shapes(self) -> list[Shape]:
        """Return what is launched, the smallest first."""
        if self.nodes is None:
            return sorted(Shape(1, ranks, self.aggregators) for ranks in self.ranks or ())
        return sorted(
            Shape(nodes, nodes * each, self.aggregators, self.dedicated_aggregators)
            for nodes in self.nodes
            for each in self.ranks_per_node
        )

    @property
    def dedicated_aggregators(self) -> bool:
        """Whether aggregators have hosts of their own."""
        return self.nodes is not None and self.aggregators > 0

    @property
    def nested(self) -> bool:
        """Whether the shapes of a number of ranks per node share an allocation."""
        return self.nodes is not None and self.scaling == "nested"


def json_schema() -> str:
    """Return the JSON schema of a sweep file."""
    return json.dumps(Sweep.model_json_schema(), indent=1) + "\n"


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        BadInputError: names the file, the key, the value and what would be valid.
    """
    return load_yaml(path, Sweep, "CONFIG")


if __name__ == "__main__":
    sys.stdout.write(json_schema())
