"""The keys of a machine file: its sections and their quantities, which are numbers with an interval, within bounds.

They are keys, meanings, defaults and bounds; ``machine_file`` turns them into what simulations
take, and ``contradictions`` says what they cannot all say at once.
"""

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import (
    CPUS,
    MAX_BYTES,
    MAX_LIST_ENTRIES,
    NAME,
    RANKS,
    RANKS_PER_NODE,
    IntegerRange,
)
from hpccoll.common.yaml_model import Bounded, OneOrMore, Text, YamlSection, as_list, reject_bool
from hpccoll.model.torus_links import MOST_DIMENSIONS, Torus
from hpccoll.schedule import DTYPE, collective

PORTS = IntegerRange(1, 64)
"""The ports of a rank."""

SCHEMA, VERSION = "hpccoll-machine", "1.0"

Bound: TypeAlias = Literal["value", "low_cost", "high_cost"]
"""The values of a machine: the likely ones, or the ends of all intervals at which messages are fastest or slowest."""

Name = Annotated[Text, Field(max_length=NAME.maximum)]
Number = Annotated[float, BeforeValidator(reject_bool)]


class Quantity(YamlSection):
    """A number; a file may have it alone in the place of the section."""

    model_config = ConfigDict(frozen=True)

    value: Number = Field(
        description="seconds, bytes or bytes a second, as the name of the quantity says"
    )
    low: Number | None = Field(
        default=None, description="lower end of the interval: of 95 % if fitted, else plausible"
    )
    high: Number | None = Field(default=None, description="upper end of the interval")
    source: Text | None = Field(default=None, description="where the number comes from")

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        return value if isinstance(value, dict | Quantity) else {"value": value}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema of the number alone or of the section."""
        return {"anyOf": [{"type": "number"}, handler.resolve_ref_schema(handler(schema))]}

    @model_serializer(mode="wrap")
    def _to_number(self, handler: SerializerFunctionWrapHandler) -> Any:
        return self.value if self == Quantity(value=self.value) else handler(self)

    def at(self, bound: Bound, *, is_rate: bool = False) -> float:
        """Return the number, or the end of its interval that costs least or most; of a rate, the high end is fast."""
        if bound == "value":
            return self.value
        is_low_end = (bound == "low_cost") != is_rate
        end = self.low if is_low_end else self.high
        return self.value if end is None else end

    def times(self, factor: float) -> "Quantity":
        """Return the number and its interval, multiplied."""
        ends = {"value": factor * self.value}
        if self.low is not None:
            ends["low"] = factor * self.low
        if self.high is not None:
            ends["high"] = factor * self.high
        return self.model_copy(update=ends)


def _within(least: float, most: float, unit: str) -> AfterValidator:
    """Return the validator of quantities within bounds, each in its own interval."""

    def check(quantity: Quantity) -> Quantity:
        value = quantity.value
        low, high = (value if end is None else end for end in (quantity.low, quantity.high))
        for number in (value, low, high):
            if not least <= number <= most:  # nor is NaN
                raise BadInputError("value", number, f"{unit}, {least:g} to {most:g}")
        if not low <= value <= high:
            raise BadInputError(
                "value", [low, value, high], "low, value and high in ascending order"
            )
        return quantity

    return AfterValidator(check)


Seconds = Annotated[Quantity, _within(0, 3600, "seconds")]
ShapeOfTorus = Annotated[Text, AfterValidator(lambda shape: Torus.parse(shape).text)]
_RATES = 1, 1e18
Rate = Annotated[Quantity, _within(*_RATES, "bytes a second")]
_of_rate = Field(ge=_RATES[0], le=_RATES[1], allow_inf_nan=False)
Bytes = Annotated[Quantity, _within(0, MAX_BYTES, "bytes")]
Ratio = Annotated[Quantity, _within(0.001, 1000, "a ratio")]
Factor = Annotated[Quantity, _within(0, 1000, "a factor")]


class _Scalable(YamlSection):
    """A part of the network, with a rate."""

    bytes_per_s: Any

    def scaled(self, factor: float) -> Self:
        """Return the part with ``factor`` times the rate."""
        rate = self.bytes_per_s
        return self.model_copy(update={"bytes_per_s": rate and rate.times(factor)})


class LayoutSection(YamlSection):
    """Where ranks are; there are as many nodes and racks as needed."""

    ranks_per_node: Annotated[int, Bounded(RANKS_PER_NODE)] = Field(
        description="the ranks, or GPUs, of a node"
    )
    rails: Annotated[int, Bounded(RANKS_PER_NODE)] = Field(
        1,
        description="the ports of a node, each for as many of its ranks and on a network of its own; 1 if all ranks "
        "share one port",
    )
    nodes_per_rack: Annotated[int, Bounded(RANKS)] | None = Field(
        None, description="the nodes of a rack, which share an uplink [all nodes are in one]"
    )


class MessageCostsSection(_Scalable):
    """The costs of messages between two ranks from one size on."""

    model_config = ConfigDict(frozen=True)

    from_bytes: Annotated[int, Bounded(IntegerRange(0, MAX_BYTES))] = Field(
        0, description="the smallest message"
    )
    latency_s: Seconds = Field(
        description="L: the time in transit, during which other messages can be sent"
    )
    overhead_s: Seconds = Field(
        Quantity(value=0),
        description="o: the CPU time of a message, on the sender and again on the receiver",
    )
    gap_s: Seconds = Field(
        Quantity(value=0), description="g: the time between the starts of a sender's messages"
    )
    bytes_per_s: Rate = Field(
        description="1/G: the rate between two ranks while no others use the network"
    )
    synchronous: bool = Field(
        False, description="whether messages wait for their receiver (rendezvous)"
    )


def _check_starts(costs: list[MessageCostsSection]) -> list[MessageCostsSection]:
    starts = [section.from_bytes for section in costs]
    if starts[0] != 0 or starts != sorted(set(starts)):
        raise BadInputError("from_bytes", starts, "0 first, and then larger and larger sizes")
    return costs


TierCosts = Annotated[
    list[MessageCostsSection],
    BeforeValidator(as_list),
    Field(min_length=1, max_length=MAX_LIST_ENTRIES),
    AfterValidator(_check_starts),
]


class RateSection(_Scalable):
    """A resource with a rate."""

    bytes_per_s: Rate = Field(description="the rate, shared by all that use it at once")


class PortSection(RateSection):
    """The port of a node on each of its rails."""

    bytes_per_s: Rate = Field(
        description="the rate of one port, each way, which the ranks of its rail share"
    )
    burst_bytes: Bytes = Field(
        Quantity(value=0), description="the bytes that pass at once after a pause"
    )


class UplinkSection(_Scalable):
    """The way from a rack to the others, on each of its rails."""

    bytes_per_s: Rate | None = Field(
        None, description="the rate of each direction of each rail of a rack"
    )
    oversubscription: Ratio | None = Field(
        None,
        description="instead of the rate: the total rate of the rack's ports on a rail, over that of the uplink",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.bytes_per_s is None) == (self.oversubscription is None):
            raise BadInputError(
                "uplink",
                "both" if self.bytes_per_s else "neither",
                "bytes_per_s or oversubscription",
            )
        return self


class OwnMemorySection(YamlSection):
    """The buffers that an implementation of a collective has of its own."""

    copied_bytes_per_s: Rate | None = Field(
        None, description="the rate of copies on a rank [no limit]"
    )
    new_bytes_per_s: Rate | None = Field(
        None,
        description="the rate at which a rank first writes new memory, whose pages the kernel clears [no limit]",
    )
    new_bytes_per_s_of_node: Rate | None = Field(
        None,
        description="the rate at which the other ranks of a node, which do so at the same time, hinder it [not at all]",
    )
    kept_bytes: Annotated[int, Bounded(IntegerRange(0, MAX_BYTES))] = Field(
        0,
        description="the largest buffer that the C library keeps between calls, and that is not new",
    )


class CriticalPathSection(YamlSection):
    """The costs of messages on a critical path besides those of their tiers.

    With this section, the time of an operation is the sum of what is on its path, to which the
    machine was fitted; without it, operations are simulated.
    """

    following_s: Seconds = Field(
        description="a message that its rank sends or receives after another one of the same step"
    )
    further_port_s: Seconds | None = Field(
        None,
        description="each further port over which a rank sends its part of the vector [unknown]",
    )
    ports_bytes_per_s: Rate | None = Field(
        None, description="the rate of all ports of a rank together [no limit]"
    )
    segment_s: Seconds | None = Field(
        None, description="each segment of a message that is folded by itself [nothing]"
    )
    address_s: Seconds | None = Field(
        None,
        description="each message in which a rank tells first where its buffers are [as others]",
    )


class TorusSection(YamlSection):
    """The links of a torus of nodes."""

    dimensions: Annotated[int, Bounded(IntegerRange(1, MOST_DIMENSIONS))] = Field(
        description="the dimensions of a job whose shape is unknown, which are as equal as possible"
    )
    hop_s: Seconds = Field(description="the latency of each link that a message passes")
    link_bytes_per_s: Rate = Field(
        description="the rate of each direction of a link, which messages share"
    )


class LargerJobsSection(YamlSection):
    """What differs in jobs from a number of nodes on, as where a library or a batch system treats them differently."""

    from_nodes: Annotated[int, Bounded(RANKS)] = Field(
        description="the nodes of the smallest such job"
    )
    tiers: dict[Literal["node", "rack", "fabric"], TierCosts] = Field(
        {}, description="the costs of messages, of the tiers that differ"
    )
    port: RateSection | None = Field(
        None, description="the port of a node on each rail [as in others]"
    )
    start_skew_s: Seconds | None = Field(
        None,
        description="how far apart ranks start, for each doubling of their number [as in others]",
    )


class CpusSection(YamlSection):
    """The CPUs that several ranks share."""

    cores: Annotated[int, Bounded(CPUS)] = Field(description="the number of CPUs")
    bytes_per_s: Rate | None = Field(
        None,
        description="the rate at which one CPU moves bytes of messages, for both ends together [no limit]",
    )
    of: Literal["node", "machine"] = Field(
        "node", description="which ranks share them: node (those of a node) or machine (all ranks)"
    )
    contention: Factor = Field(
        Quantity(value=1),
        description="delay of a rank's work by each other rank on its CPU, relative to the time of the work alone: 1 "
        "if ranks take turns, more if waiting ranks poll, 0 if they sleep",
    )


class AggregatorKind(YamlSection):
    """What the aggregators of an algorithm are."""

    kind: Literal["ranks", "unmetered", "switches"] = Field(
        default="ranks",
        description="ranks; unmetered: ranks whose ports have no limit; switches: a port for every neighbour, and "
        "reductions that cost nothing",
    )
    source: Text | None = Field(
        default=None, description="where this comes from, or that it is assumed"
    )


class NcclSection(YamlSection):
    """What NCCL's own model takes for jobs of two nodes and more.

    Channels and rates are what NCCL's search finds (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH:
    nChannels and bw).
    """

    architecture: Literal["ampere", "hopper", "blackwell"] = Field(
        description="architecture of the GPUs: ampere, hopper or blackwell"
    )
    cpu: Literal["intel", "amd", "other"] = Field(
        "intel", description="vendor of the CPUs: intel, amd or other"
    )
    channels: Annotated[int, Bounded(IntegerRange(1, 32))] = Field(
        description="the channels of rings and trees"
    )
    intra_bytes_per_s: Rate = Field(
        description="the rate of a channel inside a node, used on two nodes"
    )
    inter_bytes_per_s: Rate = Field(
        description="the rate of a channel between nodes, used on more nodes"
    )
    balanced_trees: bool = Field(
        True, description="whether trees are balanced in a node (pattern 1; otherwise 3)"
    )

    def with_network(self, factor: float, inside: float) -> Self:
        """Return the parameters with a network ``factor`` times as fast, and ``inside`` bytes a second in a node."""
        rates = {}
        for name in ("intra_bytes_per_s", "inter_bytes_per_s"):
            rate = getattr(self, name)
            most = max(1.0, inside / self.channels / rate.value)
            rates[name] = rate.times(min(factor, most))
        return self.model_copy(update=rates)


class ClassSection(YamlSection):
    """Which published figures are of machines like this one, and the rates of the wires.

    Figures inside one fabric belong to the fabric, whatever the network is; all others to both. The
    words are those of the table ``published.csv``; a machine with words of its own has figures in
    the section ``published`` only.
    """

    model_config = ConfigDict(frozen=True)

    fabric: Name = Field(
        description="the fabric between the GPUs of a node, such as nvlink4 or mi300x"
    )
    network: Name | None = Field(
        None,
        description="the network, by Gbit/s for each GPU and its kind, such as 400g (RDMA) or 400g-efa [unknown]",
    )
    gpus: list[Name] = Field(
        [], description="the GPUs whose figures count, as their names begin, such as H100 [any]"
    )
    operator: Name | None = Field(
        None,
        description="whose machines they are; of any other operator all sources count as one [anybody's]",
    )
    library: Literal["nccl", "rccl"] = Field(
        "nccl", description="whose figures they are: nccl or rccl"
    )
    fabric_nodes: Annotated[int, Bounded(RANKS)] = Field(
        1, description="the nodes that one fabric connects"
    )
    fabric_bytes_per_s: Rate | None = Field(
        None, description="the rate of a GPU into the fabric, each way [unknown]"
    )
    network_bytes_per_s: Rate | None = Field(
        None,
        description="the share of each GPU in the ports of its node, each way: the rates of all ports, divided by the "
        "GPUs [as port and layout say, in a file without tiers; else unknown]",
    )
    default_algorithms: dict[Annotated[int, Bounded(RANKS)], Name] = Field(
        {},
        description="by nodes, the algorithm of large all-reduces that NCCL takes without a setting [unknown]",
    )
    source: Text | None = Field(None, description="where this comes from, or that it is assumed")


class PublishedSection(YamlSection):
    """What was published of a collective of NCCL on machines like this one, all of whose GPUs on each node took part.

    Bus bandwidth is that of nccl-tests, of healthy machines; it says what NCCL reaches where the
    model has no formula.
    """

    model_config = ConfigDict(frozen=True)

    collective: Annotated[Name, AfterValidator(lambda name: collective(name).name)] = Field(
        description="the collective"
    )
    nodes: Annotated[int, Bounded(RANKS)] = Field(description="the nodes")
    nbytes: Annotated[int, Bounded(IntegerRange(1, MAX_BYTES))] = Field(
        alias="bytes", description="the size S, as nccl-tests counts it"
    )
    algorithm: Name = Field(
        description="the algorithm, such as NVLS, NVLSTree or ring; default if it was not printed"
    )
    low_bytes_per_s: Annotated[Number, _of_rate] = Field(description="the lowest bus bandwidth")
    high_bytes_per_s: Annotated[Number, _of_rate] = Field(description="the highest bus bandwidth")
    source: OneOrMore[Text] = Field(
        description="where it was published: as many as are independent of each other"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low_bytes_per_s > self.high_bytes_per_s:
            ends = [self.low_bytes_per_s, self.high_bytes_per_s]
            raise BadInputError("low_bytes_per_s", ends, "low and high in ascending order")
        return self


class MeasuredSection(YamlSection):
    """The measurements of a fitted machine; a prediction says how far it is from them."""

    kind: Text = Field(
        description="what the measurements are: measured, measured on a testbed, ..."
    )
    machine: Text = Field(description="the machine")
    transport: Text = Field(description="the transport")
    executor: Text = Field(description="the executor")
    nodes: OneOrMore[Annotated[int, Bounded(RANKS)]] = Field(description="the numbers of nodes")
    ranks_per_node: OneOrMore[Annotated[int, Bounded(RANKS_PER_NODE)]] = Field(
        description="the ranks on each node"
    )
    smallest_bytes: Annotated[int, Bounded(IntegerRange(0, MAX_BYTES))] = Field(
        description="the smallest size"
    )
    largest_bytes: Annotated[int, Bounded(IntegerRange(0, MAX_BYTES))] = Field(
        description="the largest size"
    )
    tori: list[ShapeOfTorus] = Field(
        [], description="the nodes along each dimension of each torus, such as 4x4x4 [no torus]"
    )
    ports: OneOrMore[Annotated[int, Bounded(PORTS)]] = Field(
        [1], description="the ports of each rank that send parts of the vector at once"
    )
    nodes_per_rack: Annotated[int, Bounded(RANKS)] | None = Field(
        None, description="the most nodes of a job in a rack, if jobs had several [unknown]"
    )
    files: OneOrMore[Text] = Field(description="the raw files")
    undetermined: list[Text] = Field(
        [], description="the quantities that these measurements do not determine"
    )


class DeclaredSections(YamlSection):
    """Sections of a machine file that a person adds to a fit, because patterns on few nodes do not show them."""

    geometry: LayoutSection | None = Field(None, alias="layout", description="where ranks are")
    uplink: UplinkSection | None = Field(None, description="the link from a rack to the others")
    memory: RateSection | None = Field(None, description="all messages inside a node together")
    cpus: CpusSection | None = Field(None, description="CPUs that ranks share")
    aggregators: AggregatorKind | None = Field(None, description="what aggregators are")


class MachineFields(YamlSection):
    """The keys of a machine file, fitted or described."""

    schema_name: Text = Field(alias="schema", description=SCHEMA)
    schema_version: Text = Field(description=f"version of this format: {VERSION}")
    name: Text = Field(description="the name of the machine")
    kind: Literal["fitted", "described"] = Field(
        description="fitted (to measurements) or described (by a person)"
    )
    source: Text | None = Field(None, description="where the numbers come from")
    like: Text | None = Field(
        None,
        description="another machine, a name or a file, that this one is like: it has what this file does not "
        "say, key by key; null removes a section of it",
    )
    geometry: LayoutSection | None = Field(
        None, alias="layout", description="where ranks are [one rack, one rail]"
    )
    machine_class: ClassSection | None = Field(
        None,
        alias="class",
        description="which published figures are of machines like this one [none]",
    )
    tiers: dict[Literal["node", "rack", "fabric"], TierCosts] = Field(
        {},
        description="messages inside a node, between nodes of a rack, and between racks (fabric): costs by size "
        "[unknown: nothing is simulated]",
    )
    port: PortSection | None = Field(None, description="the port of a node on each rail [no limit]")
    uplink: UplinkSection | None = Field(
        None, description="the link from a rack to the others [no limit]"
    )
    memory: RateSection | None = Field(
        None, description="all messages inside a node together [no limit]"
    )
    reduction: dict[
        Annotated[str, AfterValidator(lambda name: DTYPE.read("dtype", name))], RateSection
    ] = Field(
        {}, description="by dtype: the reduction on one rank, bytes of one operand [at no cost]"
    )
    start_skew_s: Seconds | None = Field(
        None,
        description="how far apart ranks start, for each doubling of their number: an operation after a barrier takes "
        "as much longer [together]",
    )
    own_memory: OwnMemorySection | None = Field(
        None, description="buffers of the implementation of a collective [at no cost]"
    )
    critical_path: CriticalPathSection | None = Field(
        None,
        description="costs of messages on critical paths, whose sums are then the times [times are simulated]",
    )
    torus: TorusSection | None = Field(
        None, description="the links of a torus of nodes [no limit, and no latency]"
    )
    larger_jobs: LargerJobsSection | None = Field(
        None, description="what differs in jobs of many nodes [nothing]"
    )
    codecs: dict[Name, dict[Name, RateSection]] = Field(
        {},
        description="by compression (fp16, topk+feedback): each codec on one rank, bytes of a pass [a table's]",
    )
    cpus: CpusSection | None = Field(
        None, description="CPUs that ranks share [each rank has its own]"
    )
    aggregators: AggregatorKind = Field(
        AggregatorKind(), description="what aggregators are [ranks]"
    )
    nccl: NcclSection | None = Field(
        None, description="parameters of NCCL's own model [it is left out]"
    )
    published: Annotated[list[PublishedSection], Field(max_length=MAX_LIST_ENTRIES)] = Field(
        [], description="what was published of NCCL on machines like this one"
    )
    measured: MeasuredSection | None = Field(
        None, description="the measurements of a fitted machine"
    )
    validation: dict[Name, Annotated[Number, Field(allow_inf_nan=False)]] = Field(
        {}, description="errors of the model on held-out measurements, by name"
    )
