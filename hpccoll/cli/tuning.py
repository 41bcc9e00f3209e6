"""Commands that evaluate results: tune and fit."""

from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import PATHS, report_damaged, report_loaded, show_found
from hpccoll.cli.library_tables import OWN_FORMAT, TuneCommand, tables_that_read, tables_that_write
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_count

family = typer.Typer()


@family.command(cls=TuneCommand, epilog="Example: hpccoll tune results/default --out table.json")
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
            help=f"{{written}}: with --out the library of the table [{OWN_FORMAT}, ours]; with --lint, also {{read}} "
            "[as F looks]",
            metavar="NAME",
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output; of --out, with --format only")] = False,
) -> int:
    """Build a table of the best algorithms, judge one, or check one of {libraries}.

    The algorithm auto selects by this table, size by size. With --format, the table is for programs that use that
    library, of its own algorithms. Judge a table by other results than those it was built from. Ends with 3 if a file
    cannot be read, or a checked table does not do what it says.
    """
    if (lint and (paths or out or judge or verify)) or (table_format and not (lint or out or verify)):
        why = "--lint F with --format and --json alone, and --format with --out, --lint or --verify"
        raise UnusableError("hpccoll tune", why)
    if lint:
        return tables_that_read(lint, table_format, "--lint").lint(lint, table_format, as_json=as_json)
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
    for_library = table_format not in (None, OWN_FORMAT)
    if as_json and out and not for_library:
        raise BadInputError("--json", str(out), "no --json with --out: the table is JSON")
    results = read_results(paths)
    if verify:
        tables = tables_that_read(verify, table_format, "--verify")
        return tables.verify(results, verify, table_format, as_json=as_json) or report_damaged(results)
    if out and table_format and for_library:
        tables_that_write(table_format).write(results, table_format, out, as_json=as_json)
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
