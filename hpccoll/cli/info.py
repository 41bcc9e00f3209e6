"""Commands that measure nothing: list, show, evidence and doctor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.command import Command, OptionsOfExtensions
from hpccoll.cli.common import INCOMPLETE, JSON, JUNIT, LAYOUT, ROOT, WORKERS, show_found
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.cli.schedule_formats import options_of_formats, schedule_format, words_of_formats
from hpccoll.common.errors import BadInputError, UnusableError, did_you_mean, writing
from hpccoll.common.limits import RANKS
from hpccoll.common.options import Option, PositionalArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpccoll.common.text import Finding
    from hpccoll.render.pictures.schedule_view import ScheduleView

WHAT, EXPORT = "Of an algorithm", "For another program"


def list_(word: str | None = None, name: list[str] | None = None, *, as_json: bool = False) -> None:
    """List algorithms, transports, variants, models, described clusters and known defects.

    Each with what this machine lacks for it; variants with their settings and requirements, in
    --json also with the evidence that they require.
    """
    if word == DEFECTS:
        _show_defects(name or (), as_json=as_json)
        return
    if word == SCHEMAS:
        _show_schemas(name or (), as_json=as_json)
        return
    if name:
        _show_cluster(word, name, as_json=as_json)
        return
    from hpccoll.cases.listing import listing, listing_lines, select
    from hpccoll.cli.reference_tables import REFERENCES, reference_lines

    if word and word in REFERENCES:
        entries = list(REFERENCES[word]())
        rows = [
            {"name": entry.name, "meaning": entry.meaning, **entry.details} for entry in entries
        ]
        show_found(rows, reference_lines(entries), as_json=as_json)
    else:
        tables = listing()
        if word:
            clusters = [
                {"name": entry.name, "meaning": entry.meaning.partition(". ")[0]}
                for entry in REFERENCES["clusters"]()
            ]
            words = (*REFERENCES, DEFECTS, SCHEMAS)
            tables = select(tables | {"clusters": clusters}, word, words)
        show_found(tables, listing_lines(tables, described=bool(word)), as_json=as_json)


LIST = Command(
    name="list",
    run=list_,
    example="Examples: hpccoll list variants; hpccoll list broadcast; hpccoll list columns",
    arguments=(
        PositionalArgument(
            "word",
            "part of a name or description; or a kind: algorithms, parameters, transports, variants, "
            "workloads, models; or a reference: sweep, site, machine (the keys of such files), clusters, "
            "columns (of raw files), variables, settings (of NCCL); or defects (known, by version); or schemas "
            "(of JSON)",
            "[WORD]",
        ),
        PositionalArgument(
            "name",
            "of clusters: the one whose description is printed; of schemas: the one to print; of "
            "defects: component, version, kind, or part of the text",
            "[NAME...]",
            repeated=True,
        ),
    ),
    options={OPTIONS: (JSON,)},
)


DEFECTS = "defects"
"""The word for known defects of libraries, drivers and containers."""

SCHEMAS = "schemas"
"""The word for JSON Schemas of what commands print and write."""


def _show_schemas(names: Sequence[str], *, as_json: bool) -> None:
    from hpccoll.cli.schemas import all_schemas, find_schema, schema_lines

    if names:
        show_found(find_schema(" ".join(names)), (), as_json=True)
    elif as_json:
        show_found(all_schemas(), (), as_json=True)
    else:
        show_found(None, schema_lines(), as_json=False)


def _show_defects(words: Sequence[str], *, as_json: bool) -> None:
    from hpccoll.evidence.defect_listing import defect_rows, select_defects

    defects = select_defects(words)
    rows = [defect.to_json() for defect in defects]
    show_found(rows, defect_rows(defects), as_json=as_json)


def _show_cluster(word: str | None, names: Sequence[str], *, as_json: bool) -> None:
    from hpccoll.model.machine_content import cluster_names, machine_path
    from hpccoll.model.machine_file import read_machine

    name = " ".join(names)
    if word != "clusters":
        allowed = "only list clusters, list defects and list schemas have a second word"
        raise BadInputError("NAME", name, f"nothing after {word}: {allowed}")
    if name not in (clusters := cluster_names()):
        raise BadInputError(
            "NAME",
            name,
            f"{did_you_mean(name, clusters)}a name that 'hpccoll list clusters' prints",
        )
    content = read_machine(name, "NAME").model_dump(mode="json", by_alias=True, exclude_none=True)
    show_found(
        content,
        machine_path(name, "NAME").read_text(encoding="utf-8").splitlines(),
        as_json=as_json,
    )


def show(
    extension_options: Mapping[str, str],
    algorithm: str,
    workers: int | None = None,
    collective: str | None = None,
    ranks_per_node: int | None = None,
    racks: str = "1",
    mapping: str = "block",
    aggregators: int = 0,
    root: int | None = None,
    param: list[str] | None = None,
    unit: int | None = None,
    format_: str | None = None,
    nbytes: str | None = None,
    out: Path | None = None,
) -> int:
    """Describe the schedule of an algorithm, draw it, or write it.

    The text lists the steps, and says whether the schedule is proven. {about}
    """
    from hpccoll.cases.algorithm_files import check_format, file_layout, with_files
    from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
    from hpccoll.cases.catalogue import check_algorithm
    from hpccoll.schedule import Layout

    if Path(algorithm).suffix and not algorithm.startswith(PLAN):
        check_format(Path(algorithm), "FILE")
        algorithm = PLAN + algorithm
    (algorithm,) = with_files([algorithm])
    if workers is None and (layout := file_layout(algorithm)):
        workers = layout.workers
        on_first = layout.node.count(0)
        if racks == "1" and layout == Layout.of(workers, on_first):
            ranks_per_node = ranks_per_node or on_first
    if workers is None:
        check_algorithm(algorithm, list(COLLECTIVES))
        raise UnusableError("-p", "the number of workers is missing")
    if (format_ is None) != (nbytes is None):
        raise UnusableError("--format", "-b BYTES and --format go together")
    if format_ is None:
        from hpccoll.render.pictures.schedule_view import view_of

        view = view_of(
            algorithm,
            collective,
            workers,
            ranks_per_node=ranks_per_node,
            racks=racks,
            aggregators=aggregators,
            root=root,
            parameters=param or (),
            mapping=mapping,
        )
        return _describe(view, unit, out)
    from hpccoll.cases.requested_schedule import requested_layout, requested_operation
    from hpccoll.common.units import parse_parameter, parse_size

    written_as = schedule_format(format_, extension_options)
    operation = requested_operation(
        algorithm,
        collective,
        requested_layout(workers, ranks_per_node, racks, aggregators, RANKS.maximum, mapping),
        parse_size(nbytes or "", "--bytes"),
        root=root,
        parameters=dict(map(parse_parameter, param or ())),
    )
    texts = written_as.texts(operation, extension_options, printed=out is None)
    return _write(texts, operation.schedules[0].layout.ranks, out)


SHOW = Command(
    name="show",
    run=show,
    words=words_of_formats,
    further=OptionsOfExtensions(EXPORT, options_of_formats),
    example="""Examples:
  hpccoll show ring -p 8 --out ring.svg
  hpccoll show bine -c broadcast -p 64 --racks 8,16,16,16,8{examples}""",
    arguments=(
        PositionalArgument("algorithm", "algorithm, see hpccoll list{files}", "ALGORITHM|FILE"),
    ),
    options={
        WHAT: (
            WORKERS,
            Option(
                ("-c", "--collective"), "collective [the first with this algorithm]", metavar="NAME"
            ),
            *LAYOUT,
            ROOT,
            Option(("--param",), "parameter of the algorithm", metavar="K=V", kind="list"),
            Option(
                ("--unit",),
                "unit of the table [the most informative one]",
                metavar="N",
                kind="number",
            ),
        ),
        EXPORT: (
            Option(("--format",), "{formats}", name="format_", metavar="NAME"),
            Option(
                ("-b", "--bytes"),
                "message size, such as 64K, of float32",
                name="nbytes",
                metavar="SIZE",
            ),
        ),
        OPTIONS: (
            Option(
                ("--out",),
                "drawing, or with --format the schedule [stdout]",
                metavar="F.svg|F.png|F",
                kind="path",
            ),
        ),
    },
)


def _describe(view: "ScheduleView", unit: int | None, out: Path | None) -> int:
    from hpccoll.render.pictures.picture import draw
    from hpccoll.render.pictures.schedule_text import describe, step_and_buffer_lines
    from hpccoll.render.pictures.schedule_view import UnprovenScheduleError

    try:
        text = describe(view, unit)
    except UnprovenScheduleError:  # its steps show where the fault is
        print("\n".join(step_and_buffer_lines(view, unit)))
        raise
    if out:
        draw(view, out, unit)
    print(text)
    return 0


def _write(texts: "Iterator[str]", ranks: int, out: Path | None) -> int:
    from hpccoll.store.durable_files import replacing_file

    if out is None:
        for text in texts:
            print(text, end="")
        return 0
    with (
        writing(out),
        replacing_file(out.resolve()) as unfinished,
        unfinished.open("w", encoding="utf-8") as file,
        progress_counter("ranks") as show_progress,
    ):
        for written, text in enumerate(texts):
            file.write(text)
            show_progress(written, ranks)
    return 0


def evidence(logs: list[Path], *, network: str | None = None, as_json: bool = False) -> int:
    """Report what libraries executed, from their logs.

    Logs of NCCL, RCCL, UCC and SHARP are read. The report names the algorithm, the network and the
    reason of a fallback, separately for each launch. Dumps of NCCL's topology among the logs show
    whether each GPU has a NIC as near as its peers'. Ends with 3 if the logs name another network
    between nodes than --network, if a library failed, such as at the creation of a communicator, or
    if PyTorch's watchdog timed out.
    """
    from hpccoll.evidence.log_set import read_log_files
    from hpccoll.render import log_report

    if network not in (None, "rdma", "tcp"):
        raise BadInputError("--network", network, ["rdma", "tcp"])
    log_set = read_log_files(logs)
    show_found(
        log_report.logs_json(log_set, network),
        log_report.log_lines(log_set, network),
        as_json=as_json,
    )
    if not log_report.has_critical_findings(log_set, network):
        return 0
    return INCOMPLETE


EVIDENCE = Command(
    name="evidence",
    run=evidence,
    example="""Example: hpccoll evidence logs --network rdma

of a run with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=logs/%h.%p.log""",
    arguments=(
        PositionalArgument(
            "logs",
            "logs, or directories with logs",
            "LOGS...",
            kind="path",
            repeated=True,
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            Option(
                ("--network",), "expected network between nodes: rdma or tcp", metavar="NETWORK"
            ),
            JSON,
        )
    },
)


def doctor(junit: Path | None = None) -> int:
    """Check MPI, its launcher, Snakemake, Slurm, GPUs and RDMA.

    Each line is ok, none (not installed, with what to install), warn (usable with a restriction),
    or WRONG (a sweep cannot run before it is fixed). The last line names the profile to use. Ends
    with 1 if a line is WRONG.
    """
    from hpccoll.common.text import finding_line
    from hpccoll.sweep.doctor import examine

    fatal = False
    findings = []
    for finding in examine():
        fatal |= finding.severity == "critical"
        print(finding_line(finding))
        findings.append(finding)
    if junit:
        _write_junit(findings, junit)
    return int(fatal)


def _write_junit(findings: "list[Finding]", path: Path) -> None:
    from hpccoll.judge.held import Acceptance
    from hpccoll.render.junit import CheckedCase, write_junit

    acceptance = {"critical": Acceptance.FAIL, "absent": Acceptance.CANNOT_TELL}
    cases = []
    for number, finding in enumerate(findings, 1):
        verdict = acceptance.get(finding.severity, Acceptance.PASS)
        cases.append(
            CheckedCase(f"{number} {finding.kind}", "machine", verdict, finding.with_remedy)
        )
    with writing(path):
        write_junit(path, "hpccoll doctor", cases)


DOCTOR = Command(
    name="doctor",
    run=doctor,
    example="Example: hpccoll doctor",
    options={OPTIONS: (JUNIT,)},
)
