"""The orders of the library's own calls: gives rows what ``hpccoll order native --out F.json`` revealed.

A row has the order of a file only if nothing is known to differ from what was probed: the library,
its version, thread level and settings, the placement of the ranks, the call, and the size itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.order.order_file import OrderOfSizes, RevealedOrder
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row, Run

SETTINGS = re.compile(
    r"(MPIR_CVAR_(?!\w*HOSTNAME)|OMPI_MCA_coll|I_MPI_(ADJUST|COLL|TUNING)|MV[P2]_"
    r"|NCCL_(?!DEBUG)|SHARP_|UCC_|HCOLL_)\w*"
)
"""The variables that may change a library's order; launchers set others, which differ from launch to launch."""


class NativeOrders:
    """The revealed orders of native calls, by the runs whose library they are of.

    Args:
        revealed: the files.
        runs: the runs of the rows.
    """

    def __init__(self, revealed: Sequence[RevealedOrder] = (), runs: Iterable[Run] = ()) -> None:
        self._of_run: dict[str, list[RevealedOrder]] = {}
        for run in runs:
            self._of_run[run.run_id] = [file for file in revealed if _is_of_library(file, run)]

    def digest(self, row: Row) -> str | None:
        """Return the digest of the order of a native row; None if no file knows it, or two files differ."""
        digests = set()
        for file in self._of_run.get(row.run_id, ()):
            sizes = _probed_sizes(file, row)
            if sizes is not None:
                digests.add(_digest(sizes, row))
        if len(digests) != 1:
            return None
        return digests.pop()


def _is_of_library(file: RevealedOrder, run: Run) -> bool:
    """Return whether a file is of the library of a run, with the same settings."""
    mpi = run.provenance.get("mpi")
    variables = run.provenance.get("variables") or {}
    if file.algorithm != NATIVE or not isinstance(mpi, Mapping):
        return False
    if (mpi.get("version"), mpi.get("threads")) != (file.library, file.thread_level):
        return False
    if not isinstance(variables, Mapping) or run.variant != file.variant:
        return False
    if file.nccl is not None and not _has_nccl(file, run):
        return False
    return _settings(variables) == _settings(file.variables)


def _has_nccl(file: RevealedOrder, run: Run) -> bool:
    """Return whether a run had the NCCL of a file, on the same hosts: its order follows from their topology."""
    recorded: Any = run.provenance.get("nccl") or ()
    versions = {str(host["library"]["version"]) for host in recorded}
    return versions == {file.nccl} and run.hosts == file.hosts


def _settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may change an order."""
    return {name: value for name, value in variables.items() if SETTINGS.fullmatch(name)}


def _probed_sizes(file: RevealedOrder, row: Row) -> OrderOfSizes | None:
    """Return what a file says of the call and size of a row; None if it did not probe them."""
    revealed = file.of(row.collective)
    if revealed is None or not _is_of_call(file, row) or not _is_of_place(file, row):
        return None
    if not revealed.is_probed(row.bytes):
        return None
    return revealed.range_at(row.bytes)


SAME_FIELDS = ("transport", "device", "dtype", "op")
"""What a file and a row have alike, by the names of both."""


def _is_of_call(file: RevealedOrder, row: Row) -> bool:
    if COLLECTIVES[row.collective].rooted and (row.root or 0) != file.root:
        return False
    for name in SAME_FIELDS:
        if getattr(file, name) != getattr(row, name):
            return False
    return dict(file.params) == dict(row.params)


def _is_of_place(file: RevealedOrder, row: Row) -> bool:
    """Return whether the ranks of a row lie on nodes as those of a file; mixed placements differ from each other."""
    if row.ranks != file.ranks or row.nodes != file.nodes or row.aggregators:
        return False
    if file.nodes == 1:
        return True
    if set(file.ranks_per_node) != {row.ranks_per_node}:
        return False
    return row.mapping == file.mapping and file.mapping in ("block", "cyclic")


def _digest(sizes: OrderOfSizes, row: Row) -> str | None:
    """Return the digest of a probed size; None if calls add an element in several orders, or none can be told."""
    if set(sizes.kinds) != {"tree"} or not sizes.ranks_agree:
        return None
    if sizes.depends_on_history or sizes.repeats is False:
        return None
    if row.in_place and not sizes.in_place_agrees:
        return None
    for size in sizes.sizes:
        if size.bytes == row.bytes:
            return size.digest
    return None
