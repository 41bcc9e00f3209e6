"""Known defects that fit what the logs of one launch say."""

import re
from collections.abc import Iterator, Mapping

from hpccoll.cases.library_request import NCCL_FUNCTIONS
from hpccoll.evidence.defect_lines import CRASH
from hpccoll.evidence.defects import FittingDefect, RunFacts, Trouble, fitting_defects
from hpccoll.evidence.log_record import CollectiveTimeout, LogRecord

LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "ucc": "UCC"}
"""The components of the table by the libraries of records."""

FABRICS = {"cxi": "slingshot", "efa": "efa", "opx": "opx", "tcp": "tcp", "sockets": "tcp"}
"""The networks of the table by the providers of libfabric, as their names begin."""


def facts_of_log(record: LogRecord) -> RunFacts:
    """Return what the logs of a launch say of it."""
    versions = dict(record.components)
    library = LIBRARIES.get(record.library or "")
    if library and record.version:
        versions[library] = record.version
    per_node = None
    if record.ranks and record.nodes and record.ranks % record.nodes == 0:
        per_node = record.ranks // record.nodes
    return RunFacts(
        versions=versions,
        gpus=record.gpus,
        networks=set(networks_of_log(record)),
        nodes=record.nodes,
        ranks=record.ranks,
        ranks_per_node=per_node,
        variables=record.settings,
        algorithms={line.algorithm for line in record.collectives},
        protocols={line.protocol for line in record.collectives if line.protocol},
        differing={difference.fact for difference in record.host_differences},
        lines=record.defect_lines,
    )


def networks_of_log(record: LogRecord) -> Iterator[str]:
    """Yield the networks between nodes that a log names, in the words of the table."""
    provider = record.plugins.get("fabric", "")
    for begin, network in FABRICS.items():
        if provider.startswith(begin):
            yield network
    if record.network_type == "tcp":
        yield "tcp"
    elif "IB" in record.network:
        kinds = {device.rpartition("/")[2] for device in record.devices}
        if "IB" in kinds:
            yield "ib"
        if "RoCE" in kinds:
            yield "roce"


def troubles_of_log(record: LogRecord) -> Iterator[Trouble]:
    """Yield what went wrong in a launch, if its logs show it."""
    for failure in record.failures:
        collective = ""
        if failure.kind == "communicator":
            collective = "init"
        yield Trouble(kind="fails", collective=collective, text=failure.cause)
    if record.unfinished:
        yield Trouble(kind="hang", collective="init")
    for timeout in record.timeouts:
        yield Trouble(kind="hang", collective=_timed_out_collective(timeout))
    if CRASH in record.defect_lines:
        yield Trouble(kind="crash", text=record.defect_lines[CRASH])


def _timed_out_collective(timeout: CollectiveTimeout) -> str:
    """Return the collective of an operation that PyTorch names, such as ``_ALLGATHER_BASE``; empty if unknown."""
    name = re.sub("_BASE|_", "", timeout.operation).lower()
    return OPERATIONS.get(name, "")


OPERATIONS: Mapping[str, str] = {
    **NCCL_FUNCTIONS,
    "alltoall": "all_to_all",
    "send": "send_recv",
    "recv": "send_recv",
}
"""The collectives by the names of PyTorch's operations, without underscores and in lower case."""


def defects_of_log(record: LogRecord) -> list[FittingDefect]:
    """Return the known defects that fit what went wrong in a launch, the surest first."""
    return fitting_defects(facts_of_log(record), troubles_of_log(record))
