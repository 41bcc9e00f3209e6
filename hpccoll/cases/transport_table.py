"""The table of transports: what each can carry, and which class implements it.

This module imports neither MPI nor CuPy, so that login nodes can plan.
``measure/run/prepared_case.py`` imports the classes when it creates a transport.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hpccoll.cases.case import AGGREGATED, NCCL_TESTS, OSU, SINGLE, TIMINGS
from hpccoll.common.errors import BadInputError, format_choices
from hpccoll.schedule import BFLOAT16, DTYPES, Layout, Requirement

ChannelRule: TypeAlias = Literal["messages", "groups", "blocks"]
"""What carries a channel: messages of MPI, which run beside those of other channels; messages in the groups of
NCCL's calls; or a block of a kernel."""

DEVICES = ("cpu", "cuda")
"""The memory that holds the buffers: the host's, or a GPU's."""


ALL_DTYPES = (*DTYPES, BFLOAT16)
"""All element types. MPI has no datatype for bfloat16, which schedules fold themselves and send as bytes."""


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """A row of the table: one transport."""

    # for each device whose buffers this transport moves, the class that runs schedules, as
    # ``module:Class``
    schedules: Mapping[str, str]
    # likewise, the class that calls the library's own collectives, for each device on which they
    # are measured over this transport
    native: Mapping[str, str] = field(default_factory=dict)
    # the requirements on the machine besides MPI, by their names in ``requirements.REQUIREMENTS``
    hardware: tuple[str, ...] = ()
    needs: tuple[Requirement, ...] = ()  # the requirements on the layout of the ranks
    # the element types of schedules, for each device
    dtypes: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"cpu": ALL_DTYPES, "cuda": DTYPES}
    )
    native_dtypes: tuple[str, ...] = DTYPES  # the element types of the library's own collectives
    # the timings of TIMINGS that its operations can have, SINGLE first
    timings: tuple[str, ...] = (SINGLE,)
    # how its schedules are cut into channels by default, see ``planned_schedule.default_channels``
    channels: ChannelRule = "messages"
    # whether its operations are queued on a stream of the GPU, and may be replayed as a CUDA graph
    graphs: bool = False
    # the ways in which its messages may move, if a case has a choice
    protocols: tuple[str, ...] = ()
    # the environment variable that must be 1 for several ranks to share a GPU; None if they always
    # may
    gpu_sharing_variable: str | None = None

    def dtypes_on(self, device: str, *, native: bool) -> tuple[str, ...]:
        """Return the element types on a device, of schedules or of the library's own collectives (``native``)."""
        if native:
            return self.native_dtypes
        return self.dtypes[device]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices whose buffers this transport moves."""
        return tuple(self.schedules)


NCCL_GPU_SHARING_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"
"""The variable that lets several ranks share a GPU in NCCL 2.30 and later."""

REFUSAL_PREFIX = "NCCL refuses it"
"""The beginning of the reason of a case that NCCL refuses."""

SHARED_GPU_CHOICES = (
    f"NCCL 2.30 or newer with {NCCL_GPU_SHARING_VARIABLE}=1",
    "NCCL_HOSTID=<different for each rank>",
    "transport staged or mpi",
)
"""How ranks can share a GPU, or be on slices of one: as NCCL allows it (initTransportsRank in
src/init.cc of 2.30.7), as ranks of different hosts, or without NCCL."""

ON_ONE_NODE = Requirement("all ranks on one node", lambda layout, _: len(set(layout.node)) == 1)

_MPI, _NCCL = "hpccoll.transports.mpi", "hpccoll.transports.nccl"

TRANSPORTS: Mapping[str, TransportSpec] = {
    "mpi": TransportSpec(
        schedules={
            "cpu": f"{_MPI}.transport:MpiTransport",
            "cuda": f"{_MPI}.gpu_memory:GpuMpiTransport",
        },
        native={
            "cpu": f"{_MPI}.vendor:MpiVendorTransport",
            "cuda": f"{_MPI}.gpu_memory:GpuVendorTransport",
        },
        timings=(SINGLE, OSU),
    ),
    "shm": TransportSpec(
        schedules={"cpu": f"{_MPI}.transport:TieredTransport"},
        needs=(ON_ONE_NODE,),
    ),
    "tiered": TransportSpec(
        schedules={"cpu": f"{_MPI}.transport:TieredTransport"},
        needs=(
            Requirement(
                "several nodes, and several ranks on one of them",
                lambda layout, _: _has_tiers(layout),
            ),
        ),
    ),
    "staged": TransportSpec(
        schedules={"cuda": f"{_MPI}.gpu_memory:StagedMpiTransport"},
        native={"cuda": f"{_MPI}.gpu_memory:StagedVendorTransport"},
        hardware=("cuda",),
    ),
    "nccl": TransportSpec(
        schedules={"cuda": f"{_NCCL}.transport:NcclTransport"},
        native={"cuda": f"{_NCCL}.vendor:NcclVendorTransport"},
        hardware=("cuda", "nccl"),
        dtypes={"cuda": ALL_DTYPES},
        native_dtypes=ALL_DTYPES,
        timings=(SINGLE, AGGREGATED, NCCL_TESTS),
        channels="groups",
        graphs=True,
        gpu_sharing_variable=NCCL_GPU_SHARING_VARIABLE,
    ),
    "peer": TransportSpec(
        schedules={"cuda": "hpccoll.transports.peer.transport:PeerTransport"},
        hardware=("cuda",),
        needs=(ON_ONE_NODE,),
        dtypes={"cuda": ALL_DTYPES},
        timings=(SINGLE, AGGREGATED),
        channels="blocks",
        graphs=True,
        protocols=("ll", "simple"),
    ),
}
"""The transports by name. ``tiered`` uses shared memory inside nodes and messages between them;
``shm`` is the same on one node. Buffers on GPUs: ``mpi`` passes them to a CUDA-aware MPI,
``staged`` copies them to the host for MPI, ``nccl`` passes them to NCCL, and ``peer`` maps them
into all ranks of a node, for one kernel that executes the whole schedule."""

NATIVE_TRANSPORT = "mpi"
"""The transport of the library's own collectives on the host."""


def _has_tiers(layout: Layout) -> bool:
    return 1 < len(set(layout.node)) < layout.ranks


def transports_of_device(
    device: str, requested: Sequence[str] = tuple(TRANSPORTS)
) -> tuple[str, ...]:
    """Return those of the transports ``requested`` that move buffers on ``device``."""
    return tuple(name for name in requested if device in TRANSPORTS[name].devices)


def check_transport(transport: str, devices: Sequence[str]) -> None:
    """Check that a transport moves buffers on at least one of ``devices``.

    Raises:
        BadInputError: if it moves none of them; names the transports that do, and the devices of
            this one.
    """
    valid = tuple(
        name for name, spec in TRANSPORTS.items() if not set(devices).isdisjoint(spec.devices)
    )
    if transport not in valid:
        hint = ""
        if transport in TRANSPORTS and TRANSPORTS[transport].devices:
            hint = f" ({transport} needs device {' or '.join(TRANSPORTS[transport].devices)})"
        expected = format_choices(transport, valid, hint)
        raise BadInputError("transport", transport, expected)


def check_timings(key: str, timings: Sequence[str], transports: Sequence[str]) -> None:
    """Check that at least one of ``transports`` can be timed in each of ``timings``.

    Raises:
        BadInputError: if a timing does not exist, or none of the transports has it.
    """
    for timing in timings:
        if timing not in TIMINGS:
            raise BadInputError(key, timing, TIMINGS)
        if not any(timing in TRANSPORTS[name].timings for name in transports):
            raise BadInputError(key, timing, VALID_TIMINGS)


def _valid_timings() -> str:
    words = [SINGLE]
    for name, spec in TRANSPORTS.items():
        further = spec.timings[1:]
        if further:
            words.append(f"over {name} also {', '.join(further)}")
    return "; ".join(words)


VALID_TIMINGS = _valid_timings()
"""The timings of each transport, in words."""


def transports_by_device(
    devices: Sequence[str], requested: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return, for each device, those of the transports ``requested`` that move its buffers.

    Raises:
        BadInputError: if a name is unknown, if a transport moves the buffers of none of the
            devices, or if none of the transports moves the buffers of a device.
    """
    for device in devices:
        if device not in DEVICES:
            raise BadInputError("device", device, DEVICES)
    for transport in requested:
        check_transport(transport, devices)
    by_device = {device: transports_of_device(device, requested) for device in devices}
    for device, transports in by_device.items():
        if not transports:
            raise BadInputError(
                "device",
                device,
                f"left out, or give it a transport: {', '.join(transports_of_device(device))}",
            )
    return by_device


def transports_of_native(native: bool, device: str, requested: Sequence[str]) -> Sequence[str]:
    """Return those of the transports ``requested`` over which an algorithm is measured that has no schedule.

    The library's own collectives (``native``) always use ``mpi`` on the host. For a floor or
    ``auto``, whose result does not depend on the transport, one transport is enough.
    """
    over = tuple(name for name in requested if device in TRANSPORTS[name].native)
    if not over:
        return (NATIVE_TRANSPORT,)
    return over if native else over[:1]


def unmet_by_transport(
    transport: str,
    device: str,
    dtypes: Sequence[str],
    timing: str,
    layout: Layout,
    parameters: Mapping[str, int | str] | None,
) -> str | None:
    """Return the reason why ``transport`` cannot run a case that moves elements of ``dtypes``, None if it can.

    The library's own collectives have None as ``parameters``.
    """
    spec = TRANSPORTS[transport]
    native = parameters is None
    lacking = set(dtypes).difference(spec.dtypes_on(device, native=native))
    if lacking:
        fitting = []
        for name in transports_of_device(device):
            dtypes_of_other = TRANSPORTS[name].dtypes_on(device, native=native)
            if lacking.issubset(dtypes_of_other):
                fitting.append(name)
        remedy = f"; use {' or '.join(fitting)}" if fitting else ""
        over = f"transport {transport} has"
        if native:
            over = f"the library's own collectives over {transport} have"
        return f"{over} no dtype {' or '.join(sorted(lacking))} on device {device}{remedy}"
    if timing not in spec.timings:
        return str(BadInputError("timing", timing, VALID_TIMINGS))
    unmet = [need.text for need in spec.needs if not need.met(layout, parameters or {})]
    if not unmet:
        return None
    return f"{transport} needs {' and '.join(unmet)}"
