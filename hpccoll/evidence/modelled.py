"""What NCCL's own cost model gives for what ran, by the table that it logs at its start.

A call takes the latency of its algorithm and protocol, and its bytes at their bandwidth (NCCL's src/graph/tuning.cc).
What NCCL then corrects by size, trees below 256 MiB and rings over several nodes, is not in the table, nor here.
"""

from hpccoll.evidence.records import Record
from hpccoll.evidence.verdict import lines_of


def modelled_s(
    record: Record, collective: str, nbytes: int, ranks: int, *, dtype: str | None = None, op: str | None = None
) -> float | None:
    """Return what a case takes by the model, seconds; None where the logs do not say what ran, or have no such cell.

    Args:
        record: of a launch with the same environment and shape.
        collective: of the case.
        nbytes: the S of the case.
        ranks: the workers.
        dtype: of the case; a line that names another is none of it.
        op: of the case, likewise.
    """
    ran = {(one.algorithm, one.protocol) for one in lines_of(collective, nbytes, ranks, record, dtype, op)}
    cells = [cell for cell in record.model if (cell.algorithm, cell.protocol) in ran and cell.collective == collective]
    if len(ran) > 1 or len(cells) != 1:
        return None
    return cells[0].latency_s + nbytes / cells[0].bytes_per_s
