"""NCCL's own cost model, from the table that it prints at its start: latency and bandwidth by algorithm and protocol.

The table comes in blocks of three algorithms: a row of their names, a row of protocols, one row for each collective
with ``latency us/GB/s`` in each cell. Older releases name algorithm and protocol in one row of heads.
"""

import re
from dataclasses import dataclass, field

from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.log_record import ModelledCost
from hpccoll.evidence.parser_state import ParserState, Rule
from hpccoll.evidence.requested import NCCL_ALGORITHMS, NCCL_FUNCTIONS

_CELL = re.compile(r"\s*(\d{1,12}\.\d{1,9})/\s*(\d{1,12}\.\d{1,9})\s*")


@dataclass
class _Heads:
    """The columns of the block that is being read."""

    algorithms: list[str] = field(default_factory=list)
    protocols: list[str] = field(default_factory=list)

    def columns(self) -> list[tuple[str, str]]:
        each = len(self.protocols) // len(self.algorithms) if self.algorithms else 0
        spread = [algorithm for algorithm in self.algorithms for _ in range(each)]
        return list(zip(spread, self.protocols, strict=True)) if len(spread) == len(self.protocols) else []


def _row(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    heads = notes.tables.setdefault(message.process, _Heads())
    name, cells = match["name"].strip(), [cell.strip() for cell in match["cells"].rstrip("| ").split("|")]
    if name == "Algorithm":
        heads.algorithms = [NCCL_ALGORITHMS.get(cell.lower(), cell.lower()) for cell in cells]
        heads.protocols = []
    elif name == "Protocol":
        heads.protocols = [cell.upper() for cell in cells]
    elif name == "Latency/AlgBw":
        pairs = [cell.split("/") for cell in cells]
        if all(len(pair) == 2 for pair in pairs):
            heads.algorithms = [NCCL_ALGORITHMS.get(one.strip().lower(), one.strip().lower()) for one, _ in pairs]
            heads.protocols = [protocol.strip().upper() for _, protocol in pairs]
    elif name.lower() in NCCL_FUNCTIONS:
        _cells(notes, heads, NCCL_FUNCTIONS[name.lower()], cells)


def _cells(notes: ParserState, heads: _Heads, collective: str, cells: list[str]) -> None:
    columns, read = heads.columns(), [_CELL.fullmatch(cell) for cell in cells]
    if len(columns) != len(read):
        return
    for (algorithm, protocol), cell in zip(columns, read, strict=True):
        if cell and float(cell[2]):  # a bandwidth of 0 is what NCCL writes for a pair that it will not use
            one = ModelledCost(
                collective=collective, algorithm=algorithm, protocol=protocol, latency_s=float(cell[1]) * 1e-6,
                bytes_per_s=float(cell[2]) * 1e9,
            )  # fmt: skip
            notes.model[one] = None


RULES: tuple[Rule, ...] = ((re.compile(r"(?P<name>[A-Z][\w/]+) *\|(?P<cells>.+)$"), _row),)
