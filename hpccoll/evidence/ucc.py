"""UCC's log: the trace of collectives and the map of scores, warnings and errors.

From 1.2 on, UCC_COLL_TRACE=info logs the trace, and UCC_LOG_LEVEL=info the map; 1.1 traces with
UCC_LOG_LEVEL=debug.
"""

import re

from hpccoll.evidence import fallback_reasons
from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_parser import COMMON_RULES, ParserState, Rule, rule
from hpccoll.evidence.log_record import CollectiveLine

_COLLECTIVES = {
    "allreduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "allgather": "all_gather",
    "bcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "gather": "gather",
    "scatter": "scatter",
}
_OPS = ("sum", "prod", "min", "max", "avg")

_EQUAL_BUFFERS = ("all_reduce", "reduce", "broadcast", "all_to_all")
"""Collectives whose destination is as large as their source."""

_GATHERING = ("all_gather", "gather")
"""Collectives whose destination holds a block as large as the source for each rank."""


def _add_collective(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Add a collective with the transport layers that UCC chose; a hierarchical collective has several."""
    function = match["function"].lower()
    collective = _COLLECTIVES.get(function, function)
    layers = [layer.lower() for layer in re.findall(r"TL_(\w+)", match["layers"])]
    if not layers:
        return
    line = CollectiveLine(
        collective=collective,
        bytes=_source_bytes(state, collective, match),
        algorithm="+".join(dict.fromkeys(layers)),
        protocol=match["upper"],
        dtype=match["dtype"],
        op=next((flag for flag in match["flags"].split() if flag in _OPS), None),
        memory=(match["memory"] or "").lower() or None,
        line=re.sub(r"0x[0-9a-f]+", "0x..", message.text),
    )
    state.add("collectives", line)


def _add_older_collective(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    """Add a collective as UCC 1.1 logs it: every rank does, with the bytes of the larger buffer of the rank.

    Source: ucc_coll_str in src/utils/ucc_coll_utils.c of 1.1.0.
    """
    collective = _COLLECTIVES.get(match["function"].lower(), match["function"].lower())
    ranks = int(match["ranks"])
    state.ranks = max(state.ranks or 0, ranks)
    divisor = 0  # the size is unknown
    if collective in (*_EQUAL_BUFFERS, "all_to_all_v"):
        divisor = 1
    elif collective in _GATHERING:
        divisor = ranks
    line = CollectiveLine(
        collective=collective,
        bytes=int(match["bytes"]) // divisor if divisor else None,
        algorithm=match["layer"].lower(),
        dtype=match["dtype"],
        op=match["op"],
        memory=match["memory"].lower(),
        line=f"coll_init: TL_{match['layer']}, {match['call']}",
    )
    state.add("collectives", line)


def _source_bytes(state: ParserState, collective: str, match: re.Match[str]) -> int | None:
    """Return the bytes of the source buffer; None if they cannot be derived.

    For a call in place, the line names the destination only. For gathering collectives the source
    is its block, whose size follows from that of the team, which UCC logs in the map of scores when
    it creates the team.
    """
    bits = re.search(r"(\d{1,3})$", match["dtype"] or "")
    if bits is None:  # a barrier has no buffer
        return None
    nbytes = int(match["count"]) * int(bits[1]) // 8
    if match["buffer"] == "src" or collective in _EQUAL_BUFFERS:
        return nbytes
    ranks = state.team_sizes.get(match["team"])
    return nbytes // ranks if ranks and collective in _GATHERING else None


def _start_score_map(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    """Remember the collective to which the following rows of scores belong."""
    state.tables["ucc"] = match["collective"]


def _add_score(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    if "TL_SHARP" in match["scores"]:
        collective = state.tables.get("ucc", "?")
        state.add("scores", f"{collective}: {match['memory']}: {match['scores']}")


def _add_team(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    state.team_sizes[match["team"]] = int(match["ranks"])
    state.ranks = max(state.ranks or 0, int(match["ranks"]))


def _add_error(state: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    """Add an error with its place: that UCC or its layer of SHARP was not used, others as warnings."""
    if message.level in ("ERROR", "FATAL"):
        feature, reason = fallback_reasons.unavailable_reason(message.text) or ("", message.text)
        feature = "sharp" if message.place.startswith("tl_sharp") else feature
        if feature:
            state.add_unavailable(feature, reason, message.placed_text)
        state.add("warnings", message.placed_text)


def _add_version(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    state.version = state.version or match["version"]


RULES: tuple[Rule, ...] = (
    rule(r"version: (?P<version>\d\S*), loaded from: ", _add_version),
    rule(
        r"coll_init: (?P<function>\w+)(?P<flags>[^:;{]*)"
        r"(?:: (?P<buffer>src|dst)=\{\S+, (?P<count>\d{1,18}), (?P<dtype>\w+), (?P<memory>\w+)\}[^;]*)?; "
        r"(?P<upper>CL_\w+) \{(?P<layers>[^}]*)\}(?:, team_id (?P<team>\d{1,18}))?",
        _add_collective,
    ),
    rule(
        r"coll_init: req \S+, seq_num \d+, TL_(?P<layer>\w+), team_id \d+, size (?P<ranks>[1-9]\d{0,17}), "
        r"rank \d+, ctx_rank \d+: (?P<call>(?P<function>\w+) (?P<memory>\w+) inplace=\d(?: root=\d+)? "
        r"s?bytes=(?P<bytes>\d{1,18})(?: rbytes=\d+)?(?: (?P<dtype>\w+) (?P<op>\w+))?)",
        _add_older_collective,
    ),
    rule(r"=+ COLL_SCORE_MAP \(team_id (?P<team>\d{1,18}), size (?P<ranks>\d{1,18})\)", _add_team),
    rule(r"(?P<collective>[A-Z]\w+):$", _start_score_map),
    rule(r"(?P<memory>Host|Cuda|CudaManaged): (?P<scores>\{.*)$", _add_score),
    rule("", _add_error),
    *COMMON_RULES,
)
