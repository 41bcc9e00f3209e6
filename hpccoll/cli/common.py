"""Arguments and exit codes that several commands share."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.common.errors import BadInputError, to_one_line
from hpccoll.common.options import Option, PositionalArgument, check_one_given

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpccoll.interop.benchmark_output import SuppliedMetadata
    from hpccoll.model.machine_file import MachineFile
    from hpccoll.store.result_files import ResultFiles
    from hpccoll.store.rows import Results

PATHS = PositionalArgument(
    "paths",
    "raw files, or directories with raw files",
    "PATHS...",
    "path",
    repeated=True,
    must_exist=True,
)
PROFILE = Option(
    ("--profile",),
    "local, slurm, slurm-nodbd or testbed; see hpccoll doctor",
    "local",
    metavar="NAME",
)
SITE = Option(
    ("--site",),
    "site file, or the name of one in slurm/sites [Slurm's defaults]",
    metavar="NAME|F.yaml",
)
WHERE, OUTPUT = "Where", "Output"
"""Titles of groups of options in the help."""
MACHINE = Option(("--machine",), "fitted machine, of hpccoll fit", metavar="M.json", kind="path")
CLUSTER = Option(
    ("--cluster",), "cluster of 'hpccoll list clusters', or a file F.yaml", metavar="NAME|F.yaml"
)
NODES = Option(("--nodes",), "numbers of nodes: 2,8, or 2-64 doubled", "2,8,64", metavar="N,..")
MAX_NODES = Option(
    ("--max-nodes",),
    "the most nodes of a job whose collectives the machine is fitted to; those on more are held out "
    "[half of the largest job's]",
    metavar="N",
    kind="number",
)
TRANSPORT = Option(
    ("--transport",),
    "transport of the results that count, such as mpi or utofu [all]",
    metavar="NAME",
)
FITTED_LIBRARY = Option(
    ("--library",),
    "library of imported results that count, such as 'Open MPI 4.1.6' [all]",
    metavar="NAME",
)
WORKERS = Option(("-p", "--workers"), "number of workers", metavar="N", kind="number")
LAYOUT = (
    Option(
        ("--ranks-per-node",), "workers per node [all; in racks: one]", metavar="N", kind="number"
    ),
    Option(("--racks",), "number of racks, or workers in each: 6,16,10", "1", metavar="N"),
    Option(
        ("--mapping",), "rank order over racks and nodes: block, cyclic", "block", metavar="NAME"
    ),
    Option(
        ("--aggregators",),
        "number of aggregators, each on its own node",
        0,
        metavar="N",
        kind="number",
    ),
)
"""Where the ranks of a schedule are."""
ROOT = Option(("-r", "--root"), "root of a rooted collective [0]", metavar="RANK", kind="number")
JSON = Option(("--json",), "JSON output", name="as_json", kind="flag")
JSON_IN_SI = Option(("--json",), "JSON output, in SI units", name="as_json", kind="flag")
JUNIT = Option(
    ("--junit",), "JUnit XML for a CI system, a test for each row", metavar="F.xml", kind="path"
)
RUN_RANKS = Option(
    ("--ranks",), "ranks of the run [as the output says]", metavar="N", kind="number"
)
RUN_NODES = Option(
    ("--nodes",), "nodes of the run [as the output says]", metavar="N", kind="number"
)
LIBRARY = Option(
    ("--library",),
    "communication library, such as 'Open MPI 5.0.3' [as the output says]",
    metavar="LIBRARY",
)
PROGRAM = Option(
    ("--program",),
    "program of nccl-tests before 2.17, such as all_reduce [as the output says]",
    metavar="PROGRAM",
)
"""What a user says about an output of another program that does not say it."""
INCOMPLETE = 3
"""The exit code if something planned is missing or wrong, or nothing could be measured."""


PICTURES = ".html", ".svg", ".png"


def show_found(record: object, lines: "Iterable[str]", *, as_json: bool) -> None:
    """Print what a command found: as lines, or as JSON, in which a record is what its ``to_json`` returns."""
    if as_json:
        print(json.dumps(record, indent=1, default=lambda part: part.to_json()))
    else:
        print("\n".join(lines))


def check_suffix(out: Path | None, *suffixes: str) -> None:
    """Check that an output file, if one is requested, is of a known format."""
    if out and out.suffix not in suffixes:
        raise BadInputError("--out", str(out), f"a file name that ends with {', '.join(suffixes)}")


def report_damaged(read: "Results | ResultFiles") -> int:
    """Print unreadable files and notes on stderr, and return the exit code."""
    damaged = list(read.damaged)
    for line in (*damaged, *(f"note: {note}" for note in read.notes)):
        print(f"hpccoll: {to_one_line(line)}", file=sys.stderr)
    return INCOMPLETE if damaged else 0


def report_loaded(files: "ResultFiles") -> None:
    """Print on stderr how many results under load do not count where results are held against a model or others."""
    from hpccoll.common.units import format_count

    every = (history.outcome for raw in files.raw_results for history in raw.histories())
    if loaded := sum(bool(outcome.load) for outcome in every):
        print(
            f"hpccoll: note: {format_count(loaded, 'result')} under load left out", file=sys.stderr
        )


def supplied_metadata(
    ranks: int | None, nodes: int | None, library: str | None, program: str | None
) -> "SuppliedMetadata":
    """Return what the user says about outputs of other programs; BadInputError for numbers out of range."""
    from hpccoll.common.limits import RANKS
    from hpccoll.interop.benchmark_output import SuppliedMetadata

    for key, value in (("--ranks", ranks), ("--nodes", nodes)):
        if value is not None:
            RANKS.check(key, value)
    return SuppliedMetadata(ranks=ranks, nodes=nodes, library=library, program=program)


def report_truncated(paths: "Iterable[Path]") -> int:
    """Print on stderr which outputs of other programs were cut short, and return the exit code."""
    truncated = [*paths]
    for path in truncated:
        line = to_one_line(f"{path} ends before its last line: the run was cut short")
        print(f"hpccoll: note: {line}", file=sys.stderr)
    return INCOMPLETE if truncated else 0


def read_machine_or_cluster(
    machine: Path | None, cluster: str | None, factor: float | None = None, command: str = "predict"
) -> "MachineFile":
    """Read the machine of --machine or of --cluster, with a network ``factor`` times as fast.

    Raises:
        BadInputError: of ``command`` if both or neither is given, or the file is invalid.
    """
    from hpccoll.model.machine_file import read_machine

    choices = {"--cluster": cluster, "--machine": machine}
    check_one_given(command, choices, "; 'hpccoll list clusters' names clusters")
    if machine:
        return read_machine(machine, "--machine").with_network(factor)
    return read_machine(str(cluster), "--cluster").with_network(factor)


def parse_counts(text: str, key: str) -> list[int]:
    """Return counts, ascending: ``2,6``, or ``2-64``, which doubles them up to the last one.

    Raises:
        BadInputError: if ``text`` has neither form, or a count is out of range.
    """
    from hpccoll.common.limits import RANKS

    counts = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        least = RANKS.read(key, first.strip())
        most = RANKS.read(key, last.strip()) if dash else least
        if most < least:
            raise BadInputError(
                key, part, "numbers such as 2,8,64, or an ascending range such as 2-64"
            )
        counts |= {least << power for power in range((most // least).bit_length())} | {most}
    return sorted(counts)
