"""Runs a diagnosis on all ranks: rank 0 asks for slots of transfers between pairs, and collects their times."""

from collections.abc import Callable
from typing import TypeAlias

from hpccoll.analysis.diagnosis.recorded import DiagnosisOptions, RecordedDiagnosis
from hpccoll.analysis.diagnosis.records import Purpose
from hpccoll.measure.ranks import Ranks

ShowSlots: TypeAlias = Callable[[int, int, Purpose], None]
"""Called at rank 0 about each second, with the slots that are measured, how many that will be as far as is known, and
why they are."""


def run_diagnosis(
    ranks: Ranks, options: DiagnosisOptions, *, progress: ShowSlots, stop: Callable[[], int]
) -> RecordedDiagnosis | None:
    """Diagnose the nodes of all ranks; all of them call this together.

    If a rank no longer answers, the others do not return: rank 0 calls ``end_launch`` when it has written the results.

    Args:
        ranks: as many on each node: the k-th rank of each is its endpoint on rail k.
        options: what is asked.
        progress: shows how far the diagnosis is.
        stop: returns the signal on which it is to end, 0 if none has come.

    Returns:
        the diagnosis with all of its measurements at rank 0, None at others.

    Raises:
        BadInputError: on all ranks, if there is only one node, nodes have different numbers of ranks, or the options
            have no rack for a host.
    """
    raise NotImplementedError


def end_launch(recorded: RecordedDiagnosis | None, code: int) -> None:
    """End a launch in which a rank no longer answers, with an exit code; called last, at rank 0 with the results.

    MPI_Finalize would wait for that rank. It returns if all ranks answer.
    """
    raise NotImplementedError
