"""Tables of other libraries from choices among their algorithms: a row of ``FORMATS`` for each format."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from hpccoll.analysis.library_choices import DEFAULT, LibraryChoices, LibraryRange
from hpccoll.analysis.setting import recorded_mpi_version
from hpccoll.cases.library_algorithms import library_collective, library_table
from hpccoll.cases.variables import assignment
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count, format_rounded_size
from hpccoll.interop.tuning_tables.mpich_json import write_mpich_compositions, write_mpich_json
from hpccoll.interop.tuning_tables.nccl_csv import write_nccl_csv
from hpccoll.interop.tuning_tables.openmpi_json import write_openmpi_json
from hpccoll.interop.tuning_tables.openmpi_rules import write_han_rules, write_openmpi_rules
from hpccoll.interop.tuning_tables.tuning_rule import ANY, UNLIMITED, TuningRule
from hpccoll.interop.tuning_tables.ucc_tune import write_ucc_tune
from hpccoll.store.rows import Run

_Writer: TypeAlias = Callable[[Iterable[TuningRule], str], str]
_OPENMPI = (
    "OMPI_MCA_coll_tuned_use_dynamic_rules=1", "OMPI_MCA_coll_tuned_dynamic_rules_filename={path}",
    "OMPI_MCA_coll_han_use_dynamic_file_rules=1", "OMPI_MCA_coll_han_dynamic_rules_filename={path}.han",
)  # fmt: skip
_IN_PLACE = ("all_gather", "all_to_all")
"""The collectives whose send count, which Open MPI looks at, counts nothing in place and may be 0."""
_CH4 = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE={path}.ch4"


class TableFormat(NamedTuple):
    """A format that can be written."""

    library: str  # of ``cases.library_algorithms``
    mpi: str  # how the version of the MPI library begins whose results count; empty for any
    versions: str  # the digits of its major versions that read the format; empty for all
    # what writes each file, by what its name has behind that of the table: a layer of the library that sees calls
    # before the algorithms do has a file of its own
    writers: Mapping[str, _Writer]
    variables: tuple[str, ...]  # the environment in which the library reads them
    by_nodes: bool = False  # whether tables know the number of nodes
    has_default: bool = True  # whether tables can leave calls to the library


FORMATS = {
    "openmpi": TableFormat("openmpi", "Open MPI", "45", {"": write_openmpi_rules, ".han": write_han_rules}, _OPENMPI),
    "openmpi-json": TableFormat("openmpi", "Open MPI", "6", {"": write_openmpi_json, ".han": write_han_rules},
                                _OPENMPI),
    "mpich": TableFormat("mpich", "MPICH", "5", {"": write_mpich_json, ".ch4": write_mpich_compositions},
                         ("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={path}", _CH4)),
    "nccl-csv": TableFormat("nccl", "", "", {"": write_nccl_csv}, (
        "NCCL_TUNER_PLUGIN=example", "NCCL_TUNER_CONFIG_FILE={path}"), by_nodes=True, has_default=False),
    "ucc": TableFormat("ucc", "Open MPI", "", {"": write_ucc_tune}, (
        "OMPI_MCA_coll_ucc_enable=1", "OMPI_MCA_coll_ucc_priority=100", "UCC_CONFIG_FILE={path}")),
}  # fmt: skip


def knows_nodes(name: str, runs: Iterable[Run]) -> bool:
    """Return whether a table can tell numbers of nodes apart, as results do.

    For NCCL, all hosts of an NVLink domain are one node: with such GPUs, or unknown ones, lines are for any number.
    """
    of_hosts = (cast("list[dict[str, Any]]", run.provenance.get("gpus") or []) for run in runs)
    gpus = [gpu for groups in of_hosts for group in groups for gpu in group["gpus"]]
    known = bool(gpus) and all(gpu.get("name") and not gpu.get("nvlink_domain") for gpu in gpus)
    return FORMATS[name].by_nodes and known


def expressible_choices(name: str, choices: LibraryChoices) -> LibraryChoices:
    """Return the choices that a format can express; what it cannot is among those left out.

    Raises:
        BadInputError: if the MPI library of the results does not read the format.
    """
    of, kept, left_out = FORMATS[name], list[LibraryRange](), [*choices.left_out]
    for version in (recorded_mpi_version(run.provenance) for run in choices.runs if of.versions):
        major = "".join(re.findall("[0-9]+", version)[:1])
        if major not in [*of.versions]:
            fitting = [other for other, each in FORMATS.items() if each.mpi == of.mpi and major in [*each.versions]]
            why = f"{of.mpi} {' and '.join(of.versions)} read it, and PATHS are of {version}"
            raise BadInputError("--format", name, f"{why}; for these: {', '.join(fitting) or 'none'}")
    for (collective, ranks), group in groupby(choices.ranges, lambda each: (each.collective, each.ranks)):
        ranges = [each for each in group if of.has_default or not each.choice.is_native]
        why = library_table()[of.library].get("one_rule", {}).get(library_collective(of.library, collective))
        if why and len(ranges) > 1:
            names = ((format_rounded_size(e.first), DEFAULT if e.choice.is_native else e.choice.name) for e in ranges)
            uses = ", ".join(f"{use} from {first}" for first, use in names)
            left_out.append(f"{collective} on {format_count(ranks, 'rank')}, {uses}: {of.mpi} {why}")
        else:
            kept += ranges
    if not of.has_default:
        left_out.append("calls without a line: the library has no default beside a table, and takes ring with simple")
    if of.library == "openmpi" and any(each.first and each.collective in _IN_PLACE for each in kept):
        left_out.append(f"{' and '.join(_IN_PLACE)} with MPI_IN_PLACE and no send count: the choice at size 0 holds")
    return replace(choices, ranges=tuple(kept), left_out=tuple(left_out))


def table_files(
    name: str, ranges: Iterable[LibraryRange], path: Path, about: str, *, by_nodes: bool
) -> tuple[dict[Path, str], list[str]]:
    """Return the files of a table with their content, and the lines for a shell with which the library reads them.

    Args:
        name: a key of ``FORMATS``.
        ranges: the choices; the default needs no rule.
        path: the file of the table.
        about: lines that say where the choices are from.
        by_nodes: whether rules are for one number of nodes each.
    """
    of = FORMATS[name]
    rules = [
        TuningRule(
            collective=library_collective(of.library, each.collective) or "", algorithm=each.choice.algorithm,
            bytes=(each.first, UNLIMITED if each.below is None else each.below - 1), ranks=(each.ranks, each.ranks),
            nodes=(each.nodes[0], each.nodes[0]) if by_nodes else ANY, parameters=dict(each.choice.params),
        )
        for each in ranges
        if not each.choice.is_native
    ]  # fmt: skip
    values = (each.format(path=path.resolve()).split("=", 1) for each in of.variables)
    exports = [f"export {assignment(variable, value)}" for variable, value in values]
    comment = "\n".join((about, "to use it:", *exports))
    return {Path(f"{path}{suffix}"): write(rules, comment) for suffix, write in of.writers.items()}, exports
