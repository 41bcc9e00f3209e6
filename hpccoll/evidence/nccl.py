"""NCCL's log: versions 2.24 to 2.32 with NCCL_DEBUG=INFO and the subsystems INIT, ENV, NET, GRAPH, TUNING, COLL.

Versions 2.20 to 2.23 log the algorithm as numbers in a line of their own format; older versions do
not log it. RCCL, AMD's version of NCCL, logs nearly the same lines: it names itself, and the
communicator of each channel.

Some lines look like evidence and are none: the count of ``collnet channels``, which NCCL prints
without CollNet too; ``via COLLNET/SHARP`` and ``Using ...:1/IB/SHARP``, which NCCL prints before it
asks SHARP for a group and which remain if SHARP refuses; names of kernels, which are those of ring
or tree for every algorithm.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.cases.library_request import NCCL_ALGORITHMS, NCCL_FUNCTIONS
from hpccoll.common.limits import RANKS
from hpccoll.common.units import format_size
from hpccoll.evidence.creation_times import CommunicatorRank
from hpccoll.evidence.host_differences import NETWORK, PORTS, VERSION
from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_parser import (
    COMMON_RULES,
    COMPONENT_RULES,
    HostMembers,
    LoggedCall,
    ParserState,
    Rule,
    line_rules,
    rule,
)
from hpccoll.evidence.log_record import CollectiveLine, ModelledCost, UnfinishedCommunicator

_COLLECTIVES = {
    **NCCL_FUNCTIONS,
    "alltoall": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
}

_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")

_DTYPES = {
    0: ("int8", 1), 1: ("uint8", 1), 2: ("int32", 4), 3: ("uint32", 4), 4: ("int64", 8), 5: ("uint64", 8),
    6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("bfloat16", 2), 10: ("float8e4m3", 1),
    11: ("float8e5m2", 1),
}  # fmt: skip
"""ncclDataType_t: the project's name, and the bytes of an element."""

_OPS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
"""ncclRedOp_t."""

_REMEMBERED_CALLS = 1 << 10
"""Programs make the same calls in each step: their arguments are taken apart once."""


def _add_version(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    state.version = match["version"]
    state.build = match["build"].rstrip()
    state.library = "rccl" if "+hip" in state.build else match["library"].lower()
    state.add("versions", match["version"])
    state.host_facts.add(message.host, VERSION, match["version"])


def _add_rccl(state: ParserState, _match: re.Match[str], _message: LogMessage) -> None:
    state.library = state.library or "rccl"


def _add_call(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    _add_logged_call(state, message.writer, match["comm"], _logged_call(match))


def add_call_of_form(state: ParserState, message: LogMessage) -> None:
    """Add a call from a line of the form ``call``: most of them differ from an earlier one in buffers and numbers."""
    function, _, numbered = message.text.partition(": opCount ")
    _, _, arguments = numbered.partition(" count ")
    communicator, call = _call_of_arguments(function, arguments)
    _add_logged_call(state, message.writer, communicator, call)


def _add_logged_call(
    state: ParserState, writer: str, communicator: str | None, call: LoggedCall | None
) -> None:
    if communicator and state.incomplete:
        state.incomplete.discard((writer, communicator))
    if call is not None:
        state.calls[writer].append(call)


@lru_cache(_REMEMBERED_CALLS)
def _call_of_arguments(function: str, arguments: str) -> tuple[str | None, LoggedCall | None]:
    """Return the communicator and the call of a line with these arguments, from the number of elements on."""
    pattern, _ = _CALL_RULE
    match = pattern.match(f"{function}: opCount 0 sendbuff 0 recvbuff 0 count {arguments}")
    if match is None:
        return None, None
    return match["comm"], _logged_call(match)


def _logged_call(match: re.Match[str]) -> LoggedCall | None:
    """Return the call of a line; None if it is of a collective or type of elements that we do not know."""
    collective = _COLLECTIVES.get(match["function"].lower())
    dtype = _DTYPES.get(int(match["dtype"]))
    if collective is None or dtype is None:
        return None
    name, size = dtype
    op = None
    if collective in _REDUCTIONS:
        op = _OPS.get(int(match["op"]), "custom")
    ranks = int(match["ranks"]) if match["ranks"] else None
    return LoggedCall(collective, int(match["count"]) * size, name, op, ranks)


def _add_collective(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add a collective; its dtype and op are those of the first pending call of this size in the same process."""
    kind = (match["kind"] or "").lower().replace(" ", "_")
    if not (kind or match["algorithm"]):  # part of the line is missing
        return
    function = match["function"].lower()
    collective = _COLLECTIVES.get(function, function)
    nbytes = int(match["bytes"])
    pending = state.calls[message.writer]
    call = next((call for call in pending if call[:2] == (collective, nbytes)), None)
    if call:
        pending.remove(call)
    line = CollectiveLine(
        collective=collective,
        bytes=nbytes,
        algorithm=kind or match["algorithm"].lower(),
        protocol=match["kernel"] or match["copy"] or match["protocol"].upper(),
        channels=_channels(match),
        dtype=call and call.dtype,
        op=call and call.op,
        line=message.text,
    )
    state.add("collectives", line)


def _channels(match: re.Match[str]) -> int | None:
    """Return the number of channels of a collective: the line has the number, or the first and the last channel."""
    if match["channels"]:
        return int(match["channels"])
    if match["high"]:
        return int(match["high"]) - int(match["low"]) + 1
    return None


NUMBERED_ALGORITHMS = (
    "tree",
    "ring",
    "collnet_direct",
    "collnet_chain",
    "nvls",
    "nvls_tree",
    "pat",
)
"""The algorithms by NCCL_ALGO_*, a number of src/include/nccl_common.h."""

_NUMBERED_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""The protocols by NCCL_PROTO_*."""

_COUNTS_ALL_RANKS = ("all_gather", "reduce_scatter")
"""Collectives for which the line of versions 2.20 to 2.23 counts the blocks of all ranks; the call counts one."""


def _add_numbered_collective(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add a collective from the line of versions 2.20 to 2.23, in which rank 0 logs its choice as numbers.

    ``8 Bytes -> Algo 1 proto 2 time 12.4``; only 2.23 begins with the function. For collectives
    with a block per rank the bytes are those of all ranks; for grouped calls, which NCCL tunes
    together, they are the sum. The line is therefore used only if exactly one call was logged since
    the previous such line, and its size matches. The number of channels is not logged. Source:
    topoGetAlgoInfo and ncclPrepareTasks in src/enqueue.cc. Versions 2.20 and 2.21 log no line if a
    tuner plugin has chosen; older versions log it only in builds for tracing.
    """
    calls = state.calls[message.writer]
    call = calls[0] if len(calls) == 1 else None
    algorithm = NUMBERED_ALGORITHMS[int(match["algorithm"])]
    protocol = _NUMBERED_PROTOCOLS[int(match["protocol"])]
    if not calls:
        state.add("choices", f"{format_size(int(match['bytes']))} by {algorithm} {protocol}")
    calls.clear()
    if call is None or call.ranks is None:
        return
    function = match["function"]
    if function and NCCL_FUNCTIONS.get(function.lower()) != call.collective:
        return
    blocks = call.ranks if call.collective in _COUNTS_ALL_RANKS else 1
    if call.bytes * blocks == int(match["bytes"]):
        line = CollectiveLine(
            collective=call.collective,
            bytes=call.bytes,
            algorithm=algorithm,
            protocol=protocol,
            dtype=call.dtype,
            op=call.op,
            line=message.text,
        )
        state.add("collectives", line)


_COMMUNICATOR_NAME = re.compile(
    r"commId (0x0*[1-9a-f][0-9a-f]*)|((?:splitCount|childCount) \d+ color -?\d+|color -?\d+)"
)
"""What names a communicator on all of its ranks: its id, or the words about a split, whose id is 0 or missing."""


def _add_member(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    fields = dict(re.findall(r"(commId|busId|nvmlDev) (\w+)", match["more"]))
    communicator = fields.get("commId", ""), int(match["ranks"])
    members = state.members.setdefault(communicator, defaultdict(set))
    gpu = fields.get("busId") or fields.get("nvmlDev", "")
    members[message.host].add((int(match["rank"]), gpu))
    _add_creation(state, match, message)


def _add_creation(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add that a rank begins a communicator, or that it has completed it, which a destroyed one was, too.

    NCCL logs the beginning from 2.18.3 on. A split has no id, but a number and a color, which are
    equal on its ranks.
    """
    place = message.writer, match["comm"]
    identified = _COMMUNICATOR_NAME.search(match["more"])
    name = identified[identified.lastindex or 0] if identified else "without an id"
    member = CommunicatorRank(name, int(match["ranks"]), int(match["rank"]))
    event = match["event"]
    if event == "Init START" and RANKS.accepts(member.size):
        state.begun[place] = member
        state.incomplete.add(place)
        state.creation_times.add_start(match["comm"], message)
    elif event != "Abort":
        state.incomplete.discard(place)
    if event == "Init" and RANKS.accepts(member.size):
        state.creation_times.add_end(match["comm"], member, message)


_PHASE = re.compile(r"(?P<name>[A-Za-z]\w{0,30}) (?P<seconds>-?\d{1,9}\.\d{1,9})(?:, |$)")


def _add_timings(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add the times in which a rank has created a communicator."""
    size = int(match["ranks"])
    if not RANKS.accepts(size):
        return
    phases = {phase["name"]: float(phase["seconds"]) for phase in _PHASE.finditer(match["phases"])}
    state.creation_times.add_timings(
        size, int(match["rank"]), float(match["total"]), phases, message
    )


def _add_unfinished(state: ParserState) -> None:
    """Add the communicators that ranks began and did not complete, if no failure explains it."""
    if any(failure.kind == "communicator" for failure in state.errors.failures()):
        return
    begun: dict[tuple[str, int], set[int]] = defaultdict(set)
    incomplete: dict[tuple[str, int], set[int]] = defaultdict(set)
    for place, start in state.begun.items():
        begun[start.name, start.size].add(start.rank)
        if place in state.incomplete:
            incomplete[start.name, start.size].add(start.rank)
    for (name, size), ranks in incomplete.items():
        unfinished = UnfinishedCommunicator(
            name=name,
            size=size,
            begun=tuple(sorted(begun[name, size])),
            incomplete=tuple(sorted(ranks)),
        )
        state.add("unfinished", unfinished)


def _add_size(state: ParserState) -> None:
    """Add the ranks and the nodes of the largest communicator.

    NCCL logs the number of nodes from 2.20 on; before, it follows from the hosts of the ranks, if
    the log has all of them. If other communicators may span more than the one node of the largest,
    the number of nodes is unknown.
    """
    logged: list[tuple[int, int | None]] = list(state.communicators)
    counted = []
    for (_, ranks), hosts in state.members.items():
        counted.append((ranks, _count_nodes(ranks, hosts, state.paths)))
    largest = max((ranks for ranks, _ in (*logged, *counted)), default=0)
    is_logged = any(ranks == largest for ranks, _ in logged)
    sizes = logged if is_logged else [*logged, *counted]
    if not sizes:
        return
    state.ranks = max(largest, state.ranks or 0)
    nodes_of_largest = {nodes for ranks, nodes in sizes if ranks == largest}
    state.nodes = None
    if len(nodes_of_largest) == 1:
        state.nodes = nodes_of_largest.pop()
    if state.nodes == 1 and any(nodes != 1 for _, nodes in sizes):
        state.nodes = None


def _count_nodes(ranks: int, hosts: HostMembers, paths: Iterable[str]) -> int | None:
    """Return the number of nodes of a communicator of ``ranks``; None if the log does not show it.

    Without ids of communicators (before 2.16) ``hosts`` has the members of all communicators of
    this size. ``paths`` are those of the channels of all communicators.
    """
    if None in hosts:
        return None
    ranks_of_hosts = []
    for members in hosts.values():
        ranks_here = {rank for rank, _ in members}
        gpus_here = {gpu for _, gpu in members}
        if "" not in gpus_here and len(gpus_here) < len(ranks_here):
            # several nodes have one name, because ranks seem to share a GPU, which NCCL refuses
            return None
        ranks_of_hosts.append(ranks_here)
    if all(len(ranks_here) == ranks for ranks_here in ranks_of_hosts):
        uses_network = any(path.startswith(("NET/", "COLLNET/")) for path in paths)
        return None if uses_network else 1
    all_ranks: set[int] = set().union(*ranks_of_hosts)
    if sum(map(len, ranks_of_hosts)) == len(all_ranks) == ranks:
        return len(hosts)
    return None


def _add_devices(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    for word in re.findall(r"\[\d+\](\S+)", match["list"]):
        device = word.rstrip(";")
        state.add("devices", device)
        state.host_facts.add(message.host, PORTS, device)


def _add_network(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    state.add("network", match["name"])
    state.host_facts.add(message.host, NETWORK, match["name"])


def _add_variable(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    state.settings[match["name"]] = match["value"]
    state.host_facts.add(message.host, match["name"], match["value"])


def _add_path(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    """Count a channel by its path without device numbers: NET/IB/2(3)/GDRDMA counts as NET/IB/GDRDMA/PXN."""
    state.paths[_without_devices(match["path"])] += 1


@lru_cache(1 << 10)
def _without_devices(path: str) -> str:
    first, *rest = path.replace("direct shared memory", "SHM").split("/")  # up to 2.12
    numbers = [part for part in rest if re.match(r"\d+\b", part)]
    hops = [first]
    if rest[:1] != numbers[:1]:
        hops.append(rest[0])
    if "GDRDMA" in path:
        hops.append("GDRDMA")
    if first == "NET" and any("(" in number for number in numbers):
        hops.append("PXN")
    return "/".join(hops)


def _add_plugin(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    name = match["name"]
    if name.startswith("internal"):
        return
    kind = match["kind"].lower()
    if kind == "coll":
        kind = "collnet"
    state.plugins[kind] = name


def _normalised(name: str) -> str:
    return re.sub(r"[ _]|flags$", "", name).lower()


_SETTINGS = {_normalised(name): name for name in COMMUNICATOR_SETTINGS}
"""The project's names of communicator settings, such as cta_policy, which NCCL logs as ``CTA policy flags``."""


def _setting(name: str) -> str:
    return _SETTINGS.get(_normalised(name), name)


def _remove_overridden_setting(
    state: ParserState, match: re.Match[str], _message: LogMessage
) -> None:
    """Remove a communicator setting that an environment variable overrides, and add that variable."""
    state.communicator.pop(_setting(match["field"]), None)
    state.settings[match["name"]] = match["value"]


NVLS_REFUSED = ("its set-up failed", "NVSwitches refuse multicast memory")
"""The reasons why NVLS is not used although its devices are able to."""


def _add_failed_nvls(state: ParserState) -> None:
    if any(unavailable.reason in NVLS_REFUSED for unavailable in state.unavailable):
        return
    error = next(state.errors.of_source("nvls."), None)
    if error is not None:
        line = "; ".join(error.causes) or error.steps[0]
        state.add_unavailable("nvls", NVLS_REFUSED[0], line)


_CELL = re.compile(r"\s*(\d{1,12}\.\d{1,9})/\s*(\d{1,12}\.\d{1,9})\s*")
"""A cell of the table of NCCL's cost model: latency in us, and bandwidth in GB/s."""


def _add_table_row(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add a row of the table of NCCL's cost model.

    The table comes in blocks of three algorithms: a row of algorithms, a row of protocols, and a
    row for each collective. Older versions have algorithm and protocol in one row of heads.
    """
    name = match["name"].strip()
    cells = [cell.strip() for cell in match["cells"].rstrip("| ").split("|")]
    algorithms, protocols = state.tables.get(message.writer, ([], []))
    if name == "Algorithm":
        state.tables[message.writer] = cells, []
    elif name == "Protocol":
        state.tables[message.writer] = algorithms, cells
    elif name == "Latency/AlgBw" and all(cell.count("/") == 1 for cell in cells):
        heads = (cell.split("/") for cell in cells)
        state.tables[message.writer] = tuple(zip(*heads, strict=True))
    elif name.lower() in NCCL_FUNCTIONS and algorithms and len(cells) == len(protocols):
        columns_of_algorithm = len(protocols) // len(algorithms)
        algorithm_of_column: list[str] = []
        for algorithm in algorithms:
            algorithm_of_column += [algorithm] * columns_of_algorithm
        if len(algorithm_of_column) == len(cells):
            costs = zip(algorithm_of_column, protocols, cells, strict=True)
            _add_costs(state, NCCL_FUNCTIONS[name.lower()], costs)


def _add_costs(state: ParserState, collective: str, row: Iterable[tuple[str, str, str]]) -> None:
    """Add the costs of a row, whose cells have an algorithm, a protocol and the cost."""
    for algorithm, protocol, cell in row:
        cost = _CELL.fullmatch(cell)
        if cost and float(cost[2]):  # NCCL writes a bandwidth of 0 for a pair that it will not use
            name = algorithm.strip().lower()
            modelled = ModelledCost(
                collective=collective,
                algorithm=NCCL_ALGORITHMS.get(name, name),
                protocol=protocol.strip().upper(),
                latency_s=float(cost[1]) * 1e-6,
                bytes_per_s=float(cost[2]) * 1e9,
            )
            state.add("model", modelled)


NO_COLLNET_DEVICE = "no CollNet device: nccl-rdma-sharp-plugins is not loaded"


def _add_collnet_devices(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add the number of CollNet devices of a rank: the largest one, if it is in more than one communicator.

    From 2.30.7 on, rank 0 also logs the extremes over all ranks.
    """
    rank = None if match["rank"] is None else int(match["rank"])
    count = int(match["count"] or match["most"])
    state.collnet_devices[rank] = max(count, state.collnet_devices.get(rank, 0))
    state.collnet_line = state.collnet_line or message.text


def _add_missing_collnet(state: ParserState) -> None:
    """Add that SHARP is unavailable, if it was requested and all ranks report that they have no CollNet device.

    From 2.30 on, every rank logs its number of devices, which is 0 without a request, too
    (initTransportsRank in src/init.cc of 2.30.7).
    """
    setting = state.communicator.get("collnet_enable", "0")
    value = state.settings.get("NCCL_COLLNET_ENABLE", setting)
    if value == "0":
        return
    counts = state.collnet_devices
    all_ranks = set(range(state.ranks or 0))
    have_all_reported = bool(all_ranks) and all_ranks <= set(counts)
    if (None in counts or have_all_reported) and not any(counts.values()):
        state.add_unavailable("sharp", NO_COLLNET_DEVICE, state.collnet_line)


FORCED_SOCKETS = "NCCL_NET, or the setting net_name of the communicator, asks for sockets"
ONLY_SOCKETS = "no RDMA network was started"


def _add_reason_for_sockets(state: ParserState) -> None:
    """Add why NCCL uses TCP, if no other line gives the reason: sockets were requested, or only they were started.

    NCCL logs NCCL_NET only where it overrides a setting of the communicator (from 2.28.7 on). Up to
    2.28.3 it starts its networks in order until one has the requested name, so that the ports of
    RDMA are logged although they are not used; later it starts only the network of that name
    (ncclNetInit in src/net.cc of 2.20.5, in src/plugin/net.cc of 2.28.9), but also only sockets for
    the later communicators of a process in which RDMA could not be started.
    """
    is_explained = any(unavailable.feature == "rdma" for unavailable in state.unavailable)
    if is_explained or list(state.facts.get("network", ())) != ["Socket"]:
        return
    requested = state.settings.get("NCCL_NET", state.communicator.get("net_name", "")).lower()
    if requested == "socket" or state.facts.get("devices"):
        state.add_unavailable("rdma", FORCED_SOCKETS, "Using network Socket")
    elif state.started_networks == {"Socket": True}:
        state.add_unavailable("rdma", ONLY_SOCKETS, "Using network Socket")


def add_conclusions(state: ParserState) -> None:
    """Add what follows from all messages of a launch together."""
    for add in (
        _add_unfinished,
        _add_size,
        _add_failed_nvls,
        _add_missing_collnet,
        _add_reason_for_sockets,
    ):
        add(state)


BANNER_RULES: tuple[Rule, ...] = (
    rule(
        r"(?P<library>[NR]CCL) version(?: *:)? +(?P<version>\d+(?:\.\d+)+)(?P<build>.*)",
        _add_version,
    ),
)
"""The rules for the line that names the library and its version, which it prints without a header too."""

_CALL_RULE = rule(
    r"(?P<function>\w+): opCount \w+ sendbuff \S+ recvbuff \S+(?: acc \S+)? count (?P<count>\d{1,18}) "
    r"datatype (?P<dtype>\d{1,18}) op (?P<op>\d{1,18}) root "
    r"(?:\d+ comm (?P<comm>\S+) \[nranks=(?P<ranks>\d{1,18})\])?",
    _add_call,
)
_COLLECTIVE_RULE = rule(
    r"(?P<function>\w+)(?: \[(?P<kind>[\w ]+)\])?:\s+(?P<bytes>\d{1,18}) Bytes -> "
    r"(?:Algo (?P<algorithm>[A-Za-z]\w*)\*?\s+proto (?P<protocol>\w+)\s+"
    r"channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,18})\.\.(?P<high>\d{1,18})\}"
    r"|Kernel (?P<kernel>\w+) nchannels (?P<channels>\d{1,18}) "
    r"|(?:Rail \S+ )?(?P<copy>cudaMemcpy\w*|RMA proxy \+ CE))",
    _add_collective,
)
_CHANNEL_RULE = rule(
    r"(?:Channel|CollNet|Ring) \d+(?:/\d+)? : .* via (?P<path>(?:P2P|SHM|NET|COLLNET|direct shared memory)\b.*?)"
    r"(?: comm \S+ nRanks \d+)?$",  # of RCCL
    _add_path,
)

RULES_OF_FORMS = {"call": _CALL_RULE, "collective": _COLLECTIVE_RULE, "channel": _CHANNEL_RULE}
"""The only rules for messages of some forms of lines (FORMS of log_message.py); the others have no facts."""

RULES: tuple[Rule, ...] = (
    *BANNER_RULES,
    # Lines by which a log without its first lines shows that the library is RCCL.
    rule(r"(?!.* set (?:by|to) ).*(?:\bRCCL\b|librccl)|RCCL_\w+ set by |ROCr version |Hipruntime version", _add_rccl),
    _CALL_RULE,
    _COLLECTIVE_RULE,
    rule(
        r"(?:(?P<function>[A-Za-z]+): )?(?P<bytes>\d{1,18}) Bytes -> "
        r"Algo (?P<algorithm>[0-6]) proto (?P<protocol>[0-2]) time -?\d",
        _add_numbered_collective,
    ),
    rule(r"comm \S+ rank \d+ nRanks (?P<ranks>\d{1,18}) nNodes (?P<nodes>\d{1,18}) ",
         lambda state, match, _: state.communicators.add((int(match["ranks"]), int(match["nodes"])))),
    rule(
        r"(?:\[Rank \d+\] )?(?:\w+ )?comm (?P<comm>\S+) rank (?P<rank>\d{1,18}) nranks (?P<ranks>\d{1,18}) "
        r"(?P<more>cudaDev .*)- (?P<event>Init START|Init|Destroy|Abort)\b",
        _add_member,
    ),
    rule(
        r"Init timings(?: - \w+)?: rank (?P<rank>\d{1,18}) nranks (?P<ranks>\d{1,18}) "
        r"total (?P<total>\d{1,9}\.\d{1,9}) \((?P<phases>[^()]*)\)$",
        _add_timings,
    ),
    rule(
        r"Rank (?P<rank>\d{1,18}): (?P<count>\d{1,18}) CollNet devices"
        r"|Local CollNet device counts across ranks: min \d+ max (?P<most>\d{1,18})",
        _add_collnet_devices,
    ),
    rule(r"Using (?:internal N|n)etwork (?P<name>\S.*)$", _add_network),  # internal: up to 2.3
    rule(r"(?P<event>Initialized|Failed to initialize) NET plugin (?P<name>\S+)",
         lambda state, match, _: state.started_networks.update({match["name"]: match["event"] == "Initialized"})),
    rule(r"NET/IB : Using (?P<list>\[0\].*?)(?: \[RO\])?(?:; OOB .*)?$", _add_devices),
    _CHANNEL_RULE,
    rule(r"(?P<kind>TUNER)/Plugin: Using (?:tuner plugin )?(?P<name>\S+)", _add_plugin),
    rule(r"Using (?P<kind>tuner) plugin: '(?P<name>[^']+)'", _add_plugin),  # of 2.20
    rule(r"\w+/Plugin: Loaded (?P<kind>net|coll(?:net)?|gin|rma) plugin (?P<name>\S+)", _add_plugin),
    rule(r"(?P<kind>[A-Z]+)/Plugin: Plugin name set by env to (?P<value>\S+)",
         lambda state, match, _: state.settings.update({f"NCCL_{match['kind']}_PLUGIN": match["value"]})),
    # Of the SHARP plugin, which prints no version for v6 and v7 (src/p2p_plugin.c).
    rule(r"(?P<kind>P2P) plugin (?:v\d+ )?(?P<name>\S+)", _add_plugin),
    rule(r"(?P<kind>PROFILER)/Plugin: [Ll]oaded (?P<name>[^\s.]+)", _add_plugin),
    rule(r"NET/OFI Selected [Pp]rovider is (?P<name>[^\s,]+)",
         lambda state, match, _: state.plugins.update(fabric=match["name"])),
    rule(r"(?:TUNER/Plugin: )?(?P<name>(?:[NR]CCL|SHARP)_\w+) set (?:by \w+ )?to (?P<value>.*?)\.?$", _add_variable),
    rule(
        r"Comm config (?P<field>\w+) reset to (?:\S+ by )?(?P<name>NCCL_\w+)=(?P<value>.*)$",
        _remove_overridden_setting,
    ),
    rule(r"Comm config (?P<name>\w[\w ]*)(?<! is) set to (?P<value>.*)$",
         lambda state, match, _: state.communicator.update({_setting(match["name"]): match["value"]})),
    rule("", lambda state, _, message: state.errors.add_message(message)),
    *line_rules(
        "nvls", r"NVLS multicast support is available on dev", r"NVLS comm \S+ headRank", r"Connected NVLS tree"
    ),
    *line_rules("collnet", r"rank \d+ Connected CollNet", r"Connected Collnet Chains", r"Connected collnet \+ chain"),
    *line_rules("sharp", r"SHARP rank \d+/\d+ initialized on "),
    rule(r"(?P<name>[A-Z][\w/]+) *\|(?P<cells>.+)$", _add_table_row),
    *COMPONENT_RULES,
    *COMMON_RULES,
)  # fmt: skip
