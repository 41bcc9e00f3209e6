"""The ways: how bytes move, by name, between which memories. It starts no MPI and imports no CuPy: login nodes plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpccoll.errors import BadInputError, choices
from hpccoll.schedule import BFLOAT16, DTYPES, Layout, Requirement

DEVICES = ("cpu", "cuda")
"""Where buffers lie: in the memory of the host, or of a GPU."""


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """A transport, as it can be asked for.

    Args:
        devices: where the buffers may lie that it moves.
        native: on which of these devices a library's own collectives go this way, so that they are measured over it.
        needs: of the ranks.
        dtypes: of the elements that it can fold.
        shared_by: the variable that has to be 1 for several ranks to share a GPU; None where they may.
    """

    devices: tuple[str, ...]
    native: tuple[str, ...] = ()
    needs: tuple[Requirement, ...] = ()
    dtypes: tuple[str, ...] = DTYPES
    shared_by: str | None = None


SHARED_BY_NCCL = "NCCL_MULTI_RANK_GPU_ENABLE"
"""By which NCCL from 2.30 on lets several ranks have one GPU."""

TRANSPORTS: Mapping[str, TransportSpec] = {
    "mpi": TransportSpec(("cpu", "cuda"), native=("cpu", "cuda")),
    "shm": TransportSpec(
        ("cpu",), needs=(Requirement("all ranks on one node", lambda layout, _: len(set(layout.node)) == 1),)
    ),
    "tiered": TransportSpec(
        ("cpu",),
        needs=(Requirement("several nodes, and several ranks on one of them", lambda layout, _: _has_tiers(layout)),),
    ),
    "staged": TransportSpec(("cuda",), native=("cuda",)),
    "nccl": TransportSpec(("cuda",), native=("cuda",), dtypes=(*DTYPES, BFLOAT16), shared_by=SHARED_BY_NCCL),
}
"""How schedules move bytes: ``tiered`` is ``shm`` inside nodes and ``mpi`` between them; of the memory of GPUs, ``mpi``
hands it to an MPI that is CUDA-aware, and ``staged`` copies it to the host and then does the same there."""

NATIVE_TRANSPORT = "mpi"
"""Whose own collectives ``native`` are on the host, and what is said of whatever else is not told how to move bytes."""


def _has_tiers(layout: Layout) -> bool:
    return 1 < len(set(layout.node)) < layout.ranks


def transports_of_device(device: str, asked: Sequence[str] = tuple(TRANSPORTS)) -> tuple[str, ...]:
    """Return which of the transports ``asked`` move what lies in the memory of ``device``."""
    return tuple(name for name in asked if device in TRANSPORTS[name].devices)


def check_transport(transport: str, devices: Sequence[str]) -> None:
    """See that a transport moves what lies in the memory of one of ``devices``.

    Raises:
        BadInputError: where it does not, with those that do, and the device that has it.
    """
    move = tuple(name for name in TRANSPORTS if {*devices} & {*TRANSPORTS[name].devices})
    if transport not in move:
        elsewhere = TRANSPORTS[transport].devices if transport in TRANSPORTS else ()
        hint = f" (device {' or '.join(elsewhere)} has it)" if elsewhere else ""
        raise BadInputError("transport", transport, choices(transport, move, hint))


def transports_by_device(devices: Sequence[str], asked: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the transports ``asked`` by the devices whose memory each moves.

    Raises:
        BadInputError: for a word that is not known, a transport that is for none of the devices, or a device that has
            none of the transports.
    """
    for device in devices:
        if device not in DEVICES:
            raise BadInputError("device", device, DEVICES)
    for transport in asked:
        check_transport(transport, devices)
    found = {device: transports_of_device(device, asked) for device in devices}
    for device, those in found.items():
        if not those:
            raise BadInputError(
                "device", device, f"left out, or give it a transport: {', '.join(transports_of_device(device))}"
            )
    return found


def transports_of_native(native: bool, device: str, asked: Sequence[str]) -> Sequence[str]:
    """Return which of the transports ``asked``, all of ``device``, the library's own collectives go over.

    Args:
        native: whether it is they; else something that moves nothing of its own, for which one transport will do.
        device: where buffers lie.
        asked: for schedules; on the host those go over messages alone, asked for or not.
    """
    over = tuple(name for name in asked if device in TRANSPORTS[name].native) or (NATIVE_TRANSPORT,)
    return over if native else over[:1]


def unmet_by_transport(transport: str, dtype: str, layout: Layout, own: Mapping[str, int | str]) -> str | None:
    """Return why ``transport`` cannot carry elements of ``dtype`` between the ranks of ``layout``, or None."""
    way = TRANSPORTS[transport]
    if dtype not in way.dtypes:
        carry = " or ".join(name for name, other in TRANSPORTS.items() if dtype in other.dtypes)
        return f"{dtype} goes over {carry} alone, not over {transport}"
    lacks = [need.words for need in way.needs if not need.met(layout, own)]
    return f"{transport} needs {' and '.join(lacks)}" if lacks else None
