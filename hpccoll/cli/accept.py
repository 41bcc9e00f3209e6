"""The command accept."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING

from hpccoll.cli import common
from hpccoll.cli.command import Command
from hpccoll.cli.contribute import CONTRIBUTE, FORM, PUBLISHED, write_contribution
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError, to_one_line, writing
from hpccoll.common.interruption import INTERRUPTED, completed, interruptible
from hpccoll.common.limits import COUNT
from hpccoll.common.options import Option, PositionalArgument, check_one_given

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpccoll.evidence.log_record import LogRecord
    from hpccoll.interop.benchmark_output import SuppliedMetadata
    from hpccoll.judge.acceptance_summary import AcceptanceSummary
    from hpccoll.judge.contribution import ContributorForm
    from hpccoll.judge.reference import Reference
    from hpccoll.model.machine_file import MachineFile
    from hpccoll.store.result_files import ResultFiles
    from hpccoll.store.rows import Results


def accept(
    files: list[Path],
    cluster: str | None = None,
    machine: Path | None = None,
    reference: Path | None = None,
    require: int | None = None,
    log: list[Path] | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    library: str | None = None,
    program: str | None = None,
    published: Path | None = None,
    machine_name: str = "",
    gpu: str = "",
    operator: str = "",
    source: str = "",
    *,
    contribute: bool = False,
    ratios: bool = False,
    as_json: bool = False,
    out: Path | None = None,
    junit: Path | None = None,
) -> int:
    """Judge whether measured numbers are normal.

    Each row passes or fails, or the output says what is missing to judge it. A row is held against
    what was published of machines of its class, against your own reference, or against a model; the
    output says which. Causes have the command that checks them. Ends with 3 if a row fails, if a
    file is damaged or cut short, if too little can be told, or with --require unless every run
    passes at its large sizes. With --ratios and a cluster or machine, it prints measured over
    expected times instead; with --contribute and a cluster, rows for the published table.
    """
    from hpccoll.interop.any_results import read_any
    from hpccoll.judge.acceptance_defects import with_defects
    from hpccoll.judge.acceptance_summary import AcceptanceSummary
    from hpccoll.judge.contribution import ContributorForm, contribution_of
    from hpccoll.judge.geometry import judged_geometries
    from hpccoll.judge.reference import Reference, missing_cases
    from hpccoll.judge.symptoms import explain
    from hpccoll.judge.verdicts import judge_rows
    from hpccoll.model.published_rates import with_tables
    from hpccoll.render.acceptance_text import acceptance_lines
    from hpccoll.store.load_results import to_results

    common.check_suffix(out, *((".csv",) if contribute else common.PICTURES))
    supplied = common.supplied_metadata(ranks, nodes, library, program)
    _check_number_of_expected(cluster, machine, reference, files, supplied)
    form = ContributorForm(machine=machine_name, gpu=gpu, operator=operator, source=source)
    used: dict[str, object] = {
        "--reference": reference,
        "--require": require is not None,
        "--log": log,
        "--published": published,
        "--contribute": contribute,
        "--json": as_json,
        "--junit": junit,
        "--out": out,
    }
    _check_together(used, form, ratios=ratios)
    against, name = _read_expected(cluster, machine, reference)
    read = read_any(files, supplied)
    if ratios and not isinstance(against, Reference):
        code = show_ratios(read.files, against, "FILES", as_json=as_json)
        return code or common.report_truncated(read.truncated)
    tables = _own_tables(published, against)
    evidence = _read_log(log, read.ranks) if log else None
    codes = common.report_damaged(read.files), common.report_truncated(read.truncated)
    common.report_loaded(read.files)
    results = to_results(read.files)
    with with_tables(*tables), progress_counter("predictions") as progress:
        judged = judge_rows(read.files, results, against, evidence, progress)
    described = None if isinstance(against, Reference) else against
    if contribute and described:
        contribution = contribution_of(judged, results.runs, described, form, evidence)
        write_contribution(contribution, form, out)
        return common.INCOMPLETE if any(codes) else 0
    judged = explain(judged, described, evidence, read.variables)
    judged = with_defects(judged, results.runs, evidence, described)
    missing = missing_cases(against, results) if isinstance(against, Reference) else []
    geometries = judged_geometries(judged, results.runs, described)
    acceptance = AcceptanceSummary(judged, name, require, read.file_names, len(missing), geometries)
    if not acceptance.judged:
        raise UnusableError("FILES", "no file has a correct measurement of a collective")
    common.show_found(acceptance.to_json(), acceptance_lines(acceptance), as_json=as_json)
    _print_notes(acceptance, missing, as_json=as_json)
    if junit:
        _write_junit(acceptance, junit, is_any_unread=any(codes))
    _write_page(acceptance, out, as_json=as_json)
    _print_undecided(acceptance, as_json=as_json)
    if acceptance.is_refused or any(codes):
        return common.INCOMPLETE
    return 0


NOT_BESIDE_RATIOS = (
    "--reference",
    "--require",
    "--log",
    "--published",
    "--contribute",
    "--junit",
    "--out",
)
"""The options that have no effect beside --ratios."""

NOT_BESIDE_CONTRIBUTE = "--reference", "--require", "--json", "--junit"
"""The options that have no effect beside --contribute."""


def _check_together(used: Mapping[str, object], form: "ContributorForm", *, ratios: bool) -> None:
    """Check that no option is used that would have no effect beside the others.

    Raises:
        BadInputError: names the option.
    """
    if ratios:
        _check_unused("--ratios", NOT_BESIDE_RATIOS, used)
    if used["--contribute"]:
        _check_unused("--contribute", NOT_BESIDE_CONTRIBUTE, used)
    else:
        _check_empty(form)


def _check_unused(option: str, excluded: "Sequence[str]", used: Mapping[str, object]) -> None:
    for excluded_option in excluded:
        if used[excluded_option]:
            raise UnusableError(option, f"{option} and {excluded_option} exclude each other")


def _check_empty(form: "ContributorForm") -> None:
    """Check that the options of a contribution are used with --contribute only.

    Raises:
        BadInputError: names the option that does.
    """
    for option, value in form.texts.items():
        if value:
            raise BadInputError(option, value, f"no {option} without --contribute")


def _print_undecided(acceptance: "AcceptanceSummary", *, as_json: bool) -> None:
    if acceptance.is_undecided:
        print(acceptance.decided_rows.line, file=sys.stderr if as_json else sys.stdout)


def _write_page(acceptance: "AcceptanceSummary", out: Path | None, *, as_json: bool) -> None:
    if out is None:
        return
    from hpccoll.render.acceptance_page import write_acceptance

    with writing(out):
        write_acceptance(acceptance, out)
    print(f"page: {out}", file=sys.stderr if as_json else sys.stdout)


def _write_junit(acceptance: "AcceptanceSummary", path: Path, *, is_any_unread: bool) -> None:
    from hpccoll.judge.held import Acceptance
    from hpccoll.render.acceptance_text import acceptance_lines
    from hpccoll.render.junit import NOT_READ, held_case, whole_case, write_junit

    cases = []
    for judged in acceptance.judged:
        cases.append(held_case(judged, judged.row.case_id, judged.row.collective))
    reasons = []
    if acceptance.is_refused and not acceptance.of(Acceptance.FAIL):
        reasons.append(next(acceptance_lines(acceptance)))
    if is_any_unread:
        reasons.append(NOT_READ)
    cases.append(whole_case(reasons))
    with writing(path):
        write_junit(path, "hpccoll accept", cases)


def _print_notes(
    acceptance: "AcceptanceSummary", missing: "Sequence[str]", *, as_json: bool
) -> None:
    """Print on stderr what JSON does not have, and the cases of the reference that are missing."""
    from hpccoll.common.units import format_count
    from hpccoll.render.acceptance_text import unnamed_gpu_lines
    from hpccoll.render.geometry_text import geometry_lines

    notes: list[str] = []
    if as_json:  # the text has them among its lines
        notes += [*geometry_lines(acceptance.geometries), *unnamed_gpu_lines(acceptance)]
    if missing:
        cases = format_count(len(missing), "case")
        notes.append(f"{cases} of the reference missing, the first {missing[0]}")
    for note in notes:
        print(f"hpccoll: note: {to_one_line(note)}", file=sys.stderr)


ACCEPT = Command(
    name="accept",
    run=accept,
    example="Example: hpccoll accept nccl.txt --cluster 8xh100-400g --out accept.html",
    arguments=(
        PositionalArgument(
            "files",
            "raw files, directories with raw files, or outputs of nccl-tests, rccl-tests, OSU or IMB",
            "FILES...",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={
        common.WHERE: (
            common.CLUSTER,
            common.MACHINE,
        ),
        OPTIONS: (
            Option(
                ("--reference",),
                "reference, of hpccoll compare --make-reference",
                metavar="F.json",
                kind="path",
                must_exist=True,
            ),
            Option(
                ("--require",),
                "rows of each file that must be judged, else it ends with 3 [half, unless large sizes pass]",
                metavar="N",
                kind="number",
                key=COUNT,
            ),
            Option(
                ("--log",),
                "log of the run, or directory of its logs: what ran, and causes",
                metavar="FILE",
                kind="path-list",
                must_exist=True,
            ),
            common.RUN_RANKS,
            common.RUN_NODES,
            common.LIBRARY,
            common.PROGRAM,
            Option(
                ("--ratios",),
                "measured over expected times by algorithm and size, no verdicts",
                kind="flag",
            ),
            PUBLISHED,
            common.JSON_IN_SI,
            common.JUNIT,
            Option(
                ("--out",),
                "page, or chart only; with --contribute the rows",
                metavar="F.html|svg|png|csv",
                kind="path",
            ),
        ),
        "Contribute": (CONTRIBUTE, *FORM),
    },
)


def show_ratios(files: "ResultFiles", machine: "MachineFile", key: str, *, as_json: bool) -> int:
    """Show measured over expected times of every case, which ``key`` names, and return the exit code.

    Raises:
        UnusableError: if no case can be held against the machine.
    """
    from itertools import chain

    from hpccoll.common.units import format_count
    from hpccoll.judge.expectations import Expectation, expectations
    from hpccoll.judge.library_expectations import LibraryExpectation, library_expectations
    from hpccoll.render.model_report import expectation_lines, library_lines
    from hpccoll.store.load_results import to_results

    results = to_results(files)
    with progress_counter("predictions") as progress, interruptible(SIGINT, SIGTERM):
        every: Iterable[Expectation | LibraryExpectation] = chain(
            expectations(files.raw_results, machine, progress, results.rows),
            library_expectations(results, machine, progress),
        )
        held, interrupted = completed(every)
    rows = [row for expectation in held for row in expectation.rows()]
    if not rows:
        raise UnusableError(key, "no file has a correct measurement of an algorithm")
    lines: list[str] = []
    calls: list[LibraryExpectation] = []
    for expectation in held:
        if isinstance(expectation, Expectation):
            lines += expectation_lines(expectation)
        else:
            calls.append(expectation)
    common.show_found(rows, (*lines, *library_lines(calls)), as_json=as_json)
    damaged = common.report_damaged(files)
    common.report_loaded(files)
    if interrupted:
        print(
            f"hpccoll: left out: all but {format_count(len(held), 'comparison')}: interrupted",
            file=sys.stderr,
        )
        return INTERRUPTED
    return damaged


STAND_IN = "all_reduce"
"""The program by which outputs are read that do not name theirs, only to see what GPUs they are of."""


def _check_number_of_expected(
    cluster: str | None,
    machine: Path | None,
    reference: Path | None,
    files: list[Path],
    supplied: "SuppliedMetadata",
) -> None:
    """Check that results are held against one thing; without any, propose clusters that they may be of.

    Raises:
        UnusableError: if it is not exactly one.
        BadInputError: if there is none, and a file is damaged.
    """
    choices = {"--cluster": cluster, "--machine": machine, "--reference": reference}
    hint = ""
    if not any(choices.values()):
        hint = f"; {_proposal(files, supplied)}"
    check_one_given("accept", choices, hint)


def _proposal(files: list[Path], supplied: "SuppliedMetadata") -> str:
    """Return the clusters that results may be of, after what tells so: their GPUs, or else the GPUs of a node."""
    from hpccoll.common.text import join_words
    from hpccoll.common.units import format_count
    from hpccoll.judge.named_gpus import clusters_of_size, gpus_per_node, likely_clusters
    from hpccoll.model.machine_content import cluster_names

    every = f"do: --cluster {join_words(cluster_names(), 'or')}"
    results = _results_of_any_program(files, supplied)
    if results is None:
        return every
    likely = likely_clusters(results)
    gpus = join_words(likely.gpus)
    if likely.clusters:
        proposed = join_words(likely.clusters, "or")
        return f"these results are of {gpus}; do: --cluster {proposed}"
    size = gpus_per_node(results)
    if likely.gpus:
        return _words_for_a_file(gpus, size)
    alike = clusters_of_size(size)
    if not alike:
        return every
    words = f"{format_count(size, 'rank')} on a node, and do not name GPUs"
    return f"these results have {words}; do: --cluster {join_words(alike, 'or')}"


def _words_for_a_file(gpus: str, size: int) -> str:
    """Return what a file has to say of a machine with GPUs that no described cluster has.

    Args:
        gpus: the names of the GPUs.
        size: how many a node has; 0 if that is unknown, as nodes may have unequal numbers of ranks.
    """
    from hpccoll.common.units import format_count

    where = gpus
    ranks_per_node = "..."
    if size:
        where = f"{format_count(size, 'rank')} on a node with {gpus}"
        ranks_per_node = str(size)
    needed = (
        f"layout: {{ranks_per_node: {ranks_per_node}}} and class: {{fabric: ..., network: ...}}"
    )
    return (
        f"no cluster of 'hpccoll list clusters' has {where};"
        f" do: --cluster F.yaml, a file of yours with {needed} (keys: hpccoll list machine)"
    )


def _results_of_any_program(files: list[Path], supplied: "SuppliedMetadata") -> "Results | None":
    """Return results to see what they are of, whatever program of nccl-tests ran; None if options are missing for that.

    Raises:
        BadInputError: if a file is damaged: the user mends it before a cluster is of use.
    """
    from hpccoll.interop.any_results import read_any
    from hpccoll.store.load_results import to_results

    for program in (supplied.program, STAND_IN):
        try:
            read = read_any(files, replace(supplied, program=program))
        except BadInputError as error:
            is_option_missing = error.key.startswith("--")
            if not is_option_missing:
                raise
            continue
        return to_results(read.files)
    return None


def _read_expected(
    cluster: str | None, machine: Path | None, reference: Path | None
) -> "tuple[MachineFile | Reference, str]":
    """Return the one thing that the results are held against, with its name.

    Raises:
        BadInputError: if it cannot be read.
    """
    if reference:
        from hpccoll.judge.reference import read_reference

        return read_reference(reference), reference.name
    described = common.read_machine_or_cluster(machine, cluster, command="accept")
    return described, described.name


def _own_tables(directory: Path | None, against: "MachineFile | Reference") -> list[Path]:
    """Return the checked tables of --published; none without it.

    Raises:
        BadInputError: if a table is not valid, or the results are not held against a cluster of a class.
    """
    from hpccoll.judge.reference import Reference
    from hpccoll.model.published_table import own_tables

    if directory is None:
        return []
    if isinstance(against, Reference) or against.machine_class is None:
        raise UnusableError("--published", "with a --cluster that has a class of machines")
    return own_tables(directory, "--published")


def _read_log(paths: list[Path], ranks: set[int]) -> "LogRecord":
    """Return what the logs of a run say; BadInputError unless one run in them has one of the numbers of ``ranks``."""
    from hpccoll.common.units import format_count, format_counts
    from hpccoll.evidence.log_set import read_log_files

    records = [launch.record for launch in read_log_files(paths).launches]
    fitting = [record for record in records if record.ranks is None or record.ranks in ranks]
    if len(fitting) != 1:
        logged = (
            ", ".join(format_count(record.ranks or "unknown", "rank") for record in records)
            or "none"
        )
        needed = f"logs of one run of {format_counts(sorted(ranks), 'rank')} are needed"
        raise UnusableError("--log", f"{needed}: these are of runs of {logged}")
    return fitting[0]
