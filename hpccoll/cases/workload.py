"""A workload: a case that runs many collectives, such as a training step. Extensions bring them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hpccoll.common.errors import BadInputError
from hpccoll.common.extensions import contributed, contributed_names

if TYPE_CHECKING:
    from hpccoll.cases.case import Case
    from hpccoll.schedule import Collective, Layout, Parameter


class WorkloadCall(NamedTuple):
    """What a case of a workload runs."""

    params: Mapping[str, "Parameter"]  # of the case
    dtype: str  # of the case
    bytes: int


class Workload(Protocol):
    """What the core asks a workload. ``files`` are the contents of files of the user that it names, JSON by name."""

    row: "Collective"
    """Its row in the table of collectives; the arguments are the keys of its parameters, with their defaults."""

    @property
    def help(self) -> Mapping[str, str]:
        """What each key means."""

    def tables(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what keys may name, such as models, as ``hpccoll list --json`` has it: rows by the kind of entries."""

    def table_lines(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterable[str]:
        """Return the lines of ``hpccoll list``: one for each row that the user's word has left in ``tables``."""

    def calls(
        self,
        requests: Sequence[Mapping[str, Sequence["Parameter"]]],
        dtypes: Sequence[str],
        algorithm: str,
        files: Mapping[str, Any],
    ) -> Sequence[WorkloadCall]:
        """Return the calls that differ: of each request the combinations of the values of its keys.

        Raises:
            BadInputError: if a value is invalid.
        """

    def check_files(self, files: Mapping[str, Any]) -> None:
        """Check the contents of files.

        Raises:
            BadInputError: if one is invalid.
        """

    def check(self, case: "Case") -> None:
        """Check the values of a case.

        Raises:
            BadInputError: if one is invalid.
        """

    def check_layout(self, case: "Case", layout: "Layout") -> None:
        """Check that a case can run on a layout.

        Raises:
            BadInputError: if it cannot.
        """

    def moved_dtypes(self, case: "Case", workers: int) -> tuple[str, ...]:
        """Return the types of the elements that ranks exchange.

        Raises:
            BadInputError: if that many ranks cannot run the case.
        """

    def buffer_bytes(self, case: "Case", workers: int, files: Mapping[str, Any]) -> int:
        """Return the bytes of all buffers of a rank, the largest of all ranks.

        Raises:
            BadInputError: if that many ranks cannot run the case.
        """


def workload(name: str) -> Workload:
    """Return the workload of this name.

    Raises:
        BadInputError: if no extension brings it.
    """
    contributed_workload: Workload | None = contributed("workloads", name)
    if contributed_workload is None:
        raise BadInputError("workload", name, contributed_names("workloads"))
    return contributed_workload
