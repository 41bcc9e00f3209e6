"""Whether measured numbers are as expected: what is expected of each row of results, and the verdict on it.

Expectations are never mixed: each has one origin.

| origin | what is held against it |
| --- | --- |
| published | calls of NCCL and RCCL, if two independent sources have their class and size |
| model | others of them on two nodes and more, LARGE, of which a log or a setting names the ring or the tree |
| machine | our schedules, by simulation; calls of other libraries, against the fastest of our schedules |
| reference | everything, if the user has one |
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from statistics import median

from hpccoll.analysis.printed_caveats import caveats_of
from hpccoll.analysis.reference import Reference, ReferenceCase, compare_with_reference
from hpccoll.analysis.run_comparison import (
    IMPROVEMENT,
    REGRESSION,
    TOLERANCE,
    UNCHANGED,
    CaseComparison,
    ComparedCase,
    Side,
    compare_sides,
    compared_rows,
)
from hpccoll.analysis.setting import Choice
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.library_request import NCCL_ALGORITHMS, requested_by_environment
from hpccoll.common.errors import BadInputError
from hpccoll.common.text import in_brackets, join_words
from hpccoll.common.units import format_count, format_per_cent
from hpccoll.evidence.log_record import NCCL_LIBRARIES, LogRecord
from hpccoll.model.acceptance import MACHINE, MODEL, PUBLISHED, RATE, REFERENCE, TIME, Acceptance, Expected, Judged
from hpccoll.model.expected_times import expected_times
from hpccoll.model.library_calls import modelled_busbw
from hpccoll.model.library_expectations import library_expectations, transport_mismatch
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.named_gpus import gpus_with_model, other_gpus
from hpccoll.model.observations import observations
from hpccoll.model.published_rates import (
    NEAR,
    OLD,
    SCALES,
    SourceRates,
    is_old,
    larger_classes,
    node_class,
    rates_by_source,
    usual_algorithm,
    version_of,
)
from hpccoll.model.simulation import BOUNDS
from hpccoll.model.validation import count_progress
from hpccoll.model.wire_bounds import wire_bound
from hpccoll.schedule import itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.rows import Results, Row, RowKey, Run

LARGE = 1 << 30
"""The size from which on healthy machines of one class agree: the 79 published figures that have two other sources are
between 0.98 times the lowest and 1.03 times the highest of these."""
NEEDED = 2
"""The independent sources that make a range."""
PASS_FROM, PASS_TO = 0.95, 1.05
"""What passes: from this share of the low end on, to this multiple of the high end."""
FAIL_BELOW = (LARGE, 0.85), (1 << 20, 0.65), (0, 0.4)
"""What fails, by the smallest size: less than this share of the low end of published figures; of another expectation,
which has an interval of its own, the first share counts for all sizes. Healthy pairs of nodes with 8 H100 or H200 have
0.79 times the bandwidth of others at 64 MiB (AWS p5), 0.7 times at 16 MiB, and at 64 KiB take 33 to 70 us."""

NO_EXCUSE = 0.5
"""An NCCL before OLD, or fewer nodes than the next class has, is an excuse from this share of the low end of others on:
below it something else is at fault, such as one port of eight in use (nccl-tests#112: 5 % of the wire)."""

WIDEST = 1.5
"""The ratio of the ends of a published range, from LARGE on, beyond which it decides nothing: sources do not agree."""

FAILS_ALONE = 3
"""The time over the upper bound of a reference from which on a row fails whatever its neighbours do: of two healthy
sweeps of the testbed, a burst of noise made a single row take 2.1 times as long."""

UNSTEADY = 1.1
"""The upper bound of a reference over its time from which on one run is no evidence: what moves such times from run to
run may last for minutes. In 5 of 18 healthy sweeps of the testbed small messages of all sizes took 1.3 to 3.4 times as
long; their bounds were 1.3 to 1.6 times their times. Those of 4 KiB and more were at most 1.06, and no sweep exceeded
them."""

NEEDED_RUNS = 2
"""The fewest runs that must be beyond such a bound."""

OF_FIGURES = "sum", "avg"
"""The reductions of published figures; NVLS has no others (NCCL's device.h, ncclNvlsSupported)."""

BROKEN = "failed", "wrong"
"""The statuses of rows without a right result, which fail whatever is expected."""

Expectation = tuple[Expected | None, str]
"""What is expected of a row, and why nothing is, or why it decides nothing."""


def judge_rows(
    files: ResultFiles, against: MachineFile | Reference, log: LogRecord | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Judged]:  # fmt: skip
    """Return the verdict on each row of results that ranks exchanged data for, by collective, place and size.

    Rows under load with right results are left out: nothing is expected of them.

    Args:
        files: the results: raw files, or outputs of other programs that were imported.
        against: a described cluster or a fitted machine, or a reference of ``compare --make-reference``.
        log: the content of the logs of the run, which name the algorithm of each size.
        progress: is called with the numbers of simulations that are done, and of all.

    Raises:
        UnusableError: if a reference has no case in common with the results.
        KeyboardInterrupt: if the user has interrupted the simulations.
    """
    results = to_results(files)
    rows = [row for row in results.rows if row.exchanges_data and not (row.floor or row.predicted)]
    rows = [row for row in rows if not row.load or row.status in BROKEN]
    rows = [row for row in rows if row.collective in COLLECTIVES and (row.median_s or row.status in BROKEN)]
    if isinstance(against, Reference):
        return _against_reference(rows, results, against)
    simulated = {**_of_schedules(files, rows, against, progress), **_of_libraries(results, rows, against, progress)}
    runs = {run.run_id: run for run in results.runs}
    judged = []
    for row in rows:
        run = runs.get(row.run_id)
        library = str(run.provenance.get("library", "")) if run and row.imported else ""
        own = log if log and log.ranks in (None, row.ranks) else None
        if own and own.version and not version_of(library):
            library = f"{row.transport.upper()} {own.version}"
        expected, reason = simulated.get(row.key) or _of_nccl(row, against, library, _ran(row, run, own))
        reason = reason or (other_gpus(run, against) if run else "") or "; ".join(caveats_of(row))
        is_unnamed = row.transport in NCCL_LIBRARIES and not (run and gpus_with_model(run))
        one = replace(_judged(row, expected, reason), library=library, gpu_unnamed=is_unnamed)
        unasked = _unasked(row, against, own) if own and one.verdict is Acceptance.PASS else ""
        judged.append(replace(one, verdict=Acceptance.CANNOT_TELL, reason=unasked) if unasked else one)
    return _spoken(judged)


def _undecided(row: Row, expected: Expected | None, reason: str) -> Judged:
    """Return a row that cannot be told, for a reason if there is one; a wrong result fails."""
    if row.status in BROKEN or row.wrong:
        reason, expected = row.reason or f"the result is {row.status if row.status in BROKEN else 'wrong'}", None
    rate = row.busbw_Bps if expected is None or expected.origin in (PUBLISHED, MODEL) else None
    seconds = row.median_s or 0.0
    if row.imported and (runs := [each for each in row.round_medians_s if each]):  # each is a run of its own
        rate, seconds = rate and rate * seconds / max(runs), max(runs)
    one = Judged(row, RATE if rate else TIME, rate or seconds, expected, Acceptance.CANNOT_TELL, reason)
    if row.status in BROKEN or row.wrong:
        return replace(one, verdict=Acceptance.FAIL)
    return one if row.usable else replace(one, reason=row.reason or f"it is {row.status}")


def _judged(row: Row, expected: Expected | None, reason: str) -> Judged:
    """Return a row with a verdict on itself alone; with a reason it cannot be told."""
    one = _undecided(row, expected, reason)
    return one if expected is None or one.reason else _alone(one, expected)


def _alone(one: Judged, expected: Expected) -> Judged:
    """Return a row with the verdict of its range."""
    of_low, of_high = one.measured / expected.low, one.measured / expected.high
    if one.quantity == TIME:
        of_low, of_high = expected.high / one.measured, expected.low / one.measured
    shares = FAIL_BELOW if expected.origin == PUBLISHED else FAIL_BELOW[:1]
    least = next((share for size, share in shares if one.row.bytes >= size), shares[0][1])
    if expected.origin == PUBLISHED and one.row.bytes >= LARGE and expected.high > WIDEST * expected.low:
        return replace(one, reason=f"its sources differ by more than {WIDEST:g} times")
    if of_high > PASS_TO:
        most = f"above {format_per_cent(PASS_TO)} of the highest that is expected"
        return replace(one, reason=f"{most}: are nodes, ports and ranks those of the machine?")
    if of_low < least:
        return replace(one, verdict=Acceptance.FAIL)
    if of_low < PASS_FROM:
        bounds = f"between {format_per_cent(least)} and {format_per_cent(PASS_FROM)}"
        return replace(one, reason=f"{bounds} of the lowest that is expected")
    return replace(one, verdict=Acceptance.PASS)


def _spoken(judged: Sequence[Judged]) -> list[Judged]:
    """Return verdicts in order; a row that is low fails if one at a neighbouring size is, too, or if it has none.

    The largest size fails alone: nothing lies beyond it that shows a dip. Against a reference, rows of the same size by
    another algorithm or in the other placement are neighbours, too. A single row of many is low by chance, or because a
    burst of noise met it, since cases run in random order; a slow host or wire slows several of them. Beyond
    ``FAILS_ALONE`` times the bound of a reference it needs none.
    """
    curves: dict[object, list[int]] = defaultdict(list)
    beside: dict[object, list[int]] = defaultdict(list)
    judged = sorted(judged, key=lambda one: _order(one.row))
    for number, one in enumerate(judged):
        if one.expected:
            key = CallKey.of(one.row)
            curves[one.row.run_id, Choice.of(one.row), key.without("requested_bytes")].append(number)
            if one.expected.origin == REFERENCE:
                beside[one.row.run_id, key.without("in_place")].append(number)
    others = {number: [*{*numbers} - {number}] for numbers in beside.values() for number in numbers}
    spoken = list(judged)
    for numbers in curves.values():
        low = [judged[number].verdict is Acceptance.FAIL for number in numbers]
        for place, number in enumerate(numbers[:-1]):
            neighbours = low[max(0, place - 1) : place] + low[place + 1 : place + 2]
            neighbours += [judged[other].verdict is Acceptance.FAIL for other in others.get(number, ())]
            is_alone = low[place] and neighbours and not any(neighbours)
            if is_alone and judged[number].row.usable and not _is_far_beyond(judged[number]):
                reason = "it is worse at this size only: measure the sizes around it again"
                spoken[number] = replace(judged[number], verdict=Acceptance.CANNOT_TELL, reason=reason)
    return spoken


def _is_far_beyond(judged: Judged) -> bool:
    """Return whether a row takes many times as long as the bound of a reference."""
    expected = judged.expected
    return bool(expected and expected.origin == REFERENCE and judged.measured > FAILS_ALONE * expected.high)


def _order(row: Row) -> tuple[object, ...]:
    return (
        row.collective, row.nodes, row.ranks, row.algorithm, row.transport, str(sorted(row.params.items())), row.dtype,
        row.in_place, row.run_id, row.bytes,
    )  # fmt: skip


def _ran(row: Row, run: Run | None, log: LogRecord | None) -> tuple[str | None, str]:
    """Return the algorithm that a log or a setting names, by the project's name, and why it is in doubt."""
    variables = run.provenance.get("variables") if run else None
    settings = {**(variables if isinstance(variables, Mapping) else {}), **(run.environment if run else {})}
    if log:
        settings |= log.settings
        named = {line.algorithm for line in log.lines_of_case(row.collective, row.bytes, row.ranks, dtype=row.dtype)}
        if len(named) == 1:
            return named.pop(), ""
        if named:
            return None, f"the log names {join_words(sorted(named))} for this size"
    executed = (row.executed or "").partition(" ")[0]
    requested = row.requested or requested_by_environment(settings, row.collective)
    if executed in NCCL_ALGORITHMS.values() or requested:
        return (executed if executed in NCCL_ALGORITHMS.values() else requested), ""
    if settings.get("NCCL_NVLS_ENABLE") == "0":
        return None, "NVLS is off, and nothing names the algorithm: give a log with NCCL_DEBUG_SUBSYS=INIT,TUNING"
    return None, ""


def _unasked(row: Row, machine: MachineFile, log: LogRecord) -> str:
    """Return why what a log names may be a fault, although it is as fast as expected; empty if it is none.

    NCCL takes a ring if it cannot set NVLS up. A log without any variable does not show whether one asks for the ring.
    """
    like, names = machine.machine_class, ("NCCL_ALGO", "NCCL_NVLS_ENABLE")
    usual = usual_algorithm(like, row.nodes) if like and row.collective == "all_reduce" else None
    lines = log.lines_of_case(row.collective, row.bytes, row.ranks, dtype=row.dtype)
    ran = sorted({line.algorithm for line in lines})
    of_nvls = (usual or "").startswith("NVLS") and row.bytes >= LARGE and itemsize(row.dtype) > 1
    if not (ran and of_nvls) or any(name.startswith("nvls") for name in ran):
        return ""
    if lost := [each.reason for each in log.unavailable if "nvls" in each.feature.lower()]:
        return f"{usual} is usual here, and the log says why it did not run: {lost[0]}"
    if not log.settings or "NCCL_ALGO" in log.settings or log.settings.get("NCCL_NVLS_ENABLE") == "0":
        return ""
    return f"{usual} is usual here, {join_words(ran)} ran, and the log has neither {join_words(names, 'nor')}"


def _of_nccl(row: Row, machine: MachineFile, library: str, ran: tuple[str | None, str]) -> Expectation:
    """Return what is expected of a call of NCCL or RCCL: what was published, or else NCCL's model."""
    algorithm, doubt = ran
    if reason := doubt or _unlike(row, machine, library):
        return None, reason
    like, per_node = machine.machine_class, row.ranks_per_node or 1
    wire = wire_bound(like, row.collective, row.nodes, per_node, algorithm) if like else None
    found = rates_by_source(
        machine, row.collective, row.nodes, per_node, row.bytes, dtype=row.dtype, in_place=row.in_place,
        algorithm=algorithm, library=library,
    )  # fmt: skip
    if len(found) >= NEEDED:
        return _published(found, wire), ""
    if far_below := _far_below(row, machine, library, algorithm, wire):
        return far_below, ""
    modelled = None
    if algorithm and row.transport == "nccl" and row.bytes >= LARGE:
        with suppress(BadInputError):  # the machine does not have such nodes
            modelled = modelled_busbw(machine, row.collective, row.nodes, per_node, row.bytes, row.dtype, algorithm)
    if modelled is None:
        return None, _too_few(row, machine, found, algorithm, library)
    return Expected(*modelled, MODEL, (f"{algorithm}, which a log or a setting names",), wire), ""


def _far_below(
    row: Row, machine: MachineFile, library: str, algorithm: str | None, wire: float | None
) -> Expected | None:
    """Return what others reach, if a row is so far below that an old NCCL or a few nodes less are no excuse; else None.

    Of a number of nodes that no class has, others are those of the nearest larger class with enough sources.
    """
    for nodes in [row.nodes] if is_old(library) else larger_classes(machine.machine_class, row.nodes):
        found = rates_by_source(
            machine, row.collective, nodes, row.ranks_per_node or 1, row.bytes, dtype=row.dtype, in_place=row.in_place,
            algorithm=algorithm, library="",
        )  # fmt: skip
        if len(found) >= NEEDED:
            expected = _published(found, wire)
            return expected if (row.busbw_Bps or 0.0) < NO_EXCUSE * expected.low else None
    return None


def _published(found: Mapping[str, SourceRates], wire: float | None) -> Expected:
    """Return the range of what several sources published."""
    sources = found.values()
    figures = list(chain.from_iterable(source.figures for source in sources))
    gpus = {figure.gpu for figure in figures}
    libraries = {figure.library for figure in figures}
    return Expected(
        low=min(min(source.rates) for source in sources),
        value=median(median(source.rates) for source in sources),
        high=max(max(source.rates) for source in sources),
        origin=PUBLISHED,
        sources=tuple(found),
        wire_Bps=wire,
        gpus=tuple(sorted(gpus - {""})),
        libraries=tuple(sorted(libraries, key=version_of)),
    )


def _unlike(row: Row, machine: MachineFile, library: str) -> str:
    """Return why nothing that is known of NCCL and RCCL is about a row; empty if some of it is."""
    if row.algorithm != NATIVE or row.transport not in NCCL_LIBRARIES:
        return f"{machine.name} says nothing of {row.algorithm} over {row.transport}"
    if library and library.partition(" ")[0].lower() not in (*NCCL_LIBRARIES, "unknown"):
        return f"its library is {library}, and figures are of NCCL and RCCL"
    if machine.machine_class and row.transport != (ours := machine.machine_class.library):
        return f"the call was one of {row.transport.upper()}, and figures of {machine.name} are of {ours.upper()}"
    if row.ranks_per_node is None:
        return "its nodes have different numbers of ranks"
    if row.op not in (None, *OF_FIGURES):
        return f"it folds by {row.op}, and figures are of {join_words(OF_FIGURES, 'or')}: NVLS folds by no other"
    return "" if row.busbw_Bps else f"{row.collective} has no bus bandwidth"


def _too_few(row: Row, machine: MachineFile, found: Iterable[str], algorithm: str | None, library: str) -> str:
    """Return why nothing published is expected of a row."""
    like = machine.machine_class
    if like is None and not machine.published:
        return f"{machine.name} has no class of machines with published figures"
    crosses, scale = node_class(like, row.nodes)
    if scale is None:
        return f"no class has {format_count(row.nodes, 'node')}: 1, 2, 4, and 8 and more are classes"
    usual = usual_algorithm(like, row.nodes) if like and row.collective == "all_reduce" else None
    named = f" by {algorithm}" if algorithm else f" by default ({usual})" if usual else ""
    what = f"{row.collective}{named} of {row.dtype} on {format_count(row.nodes, 'node')} x {row.ranks_per_node}"
    what += f" (or {1 / NEAR:g} to {NEAR} times as many nodes)" if crosses and scale == SCALES[0] else ""
    several = join_words([*found]) or "no source"
    class_ = f"this class{in_brackets(join_words(like.gpus)) if like else ''}"
    needed = f"{NEEDED} independent sources are needed"
    if crosses and is_old(library):
        needed += f"; on several nodes NCCL before {'.'.join(map(str, OLD))} was slower, the output is of {library}"
    model = "; NCCL's model has the ring and the tree, on two nodes and more, from 1 GiB on" if algorithm else ""
    return f"{several} published {what} of this size on machines of {class_}: {needed}{model}"


def _of_schedules(
    files: ResultFiles, rows: Iterable[Row], machine: MachineFile, progress: Callable[[int, int], None] | None
) -> dict[RowKey, Expectation]:
    """Return what the simulation expects of our schedules."""
    ours = {row.key: row for row in rows if row.algorithm != NATIVE}
    if not ours or not machine.tiers:
        return dict.fromkeys(ours, (None, f"{machine.name}: the costs of its messages are not known"))
    mismatches = {key: transport_mismatch(row, machine) for key, row in ours.items()}
    found: dict[RowKey, Expectation] = {
        key: (None, mismatch or "nothing is simulated of it") for key, mismatch in mismatches.items()
    }
    every = (one for raw in files.raw_results for one in observations(raw, imported=True))
    measured = [one for one in every if mismatches.get(one.key) == ""]
    report = count_progress(progress, len(BOUNDS) * len(measured))
    for one, ends in expected_times(measured, machine, report):
        expected = Expected(ends[0], one.seconds, ends[1], MACHINE, (machine.name,)) if ends and one.seconds else None
        found[one.observation.key] = expected, "" if expected else one.reason
    return found


def _of_libraries(
    results: Results, rows: Iterable[Row], machine: MachineFile, progress: Callable[[int, int], None] | None
) -> dict[RowKey, Expectation]:
    """Return what the fastest schedule takes, of calls of libraries that nothing published and no model is about.

    A library may choose a slower algorithm on a healthy machine: what is slower decides nothing.
    """
    known = machine.machine_class or machine.published or machine.nccl
    native = [row for row in rows if row.algorithm == NATIVE and not (known and row.transport in NCCL_LIBRARIES)]
    found: dict[RowKey, Expectation] = {}
    if not machine.tiers:
        return found
    for each in library_expectations(replace(results, rows=tuple(native)), machine, progress):
        for call in each.calls:
            if (one := call.expected) is None:
                found[call.row.key] = None, each.reason or call.reason
                continue
            low, high = one.interval
            slow = (call.row.median_s or 0.0) > high / PASS_FROM
            reason = f"slower than {one.algorithm} would be, which the library need not take" if slow else ""
            found[call.row.key] = Expected(low, one.value_s, high, MACHINE, (machine.name,)), reason
    return found


def _against_reference(rows: Sequence[Row], results: Results, reference: Reference) -> list[Judged]:
    """Return rows with the verdict of the comparison with a reference, which knows how many cases it tests at once.

    Results of a case that occur several times are of as many runs. Each is compared by itself: it is one further run.
    """
    compare_with_reference(reference, replace(results, rows=tuple(rows)), TOLERANCE)  # which needs a common case
    runs, run_of = list[dict[str, ComparedCase]](), dict[RowKey, int]()
    cases = {row.key: case for row, case in compared_rows(rows, results.runs)}
    for key, case in cases.items():
        run_of[key] = next((number for number, run in enumerate(runs) if case.identity not in run), len(runs))
        if run_of[key] == len(runs):
            runs.append({})
        runs[run_of[key]][case.identity] = case
    sides = (replace(Side.of(results), cases=run) for run in runs)
    comparisons = (compare_sides(reference.side, side, TOLERANCE) for side in sides)
    compared = [{case.identity: case for case in comparison.cases} for comparison in comparisons]
    bounds = {each.identity: each for each in reference.cases}
    judged = []
    for row in rows:
        identity = cases[row.key].identity
        judged.append(_of_reference(row, compared[run_of[row.key]][identity], bounds.get(identity), reference))
    return _confirmed(_spoken(judged), {key: case.identity for key, case in cases.items()})


def _of_reference(row: Row, case: CaseComparison, of: ReferenceCase | None, reference: Reference) -> Judged:
    if of is None:
        return _undecided(row, None, "the reference does not have it")
    expected = Expected(of.low_s, of.seconds, of.high_s, REFERENCE, tuple(reference.runs))
    one = _undecided(row, expected, "; ".join(caveats_of(row, alike=True)))
    if one.reason:
        return one
    verdicts = {REGRESSION: Acceptance.FAIL, UNCHANGED: Acceptance.PASS, IMPROVEMENT: Acceptance.PASS}
    return replace(one, verdict=verdicts.get(case.verdict, Acceptance.CANNOT_TELL), reason=case.reason or "")


def _confirmed(judged: Sequence[Judged], identities: Mapping[RowKey, str]) -> list[Judged]:
    """Return verdicts against a reference; where its runs differ much, a row fails if it does in most runs.

    One run is not enough. A copy of a run has the same times, and is no second one.
    """
    times, failing = defaultdict[str, set[float]](set), defaultdict[str, set[float]](set)
    for one in judged:
        for found in (times, failing) if one.verdict is Acceptance.FAIL else (times,):
            found[identities[one.row.key]].add(one.measured)
    needed = {identity: max(NEEDED_RUNS, len(found) // 2 + 1) for identity, found in times.items()}
    reason = "runs of the reference differ much at this size: a second run would decide; do: give both"
    spoken = []
    for one in judged:
        identity = identities[one.row.key]
        is_doubtful = one.verdict is Acceptance.FAIL and _is_unsteady(one) and len(failing[identity]) < needed[identity]
        spoken.append(replace(one, verdict=Acceptance.CANNOT_TELL, reason=reason) if is_doubtful else one)
    return spoken


def _is_unsteady(judged: Judged) -> bool:
    """Return whether runs of a reference differ much in a row, and it is not far beyond what they differ by."""
    expected = judged.expected
    return bool(expected and expected.high > UNSTEADY * expected.value and not _is_far_beyond(judged))
