"""Whether measured numbers are as expected: what is expected of each row of results, and the verdict on it.

Expectations are never mixed: each has one origin.

| origin | what is held against it |
| --- | --- |
| published, model, nearest, physics | calls of NCCL and RCCL (``nccl_expectations``) |
| machine | our schedules, by simulation; calls of other libraries, against the fastest of our schedules |
| reference | everything, if the user has one |
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from hpccoll.analysis.printed_caveats import caveats_of
from hpccoll.analysis.setting import Choice
from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.library_request import NCCL_ALGORITHMS, requested_by_environment
from hpccoll.common.text import join_words
from hpccoll.common.units import format_factor, format_per_cent
from hpccoll.evidence.log_record import NCCL_LIBRARIES, LogRecord
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.expectations import expectations as schedule_expectations
from hpccoll.judge.held import (
    NEAREST,
    OF_RATES,
    PHYSICS,
    PUBLISHED,
    RATE,
    REFERENCE,
    SAYING,
    TIME,
    Acceptance,
    Expected,
    HeldVerdict,
)
from hpccoll.judge.library_expectations import library_expectations, transport_mismatch
from hpccoll.judge.named_gpus import gpus_with_model, other_gpus
from hpccoll.judge.nccl_expectations import BEYOND, LARGE, Expectation, expected_of_nccl
from hpccoll.judge.reference import FAILS_ALONE, Reference, check_common_case
from hpccoll.judge.run_comparison import (
    TOLERANCE,
    CaseComparison,
    ComparedCase,
    Side,
    compare_sides,
    compared_rows,
)
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.published_rates import usual_algorithm, version_of
from hpccoll.schedule import itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.rows import Results, Row, RowKey, Run

PASS_FROM, PASS_TO = 0.95, 1.05
"""What passes: from this share of the low end on, to this multiple of the high end."""
FAIL_BELOW = (LARGE, 0.85), (1 << 20, 0.65), (0, 0.4)
"""What fails, by the smallest size: less than this share of the low end of published figures; of
another expectation, which has an interval of its own, the first share counts for all sizes. Healthy
pairs of nodes with 8 H100 or H200 have 0.79 times the bandwidth of others at 64 MiB (AWS p5), 0.7
times at 16 MiB, and at 64 KiB take 33 to 70 us."""

FAR_BELOW = 1 / 3
"""The share of what the wires carry below which a row of LARGE is far below: that are 9 of 424
published figures of healthy machines, and 25 of 35 of others."""

IS_IT_THAT_MACHINE = "are nodes, ports and ranks those of the machine?"
"""What to ask of a row that is too fast."""

WIDEST = 1.5
"""The ratio of the ends of a published range, from LARGE on, beyond which it decides nothing: sources do not agree."""

UNSTEADY = 1.1
"""The upper bound of a reference over its time from which on one run is not evidence: what moves
such times from run to run may last for minutes. In 5 of 18 healthy sweeps of the testbed small
messages of all sizes took 1.3 to 3.4 times as long; their bounds were 1.3 to 1.6 times their times.
Those of 4 KiB and more were at most 1.06, and no sweep exceeded them."""

NEEDED_RUNS = 2
"""The fewest runs that must be beyond such a bound."""

BROKEN = "failed", "wrong"
"""The statuses of rows without a right result, which fail whatever is expected."""


def judge_rows(
    files: ResultFiles,
    results: Results,
    against: MachineFile | Reference,
    log: LogRecord | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Judged]:
    """Return the verdict on each row of results that ranks exchanged data for, by collective, place and size.

    Rows under load with right results are left out: nothing is expected of them.

    Args:
        files: raw files, or outputs of other programs that were imported.
        results: the results of ``files``.
        against: a described cluster or a fitted machine, or a reference of
            ``compare --make-reference``.
        log: the content of the logs of the run, which name the algorithm of each size.
        progress: is called with the numbers of simulations that are done, and of all.

    Raises:
        UnusableError: if a reference has no case in common with the results.
        KeyboardInterrupt: if the user has interrupted the simulations.
    """
    rows = [row for row in results.rows if _is_judged(row)]
    if isinstance(against, Reference):
        return _against_reference(rows, results, against)
    expectations = _of_schedules(files, rows, against, progress) | _of_libraries(
        results, rows, against, progress
    )
    runs = {run.run_id: run for run in results.runs}
    judged = []
    for row in rows:
        is_logged = log is not None and log.ranks in (None, row.ranks)
        log_of_row = log if is_logged else None
        judged.append(
            _against_machine(
                row, runs.get(row.run_id), against, log_of_row, expectations.get(row.key)
            )
        )
    return _confirmed_by_neighbours(judged)


def _is_judged(row: Row) -> bool:
    """Return whether a row gets a verdict: ranks exchanged data, it has a time or a wrong result, no load ran."""
    if not row.exchanges_data or row.floor or row.predicted or row.collective not in COLLECTIVES:
        return False
    if row.status in BROKEN:
        return True
    return bool(row.median_s) and not row.load


def _against_machine(
    row: Row,
    run: Run | None,
    machine: MachineFile,
    log: LogRecord | None,
    simulated: Expectation | None,
) -> Judged:
    """Return a row with its verdict against a machine.

    Args:
        row: the row.
        run: its run, if the results have it.
        machine: the machine.
        log: the log of the run, if it is about as many ranks.
        simulated: what the simulation expects of the row; None for calls of NCCL and RCCL.
    """
    library = _library(row, run, log)
    expected, reason = simulated or expected_of_nccl(row, machine, library, _ran(row, run, log))
    if not reason and run:
        reason = other_gpus(run, machine)
    if not reason:
        reason = "; ".join(caveats_of(row))
    names_gpus = bool(run and gpus_with_model(run))
    gpu_unnamed = row.transport in NCCL_LIBRARIES and not names_gpus
    judgement = replace(_judged(row, expected, reason), library=library, gpu_unnamed=gpu_unnamed)
    if log is None or judgement.acceptance is not Acceptance.PASS:
        return judgement
    possible_fault = _unasked(row, machine, log)
    return _untold(judgement, possible_fault) if possible_fault else judgement


def _library(row: Row, run: Run | None, log: LogRecord | None) -> str:
    """Return the library of an imported row, with the version that the log has if the results do not say it."""
    library = str(run.provenance.get("library", "")) if run and row.imported else ""
    if log and log.version and not version_of(library):
        return f"{row.transport.upper()} {log.version}"
    return library


def _untold(judgement: Judged, reason: str) -> Judged:
    return replace(judgement, verdict=HeldVerdict.CANNOT_TELL, reason=reason)


def _undecided(row: Row, expected: Expected | None, reason: str) -> Judged:
    """Return a row that cannot be told, for a reason if there is one; a wrong result fails."""
    if row.status in BROKEN or row.wrong:
        quantity, measured = _measured(row, None)
        status = row.status if row.status in BROKEN else "wrong"
        reason = row.reason or f"the result is {status}"
        return Judged(
            row=row,
            quantity=quantity,
            measured=measured,
            expected=None,
            verdict=HeldVerdict.WRONG,
            reason=reason,
        )
    if not row.usable:
        reason = row.reason or f"it is {row.status}"
    quantity, measured = _measured(row, expected)
    return Judged(
        row=row,
        quantity=quantity,
        measured=measured,
        expected=expected,
        verdict=HeldVerdict.CANNOT_TELL,
        reason=reason,
    )


def _measured(row: Row, expected: Expected | None) -> tuple[str, float]:
    """Return the quantity that is judged, RATE or TIME, and its value: that of the slowest run of an imported row.

    Rounds of an imported row are runs of their own.
    """
    is_rate = expected is None or expected.origin in OF_RATES
    rate = row.busbw_Bps if is_rate else None
    seconds = row.median_s or 0.0
    runs_s = [run_s for run_s in row.round_medians_s if run_s]
    if row.imported and runs_s:
        slowest_s = max(runs_s)
        rate = rate and rate * seconds / slowest_s
        seconds = slowest_s
    return (RATE, rate) if rate else (TIME, seconds)


def _judged(row: Row, expected: Expected | None, reason: str) -> Judged:
    """Return a row with a verdict on itself alone; with a reason it cannot be told."""
    judgement = _undecided(row, expected, reason)
    return judgement if expected is None or judgement.reason else _alone(judgement, expected)


def _alone(judgement: Judged, expected: Expected) -> Judged:
    """Return a row with the verdict of what is expected of it, or of what is said of it."""
    if expected.origin == PHYSICS:
        return _below_wires(judgement, expected)
    if expected.origin == NEAREST:
        return _beside_nearest(judgement, expected)
    return _in_range(judgement, expected)


def _below_wires(judgement: Judged, expected: Expected) -> Judged:
    """Return a row that nothing is expected of, with how it is beside what the wires carry."""
    share = judgement.measured / expected.high
    if share > BEYOND:
        reason = f"it cannot be: {expected.sources[0]} carry less"
        return replace(judgement, verdict=HeldVerdict.IMPOSSIBLE, reason=reason)
    is_far_below = judgement.row.bytes >= LARGE and share < FAR_BELOW
    verdict = HeldVerdict.FAR_BELOW_WIRES if is_far_below else HeldVerdict.BELOW_WIRES
    return replace(judgement, verdict=verdict, reason=expected.lacking)


def _beside_nearest(judgement: Judged, expected: Expected) -> Judged:
    """Return a row with how it is beside the nearest figures, which are too little for a verdict.

    Below LARGE it is within them where a class of its own would not fail: healthy machines differ.
    """
    nbytes = judgement.row.bytes
    least, most = PASS_FROM, PASS_TO
    if nbytes < LARGE:
        least = _fail_below(nbytes)
        most = 1 / least
    verdict = HeldVerdict.WITHIN_PUBLISHED
    side = "within" if expected.contains(judgement.measured) else "near"
    if judgement.measured < least * expected.low:
        verdict, side = HeldVerdict.BELOW_PUBLISHED, "below"
    elif judgement.measured > most * expected.high:
        verdict, side = HeldVerdict.ABOVE_PUBLISHED, "better than"
    who = join_words(expected.sources)
    reason = f"{side} what {who} published: {expected.lacking}"
    return replace(judgement, verdict=verdict, reason=reason)


def _in_range(judgement: Judged, expected: Expected) -> Judged:
    """Return a row with the verdict of its range."""
    nbytes = judgement.row.bytes
    measured = judgement.measured
    is_published = expected.origin == PUBLISHED
    if is_published and nbytes >= LARGE and expected.high > WIDEST * expected.low:
        return replace(judgement, reason=f"its sources differ by more than {WIDEST:g} times")
    if judgement.quantity == TIME:
        share_of_low, share_of_high = expected.high / measured, expected.low / measured
    else:
        share_of_low, share_of_high = measured / expected.low, measured / expected.high
    if share_of_high > PASS_TO:
        most = f"above {format_per_cent(PASS_TO)} of the highest that is expected"
        verdict = HeldVerdict.ABOVE_PUBLISHED if is_published else HeldVerdict.CANNOT_TELL
        return replace(judgement, verdict=verdict, reason=f"{most}: {IS_IT_THAT_MACHINE}")
    least = _fail_below(nbytes) if is_published else FAIL_BELOW[0][1]
    if share_of_low < least:
        return replace(judgement, verdict=HeldVerdict.SLOWER)
    if share_of_low < PASS_FROM:
        bounds = f"between {format_per_cent(least)} and {format_per_cent(PASS_FROM)}"
        return replace(judgement, reason=f"{bounds} of the lowest that is expected")
    return replace(judgement, verdict=HeldVerdict.AS_EXPECTED)


def _fail_below(nbytes: int) -> float:
    """Return the share of the low end of published figures below which a size fails."""
    return next(share for smallest, share in FAIL_BELOW if nbytes >= smallest)


def _confirmed_by_neighbours(judged: Iterable[Judged]) -> list[Judged]:
    """Return verdicts in order; a row that is low fails if one at a neighbouring size is, too, or if it has none.

    The largest size fails alone: nothing lies beyond it that shows a dip. Against a reference, rows
    of the same size by another algorithm or in the other placement are neighbours, too. A single
    row of many is low by chance, or because a burst of noise met it, since cases run in random
    order; a slow host or wire slows several of them. Beyond ``FAILS_ALONE`` times the bound of a
    reference it needs none.
    """
    in_order = sorted(judged, key=lambda judgement: _order(judgement.row))
    failed = [judgement.acceptance is Acceptance.FAIL for judgement in in_order]
    curves: dict[object, list[int]] = defaultdict(list)
    same_size: dict[object, list[int]] = defaultdict(list)
    same_size_as: dict[int, list[int]] = {}
    for number, judgement in enumerate(in_order):
        if judgement.expected is None or judgement.expected.origin in SAYING:
            continue
        row = judgement.row
        key = CallKey.of(row)
        curves[row.run_id, Choice.of(row), key.without("requested_bytes")].append(number)
        if judgement.expected.origin == REFERENCE:
            rows_of_size = same_size[row.run_id, key.without("in_place")]
            rows_of_size.append(number)
            same_size_as[number] = rows_of_size
    confirmed = list(in_order)
    for curve in curves.values():
        for place, number in enumerate(curve[:-1]):
            if not failed[number]:
                continue
            neighbours = {*curve[max(0, place - 1) : place + 2], *same_size_as.get(number, ())} - {
                number
            }
            is_alone = not any(failed[neighbour] for neighbour in neighbours)
            judgement = in_order[number]
            if is_alone and judgement.row.usable and not _is_far_beyond(judgement):
                reason = "it is worse at this size only: measure the sizes around it again"
                confirmed[number] = _untold(judgement, reason)
    return confirmed


def _is_far_beyond(judged: Judged) -> bool:
    """Return whether a row takes many times as long as the bound of a reference."""
    expected = judged.expected
    return bool(
        expected and expected.origin == REFERENCE and judged.measured > FAILS_ALONE * expected.high
    )


def _order(row: Row) -> tuple[object, ...]:
    return (
        row.collective,
        row.nodes,
        row.ranks,
        row.algorithm,
        row.transport,
        str(sorted(row.params.items())),
        row.dtype,
        row.in_place,
        row.run_id,
        row.bytes,
    )


def _ran(row: Row, run: Run | None, log: LogRecord | None) -> tuple[str | None, str]:
    """Return the algorithm that a log or a setting names, by the project's name, and why it is in doubt."""
    if log:
        lines = log.lines_of_case(row.collective, row.bytes, row.ranks, dtype=row.dtype)
        logged = {line.algorithm for line in lines}
        if len(logged) == 1:
            return logged.pop(), ""
        if logged:
            return None, f"the log names {join_words(sorted(logged))} for this size"
    executed = (row.executed or "").partition(" ")[0]
    if executed in NCCL_ALGORITHMS.values():
        return executed, ""
    settings = settings_of(run, log)
    requested = row.requested or requested_by_environment(settings, row.collective)
    if requested:
        return requested, ""
    if settings.get("NCCL_NVLS_ENABLE") == "0":
        return (
            None,
            "NVLS is off, and nothing names the algorithm: give a log with NCCL_DEBUG_SUBSYS=INIT,TUNING",
        )
    return None, ""


def settings_of(run: Run | None, log: LogRecord | None) -> dict[str, str]:
    """Return the variables of a run; where several sources have one, that of the log, or else of the environment."""
    settings: dict[str, str] = {}
    if run:
        recorded = run.provenance.get("variables")
        if isinstance(recorded, Mapping):
            settings.update(recorded)
        settings.update(run.environment)
    if log:
        settings.update(log.settings)
    return settings


def _unasked(row: Row, machine: MachineFile, log: LogRecord) -> str:
    """Return why what a log names may be a fault, although it is as fast as expected; empty if nothing suggests it.

    NCCL takes a ring if it cannot set NVLS up. A log without any variable does not show whether one
    asks for the ring.
    """
    like = machine.machine_class
    usual = ""
    if like and row.collective == "all_reduce":
        usual = usual_algorithm(like, row.nodes) or ""
    can_use_nvls = row.bytes >= LARGE and itemsize(row.dtype) > 1
    if not usual.startswith("NVLS") or not can_use_nvls:
        return ""
    lines = log.lines_of_case(row.collective, row.bytes, row.ranks, dtype=row.dtype)
    ran = sorted({line.algorithm for line in lines})
    if not ran or any(name.startswith("nvls") for name in ran):
        return ""
    reasons = [lost.reason for lost in log.unavailable if "nvls" in lost.feature.lower()]
    if reasons:
        return f"{usual} is usual here, and the log says why it did not run: {reasons[0]}"
    if (
        not log.settings
        or "NCCL_ALGO" in log.settings
        or log.settings.get("NCCL_NVLS_ENABLE") == "0"
    ):
        return ""
    neither = join_words(("NCCL_ALGO", "NCCL_NVLS_ENABLE"), "nor")
    return f"{usual} is usual here, {join_words(ran)} ran, and the log has neither {neither}"


def _of_schedules(
    files: ResultFiles,
    rows: Iterable[Row],
    machine: MachineFile,
    progress: Callable[[int, int], None] | None,
) -> dict[RowKey, Expectation]:
    """Return what the simulation expects of our schedules."""
    ours = {row.key: row for row in rows if row.algorithm != NATIVE}
    if not ours or not machine.tiers:
        return dict.fromkeys(
            ours, (None, f"{machine.name}: the costs of its messages are not known")
        )
    expectations: dict[RowKey, Expectation] = {}
    comparable = []
    for key, row in ours.items():
        mismatch = transport_mismatch(row, machine)
        expectations[key] = None, mismatch or "nothing is simulated of it"
        if not mismatch:
            comparable.append(row)
    for promised in schedule_expectations(files.raw_results, machine, progress, comparable):
        for case in promised.cases:
            expectations[case.case.observation.key] = case.expected, case.reason
    return expectations


def _of_libraries(
    results: Results,
    rows: Iterable[Row],
    machine: MachineFile,
    progress: Callable[[int, int], None] | None,
) -> dict[RowKey, Expectation]:
    """Return what the fastest schedule takes, of calls of libraries that nothing published and no model is about.

    A library may choose a slower algorithm on a healthy machine: what is slower decides nothing.
    """
    if not machine.tiers:
        return {}
    knows_nccl = bool(machine.machine_class or machine.published or machine.nccl)
    native = [row for row in rows if row.algorithm == NATIVE]
    if knows_nccl:
        native = [row for row in native if row.transport not in NCCL_LIBRARIES]
    expectations: dict[RowKey, Expectation] = {}
    for launch in library_expectations(replace(results, rows=tuple(native)), machine, progress):
        for call in launch.calls:
            reason = call.reason
            if (
                call.prediction
                and call.expected
                and (call.measured or 0.0) > call.expected.high / PASS_FROM
            ):
                reason = f"slower than {call.prediction.algorithm} would be, which the library need not take"
            expectations[call.row.key] = call.expected, reason
    return expectations


def _against_reference(rows: Sequence[Row], results: Results, reference: Reference) -> list[Judged]:
    """Return rows with the verdict of the comparison with a reference, which knows how many cases it tests at once.

    If a case occurs several times, each occurrence is a run. Each is compared by itself, as one
    further run.
    """
    cases = {row.key: case for row, case in compared_rows(rows, results.runs)}
    check_common_case(reference, {case.identity for case in cases.values()})
    runs, run_of = _separate_runs(cases)
    measured = Side.of(results)
    compared: dict[tuple[int, str], CaseComparison] = {}
    for number, run in enumerate(runs):
        comparison = compare_sides(reference.side, replace(measured, cases=run), TOLERANCE)
        compared |= {(number, held.case.identity): held for held in comparison.cases}
    judged = []
    for row in rows:
        held = compared[run_of[row.key], cases[row.key].identity]
        judged.append(_of_reference(row, held))
    identities = {key: case.identity for key, case in cases.items()}
    return _confirmed_by_runs(_confirmed_by_neighbours(judged), identities)


def _separate_runs(
    cases: Mapping[RowKey, ComparedCase],
) -> tuple[list[dict[str, ComparedCase]], dict[RowKey, int]]:
    """Return the cases of each run by their identities, each case once in a run, and the number of the run of a row."""
    runs: list[dict[str, ComparedCase]] = []
    run_of: dict[RowKey, int] = {}
    earlier = Counter[str]()
    for key, case in cases.items():
        number = earlier[case.identity]
        earlier[case.identity] += 1
        if number == len(runs):
            runs.append({})
        runs[number][case.identity] = case
        run_of[key] = number
    return runs, run_of


def _of_reference(row: Row, held: CaseComparison) -> Judged:
    """Return a row with the verdict of its comparison with a reference, unless it cannot be told."""
    if held.expected is None:
        return _undecided(row, None, "the reference does not have it")
    judgement = _undecided(row, held.expected, "; ".join(caveats_of(row, alike=True)))
    if judgement.reason:
        return judgement
    allowed = held.expected.high / held.expected.value
    if allowed > FAILS_ALONE and held.acceptance is not Acceptance.FAIL:
        return _untold(judgement, allows_too_much(allowed))
    return replace(judgement, verdict=held.verdict, reason=held.reason)


def allows_too_much(allowed: float) -> str:
    """Return why a reference decides nothing whose bound is ``allowed`` times its time."""
    return (
        f"the reference allows {format_factor(allowed)} its time, too much to call a run healthy: its runs differ too "
        "much; do: make it again from runs on an idle machine"
    )


def _confirmed_by_runs(judged: Sequence[Judged], identities: Mapping[RowKey, str]) -> list[Judged]:
    """Return verdicts against a reference; where its runs differ much, a row fails if it does in most runs.

    One run is not enough. A copy of a run has the same times, and does not count as a second one.
    """
    times = defaultdict[str, set[float]](set)
    failing = defaultdict[str, set[float]](set)
    for judgement in judged:
        identity = identities[judgement.row.key]
        times[identity].add(judgement.measured)
        if judgement.acceptance is Acceptance.FAIL:
            failing[identity].add(judgement.measured)
    reason = (
        "runs of the reference differ much at this size: a second run would decide; do: give both"
    )
    confirmed = []
    for judgement in judged:
        identity = identities[judgement.row.key]
        needed = max(NEEDED_RUNS, len(times[identity]) // 2 + 1)
        fails_in_few = judgement.acceptance is Acceptance.FAIL and len(failing[identity]) < needed
        is_doubtful = fails_in_few and _is_unsteady(judgement)
        confirmed.append(_untold(judgement, reason) if is_doubtful else judgement)
    return confirmed


def _is_unsteady(judged: Judged) -> bool:
    """Return whether runs of a reference differ much in a row, and it is not far beyond what they differ by."""
    expected = judged.expected
    return bool(
        expected and expected.high > UNSTEADY * expected.value and not _is_far_beyond(judged)
    )
