"""UCC's trace of collectives (UCC_COLL_TRACE=info) and its map of scores (UCC_LOG_LEVEL=info)."""

import re

from hpccoll.evidence import unavailable
from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.log_record import CollectiveLine
from hpccoll.evidence.parser_state import ParserState, Rule

_COLLECTIVES = {
    "allreduce": "all_reduce", "reduce_scatter": "reduce_scatter", "allgather": "all_gather", "bcast": "broadcast",
    "reduce": "reduce", "barrier": "barrier", "alltoall": "all_to_all", "alltoallv": "all_to_all_v",
    "gather": "gather", "scatter": "scatter",
}  # fmt: skip
_OPS = ("sum", "prod", "min", "max", "avg")


_AS_LARGE = ("all_reduce", "reduce", "broadcast", "all_to_all")
"""Collectives whose destination is as large as their source."""

_BLOCKS = ("all_gather", "gather")
"""Collectives whose destination has a block as large as the source for each rank."""


def _ran(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Note which transport layers UCC chose, several for a hierarchical collective."""
    word = match["function"].lower()
    collective = _COLLECTIVES.get(word, word)
    layers = [layer.lower() for layer in re.findall(r"TL_(\w+)", match["layers"])]
    if not layers:
        return
    ran = CollectiveLine(
        collective=collective, bytes=_bytes(notes, collective, match),
        algorithm="+".join(dict.fromkeys(layers)), protocol=match["upper"], dtype=match["dtype"],
        op=next((word for word in match["flags"].split() if word in _OPS), None),
        memory=(match["memory"] or "").lower() or None, line=re.sub(r"0x[0-9a-f]+", "0x..", message.text),
    )  # fmt: skip
    notes.collectives[ran] = None


def _bytes(notes: ParserState, collective: str, match: re.Match[str]) -> int | None:
    """Return the bytes of the source, None where they cannot be told.

    In place a line names the destination alone. Of that a team's size tells a block; none is known without the map of
    scores, which comes where a team is made.
    """
    size = re.search(r"(\d{1,3})$", match["dtype"] or "")
    if size is None:  # a barrier has no buffer
        return None
    nbytes = int(match["count"]) * int(size[1]) // 8
    if match["buffer"] == "src" or collective in _AS_LARGE:
        return nbytes
    team = notes.teams.get(match["team"])
    return nbytes // team if team and collective in _BLOCKS else None


def _map(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    """Note the scores of the collective that the rows below are of."""
    notes.tables["ucc"] = match["collective"]


def _score(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    if "TL_SHARP" in match["scores"]:
        of = notes.tables.get("ucc", "?")
        notes.say("scores", f"{of}: {match['memory']}: {match['scores']}")


def _size(notes: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    notes.teams[match["team"]] = int(match["ranks"])
    notes.ranks = max(notes.ranks or 0, int(match["ranks"]))


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"coll_init: (?P<function>\w+)(?P<flags>[^:;{]*)"
            r"(?:: (?P<buffer>src|dst)=\{\S+, (?P<count>\d{1,18}), (?P<dtype>\w+), (?P<memory>\w+)\}[^;]*)?; "
            r"(?P<upper>CL_\w+) \{(?P<layers>[^}]*)\}(?:, team_id (?P<team>\d{1,18}))?"
        ),
        _ran,
    ),
    (re.compile(r"=+ COLL_SCORE_MAP \(team_id (?P<team>\d{1,18}), size (?P<ranks>\d{1,18})\)"), _size),
    (re.compile(r"(?P<collective>[A-Z]\w+):$"), _map),
    (re.compile(r"(?P<memory>Host|Cuda|CudaManaged): (?P<scores>\{.*)$"), _score),
    *unavailable.RULES,
)
