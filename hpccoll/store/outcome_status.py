"""The status of an outcome, with the reason if it is not ok."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from hpccoll.cases.case import Job

if TYPE_CHECKING:
    from hpccoll.store.raw_results import Outcome


def status_and_reason(
    job: Job, outcome: "Outcome", rounds: Collection[int] | None = None
) -> tuple[str, str | None]:
    """Return the status of a row and its reason; a correct case with fewer rounds than requested is partial.

    ``rounds`` are those of the outcome, if the caller has them already.
    """
    if outcome.status != "ok":
        return outcome.status, outcome.reason
    measured = len(outcome.rounds if rounds is None else rounds)
    requested = job.effort.rounds
    if measured == requested or outcome.source:  # another program has its own number of rounds
        return "ok", None  # a failed round has been measured since
    missing = f"{measured} of {requested} rounds"
    return "partial", f"{missing}; {outcome.reason}" if outcome.reason else missing
