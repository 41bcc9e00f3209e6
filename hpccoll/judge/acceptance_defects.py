"""Known defects that fit the rows of results that fail."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpccoll.evidence.defects import FittingDefect, Trouble, fitting_defects
from hpccoll.evidence.log_record import LogRecord
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.defects_of_runs import called_collective, facts_of_results, kind_of_failure
from hpccoll.judge.held import RATE, Acceptance
from hpccoll.judge.provenance_changes import facts_of_runs
from hpccoll.model.machine_file import MachineFile
from hpccoll.store.rows import Row, Run


def trouble_of_row(row: Row, share: float | None) -> Trouble:
    """Return what is wrong with a row of results; ``share`` is its bandwidth over the expected one."""
    kind = "slow"
    if not row.usable:
        kind = kind_of_failure(row.status, row.reason)
        share = None
    return Trouble(
        kind=kind,
        transport=row.transport,
        collective=called_collective(row.collective, row.algorithm),
        nbytes=row.bytes,
        share=share,
        nodes=row.nodes,
        ranks=row.ranks,
        ranks_per_node=row.ranks_per_node,
        device=row.device,
        text=row.reason or "",
    )


def _share(judged: Judged) -> float | None:
    """Return the measured bandwidth over the expected one, and for times the inverse; None without either."""
    if not judged.ratio:
        return None
    if judged.quantity == RATE:
        return judged.ratio
    return 1 / judged.ratio


def with_defects(
    judged: Iterable[Judged],
    runs: Iterable[Run],
    log: LogRecord | None,
    machine: MachineFile | None,
) -> list[Judged]:
    """Return verdicts; those of rows that fail have the known defects that fit them, the surest first.

    Args:
        judged: the verdicts on the rows of the runs.
        runs: what was measured.
        log: the content of the logs of the runs.
        machine: the machine that the user names; None if it is not described.
    """
    facts = facts_of_results(facts_of_runs(runs), log, machine)
    named = []
    for judgement in judged:
        defects: Sequence[FittingDefect] = ()
        if judgement.acceptance is Acceptance.FAIL:
            trouble = trouble_of_row(judgement.row, _share(judgement))
            defects = fitting_defects(facts, [trouble])
        named.append(replace(judgement, defects=tuple(defects)))
    return named
