"""The sweep file: what to measure. Profiles and site files define where and how to run it.

``python -m hpccoll.sweep.sweep_file`` prints its JSON schema, which workflows/schemas keeps for
editors. hpccoll/cases/keys.py declares the keys.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    model_validator,
)

from hpccoll.analysis.choice_table import check_table_given, load_table
from hpccoll.cases.case import Effort, Shape
from hpccoll.cases.communicator_settings import CommunicatorSettings
from hpccoll.cases.keys import SIZE_RANGE, SWEEP
from hpccoll.cases.product import CaseRequest
from hpccoll.cases.transport_table import check_timings
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_LIST_ENTRIES, RANKS, Key
from hpccoll.common.options import check_one_given
from hpccoll.common.units import format_size, parse_size
from hpccoll.common.yaml_model import Bounded, OneOrMore, YamlSection, field, load_yaml
from hpccoll.sweep import sweep_values as values
from hpccoll.sweep.sweep_values import DiagnoseSection, EffortSection, Variants
from hpccoll.sweep.workload_section import WorkloadRequests, requests_by_workload, section_type

Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]


def _bounded(key: Key) -> Bounded:
    assert key.bound  # noqa: S101  the table of keys is wrong otherwise
    return Bounded(key.bound)


Rank = Annotated[int, _bounded(SWEEP["roots"])]


def _check_pairs(value: object) -> object:
    if value in PAIR_SETS or (isinstance(value, list) and all(map(_is_pair, value))):
        return value
    raise ValueError(
        f"{', '.join(PAIR_SETS)}, or a list of pairs of different ranks, such as [[0, 1], [0, 2]]"
    )


def _is_pair(value: object) -> bool:
    """Return whether a value is a list of two different ranks."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return value[0] != value[1] and all(type(rank) is int and rank >= 0 for rank in value)


PAIR_SETS = ("ends", "all")
"""Named sets of rank pairs: the first and the last rank, or all pairs."""

Pairs = Annotated[Literal["ends", "all"] | list[tuple[Rank, Rank]], BeforeValidator(_check_pairs)]


def _load_table(value: object) -> object:
    """Read the table file, whose content becomes part of the plan."""
    if value is None:
        return None
    return load_table(Path(str(value)), "table")


A_RANK_FOR_EACH_GPU, USUAL_GPUS = "gpus", 8
"""The value of ranks_per_node that means the GPUs of a node, and their number if the site file does not say it."""


RanksOfNode = Annotated[
    Annotated[int, _bounded(SWEEP["ranks_per_node"]), Tag("[number]")]
    | Annotated[Literal["gpus"], Tag("[gpus]")],
    Discriminator(lambda value: "[gpus]" if value == A_RANK_FOR_EACH_GPU else "[number]"),
]


class SizeRange(YamlSection):
    """A geometric range of sizes."""

    first: Size = Field(alias="from", gt=0, description=SIZE_RANGE["from"].help)
    last: Size = field(SIZE_RANGE["to"], alias="to")
    factor: Annotated[int, _bounded(SIZE_RANGE["factor"])] = field(SIZE_RANGE["factor"])

    @model_validator(mode="after")
    def _is_ascending(self) -> "SizeRange":
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


_Workload: Any = section_type()
"""A section of any workload."""


class Sweep(YamlSection):
    """A sweep: every combination of the entries of its lists is a case."""

    workloads: list[_Workload] = Field(
        [], max_length=MAX_LIST_ENTRIES, description=SWEEP["workloads"].help
    )
    collectives: OneOrMore[values.CollectiveName] = field(SWEEP["collectives"])
    algorithms: OneOrMore[values.AlgorithmName] = field(SWEEP["algorithms"])
    devices: OneOrMore[Literal["cpu", "cuda"]] = field(SWEEP["devices"])
    transports: OneOrMore[values.TransportName] = field(SWEEP["transports"])
    dtypes: OneOrMore[values.DtypeName] = field(SWEEP["dtypes"])
    ops: OneOrMore[values.OpName] = field(SWEEP["ops"])
    bytes: Sizes | None = field(SWEEP["bytes"])
    in_place: OneOrMore[bool] = field(SWEEP["in_place"])
    ranks: OneOrMore[Annotated[int, _bounded(SWEEP["ranks"])]] | None = field(SWEEP["ranks"])
    nodes: OneOrMore[Annotated[int, _bounded(SWEEP["nodes"])]] | None = field(SWEEP["nodes"])
    ranks_per_node: OneOrMore[RanksOfNode] = field(SWEEP["ranks_per_node"])
    scaling: Literal["nested", "separate"] = field(SWEEP["scaling"])
    mapping: OneOrMore[Literal["block", "cyclic"]] | None = field(SWEEP["mapping"])
    roots: OneOrMore[Rank] = field(SWEEP["roots"])
    pairs: Pairs = field(SWEEP["pairs"])
    concurrent: OneOrMore[Rank] = field(SWEEP["concurrent"])
    traffic: OneOrMore[values.TrafficName] = field(SWEEP["traffic"])
    aggregators: Annotated[int, _bounded(SWEEP["aggregators"])] = field(SWEEP["aggregators"])
    params: values.ParameterLists = Field({}, description=SWEEP["params"].help)
    table: Annotated[
        dict[str, Any] | None, BeforeValidator(_load_table, json_schema_input_type=str | None)
    ] = field(SWEEP["table"])
    variants: Variants = Field({}, description=SWEEP["variants"].help)
    timing: OneOrMore[Literal["single", "aggregated", "nccl-tests", "osu"]] = field(SWEEP["timing"])
    load: OneOrMore[Literal["idle", "gemm"]] = field(SWEEP["load"])
    executor: Literal["compiled", "python"] | None = field(SWEEP["executor"])
    diagnose: DiagnoseSection | None = Field(None, description=SWEEP["diagnose"].help)
    effort: EffortSection = Field(EffortSection(), description=SWEEP["effort"].help)
    rounds: Annotated[int, _bounded(SWEEP["rounds"])] = field(SWEEP["rounds"])
    seed: Annotated[int, _bounded(SWEEP["seed"])] = field(SWEEP["seed"])
    _workload_requests: dict[str, WorkloadRequests] = PrivateAttr()

    @model_validator(mode="wrap")
    @classmethod
    def _auto_has_table(cls, written: Any, read: ModelWrapValidatorHandler["Sweep"]) -> "Sweep":
        sweep = read(written)
        check_table_given(
            "table", None if sweep.table is None else str(written["table"]), sweep.algorithms
        )
        return sweep

    @model_validator(mode="after")
    def _has_sizes(self) -> "Sweep":
        """Leave out the default collective of a file of workloads; a collective has sizes."""
        if self.workloads and "collectives" not in self.model_fields_set:
            self.collectives = []
        if self.collectives and self.bytes is None:
            raise BadInputError(
                "bytes", None, "sizes, such as [8, 64K] or {from: 8, to: 4M, factor: 2}"
            )
        self.case_effort()  # checks that its values fit each other
        self._workload_requests = requests_by_workload(self.workloads)
        return self

    @model_validator(mode="after")
    def _has_timings(self) -> "Sweep":
        check_timings("timing", self.timing, self.transports)
        return self

    @model_validator(mode="after")
    def _has_ranks_or_nodes(self) -> "Sweep":
        choices = {"'ranks' (on one node)": self.ranks, "'nodes'": self.nodes}
        check_one_given("ranks", choices)
        if self.ranks is not None and "ranks_per_node" in self.model_fields_set:
            raise BadInputError(
                "ranks_per_node",
                self.ranks_per_node,
                "no such key with 'ranks'; it belongs to 'nodes'",
            )
        if self.diagnose and (self.nodes is None or max(self.nodes) == 1):
            raise BadInputError(
                "diagnose", None, "left out: pairs of nodes are diagnosed, and 'nodes' has no two"
            )
        if self.nodes and max(self.nodes) * max(self.ranks_of_nodes) > RANKS.maximum:
            raise BadInputError(
                "ranks_per_node", self.ranks_per_node, f"at most {RANKS.maximum} ranks in total"
            )
        return self

    @property
    def ranks_of_nodes(self) -> list[int]:
        """The numbers of ranks on each node, where a rank for each GPU means the usual number of GPUs."""
        return self._ranks_with(USUAL_GPUS)

    def _ranks_with(self, gpus: int) -> list[int]:
        """Return the numbers of ranks on each node that has ``gpus`` GPUs."""
        numbers = (ranks if isinstance(ranks, int) else gpus for ranks in self.ranks_per_node)
        return list(dict.fromkeys(numbers))

    def on_nodes_with(self, gpus: int | None) -> "Sweep":
        """Return the sweep for nodes with ``gpus`` GPUs, which count where it has a rank for each; None if unknown."""
        if gpus is None:
            return self
        return self.model_copy(update={"ranks_per_node": self._ranks_with(gpus)})

    def request(self) -> CaseRequest:
        """Return the lists whose combinations are the cases."""
        return CaseRequest(
            collectives=self.collectives,
            algorithms=self.algorithms,
            devices=self.devices,
            transports=self.transports,
            dtypes=self.dtypes,
            ops=self.ops,
            sizes=self.sizes(),
            in_place=self.in_place,
            mappings=self.mapping or (None,),
            timings=self.timing,
            loads=self.load,
            roots=self.roots,
            pairs=self.pairs,
            concurrent=self.concurrent,
            traffic=self.traffic,
            params=self.params,
            models=self._files(),
            workloads={name: section.requests for name, section in self._workload_requests.items()},
        )

    def _files(self) -> dict[str, Any]:
        """Return the contents of the files that the sections of workloads name, by name."""
        files: dict[str, Any] = {}
        for section in self._workload_requests.values():
            files |= section.files
        return files

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """The variables of each variant."""
        return {name: variant.environment for name, variant in self.variants.items() if variant}

    @property
    def communicators(self) -> Mapping[str, CommunicatorSettings]:
        """The settings of NCCL's communicators in each variant."""
        return {name: variant.communicator for name, variant in self.variants.items() if variant}

    def case_effort(self) -> Effort:
        return Effort(**self.effort.model_dump(), rounds=self.rounds)

    def sizes(self) -> list[int]:
        if isinstance(self.bytes, SizeRange):
            return self.bytes.sizes()
        return self.bytes or []

    def notes(self) -> Iterator[str]:
        """Yield a note if the largest size of a range is not measured, and one on GPUs that the site does not count."""
        if isinstance(self.bytes, SizeRange) and self.sizes()[-1] != self.bytes.last:
            last = format_size(self.sizes()[-1])
            to = format_size(self.bytes.last)
            yield f"the largest size is {last}: the factor {self.bytes.factor} does not reach {to}"

        if A_RANK_FOR_EACH_GPU in self.ranks_per_node:
            yield f"ranks_per_node: {USUAL_GPUS}, because the site file does not say how many GPUs a node has"

    def shapes(self) -> list[Shape]:
        """Return the shapes of the launches, the smallest first."""
        if self.nodes is None:
            return sorted(Shape(1, ranks, self.aggregators) for ranks in self.ranks or ())
        return sorted(
            Shape(nodes, nodes * ranks_per_node, self.aggregators, self.dedicated_aggregators)
            for nodes in self.nodes
            for ranks_per_node in self.ranks_of_nodes
        )

    @property
    def dedicated_aggregators(self) -> bool:
        """Whether each aggregator has its own host."""
        return self.nodes is not None and self.aggregators > 0

    @property
    def nested(self) -> bool:
        """Whether all shapes with the same number of ranks per node share an allocation."""
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
