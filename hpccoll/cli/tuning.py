"""Commands that evaluate results: tune and fit."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpccoll.cli.common import INCOMPLETE, PATHS, report_damaged, report_loaded, show_found
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_count

if TYPE_CHECKING:
    from hpccoll.interop.tuning_tables.tuning_rule import TuningTable
    from hpccoll.store.rows import Results

family = typer.Typer()

MAX_TABLE_BYTES = 1 << 19
"""The most bytes of a tuning table of another library: more rules than anybody writes."""


@family.command(epilog="Example: hpccoll tune results/default --out table.json")
def tune(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="raw files, or directories with raw files", metavar="PATHS...")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="file of the new table", metavar="TABLE.json")] = None,
    judge: Annotated[
        Path | None,
        typer.Option(help="table whose choices to compare with the best ones in PATHS", metavar="TABLE.json"),
    ] = None,
    lint: Annotated[
        Path | None, typer.Option(help="tuning table of another library to check, instead of PATHS", metavar="F")
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(
            help="such a table: does the library do in PATHS what it says, and what does it gain", metavar="F"
        ),
    ] = None,
    table_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="openmpi, openmpi-json, mpich, nccl-csv: with --out the library of the table [json, ours]; with "
            "--lint, also han, rccl-csv and ucc [as F looks]",
            metavar="NAME",
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output; of --out, with --format only")] = False,
) -> int:
    """Build a table of the best algorithms, judge one, or check one of Open MPI, MPICH, NCCL, RCCL or UCC.

    The algorithm auto selects by this table, size by size. With --format, the table is for programs that use that
    library, of its own algorithms. Judge a table by other results than those it was built from. Ends with 3 if a file
    cannot be read, or a checked table does not do what it says.
    """
    if (lint and (paths or out or judge or verify)) or (table_format and not (lint or out or verify)):
        why = "--lint F with --format and --json alone, and --format with --out, --lint or --verify"
        raise UnusableError("hpccoll tune", why)
    if lint:
        return _lint(lint, table_format, as_json=as_json)
    from hpccoll.analysis.build_table import (
        build_table,
        table_load_findings,
        table_warnings,
        without_plans,
        write_table,
    )
    from hpccoll.analysis.choice_table import TuneTable, load_table
    from hpccoll.analysis.judge_table import judge_table
    from hpccoll.analysis.recommendations import Advice
    from hpccoll.render.answers import Answers
    from hpccoll.render.choice_table_text import choice_table_lines, judgement_lines
    from hpccoll.store.load_results import read_results

    if [out, judge, verify].count(None) != 2 or not paths:
        why = "PATHS and one of --out (builds a table), --judge (judges one) and --verify, or --lint F (checks F)"
        raise UnusableError("hpccoll tune", why)
    for_library = table_format not in (None, "json")
    if as_json and out and not for_library:
        raise BadInputError("--json", str(out), "no --json with --out: the table is JSON")
    results = read_results(paths)
    if verify:
        return _verify(results, verify, table_format, as_json=as_json) or report_damaged(results)
    if out and table_format and for_library:
        _library_table(results, table_format, out, as_json=as_json)
    elif judge:
        judgement = judge_table(TuneTable.from_json(load_table(judge, "--judge")), results)
        show_found(judgement, judgement_lines(judgement), as_json=as_json)
    elif out:
        kept = without_plans(results)
        advice = Advice(kept)
        write_table(build_table(kept, advice), out)
        lines = [*choice_table_lines(kept, Answers(advice.recommendations)), *table_warnings(kept, advice)]
        lines += [finding.with_remedy for finding in table_load_findings(kept, advice)]
        if count := len(results.rows) - len(kept.rows):
            lines.append(f"left out: {format_count(count, 'result')} of plans, which a table cannot name")
        typer.echo("\n".join((*lines, f"table: {out}")))
    return report_damaged(results)


def _library_table(results: "Results", name: str, out: Path, *, as_json: bool) -> None:
    from hpccoll.analysis.build_table import check_over, write_over
    from hpccoll.analysis.library_choices import library_choices
    from hpccoll.common.files import read_text
    from hpccoll.interop.tuning_tables.write_table import FORMATS, expressible_choices, knows_nodes, table_files
    from hpccoll.render.library_choice_text import MADE_BY, library_choice_lines, origin_text

    def check(file: Path) -> None:
        if MADE_BY not in read_text(file, "--out", MAX_TABLE_BYTES):
            raise UnusableError("--out", "no table")

    if name not in FORMATS:
        raise BadInputError("--format", name, ("json", *FORMATS))
    of, by_nodes = FORMATS[name], knows_nodes(name, results.runs)
    found = library_choices(results, of.library, of.mpi, by_nodes=by_nodes, has_default=of.has_default)
    choices = expressible_choices(name, found)
    files, exports = table_files(name, choices.ranges, out, origin_text(choices), by_nodes=by_nodes)
    for file in files:
        check_over(file, partial(check, file))
    for file, text in files.items():
        write_over(file, text, partial(check, file))
    ranges = [*map(asdict, choices.ranges)]
    loads = [*map(asdict, choices.under_load)]
    record = {
        "format": name, "ranges": ranges, "left_out": choices.left_out, "environment": exports, "under_load": loads
    }  # fmt: skip
    written = f"table: {', '.join(map(str, files))}; to use it:"
    show_found(record, (*library_choice_lines(choices), written, *exports), as_json=as_json)


def _verify(results: "Results", path: Path, name: str | None, *, as_json: bool) -> int:
    from hpccoll.analysis.verified_calls import FAILED, IGNORED, NOT_SHOWN, OVERRULED, verify_table
    from hpccoll.common.text import finding_line
    from hpccoll.interop.tuning_tables.write_table import FORMATS
    from hpccoll.render.verified_table_text import verified_lines

    table = _read_table(path, name, "--verify")
    if table.format not in ("openmpi", "openmpi-json", "mpich"):
        raise BadInputError("--verify", str(path), "a table of Open MPI or MPICH: those of others name no messages")
    of = FORMATS[table.format]
    refused = [each for each in table.findings if each.severity == "critical" or not table.rules]
    names = [each.partition("=")[0] for each in of.variables]
    calls = verify_table(path, table.rules, of.library, names, results) if table.rules else []
    if not calls and not refused:
        variables = ", ".join(each.format(path=path.resolve()) for each in of.variables)
        why = f"no call was measured both with these variables, which let {path} count, and without: {variables}"
        remedy = "a sweep whose variants are default and one with them, with all other variables of collectives alike"
        raise UnusableError("PATHS", f"{why}; do: {remedy}")
    record = {"findings": [*map(asdict, refused)], "calls": [asdict(call) for call in calls]}
    lines = (*map(finding_line, refused), *(verified_lines(calls) if calls else ()))
    show_found(record, lines, as_json=as_json)
    verdicts = {call.verdict for call in calls}
    return INCOMPLETE if refused or verdicts & {IGNORED, OVERRULED, FAILED} or verdicts == {NOT_SHOWN} else 0


def _read_table(path: Path, name: str | None, option: str) -> "TuningTable":
    from hpccoll.common.files import read_text
    from hpccoll.interop.tuning_tables.lint_table import KNOWN_TABLES, READERS, lint_table, recognise_format

    if name and name not in READERS:
        raise BadInputError("--format", name, READERS)
    text = read_text(path, option, MAX_TABLE_BYTES)
    if name is None and recognise_format(text) is None:
        raise BadInputError(option, str(path), f"{KNOWN_TABLES}; or name its format by --format")
    return lint_table(text, name)


def _lint(path: Path, name: str | None, *, as_json: bool) -> int:
    from hpccoll.common.text import SEVERITY_WORDS, finding_line

    table = _read_table(path, name, "--lint")
    head = f"{path}: {table.format}, {format_count(len(table.rules), 'rule')}"
    words = {**SEVERITY_WORDS, "info": "note"}  # also with something to do
    show_found(asdict(table), (head, *(finding_line(each, words) for each in table.findings)), as_json=as_json)
    return INCOMPLETE if any(each.severity == "critical" for each in table.findings) else 0


@family.command(epilog="Example: hpccoll fit results/calibrate results/default --out machine.json")
def fit(
    paths: PATHS,
    out: Annotated[
        Path | None, typer.Option(help="file of the fitted machine, for predict", metavar="MACHINE.json")
    ] = None,
    declare: Annotated[
        Path | None,
        typer.Option(help="sections cpus, uplink, memory, aggregators or layout of a machine file", metavar="F.yaml"),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output, in SI units")] = False,
) -> int:
    """Fit a machine to ping-pongs and other patterns.

    Its predictions are compared with all other measurements: the output begins with the errors on these. Measure
    workflows/config/calibrate.yaml on few nodes, and the cases to predict on more nodes. Ends with 3 if a file cannot
    be read.
    """
    from hpccoll.common.yaml_model import load_yaml
    from hpccoll.model.machine_file import write_machine
    from hpccoll.model.machine_sections import DeclaredSections
    from hpccoll.model.run_model import models_of
    from hpccoll.render.model_report import model_lines
    from hpccoll.store.result_files import read_all

    declared = load_yaml(declare, DeclaredSections, "--declare") if declare else None
    files = read_all(paths)
    with progress_counter("predictions") as progress:
        models = models_of(files.raw_results, declared, progress)
    if out:
        fitted = [each for each in models if each.machine]
        if len(fitted) > 1:
            several = ", ".join(f"{each.measured_on[1]} over {each.over}" for each in fitted)
            raise BadInputError("--out", str(out), f"results of one machine and transport, not of {several}")
        write_machine(fitted[0].machine_file(), out)
    show_found(models, (line for each in models for line in model_lines(each)), as_json=as_json)
    if out and not as_json:
        typer.echo(f"machine: {out}")
    report_loaded(files)
    return report_damaged(files)
