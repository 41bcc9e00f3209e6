"""Tables of other libraries from choices among their algorithms: a row of ``FORMATS`` for each format."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from hpccoll.analysis.library_choices import LibraryRange
from hpccoll.cases.library_algorithms import library_collective
from hpccoll.interop.tuning_tables.mpich_json import write_mpich_compositions, write_mpich_json
from hpccoll.interop.tuning_tables.nccl_csv import write_nccl_csv, write_rccl_csv
from hpccoll.interop.tuning_tables.openmpi_json import write_openmpi_json
from hpccoll.interop.tuning_tables.openmpi_rules import write_han_rules, write_openmpi_rules
from hpccoll.interop.tuning_tables.tuning_rule import ANY, UNLIMITED, TuningRule
from hpccoll.interop.tuning_tables.ucc_tune import write_ucc_tune

_Writer: TypeAlias = Callable[[Iterable[TuningRule], str], str]
_OPENMPI = (
    "OMPI_MCA_coll_tuned_use_dynamic_rules=1", "OMPI_MCA_coll_tuned_dynamic_rules_filename={path}",
    "OMPI_MCA_coll_han_use_dynamic_file_rules=1", "OMPI_MCA_coll_han_dynamic_rules_filename={path}.han",
)  # fmt: skip
_CH4 = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE={path}.ch4"


class TableFormat(NamedTuple):
    """A format that can be written."""

    library: str  # of ``cases.library_algorithms``
    mpi: str  # how the version of the MPI library begins whose results count; empty for any
    # what writes each file, by what its name has behind that of the table: a layer of the library that sees calls
    # before the algorithms do has a file of its own
    writers: Mapping[str, _Writer]
    variables: tuple[str, ...]  # the environment in which the library reads them
    by_nodes: bool = False  # whether tables know the number of nodes
    has_default: bool = True  # whether tables can leave calls to the library


FORMATS = {
    "openmpi": TableFormat("openmpi", "Open MPI", {"": write_openmpi_rules, ".han": write_han_rules}, _OPENMPI),
    "openmpi-json": TableFormat("openmpi", "Open MPI", {"": write_openmpi_json, ".han": write_han_rules}, _OPENMPI),
    "mpich": TableFormat("mpich", "MPICH", {"": write_mpich_json, ".ch4": write_mpich_compositions},
                         ("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={path}", _CH4)),
    "nccl-csv": TableFormat("nccl", "", {"": write_nccl_csv}, (
        "NCCL_TUNER_PLUGIN=example", "NCCL_TUNER_CONFIG_FILE={path}"), by_nodes=True, has_default=False),
    "rccl-csv": TableFormat("nccl", "", {"": write_rccl_csv}, ("NCCL_TUNER_CONFIG_FILE={path}",), by_nodes=True),
    "ucc": TableFormat("ucc", "Open MPI", {"": write_ucc_tune}, (
        "OMPI_MCA_coll_ucc_enable=1", "OMPI_MCA_coll_ucc_priority=100", "UCC_CONFIG_FILE={path}")),
}  # fmt: skip


def table_files(name: str, ranges: Iterable[LibraryRange], path: Path, about: str) -> tuple[dict[Path, str], list[str]]:
    """Return the files of a table with their content, and the lines for a shell with which the library reads them.

    Args:
        name: a key of ``FORMATS``.
        ranges: the choices; the default needs no rule.
        path: the file of the table.
        about: lines that say where the choices are from.
    """
    of = FORMATS[name]
    rules = [
        TuningRule(
            collective=library_collective(of.library, each.collective) or "", algorithm=each.choice.algorithm,
            bytes=(each.first, UNLIMITED if each.below is None else each.below - 1), ranks=(each.ranks, each.ranks),
            nodes=(each.nodes[0], each.nodes[0]) if of.by_nodes else ANY, parameters=dict(each.choice.params),
        )
        for each in ranges
        if not each.choice.is_native
    ]  # fmt: skip
    exports = [f"export {each.format(path=path.resolve())}" for each in of.variables]
    comment = "\n".join((about, "to use it:", *exports))
    return {Path(f"{path}{suffix}"): write(rules, comment) for suffix, write in of.writers.items()}, exports
