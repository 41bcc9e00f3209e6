"""Results of other benchmarks as a raw file, which export, report, compare and ``hpccoll.open`` read like any other.

The file has one job, and an attempt for each number of ranks. A case has one time of each output that has a result of
it: several outputs of one benchmark are its rounds. Its kind is ``imported``, its source names the program, and its
timing says what the time means.
"""

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hpccoll import __version__
from hpccoll.errors import BadInputError, UnusableError
from hpccoll.files import read_text
from hpccoll.interop.benchmark_output import BenchmarkOutput, ForeignResult, SuppliedMetadata
from hpccoll.interop.imb import read_imb, recognises_imb
from hpccoll.interop.nccl_tests import read_nccl_tests, recognises_nccl_tests
from hpccoll.interop.osu import read_osu, recognises_osu
from hpccoll.interop.rccl_tests import read_rccl_records, recognises_rccl_records
from hpccoll.schedule import itemsize
from hpccoll.spec.algorithm_registry import collective
from hpccoll.spec.case import MAX_ROUNDS, Case, Effort, Job
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.hdf5 import read_raw_file, write_raw_file
from hpccoll.store.raw_results import Attempt, Outcome, RankLocation, RawResults
from hpccoll.store.schema import IMPORTED
from hpccoll.units import format_count

JOB_NAME = "import"
MAX_BYTES = 64 << 20
"""The maximum size of an output."""

Reader = Callable[[Path, Sequence[str], SuppliedMetadata], BenchmarkOutput]
READERS: Sequence[tuple[Callable[[str], bool], Reader]] = (
    (recognises_osu, read_osu), (recognises_nccl_tests, read_nccl_tests), (recognises_imb, read_imb),
    (recognises_rccl_records, read_rccl_records),
)  # fmt: skip


def read_output(path: Path, given: SuppliedMetadata) -> BenchmarkOutput:
    """Read the output of a benchmark.

    Args:
        path: the output.
        given: what the user says about it.

    Raises:
        BadInputError: if it is no output of a known program, or a result in it cannot be read.
    """
    text = read_text(path, "FILE", MAX_BYTES, errors="replace")
    for recognises, read in READERS:
        if recognises(text):
            output = read(path, text.splitlines(keepends=True), given)
            if not output.results:
                raise UnusableError("FILE", "; ".join((f"{path} has no result", *output.remarks)))
            return output
    raise BadInputError("FILE", str(path), "output of OSU, nccl-tests (text or JSON), rccl-tests or IMB")


def check_import_file(path: Path) -> None:
    """Check that imported results may be written to ``path``.

    Raises:
        BadInputError: if it holds anything but imported results.
    """
    if path.is_file() and path.stat().st_size:
        try:
            kinds = {attempt.kind for attempt, _ in read_raw_file(path).attempts}
        except BadInputError:
            kinds = set()
        if kinds != {IMPORTED}:
            raise BadInputError("--out", str(path), "a new file, or one of imported results: it holds something else")


def write_imported(outputs: Mapping[Path, BenchmarkOutput], out: Path) -> RawResults:
    """Write the results of outputs as a raw file, and return its content.

    Raises:
        BadInputError: if the outputs are of several programs, numbers of nodes, libraries or hosts.
        OSError: if ``out`` cannot be written.
    """
    raw = raw_results(outputs, out)
    write_raw_file(raw, out)
    return raw


def raw_results(outputs: Mapping[Path, BenchmarkOutput], out: Path) -> RawResults:
    """Return the results of outputs as the content of a raw file.

    Args:
        outputs: the outputs by their paths.
        out: the path of the raw file.

    Raises:
        BadInputError: if the outputs are of several programs, numbers of nodes, libraries or hosts.
    """
    for name in ("source", "nodes", "library", "hosts"):
        values = list(dict.fromkeys(getattr(output, name) for output in outputs.values()))
        if len(values) > 1:
            raise UnusableError(
                "FILE", f"outputs of several {name}: {', '.join(map(str, values))}; import each by itself"
            )
    by_case: dict[str, list[ForeignResult]] = defaultdict(list)
    for output in outputs.values():
        for result in output.results:
            by_case[result.case.id].append(result)
    rounds = max(map(len, by_case.values()))
    if rounds > MAX_ROUNDS:
        raise UnusableError("FILE", f"{rounds} results of one case; at most {MAX_ROUNDS} are its rounds")
    first = next(iter(outputs.values()))
    launches: dict[tuple[int, int], list[Outcome]] = defaultdict(list)
    for results in by_case.values():
        case = results[-1].case
        launches[case.ranks or first.ranks, case.nodes or first.nodes].append(_outcome(results, first.source))
    provenance = _provenance(outputs)
    attempts = [
        (_attempt(number, ranks, nodes, first, provenance), outcomes)
        for number, ((ranks, nodes), outcomes) in enumerate(sorted(launches.items()), 1)
    ]
    job = Job(
        name=JOB_NAME, ranks=max(ranks for ranks, _ in launches), nodes=max(nodes for _, nodes in launches),
        effort=Effort(warmup=0, min_iterations=rounds, max_iterations=rounds, rounds=rounds),
        cases=tuple(outcome.case for outcomes in launches.values() for outcome in outcomes),
    )  # fmt: skip
    return RawResults(path=out, job=job, attempts=attempts)


def _provenance(outputs: Mapping[Path, BenchmarkOutput]) -> dict[str, object]:
    programs, libraries, hosts = (
        list(dict.fromkeys(filter(None, (getattr(output, name) for output in outputs.values()))))
        for name in ("program", "library", "hosts")
    )
    return {
        "hpccoll": __version__, "program": ", ".join(programs), "library": ", ".join(libraries) or "unknown",
        "imported_from": [path.name for path in outputs], "hosts": list(hosts[0]) if hosts else [],
    }  # fmt: skip


def _attempt(number: int, ranks: int, nodes: int, output: BenchmarkOutput, provenance: Mapping[str, object]) -> Attempt:
    per_node, rest = divmod(ranks, nodes)
    hosts = output.hosts or ("",) * nodes
    node_of_rank = np.repeat(np.arange(nodes), [per_node + (node < rest) for node in range(nodes)])
    places = tuple(
        RankLocation(host=hosts[node] if node < len(hosts) else "", node=node, clock=0, pid=0, affinity="")
        for node in node_of_rank.tolist()
    )
    return Attempt(
        run_id=str(uuid.uuid4()), number=number, kind=IMPORTED, machine=_machine(output, provenance), ranks=ranks,
        nodes=nodes, ranks_per_node=None if rest else per_node, mapping="block", aggregators=0, oversubscribed=False,
        places=places, provenance=provenance,
    )  # fmt: skip


def _machine(output: BenchmarkOutput, provenance: Mapping[str, object]) -> str:
    return (
        f"{format_count(output.nodes, 'node')} ({', '.join(output.hosts) or 'hosts unknown'}), {provenance['library']}"
    )


def _outcome(results: Sequence[ForeignResult], source: str) -> Outcome:
    """Return the outcome of a case: a round of each result."""
    case = results[-1].case
    failures = Counter(failure for each in results if (failure := each.failure))
    counted = [each.wrong for each in results if each.wrong is not None]
    wrong = sum(counted) if counted else None
    times = [_times(result, number) for number, result in enumerate(results, 1)]
    merged = times[0]
    for each in times[1:]:
        merged = merged.merge(each)
    family, size, ranks = collective(case.collective), itemsize(case.dtype), case.ranks or 1
    reported = [dict(each.reported) for each in results]
    return Outcome(
        case=case, status="wrong" if failures or wrong else "ok", reason="; ".join(failures) or None, wrong=wrong,
        bytes=family.elements(case.bytes, size, ranks) * family.blocks(ranks) * size, params=case.params,
        times=merged, source=source, reported=json.dumps(reported, ensure_ascii=False),
    )  # fmt: skip


def _times(result: ForeignResult, number: int) -> CaseTimes:
    """Return the time of a round as that of all ranks; that of the first rank is kept."""
    ranks = result.case.ranks or 1
    end = np.full((1, ranks), max(1, round(result.seconds * 1e9)), np.int64)
    return CaseTimes.from_samples(np.zeros_like(end), end, one_clock=False, limit=1, round_number=number)


def imported_lines(outputs: Mapping[Path, BenchmarkOutput]) -> Iterable[str]:
    """Yield a line for each output: what was imported from it."""
    for path, output in outputs.items():
        names = ", ".join(dict.fromkeys(_label(result.case) for result in output.results))
        where = f"{format_count(output.ranks, 'rank')} on {format_count(output.nodes, 'node')}"
        yield f"{path}: {output.program}, {where}: {format_count(len(output.results), 'result')} of {names}"


def _label(case: Case) -> str:
    call = case.params.get("call")
    return f"{case.collective} ({call})" if call else case.collective
