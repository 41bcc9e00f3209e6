"""Tables of other libraries from choices among their algorithms: a row of ``FORMATS`` for each format."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from hpccoll.analysis.setting import recorded_mpi_version
from hpccoll.cases.library_algorithms import library_collective, library_table
from hpccoll.cases.variables import assignment
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count, format_rounded_size
from hpccoll.extensions.tables.formats.mpich_json import write_mpich_compositions, write_mpich_json
from hpccoll.extensions.tables.formats.nccl_csv import write_nccl_csv
from hpccoll.extensions.tables.formats.openmpi_json import write_openmpi_json
from hpccoll.extensions.tables.formats.openmpi_rules import write_han_rules, write_openmpi_rules
from hpccoll.extensions.tables.formats.tuning_rule import ANY, UNLIMITED, TuningRule
from hpccoll.extensions.tables.library_choices import DEFAULT, LibraryChoices, LibraryRange
from hpccoll.store.rows import Run

_Writer: TypeAlias = Callable[[Iterable[TuningRule], str], str]
_OPENMPI = (
    "OMPI_MCA_coll_tuned_use_dynamic_rules=1",
    "OMPI_MCA_coll_tuned_dynamic_rules_filename={path}",
    "OMPI_MCA_coll_han_use_dynamic_file_rules=1",
    "OMPI_MCA_coll_han_dynamic_rules_filename={path}.han",
)
_IN_PLACE = ("all_gather", "all_to_all")
"""The collectives whose send count, which Open MPI looks at, counts nothing in place and may be 0."""
_CH4 = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE={path}.ch4"


class TableFormat(NamedTuple):
    """A format that can be written."""

    library: str  # of ``cases.library_algorithms``
    mpi: str  # how the version of the MPI library begins whose results count; empty for any
    versions: str  # the digits of its major versions that read the format; empty for all
    # what writes each file, by what its name has behind that of the table: a layer of the library
    # that sees calls before the algorithms do has a file of its own
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
}  # fmt: skip


def knows_nodes(name: str, runs: Iterable[Run]) -> bool:
    """Return whether a table can tell numbers of nodes apart, as results do.

    For NCCL, all hosts of an NVLink domain are one node: with such GPUs, or unknown ones, lines are
    for any number.
    """
    gpus: list[dict[str, Any]] = []
    for run in runs:
        hosts_with_equal_gpus = cast("list[dict[str, Any]]", run.provenance.get("gpus") or [])
        for hosts in hosts_with_equal_gpus:
            gpus += hosts["gpus"]
    are_known = bool(gpus) and all(gpu.get("name") and not gpu.get("nvlink_domain") for gpu in gpus)
    return FORMATS[name].by_nodes and are_known


def expressible_choices(name: str, choices: LibraryChoices) -> LibraryChoices:
    """Return the choices that a format can express; what it cannot is among those left out.

    Raises:
        BadInputError: if the MPI library of the results does not read the format.
    """
    table_format = FORMATS[name]
    if table_format.versions:
        for run in choices.runs:
            _check_version(name, recorded_mpi_version(run.provenance))
    kept: list[LibraryRange] = []
    inexpressible: list[LibraryRange] = []
    left_out = list(choices.left_out)
    one_rule = library_table()[table_format.library].get("one_rule", {})
    for (collective, ranks), group in groupby(
        choices.ranges, lambda chosen: (chosen.collective, chosen.ranks)
    ):
        ranges = list(group)
        if not table_format.has_default:
            ranges = [chosen for chosen in ranges if not chosen.choice.is_native]
        why = one_rule.get(library_collective(table_format.library, collective))
        if why and any(chosen.first for chosen in ranges):
            uses = ", ".join(map(_use, ranges))
            left_out.append(
                f"{collective} on {format_count(ranks, 'rank')}, {uses}: {table_format.mpi} {why}"
            )
            inexpressible += ranges
        else:
            kept += ranges
    if not table_format.has_default:
        left_out.append(
            "calls without a line: the library has no default beside a table, and takes ring with simple"
        )
    if table_format.library == "openmpi" and any(
        chosen.first and chosen.collective in _IN_PLACE for chosen in kept
    ):
        left_out.append(
            f"{' and '.join(_IN_PLACE)} with MPI_IN_PLACE and no send count: the choice at size 0 holds"
        )
    return replace(
        choices,
        ranges=tuple(kept),
        left_out=tuple(left_out),
        inexpressible=tuple(inexpressible),
    )


def _check_version(name: str, version: str) -> None:
    """Check that the MPI library of the results reads a format, and name those that it reads."""
    table_format = FORMATS[name]
    major = "".join(re.findall("[0-9]+", version)[:1])
    if major in list(table_format.versions):
        return
    fitting = []
    for other_name, candidate in FORMATS.items():
        if candidate.mpi == table_format.mpi and major in list(candidate.versions):
            fitting.append(other_name)
    why = f"{table_format.mpi} {' and '.join(table_format.versions)} read it, and PATHS are of {version}"
    raise BadInputError("--format", name, f"{why}; for these: {', '.join(fitting) or 'none'}")


def _use(chosen: LibraryRange) -> str:
    """Return what is chosen, and from which size on."""
    if chosen.choice.is_native:
        name = DEFAULT
    else:
        name = chosen.choice.name
    return f"{name} from {format_rounded_size(chosen.first)}"


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
    table_format = FORMATS[name]
    rules = []
    for chosen in ranges:
        if not chosen.choice.is_native:
            rules.append(_rule(chosen, table_format.library, by_nodes=by_nodes))
    exports = []
    for template in table_format.variables:
        variable, value = template.format(path=path.resolve()).split("=", 1)
        exports.append(f"export {assignment(variable, value)}")
    comment = "\n".join((about, "to use it:", *exports))
    files = {
        Path(f"{path}{suffix}"): write(rules, comment)
        for suffix, write in table_format.writers.items()
    }
    return files, exports


def _rule(chosen: LibraryRange, library: str, *, by_nodes: bool) -> TuningRule:
    """Return the rule that makes a library take a choice."""
    last = UNLIMITED
    if chosen.below is not None:
        last = chosen.below - 1
    nodes = ANY
    if by_nodes:
        nodes = (chosen.nodes[0], chosen.nodes[0])
    return TuningRule(
        collective=library_collective(library, chosen.collective) or "",
        algorithm=chosen.choice.algorithm,
        bytes=(chosen.first, last),
        ranks=(chosen.ranks, chosen.ranks),
        nodes=nodes,
        parameters=dict(chosen.choice.params),
    )
