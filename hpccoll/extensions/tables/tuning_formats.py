"""What ``hpccoll tune`` writes, checks and verifies: tables of Open MPI, MPICH, NCCL, RCCL and UCC."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TypedDict

from hpccoll.analysis.tune_table import check_over, write_over
from hpccoll.cli.common import INCOMPLETE, show_found
from hpccoll.cli.library_tables import MAX_TABLE_BYTES
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_text
from hpccoll.common.json_schema import OutputSchema
from hpccoll.common.text import SEVERITY_WORDS, Finding, finding_line
from hpccoll.common.units import format_count
from hpccoll.extensions.tables.formats.lint_table import (
    KNOWN_TABLES,
    READERS,
    lint_table,
    recognise_format,
)
from hpccoll.extensions.tables.formats.tuning_rule import TuningTable
from hpccoll.extensions.tables.formats.write_table import (
    FORMATS,
    TableFormat,
    expressible_choices,
    knows_nodes,
    table_files,
)
from hpccoll.extensions.tables.library_choice_text import MADE_BY, library_choice_lines, origin_text
from hpccoll.extensions.tables.library_choices import (
    LibraryChoices,
    LibraryRange,
    library_choices,
)
from hpccoll.extensions.tables.table_conclusion import (
    TableConclusion,
    conclusion_findings,
    unmeasured_findings,
)
from hpccoll.extensions.tables.unused_gains import Reason
from hpccoll.extensions.tables.verified_calls import (
    FAILED,
    IGNORED,
    NOT_SHOWN,
    OVERRULED,
    VerifiedCall,
    changes_nothing,
    verify_table,
)
from hpccoll.extensions.tables.verified_table_text import over_tcp, verified_lines
from hpccoll.store.rows import Results


class GainJson(TypedDict):
    """The time of the default over that of an algorithm at a size in bytes, as JSON has it."""

    nbytes: int
    gain: float


class UnusedGainJson(TypedDict):
    """What an algorithm may gain where a table keeps the default, and why it keeps that, as JSON has it."""

    collective: str
    ranks: int
    nodes: tuple[int, ...]
    algorithm: str
    reason: Reason
    gains: list[GainJson]


class LibraryTableJson(TypedDict):
    """What ``--out`` with ``--format`` wrote, as JSON has it."""

    format: str
    ranges: list[LibraryRange]
    left_out: Sequence[str]
    environment: list[str]
    under_load: list[Finding]
    changes_nothing: bool
    findings: list[Finding]
    unused: list[UnusedGainJson]
    noise: Sequence[str]


class VerifiedTableJson(TypedDict):
    """What a library did with a table, as JSON has it."""

    findings: list[Finding]
    calls: list[VerifiedCall]
    changes_nothing: bool


SCHEMAS = (
    OutputSchema(
        "library-table",
        "tune PATHS --out F --format NAME --json",
        "what a table of another library does, by size",
        ("hpccoll.extensions.tables.tuning_formats:LibraryTableJson",),
    ),
    OutputSchema(
        "table-check",
        "tune --lint F --json",
        "the rules of a table of another library, and what is wrong with them",
        ("hpccoll.extensions.tables.formats.tuning_rule:TuningTable",),
    ),
    OutputSchema(
        "verified-table",
        "tune PATHS --verify F --json",
        "what a library did with a table of its own and without",
        ("hpccoll.extensions.tables.tuning_formats:VerifiedTableJson",),
    ),
)


VERIFIABLE = "openmpi", "openmpi-json", "mpich"
"""The formats of the libraries whose algorithms are recognised by their messages."""


class TuningFormats:
    """The tables of this extension, a ``cli.library_tables.LibraryTables``."""

    libraries = "Open MPI, MPICH, NCCL, RCCL or UCC"
    written = tuple(FORMATS)
    read = tuple(READERS)
    formats_text = KNOWN_TABLES

    def recognises(self, text: str) -> bool:
        return recognise_format(text) is not None

    def write(
        self, results: Results, name: str, out: Path, *, no_default: bool, as_json: bool
    ) -> None:
        table_format = FORMATS[name]
        by_nodes = knows_nodes(name, results.runs)
        measured = library_choices(
            results,
            table_format.library,
            table_format.mpi,
            by_nodes=by_nodes,
            has_default=table_format.has_default and not no_default,
        )
        choices = expressible_choices(name, measured)
        files, exports = table_files(
            name, choices.ranges, out, origin_text(choices), by_nodes=by_nodes
        )
        for file in files:
            check_over(file, partial(_check_is_ours, file))
        for file, text in files.items():
            write_over(file, text, partial(_check_is_ours, file))
        record = {
            "format": name,
            "ranges": [asdict(size_range) for size_range in choices.ranges],
            "left_out": choices.left_out,
            "environment": exports,
            "under_load": [asdict(finding) for finding in choices.under_load],
            "changes_nothing": TableConclusion.of(choices).changes_nothing,
            "findings": [asdict(finding) for finding in _table_findings(choices)],
            "unused": list(_unused_json(choices)),
            "noise": choices.noise,
        }
        written = f"table: {', '.join(map(str, files))}; to use it:"
        show_found(record, (*library_choice_lines(choices), written, *exports), as_json=as_json)

    def lint(self, path: Path, name: str | None, *, as_json: bool) -> int:
        table = _read_table(path, name, "--lint")
        head = f"{path}: {table.format}, {format_count(len(table.rules), 'rule')}"
        words = {**SEVERITY_WORDS, "info": "note"}  # also with something to do
        if not table.findings:
            head += ", nothing wrong"
        lines = [head]
        for finding in table.findings:
            lines.append(finding_line(finding, words))
        show_found(asdict(table), lines, as_json=as_json)
        if not any(finding.severity == "critical" for finding in table.findings):
            return 0
        return INCOMPLETE

    def verify(self, results: Results, path: Path, name: str | None, *, as_json: bool) -> int:
        table = _read_table(path, name, "--verify")
        if table.format not in VERIFIABLE:
            expected = "a table of Open MPI or MPICH: those of others name no messages"
            raise BadInputError("--verify", str(path), expected)
        table_format = FORMATS[table.format]
        refused = []
        for finding in table.findings:
            if finding.severity == "critical" or not table.rules:
                refused.append(finding)
        names = [variable.partition("=")[0] for variable in table_format.variables]
        calls = (
            verify_table(path, table.rules, table_format.library, names, results)
            if table.rules
            else []
        )
        if not calls and not refused:
            raise _nothing_to_verify(path, table_format)
        is_without_effect = bool(calls) and changes_nothing(calls)
        record = {
            "findings": list(map(asdict, refused)),
            "calls": list(map(asdict, calls)),
            "changes_nothing": is_without_effect,
        }
        lines = list(map(finding_line, refused))
        if calls:
            lines += verified_lines(calls, table_format.library)
        show_found(record, lines, as_json=as_json)
        verdicts = {call.verdict for call in calls}
        is_nothing_shown = verdicts == {NOT_SHOWN} and not is_without_effect
        is_wrong = refused or verdicts & {IGNORED, OVERRULED, FAILED} or is_nothing_shown
        return INCOMPLETE if is_wrong else 0


TUNING_FORMATS = TuningFormats()


def _table_findings(choices: LibraryChoices) -> Iterator[Finding]:
    """Yield what noise leaves open in a table, and where sizes below its ranges were not measured."""
    yield from conclusion_findings(choices)
    for _, group in groupby(choices.ranges, attrgetter("ranks_of_call")):
        ranges = list(group)
        if ranges[0].first or ranges[0].reaches_below:
            yield from unmeasured_findings(ranges)


def _unused_json(choices: LibraryChoices) -> Iterator[UnusedGainJson]:
    """Yield what algorithms may gain where a table keeps the default."""
    for (collective, ranks, nodes), gains in choices.unused.items():
        for unused in gains:
            yield {
                "collective": collective,
                "ranks": ranks,
                "nodes": nodes,
                "algorithm": unused.algorithm,
                "reason": unused.reason,
                "gains": [{"nbytes": size, "gain": gain} for size, gain in unused.gains.items()],
            }


def _check_is_ours(file: Path) -> None:
    """Check that a table that is to be replaced is one that we wrote."""
    if MADE_BY not in read_text(file, "--out", MAX_TABLE_BYTES):
        raise UnusableError("--out", "no table")


def _read_table(path: Path, name: str | None, option: str) -> TuningTable:
    return lint_table(read_text(path, option, MAX_TABLE_BYTES), name)


def _nothing_to_verify(path: Path, table_format: TableFormat) -> UnusableError:
    names = [template.format(path=path.resolve()) for template in table_format.variables]
    variables = ", ".join(names)
    why = f"no call was measured both with these variables, which let {path} count, and without: {variables}"
    remedy = f"{over_tcp(table_format.library)}, with all other variables of collectives alike"
    return UnusableError("PATHS", f"{why}; do: {remedy}")
