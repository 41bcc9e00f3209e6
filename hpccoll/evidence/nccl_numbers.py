"""What NCCL 2.20 to 2.23 says of what ran: numbers, in the log of rank 0 under TUNING, as it chooses.

``8 Bytes -> Algo 1 proto 2 time 12.4``; only 2.23 begins with the function. The bytes are those of all ranks where each
has a block, and the sum of the calls in a group that it chooses for together. So a line is read beside the call before
it, of COLL, and only where that is alone since the last such line, and of just these bytes. The number of channels is
not said. Source: topoGetAlgoInfo and ncclPrepareTasks in src/enqueue.cc, and the numbers in src/include/nccl_common.h,
of NCCL's releases; 2.20 and 2.21 are silent where a tuner plugin has chosen, and older ones but in builds for tracing.
"""

import re

from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.log_record import CollectiveLine
from hpccoll.evidence.parser_state import ParserState, Rule
from hpccoll.evidence.requested import NCCL_FUNCTIONS

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""By NCCL_ALGO_*, as ``CollectiveLine`` has them."""

PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""By NCCL_PROTO_*."""

_OF_ALL_RANKS = ("all_gather", "reduce_scatter")
"""Collectives whose line counts the blocks of all ranks, and whose call counts one."""


def _chosen(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    """Note what ran, where the line can only be of one call; the next line is of calls that are still to come."""
    calls, named = notes.calls[message.process], match["function"]
    call = calls[0] if len(calls) == 1 else None
    calls.clear()
    if call is None or call.ranks is None or (named and NCCL_FUNCTIONS.get(named.lower()) != call.collective):
        return
    blocks = call.ranks if call.collective in _OF_ALL_RANKS else 1
    if call.bytes * blocks == int(match["bytes"]):
        ran = CollectiveLine(
            collective=call.collective, bytes=call.bytes, algorithm=ALGORITHMS[int(match["algorithm"])],
            protocol=PROTOCOLS[int(match["protocol"])], dtype=call.dtype, op=call.op, line=message.text,
        )  # fmt: skip
        notes.collectives[ran] = None


RULES: tuple[Rule, ...] = (
    (
        re.compile(
            r"(?:(?P<function>[A-Za-z]+): )?(?P<bytes>\d{1,18}) Bytes -> "
            r"Algo (?P<algorithm>[0-6]) proto (?P<protocol>[0-2]) time -?\d"
        ),
        _chosen,
    ),
)
