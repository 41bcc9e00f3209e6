"""Commands that evaluate results: tune and fit."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.command import Command
from hpccoll.cli.common import (
    FITTED_LIBRARY,
    JSON_IN_SI,
    MAX_NODES,
    PATHS,
    PROFILE,
    SITE,
    TRANSPORT,
    report_damaged,
    report_loaded,
    show_found,
)
from hpccoll.cli.library_tables import (
    OWN_FORMAT,
    tables_that_read,
    tables_that_write,
    words_of_tables,
)
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.options import Option, PositionalArgument
from hpccoll.common.units import format_count

if TYPE_CHECKING:
    from hpccoll.store.rows import Results


def tune(
    paths: list[Path] | None = None,
    out: Path | None = None,
    judge: Path | None = None,
    lint: Path | None = None,
    verify: Path | None = None,
    table_format: str | None = None,
    counted: Path | None = None,
    profile: str | None = None,
    site: str | None = None,
    keep_bits_of: str | None = None,
    *,
    no_default: bool = False,
    as_json: bool = False,
) -> int:
    """Build a table of the best algorithms, judge one, or check one of {libraries}.

    The algorithm auto selects by this table, size by size. With --format, the table is for programs
    that use that library, of its own algorithms. Judge a table by other results than those it was
    built from. Ends with 3 if a file cannot be read, or a checked table does not do what it says.
    With --for, it measures the calls of a program that 'hpccoll count' counted, says what the
    program would gain at most by other algorithms of its library, and writes the library's table;
    it ends with 3 if something could not be measured.
    """
    if counted is None:
        _check_no_place(profile, site)
        _check_no_default(no_default, out, table_format)
        return _tune_from_results(
            paths,
            out,
            judge,
            lint,
            verify,
            table_format,
            keep_bits_of,
            no_default=no_default,
            as_json=as_json,
        )
    if paths or judge or lint or verify or table_format or keep_bits_of or no_default:
        why = "--for F with --out, --profile, --site and --json alone"
        raise UnusableError("tune", why)
    from hpccoll.cli.tune_for import tune_for

    return tune_for(counted, out, profile or "local", site, as_json=as_json)


def _check_no_place(profile: str | None, site: str | None) -> None:
    """Check that only --for, which measures, has a place to measure at."""
    for option, value in {"--profile": profile, "--site": site}.items():
        if value is not None:
            raise BadInputError(option, value, f"no {option} without --for F, which measures")


def _check_no_default(no_default: bool, out: Path | None, table_format: str | None) -> None:
    """Check that only a table of a library, which is written, is to be without its default."""
    if no_default and (out is None or table_format in (None, OWN_FORMAT)):
        raise UnusableError(
            "--no-default", "it goes with --out and --format, for a library's table"
        )


def _tune_from_results(
    paths: list[Path] | None,
    out: Path | None,
    judge: Path | None,
    lint: Path | None,
    verify: Path | None,
    table_format: str | None,
    keep_bits_of: str | None,
    *,
    no_default: bool,
    as_json: bool,
) -> int:
    """Build, judge or check a table, from results that were measured."""
    is_more_than_lint = bool(lint) and bool(paths or out or judge or verify or keep_bits_of)
    is_format_alone = bool(table_format) and not (lint or out or verify)
    if is_more_than_lint or is_format_alone:
        why = "--lint F with --format and --json alone, and --format with --out, --lint or --verify"
        raise UnusableError("tune", why)
    if lint:
        return tables_that_read(lint, table_format, "--lint").lint(
            lint, table_format, as_json=as_json
        )
    from hpccoll.analysis.choice_table import TuneTable, load_table
    from hpccoll.analysis.judge_table import judge_table
    from hpccoll.render.choice_table_text import judgement_lines
    from hpccoll.store.load_results import read_results

    if [out, judge, verify].count(None) != 2 or not paths:
        why = "PATHS and one of --out (builds a table), --judge (judges one) and --verify, or --lint F (checks F)"
        raise UnusableError("tune", why)
    for_library = table_format not in (None, OWN_FORMAT)
    _check_kept_bits(keep_bits_of, for_own_table=bool(out) and not for_library)
    if as_json and out and not for_library:
        raise BadInputError("--json", str(out), "no --json with --out: the table is JSON")
    results = read_results(paths)
    if verify:
        tables = tables_that_read(verify, table_format, "--verify")
        return tables.verify(results, verify, table_format, as_json=as_json) or report_damaged(
            results
        )
    if out and table_format and for_library:
        tables_that_write(table_format).write(
            results, table_format, out, no_default=no_default, as_json=as_json
        )
    elif judge:
        judgement = judge_table(TuneTable.from_json(load_table(judge, "--judge")), results)
        show_found(judgement, judgement_lines(judgement), as_json=as_json)
    elif out:
        _make_table(results, out, keep_bits_of)
    return report_damaged(results)


def _check_kept_bits(keep_bits_of: str | None, *, for_own_table: bool) -> None:
    if keep_bits_of and not for_own_table:
        raise UnusableError("--keep-bits-of", "it goes with --out, for a table of ours")


def _make_table(results: "Results", out: Path, keep_bits_of: str | None) -> None:
    """Write a table of ours, and print what it has."""
    from hpccoll.analysis.recommendations import Advice
    from hpccoll.analysis.tune_table import (
        build_table,
        table_load_findings,
        table_warnings,
        unmeasured_lines,
        without_plans,
        write_table,
    )
    from hpccoll.render.answers import Answers
    from hpccoll.render.choice_table_text import choice_table_lines

    kept = without_plans(results)
    plans = len(results.rows) - len(kept.rows)
    lines = []
    if keep_bits_of:
        from hpccoll.analysis.same_bits import with_bits_of

        every = format_count(len(kept.rows), "result")
        kept = with_bits_of(kept, keep_bits_of)
        lines.append(f"kept: {len(kept.rows)} of {every}, with the bits of {keep_bits_of}")
    advice = Advice(kept)
    table = build_table(kept, advice, native_below=not keep_bits_of)
    write_table(table, out)
    lines += [
        *choice_table_lines(kept, Answers(advice.recommendations)),
        *unmeasured_lines(table),
        *table_warnings(kept, advice),
    ]
    lines += [finding.with_remedy for finding in table_load_findings(kept, advice)]
    if plans:
        lines.append(
            f"left out: {format_count(plans, 'result')} of plans, which a table cannot name"
        )
    print("\n".join((*lines, f"table: {out}")))


TUNE = Command(
    name="tune",
    run=tune,
    words=words_of_tables,
    example="Example: hpccoll tune results/default --out table.json",
    arguments=(
        PositionalArgument(
            "paths",
            "raw files, or directories with raw files",
            "[PATHS...]",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(("--out",), "file of the new table", metavar="TABLE.json", kind="path"),
            Option(
                ("--judge",),
                "table whose choices to compare with the best ones in PATHS",
                metavar="TABLE.json",
                kind="path",
                must_exist=True,
            ),
            Option(
                ("--keep-bits-of",),
                "with --out: choose only among algorithms that add in the order of this one",
                metavar="native|NAME",
            ),
            Option(
                ("--lint",),
                "tuning table of another library to check, instead of PATHS",
                metavar="F",
                kind="path",
                must_exist=True,
            ),
            Option(
                ("--verify",),
                "such a table: does the library do in PATHS what it says, and what does it gain",
                metavar="F",
                kind="path",
                must_exist=True,
            ),
            Option(
                ("--format",),
                f"{{written}}: with --out the library of the table [{OWN_FORMAT}, ours]; with --lint, also "
                f"{{read}} [as F looks]",
                name="table_format",
                metavar="NAME",
            ),
            Option(
                ("--no-default",),
                "with --format and --out: name an algorithm for each call, also if the default may be as fast, to "
                "test whether the library follows",
                kind="flag",
            ),
            Option(
                ("--for",),
                "count of a program, whose calls to measure in the directory --out",
                name="counted",
                metavar="COUNT.h5",
                kind="path",
                must_exist=True,
            ),
            replace(
                PROFILE,
                help="with --for: local, slurm, slurm-nodbd or testbed [local]",
                default=None,
            ),
            replace(SITE, help="with --for: site file, or the name of one [Slurm's defaults]"),
            Option(
                ("--json",),
                "JSON output; of --out, with --format only",
                name="as_json",
                kind="flag",
            ),
        )
    },
)


def fit(
    paths: list[Path],
    out: Path | None = None,
    declare: Path | None = None,
    max_nodes: int | None = None,
    transport: str | None = None,
    library: str | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Fit a machine to ping-pongs and other patterns, or to collectives if there are none.

    Its predictions are compared with all other measurements: the output begins with the errors on
    these. Measure workflows/config/calibrate.yaml on few nodes, and the cases to predict on more
    nodes. Ends with 3 if a file cannot be read.
    """
    from hpccoll.common.yaml_model import load_yaml
    from hpccoll.model.machine_file import write_machine
    from hpccoll.model.machine_sections import DeclaredSections
    from hpccoll.model.run_model import model_of_machine, models_of
    from hpccoll.render.model_report import model_lines
    from hpccoll.store.result_files import read_all

    declared = None
    if declare:
        declared = load_yaml(declare, DeclaredSections, "--declare")
    files = read_all(paths)
    with progress_counter("predictions") as progress:
        models = models_of(files.raw_results, declared, progress, max_nodes, transport, library)
    if out:
        write_machine(model_of_machine(models, "--out", out).machine_file(), out)
    show_found(models, (line for model in models for line in model_lines(model)), as_json=as_json)
    if out and not as_json:
        print(f"machine: {out}")
    report_loaded(files)
    return report_damaged(files)


FIT = Command(
    name="fit",
    run=fit,
    example="Example: hpccoll fit results/calibrate results/default --out machine.json",
    arguments=(PATHS,),
    options={
        OPTIONS: (
            Option(
                ("--out",),
                "file of the fitted machine, for predict",
                metavar="MACHINE.json",
                kind="path",
            ),
            MAX_NODES,
            TRANSPORT,
            FITTED_LIBRARY,
            Option(
                ("--declare",),
                "sections cpus, uplink, memory, aggregators or layout of a machine file",
                metavar="F.yaml",
                kind="path",
                must_exist=True,
            ),
            JSON_IN_SI,
        )
    },
)
