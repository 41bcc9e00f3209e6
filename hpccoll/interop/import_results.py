"""Results of other benchmarks as a raw file, which export, report, compare and ``hpccoll.open`` read like any other.

The file has one job, and an attempt for each number of ranks. A case has one time of each output
that has a result of it: several outputs of one benchmark are its rounds. Its kind is ``imported``,
and its source names the program and thereby what its time means.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, pairwise
from pathlib import Path

from hpccoll.analysis.printed_caveats import CHECKED, unreliable
from hpccoll.analysis.series_names import call_label
from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import MAX_ROUNDS, Case, Effort, Job
from hpccoll.cases.library_request import requested_by_environment
from hpccoll.common.errors import BadInputError, UnusableError, fault_with_line
from hpccoll.common.extensions import contributions
from hpccoll.common.files import read_text, unpacking_hint
from hpccoll.common.line_prefixes import PrefixReader, exported_text
from hpccoll.common.text import join_ends, join_words
from hpccoll.common.units import format_count
from hpccoll.common.version import __version__
from hpccoll.interop.benchmark_output import (
    PROGRAM_ENDED,
    BenchmarkOutput,
    ForeignResult,
    Importer,
    SuppliedMetadata,
)
from hpccoll.interop.imb import IMB_SIGN, read_imb
from hpccoll.interop.nccl_tests import NCCL_TESTS_SIGN, read_nccl_tests
from hpccoll.interop.osu import OSU_SIGN, read_osu
from hpccoll.interop.printed_bandwidth import SINGLETONS
from hpccoll.interop.rccl_tests_file import RCCL_RECORDS_SIGN, read_rccl_records
from hpccoll.schedule import Layout, itemsize
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.raw_results import Attempt, Outcome, RawResults
from hpccoll.store.schema import IMPORTED

JOB_NAME = "import"
MAX_BYTES = 64 << 20
"""The maximum size of an output."""
MAX_NOTES = 3
"""The maximum number of notes of one kind on an output; each quotes a line of it at most."""

TITLE = re.compile(
    r"#\s*(?:[nr]ccl-tests version|nThread \d|OSU |Intel ?\(R\) MPI Benchmarks|Benchmarking |size +count +type |Size\b|"
    r"Avg bus bandwidth )|rccl-tests: Version "
)
"""What lines of all outputs begin with: the text before it is a prefix of a launcher."""

IMPORTERS = (
    Importer("OSU", OSU_SIGN, read_osu),
    Importer("nccl-tests (text or JSON)", NCCL_TESTS_SIGN, read_nccl_tests),
    Importer("rccl-tests", RCCL_RECORDS_SIGN, read_rccl_records),
    Importer("IMB", IMB_SIGN, read_imb),
)
"""The importers of hpccoll. Those of extensions are asked if none of them knows an output."""

SIGN_LOST = re.compile(
    r"^ *(?=(?:[nr]ccl-tests version|Collective test|nThread \d|Using devices|Rank +\d|(?:out-of|in)-place|size +count|"
    r"\(B\)|Out of bounds|Errors with|Avg bus bandwidth|OSU |Datatype: |\[ pairs|Size\b|Intel ?\(R\) MPI Benchmarks|"
    r"MPI_Datatype|Benchmarking |#processes|\( ?\d+ additional|All processes entering))",
    re.MULTILINE,
)
"""The lines of outputs that begin with ``#``, which is lost where a page took it for the sign of a heading."""
ESCAPED_SIGN = re.compile(r"^( *)\\(?=#)", re.MULTILINE)
"""What stands before the sign so that a page does not."""

WITHIN_JSON = re.compile(
    r'\A\s*[\[{][^#]*# *(?:OSU |nThread \d|[nr]ccl-tests version|Benchmarking )[^\n"]*\\n'
)
"""The begin of JSON that has an output as a string."""
HINTS = {
    r"# OMB Python": "the programs of OSU in C: these time calls of Python",
    r'^\s*[\[{].*"\w*bus_?[bB][wW]"': "JSON of option -J of nccl-tests (nccl_version, config, results) or option -x of "
    "rccl-tests (busBw); of other programs the table that they print",
    r"#bytes +#repetitions": "the lines of IMB above the table: # Benchmarking ..., and # #processes = ...",
    r"^# *Size\b.*\((?:us|MB/s)\)": "the line of OSU above the table that says its program, # OSU ... Test",
    r"^ *\d+ +\d+ +\w+ +(?:sum|prod|max|min|avg|mulsum|none) ": "the headings of nccl-tests above it, # size count ...",
    r"# Avg bus bandwidth": "the table of nccl-tests above its end: an average over sizes depends on which they are",
}
"""What an output lacks, by a pattern of what it has."""


class UnknownProgramError(BadInputError):
    """The file is not the output of a program that an importer knows."""


def read_output(path: Path, supplied: SuppliedMetadata) -> BenchmarkOutput:
    """Read the output of a benchmark; BadInputError if its program is unknown, or a result in it cannot be read."""
    exported = _exported_lines(read_text(path, "FILE", MAX_BYTES, errors="replace"))
    if WITHIN_JSON.match(exported):
        raise BadInputError(
            "FILE", str(path), "the output itself, which is a string in this JSON (jq -r prints it)"
        )
    lines, writers = _without_prefixes(path, ESCAPED_SIGN.sub(r"\1", exported))
    text = "".join(lines)
    without_signs = re.search(r"^ *# ", text, re.MULTILINE) is None and SIGN_LOST.search(text)
    if without_signs:
        text = SIGN_LOST.sub("# ", text)
        lines = text.splitlines(keepends=True)
    importer = _importer_of(IMPORTERS, text)
    if importer is None:
        # Where the titles of a program are unknown, nothing is a prefix.
        output = _read_by_extension(path, exported, text, supplied)
    else:
        output = importer.read(path, lines, supplied)
    if without_signs:
        output.remarks.append(
            f"{path}: its lines lack the # that they begin with, and are read as if they had it"
        )
    if writers:
        output.remarks.append(_lines_left_out(path, writers))
    output.remarks += _doubts(path, output)
    if not output.results:
        last_notes = list(notes(path, output))[-MAX_NOTES:]
        raise UnusableError("FILE", "; ".join((f"{path} has no result", *last_notes)))
    return output


def _exported_lines(text: str) -> str:
    """Return a text without the JSON around each line in which log collectors export it."""
    lines = []
    for line in text.splitlines(keepends=True):
        inner = exported_text(line)
        lines.append(line if inner is line else inner.rstrip("\n") + "\n")
    return "".join(lines)


def _importer_of(importers: Iterable[Importer], text: str) -> Importer | None:
    for importer in importers:
        if importer.sign.search(text):
            return importer
    return None


def _read_by_extension(
    path: Path, exported: str, text: str, supplied: SuppliedMetadata
) -> BenchmarkOutput:
    """Read an output by the importer of an extension that knows it.

    Args:
        path: the file, for messages.
        exported: its text, as it is.
        text: the same without prefixes of launchers, for what it lacks.
        supplied: what the user says about it.

    Raises:
        BadInputError: if no importer knows it; names all programs, and what the output lacks.
        UnusableError: if the importer fails, whatever it raises.
    """
    brought: list[Importer] = list(contributions("importers"))
    importer = _importer_of(brought, exported)
    if importer:
        try:
            return importer.read(path, exported.splitlines(keepends=True), supplied)
        except BadInputError:
            raise
        except Exception as error:
            raise UnusableError(
                f"FILE {path}", f"the importer {importer.name}: {fault_with_line(error)}"
            ) from error
    names = join_words((importer.name for importer in (*IMPORTERS, *brought)), "or")
    hint = unpacking_hint(path, "FILE") or _missing_part(text)
    raise UnknownProgramError("FILE", str(path), f"output of {names}{hint}")


def _missing_part(text: str) -> str:
    """Return what an output lacks, by what it has; an empty string if nothing in it is known."""
    for pattern, needed in HINTS.items():
        if re.search(pattern, text, re.MULTILINE):
            return f"; here: {needed}"
    return ""


def _lines_left_out(path: Path, writers: Sequence[str]) -> str:
    names = ", ".join(repr(writer) for writer in writers if writer)
    if names:
        return f"{path}: lines without the prefix of its tables, {names}, are left out"
    return f"{path}: lines with a prefix, which its tables have not, are left out"


def _doubts(path: Path, output: BenchmarkOutput) -> list[str]:
    """Return the reasons why results of an output cannot be judged."""
    reasons: list[str] = []
    for result in output.results:
        reasons += unreliable(result.reported)
    remarks = [f"{path} cannot be judged: {reason}" for reason in dict.fromkeys(reasons)]
    if any(result.reported.get(CHECKED) == "0" for result in output.results):
        remarks.append(f"{path}: nobody checked its data (-c 0)")
    return remarks


def _without_prefixes(path: Path, text: str) -> tuple[list[str], list[str]]:
    """Return the lines of an output without prefixes of launchers, and the prefixes of lines that are left out.

    Lines of other processes than those that print titles become empty: numbers of lines stay.
    """
    lines, reader = text.splitlines(keepends=True), PrefixReader(TITLE)
    titles: dict[str, list[int]] = defaultdict(list)  # the lines of the titles of each writer
    for number, line in enumerate(lines):
        writer, rest = reader.split(line)
        if TITLE.match(rest):
            titles[writer].append(number)
    # A title within another sentence is not a title: a writer of a table has several.
    writers = {writer: numbers for writer, numbers in titles.items() if len(numbers) > 1}
    if not writers:
        writers = titles
        _check_is_one_writer(path, titles)
    _check_spans(path, writers)
    kept = set(writers) if any(writers) else {""}
    texts, lines_are_lost = [], False
    for line in lines:
        writer, rest = reader.split(line)
        # launchers end a program without its prefix
        if writer in kept or PROGRAM_ENDED.search(rest):
            texts.append(_without_inner_prefix(writer, rest))
        else:
            texts.append("\n")
            lines_are_lost = lines_are_lost or bool(rest.strip())
    return texts, list(writers) if lines_are_lost else []


def _check_is_one_writer(path: Path, titles: Mapping[str, Sequence[int]]) -> None:
    if len(titles) > 1:
        writer, (number,) = next(iter(titles.items()))
        raise UnusableError(
            "FILE",
            f"lines of {path} begin with a text that differs from line to line, as {writer!r} in line "
            f"{number + 1}: remove it, as sed 's/^ *[0-9]*[:\\t]//' does with numbers of lines",
        )


def _check_spans(path: Path, writers: Mapping[str, Sequence[int]]) -> None:
    """Check that the tables of writers follow each other."""
    spans = sorted((numbers[0], numbers[-1], writer) for writer, numbers in writers.items())
    for (_, end, earlier), (begin, _, later) in pairwise(spans):
        if begin < end:
            raise BadInputError(
                "FILE",
                str(path),
                f"output of one process: {earlier!r} and {later!r} write tables at the same time, "
                f"because each is {SINGLETONS}; or these are several runs: import them separately",
            )


def _without_inner_prefix(writer: str, line: str) -> str:
    """Return a row without the prefix of its line, which launchers repeat before each piece that nccl-tests writes."""
    is_row = line.lstrip()[:1].isdigit()
    # such a prefix does not belong to a number or of a time of day
    if is_row and writer and not writer[0].isdigit():
        return line.replace(writer, " ")
    return line


def notes(path: Path, output: BenchmarkOutput) -> Iterator[str]:
    """Yield the remarks on an output, at most ``MAX_NOTES`` of each kind."""
    small_sizes: dict[str, list[int]] = defaultdict(list)
    for name, size in output.too_small:
        small_sizes[name].append(size)
    for name, sizes in small_sizes.items():
        ends = join_ends(sorted(sizes))
        yield f"{path}: sizes of {name} of {ends} bytes are left out: they are less than an element for each rank"
    kinds: dict[str, list[str]] = defaultdict(list)
    for remark in output.remarks:
        kind = re.sub(r"(?:line|result) \d+|not part of a table: .*", "", remark)
        kinds[kind].append(remark)
    for remarks in kinds.values():
        yield from remarks[:MAX_NOTES]
        if len(remarks) > MAX_NOTES:
            yield f"{path}: {format_count(len(remarks) - MAX_NOTES, 'more line')} like these"


def raw_results(outputs: Mapping[Path, BenchmarkOutput], out: Path) -> RawResults:
    """Return the results of outputs as a raw file; BadInputError if their programs, libraries or hosts differ."""
    _check_is_one_benchmark(outputs.values())
    return results_of_launches(launches_of_outputs(outputs), out)


def launches_of_outputs(
    outputs: Mapping[Path, BenchmarkOutput],
) -> Sequence[tuple[Attempt, list[Outcome]]]:
    """Return the results of outputs of one program and library by launch; results of the same case are rounds."""
    by_case: dict[str, list[ForeignResult]] = defaultdict(list)
    for output in outputs.values():
        for result in output.results:
            by_case[result.case.id].append(result)
    rounds = max(map(len, by_case.values()))
    if rounds > MAX_ROUNDS:
        raise UnusableError(
            "FILE", f"{rounds} results of one case; at most {MAX_ROUNDS} are its rounds"
        )
    first = next(iter(outputs.values()))
    variables = _common_variables(outputs.values())
    launches: dict[tuple[int, int], list[Outcome]] = defaultdict(list)
    for results in by_case.values():
        case = results[-1].case
        ranks, nodes = case.ranks or first.ranks, case.nodes or first.nodes
        launches[ranks, nodes].append(_outcome(results, first.source, variables))
    hosts = _hosts_of_launches(outputs.values())
    provenance = _provenance(outputs, variables, hosts.values())
    attempts: list[tuple[Attempt, list[Outcome]]] = []
    for (ranks, nodes), outcomes in sorted(launches.items()):
        attempt = _attempt(ranks, nodes, hosts.get((ranks, nodes), ()), provenance)
        attempts.append((attempt, outcomes))
    return attempts


def results_of_launches(launches: Sequence[tuple[Attempt, list[Outcome]]], out: Path) -> RawResults:
    """Return the results of launches as a raw file, with an attempt for each; the job has each case once."""
    attempts: list[tuple[Attempt, list[Outcome]]] = []
    cases: dict[str, Case] = {}
    rounds = 1
    for number, (attempt, outcomes) in enumerate(launches, 1):
        attempts.append((replace(attempt, number=number), outcomes))
        for outcome in outcomes:
            cases[outcome.case.id] = outcome.case
            if outcome.times is not None:
                rounds = max(rounds, int(outcome.times.round.max()))
    job = Job(
        name=JOB_NAME,
        ranks=max(attempt.ranks for attempt, _ in attempts),
        nodes=max(attempt.nodes for attempt, _ in attempts),
        effort=Effort(warmup=0, min_iterations=rounds, max_iterations=rounds, rounds=rounds),
        cases=tuple(cases.values()),
    )
    return RawResults(path=out, job=job, attempts=attempts)


def _check_is_one_benchmark(outputs: Iterable[BenchmarkOutput]) -> None:
    for name in ("source", "library"):
        values = list(dict.fromkeys(getattr(output, name) for output in outputs))
        if len(values) > 1:
            raise UnusableError(
                "FILE",
                f"the outputs differ in their {name}: {', '.join(map(str, values))}; import them separately",
            )


def _common_variables(outputs: Iterable[BenchmarkOutput]) -> dict[str, str]:
    """Return the variables of the environment that all outputs have, with the same values."""
    variables = [set(output.variables.items()) for output in outputs]
    return dict(set.intersection(*variables))


def _hosts_of_launches(
    outputs: Iterable[BenchmarkOutput],
) -> Mapping[tuple[int, int], Sequence[str]]:
    """Return the hosts by (ranks, nodes); BadInputError if outputs name different ones for the same launch."""
    together = BenchmarkOutput(source="", program="", ranks=0, nodes=0)
    for output in outputs:
        for (ranks, nodes), hosts in output.hosts.items():
            together.add_launch(ranks, nodes, hosts)
    return together.hosts


def _provenance(
    outputs: Mapping[Path, BenchmarkOutput],
    variables: Mapping[str, str],
    hosts: Iterable[Sequence[str]],
) -> dict[str, object]:
    """Return the provenance that all launches have in common."""
    programs = dict.fromkeys(output.program for output in outputs.values())
    library = next(iter(outputs.values())).library
    every_host = list(dict.fromkeys(chain.from_iterable(hosts)))
    device_names = set(chain.from_iterable(output.device_names for output in outputs.values()))
    provenance: dict[str, object] = {
        "hpccoll": __version__,
        "program": ", ".join(programs),
        "library": library or "unknown",
        "imported_from": [path.name for path in outputs],
        "hosts": every_host,
    }
    if variables:
        provenance["variables"] = variables
    if any(device_names):
        provenance["device_names"] = sorted(filter(None, device_names))
    return provenance


def _attempt(
    ranks: int, nodes: int, hosts: Sequence[str], provenance: Mapping[str, object]
) -> Attempt:
    per_node, rest = divmod(ranks, nodes)
    node_of_rank: list[int] = []
    for node in range(nodes):
        node_of_rank += [node] * (per_node + 1 if node < rest else per_node)
    layout = Layout(tuple(node_of_rank))
    machine = f"{format_count(nodes, 'node')} ({', '.join(hosts) or 'hosts unknown'}), {provenance['library']}"
    return Attempt.not_launched(1, IMPORTED, machine, layout, provenance, hosts)


def _outcome(
    results: Sequence[ForeignResult], source: str, variables: Mapping[str, str]
) -> Outcome:
    """Return the results of one case, one for each round."""
    case, algorithm = results[-1].case, results[-1].algorithm
    failures = dict.fromkeys(result.failure for result in results if result.failure)
    wrong_counts = [result.wrong for result in results if result.wrong is not None]
    wrong = sum(wrong_counts) if wrong_counts else None
    is_wrong = bool(failures or wrong)
    reported = [dict(result.reported) for result in results]
    outcome = Outcome(
        case=case,
        status="wrong" if is_wrong else "ok",
        reason="; ".join(failures) or None,
        wrong=wrong,
        bytes=_moved_bytes(case),
        params=case.params,
        times=_times_of_rounds(results, case.ranks or 1),
        source=source,
        reported=json.dumps(reported, ensure_ascii=False),
        requested=requested_by_environment(variables, case.collective),
    )
    if not algorithm:
        return outcome
    return replace(outcome, executed=algorithm, evidence=f"{source} prints it")


def _moved_bytes(case: Case) -> int:
    """Return the bytes of the whole elements that a case moves."""
    family = collective(case.collective)
    size = itemsize(case.dtype)
    ranks = case.ranks or 1
    return family.elements(case.bytes, size, ranks) * family.blocks(ranks) * size


def _times_of_rounds(results: Sequence[ForeignResult], ranks: int) -> CaseTimes:
    """Return the times of a case on some ranks, one for each round."""
    times = []
    for number, result in enumerate(results, 1):
        times.append(CaseTimes.of_one(result.seconds, ranks, one_clock=False, round_number=number))
    return reduce(CaseTimes.merge, times)


def imported_lines(outputs: Mapping[Path, BenchmarkOutput]) -> Iterable[str]:
    """Yield a line for each output and each number of ranks: what was imported from it."""
    for path, output in outputs.items():
        by_place: dict[tuple[int, int], list[Case]] = defaultdict(list)
        for result in output.results:
            place = result.case.ranks or output.ranks, result.case.nodes or output.nodes
            by_place[place].append(result.case)
        for (ranks, nodes), cases in sorted(by_place.items()):
            names = ", ".join(dict.fromkeys(map(_label, cases)))
            where = f"{format_count(ranks, 'rank')} on {format_count(nodes, 'node')}"
            count = format_count(len(cases), "result")
            yield f"{path}: {output.program}, {where}: {count} of {names}"


def _label(case: Case) -> str:
    call = call_label(case.params)
    return f"{case.collective} ({call})" if call else case.collective
