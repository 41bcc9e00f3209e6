"""NCCL's log: the shapes of 2.24 to 2.32, with NCCL_DEBUG=INFO and the subsystems INIT, ENV, NET, GRAPH, TUNING, COLL.

Releases 2.20 to 2.23 say what ran in a shape of their own, which ``nccl_numbers`` reads, and older ones nothing of it.

What is not evidence: the count of ``collnet channels``, which is printed without CollNet too; ``via COLLNET/SHARP``
and ``Using ...:1/IB/SHARP``, which come before SHARP is asked for a group and stay where it refuses; names of kernels,
which are those of ring or tree whatever runs.
"""

import re

from hpccoll.evidence import nccl_numbers, tuning_table, unavailable
from hpccoll.evidence.communicator_settings import logged_setting
from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.log_record import CollectiveLine
from hpccoll.evidence.parser_state import Call, ParserState, Rule, line_rules
from hpccoll.evidence.requested import NCCL_FUNCTIONS

COLLECTIVES = {**NCCL_FUNCTIONS, "alltoall": "all_to_all", "gather": "gather", "scatter": "scatter"}
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
_DTYPES = {
    0: ("int8", 1), 1: ("uint8", 1), 2: ("int32", 4), 3: ("uint32", 4), 4: ("int64", 8), 5: ("uint64", 8),
    6: ("float16", 2), 7: ("float32", 4), 8: ("float64", 8), 9: ("bfloat16", 2), 10: ("float8e4m3", 1),
    11: ("float8e5m2", 1),
}  # fmt: skip
"""ncclDataType_t: our name, and the bytes of an element."""
_OPS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}
"""ncclRedOp_t."""


def _version(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.version = match["version"]


def _call(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    collective = COLLECTIVES.get(match["function"].lower())
    dtype = _DTYPES.get(int(match["dtype"]))
    if collective and dtype:
        name, size = dtype
        op = _OPS.get(int(match["op"]), "custom") if collective in _REDUCTIONS else None
        ranks = int(match["ranks"]) if match["ranks"] else None
        notes.calls[message.process].append(Call(collective, int(match["count"]) * size, name, op, ranks))


def _ran(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Note what ran; the dtype and the op are those of the first call of this size that waits in the same process."""
    kind = (match["kind"] or "").lower().replace(" ", "_")
    if not (kind or match["algorithm"]):  # part of the line is lost
        return
    collective = COLLECTIVES.get(match["function"].lower(), match["function"].lower())
    nbytes, waiting = int(match["bytes"]), notes.calls[message.process]
    call = next((call for call in waiting if call[:2] == (collective, nbytes)), None)
    if call:
        waiting.remove(call)
    dtype, op = (call.dtype, call.op) if call else (None, None)
    channels = match["channels"] or (int(match["high"]) - int(match["low"]) + 1 if match["high"] else None)
    ran = CollectiveLine(
        collective=collective, bytes=nbytes, algorithm=kind or match["algorithm"].lower(), dtype=dtype, op=op,
        protocol=match["kernel"] or match["way"] or match["protocol"].upper(),
        channels=None if channels is None else int(channels), line=message.text,
    )  # fmt: skip
    notes.collectives[ran] = None


def _size(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.size(int(match["ranks"]), int(match["nodes"]))


def _network(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.say("network", match["name"])


def _devices(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    for device in re.findall(r"\[\d+\](\S+)", match["list"]):
        notes.say("devices", device.rstrip(";"))


def _path(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    """Count a channel under its way, without the number of the device: NET/IB/2(3)/GDRDMA is NET/IB/GDRDMA/PXN."""
    first, *rest = match["way"].split("/")
    numbers = [part for part in rest if re.match(r"\d+\b", part)]
    words = [first, *(rest[:1] if rest[:1] != numbers[:1] else [])]
    words += ["GDRDMA"] if "GDRDMA" in match["way"] else []
    words += ["PXN"] if any("(" in number and first == "NET" for number in numbers) else []
    notes.paths["/".join(words)] += 1


def _plugin(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    if not match["name"].startswith("internal"):
        notes.plugins[match["kind"].lower()] = match["name"]


def _fabric(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.plugins["fabric"] = match["name"]


def _setting(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.settings[match["name"]] = match["value"]


def _configured(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.communicator[logged_setting(match["name"])] = match["value"]


def _overridden(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Note a variable that wins over what a communicator was made with."""
    notes.communicator.pop(logged_setting(match["field"]), None)
    _setting(notes, match, message)


def _warning(notes: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    if message.level == "WARN":
        notes.say("warnings", message.text)


RULES: tuple[Rule, ...] = (
    (re.compile(r"NCCL version (?P<version>\d+(?:\.\d+)+)"), _version),
    (
        re.compile(
            r"(?P<function>\w+): opCount \w+ sendbuff \S+ recvbuff \S+(?: acc \S+)? count (?P<count>\d{1,18}) "
            r"datatype (?P<dtype>\d{1,18}) op (?P<op>\d{1,18}) root (?:\d+ comm \S+ \[nranks=(?P<ranks>\d{1,18})\])?"
        ),
        _call,
    ),
    (
        re.compile(
            r"(?P<function>\w+)(?: \[(?P<kind>[\w ]+)\])?:\s+(?P<bytes>\d{1,18}) Bytes -> "
            r"(?:Algo (?P<algorithm>[A-Za-z]\w*)\s+proto (?P<protocol>\w+)\s+"
            r"channel\{Lo\.\.Hi\}=\{(?P<low>\d{1,18})\.\.(?P<high>\d{1,18})\}"
            r"|Kernel (?P<kernel>\w+) nchannels (?P<channels>\d{1,18}) |(?P<way>cudaMemcpy\w*|RMA proxy \+ CE))"
        ),
        _ran,
    ),
    (re.compile(r"comm \S+ rank \d+ nRanks (?P<ranks>\d{1,18}) nNodes (?P<nodes>\d{1,18}) "), _size),
    (re.compile(r"Using network (?P<name>\S.*)$"), _network),
    (re.compile(r"NET/IB : Using (?P<list>\[0\].*?)(?: \[RO\])?(?:; OOB .*)?$"), _devices),
    (re.compile(r"(?:Channel|CollNet) \d+(?:/\d+)? : .* via (?P<way>(?:P2P|SHM|NET|COLLNET)\b.*)$"), _path),
    (re.compile(r"(?P<kind>TUNER)/Plugin: Using (?:tuner plugin )?(?P<name>\S+)"), _plugin),
    (re.compile(r"NET/Plugin: Loaded (?P<kind>net|collnet|gin) plugin (?P<name>\S+)"), _plugin),
    (re.compile(r"(?P<kind>P2P) plugin v\d+ (?P<name>\S+)"), _plugin),  # what the SHARP plugin moves messages by
    (re.compile(r"(?P<kind>PROFILER)/Plugin: Loaded (?:profiler plugin )?(?P<name>\S+)"), _plugin),
    (re.compile(r"NET/OFI Selected [Pp]rovider is (?P<name>[^\s,]+)"), _fabric),
    (re.compile(r"(?P<name>(?:NCCL|SHARP)_\w+) set by \w+ to (?P<value>.*?)\.?$"), _setting),
    (re.compile(r"Comm config (?P<field>\w+) reset to (?P<name>NCCL_\w+)=(?P<value>.*)$"), _overridden),
    (re.compile(r"Comm config (?P<name>\w[\w ]*) set to (?P<value>.*)$"), _configured),
    (re.compile(""), _warning),
    *line_rules(
        "nvls", r"NVLS multicast support is available on dev", r"NVLS comm \S+ headRank", r"Connected NVLS tree"
    ),
    *line_rules("collnet", r"rank \d+ Connected CollNet", r"Connected Collnet Chains", r"Connected collnet \+ chain"),
    *line_rules("sharp", r"SHARP rank \d+/\d+ initialized on "),
    *nccl_numbers.RULES,
    *tuning_table.RULES,
    *unavailable.RULES,
)  # fmt: skip
