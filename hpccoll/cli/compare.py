"""Commands that compare results: of two runs, and of other programs."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.command import Command
from hpccoll.cli.common import (
    INCOMPLETE,
    JSON_IN_SI,
    JUNIT,
    LIBRARY,
    PICTURES,
    PROGRAM,
    RUN_NODES,
    RUN_RANKS,
    check_suffix,
    report_damaged,
    report_truncated,
    show_found,
    supplied_metadata,
)
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.common.errors import BadInputError, UnusableError, to_one_line, writing
from hpccoll.common.limits import COUNT
from hpccoll.common.options import Option, PositionalArgument
from hpccoll.common.units import format_count, format_factor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpccoll.common.decided_cases import DecidedCases
    from hpccoll.judge.reference import Reference
    from hpccoll.judge.run_comparison import Comparison
    from hpccoll.store.rows import Results


def compare(
    paths: list[Path],
    reference: Path | None = None,
    tolerance: float = 0.05,
    require: int | None = None,
    *,
    make_reference: bool = False,
    as_json: bool = False,
    out: Path | None = None,
    junit: Path | None = None,
) -> int:
    """Report which cases changed between two runs.

    The medians of rounds are compared: a shift is a regression if it is significant and at least
    the tolerance. A reference holds the variation between runs of one sweep. Ends with 3 if a case
    became slower or wrong or is missing, or if most cases are too noisy to tell.
    """
    from hpccoll.judge.geometry import compared_geometries
    from hpccoll.judge.reference import compare_with_reference, read_reference
    from hpccoll.judge.run_comparison import check_tolerance
    from hpccoll.judge.run_comparison import compare as compare_runs
    from hpccoll.render.comparison_text import comparison_lines

    check_tolerance(tolerance)
    if make_reference:
        judging = {"--reference": reference, "--json": as_json, "--junit": junit}
        _check_no_judging(judging | {"--require": require is not None})
        return _make_reference(paths, out)
    _check_number_of_runs(paths, reference)
    check_suffix(out, *PICTURES)
    expected = read_reference(reference) if reference else None
    results, codes = _read_runs(paths)
    old, new = results[0], results[-1]
    if expected:
        compared = compare_with_reference(expected, new, tolerance)
    else:
        compared = compare_runs(old, new, tolerance)
    compared = replace(compared, geometries=compared_geometries(compared.cases, new))
    show_found(compared, comparison_lines(compared), as_json=as_json)
    if out:
        from hpccoll.render.comparison_page import write_comparison

        names = f"{reference or paths[0]} and {paths[-1]}"
        with writing(out):
            write_comparison(compared, out, names)
        print(f"page: {out}", file=sys.stderr if as_json else sys.stdout)
    decided = compared.decided_cases(require)
    if junit:
        _write_junit(compared, decided, junit, is_any_unread=any(codes))
    if decided.are_few:
        print(decided.line, file=sys.stderr if as_json else sys.stdout)
    if compared.worse or decided.are_few or any(codes):
        return INCOMPLETE
    return 0


COMPARE = Command(
    name="compare",
    run=compare,
    example="Example: hpccoll compare results/last-week results/today --out changes.html",
    arguments=(
        PositionalArgument(
            "paths",
            "raw file, directory with raw files, or output that import reads, of the old run and of the "
            "new one; with --reference of the new run, with --make-reference of all runs",
            "OLD NEW",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(
                ("--reference",),
                "reference to compare with, made by --make-reference",
                metavar="F.json",
                kind="path",
                must_exist=True,
            ),
            Option(
                ("--tolerance",),
                "smallest change that matters; 0.05 is 1.05x as long",
                0.05,
                metavar="SHARE",
                kind="decimal",
            ),
            Option(
                ("--require",),
                "cases that must be decided, else it ends with 3 [half]",
                metavar="N",
                kind="number",
                key=COUNT,
            ),
            Option(
                ("--make-reference",),
                "make a reference from runs of one sweep, into --out",
                kind="flag",
            ),
            JSON_IN_SI,
            JUNIT,
            Option(
                ("--out",),
                "page with a chart, or chart only; with --make-reference the reference",
                metavar="F.html|svg|png|json",
                kind="path",
            ),
        )
    },
)


def _write_junit(
    compared: "Comparison", decided: "DecidedCases", path: Path, *, is_any_unread: bool
) -> None:
    from hpccoll.render.junit import NOT_READ, held_case, whole_case, write_junit

    cases = []
    for held in compared.cases:
        collective = str(held.case.coordinates["collective"])
        factor = held.shift.factor if held.shift else None
        cases.append(held_case(held, held.case.label, collective, factor))
    reasons = []
    if decided.are_few:
        reasons.append(decided.line)
    if is_any_unread:
        reasons.append(NOT_READ)
    cases.append(whole_case(reasons))
    with writing(path):
        write_junit(path, "hpccoll compare", cases)


def _check_no_judging(judging: "Mapping[str, object]") -> None:
    """Check that no option for a comparison is used where a reference is made."""
    for option, value in judging.items():
        if value:
            raise UnusableError("compare", f"--make-reference and {option} exclude each other")


def _check_number_of_runs(paths: list[Path], reference: Path | None) -> None:
    number = 2
    expected = "two runs, the old and the new one"
    if reference:
        number = 1
        expected = "one run, which is compared with the reference"
    if len(paths) != number:
        raise UnusableError("compare", f"{expected}: {len(paths)} are given")


def _read_runs(paths: "Sequence[Path]") -> "tuple[list[Results], list[int]]":
    """Return the results of each path, and the exit codes of what is wrong with them, which is printed."""
    from hpccoll.interop.any_results import read_any
    from hpccoll.store.load_results import to_results

    nothing_supplied = supplied_metadata(None, None, None, None)
    every = [read_any([path], nothing_supplied) for path in paths]
    codes = [
        code
        for read in every
        for code in (report_damaged(read.files), report_truncated(read.truncated))
    ]
    return [to_results(read.files, [path]) for read, path in zip(every, paths, strict=True)], codes


def _make_reference(paths: list[Path], out: Path | None) -> int:
    from hpccoll.judge.reference import make_reference, write_reference
    from hpccoll.judge.run_comparison import cases_of_rows

    if out is None or out.suffix != ".json":
        raise BadInputError("--out", str(out) if out else None, "the file of the reference, F.json")
    results, codes = _read_runs(paths)
    _check_distinct(paths, results)
    made = make_reference(results)
    with writing(out):
        write_reference(made, out)
    highs = sorted(case.high_s / case.seconds for case in made.cases)
    print(
        f"{out}: {len(made.cases)} cases of {len(paths)} runs; a further run is expected to take at most "
        f"{format_factor(highs[len(highs) // 2])} as long (median of the cases; at most "
        f"{format_factor(highs[-1])})"
    )
    timed = {
        key for read in results for key, case in cases_of_rows(read.rows).items() if case.timed
    }
    if left_out := len(timed) - len(made.cases):
        print(
            f"left out: {format_count(left_out, 'case')} with a correct result in some of the runs only"
        )
    _warn_if_loose(made, paths, results)
    return max(codes)


def _warn_if_loose(
    made: "Reference", paths: "Sequence[Path]", results: "Sequence[Results]"
) -> None:
    """Print which runs of a reference were disturbed, and how many of its bounds exclude nothing."""
    from hpccoll.judge.reference import FAILS_ALONE
    from hpccoll.store.host_load import describe_disturbance

    reasons = []
    for path, read in zip(paths, results, strict=True):
        load = describe_disturbance(run.provenance for run in read.runs)
        if load:
            reasons.append(f"{path} was disturbed: {load}")
    loose = len(made.loose_cases)
    if loose:
        cases = f"{loose} of {format_count(len(made.cases), 'case')}"
        reasons.append(
            f"the reference allows more than {FAILS_ALONE} times the time in {cases}: too much to call a run healthy"
        )
    for reason in reasons:
        print(f"hpccoll: {to_one_line(reason)}", file=sys.stderr)
    if reasons:
        remedy = "repeat the runs on an idle machine and make the reference again"
        print(f"hpccoll: the reference may allow too much; do: {remedy}", file=sys.stderr)


def _check_distinct(paths: "Sequence[Path]", results: "Sequence[Results]") -> None:
    """Check that no launch belongs to two runs, nor the same times: a run given twice would have no spread."""
    seen: set[object] = set()
    for path, read in zip(paths, results, strict=True):
        launches = {*(run.run_id for run in read.runs), tuple(row.median_s for row in read.rows)}
        if launches & seen:
            raise UnusableError("--make-reference", f"results of {path} are given twice")
        seen |= launches


def import_outputs(
    files: list[Path],
    out: Path,
    ranks: int | None = None,
    nodes: int | None = None,
    library: str | None = None,
    program: str | None = None,
    racks: Path | None = None,
) -> int:
    """Import the output of other benchmarks.

    Its results become rows next to ours: report and compare show them with what each number means,
    and never rank them, because they are timed differently. A directory stands for all outputs
    below it, and for the runs of PICO with their metadata. With --racks, hosts are in the racks of a
    file, so that fit can tell messages between racks from others. Ends with 3 if an output ends
    before its last line.
    """
    from hpccoll.interop.imported_paths import read_paths
    from hpccoll.interop.racks_of_hosts import place_in_racks
    from hpccoll.store.hdf5 import check_replaceable, write_raw_file
    from hpccoll.store.racks_file import read_racks
    from hpccoll.store.schema import IMPORTED

    check_replaceable(out, "imported results", lambda attempt: attempt.kind == IMPORTED)
    imported = read_paths(files, supplied_metadata(ranks, nodes, library, program), out)
    if racks:
        without_hosts = place_in_racks(imported.results, read_racks(racks, "--racks"))
        if without_hosts:
            launches = format_count(without_hosts, "launch")
            print(f"hpccoll: note: {launches} without names of hosts: in one rack", file=sys.stderr)
    with writing(out):
        write_raw_file(imported.results, out)
    for line in imported.notes():
        print(f"hpccoll: note: {to_one_line(line)}", file=sys.stderr)
    code = report_truncated(imported.truncated)
    for line in imported.lines():
        print(line)
    print(f"results: {out}")
    return code


IMPORT = Command(
    name="import",
    run=import_outputs,
    example="Example: hpccoll import osu_allreduce.txt --ranks 8 --nodes 4 --out osu.h5",
    arguments=(
        PositionalArgument(
            "files",
            "outputs of OSU, nccl-tests, rccl-tests or IMB (those of one benchmark are rounds); runs of PICO; "
            "directories of them",
            "FILE...",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(("--out",), "raw file to write", metavar="F.h5", kind="path", required=True),
            RUN_RANKS,
            RUN_NODES,
            LIBRARY,
            PROGRAM,
            Option(
                ("--racks",),
                "lines 'HOST RACK', or of 'scontrol show topology': the racks of the hosts [as PICO's results say]",
                metavar="FILE",
                kind="path",
                must_exist=True,
            ),
        )
    },
)
