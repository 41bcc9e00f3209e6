"""Choices among a library's own algorithms, as its tables can express them: by collective, ranks and size alone.

Cases that a table cannot tell apart (they differ in placement, element type, or the order of ranks)
get the same choice. Another algorithm replaces the library's default only if it is faster in every
such case, by more than the noise and by more than two launches easily differ.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import TypeAlias

from hpccoll.analysis.choice_table import ChoiceRange
from hpccoll.analysis.library_evidence import collective_variables
from hpccoll.analysis.load_findings import load_findings
from hpccoll.analysis.measured_choices import ChoiceTime, Curves, MeasuredSetting, measured_settings
from hpccoll.analysis.measurement_quality import noise_note
from hpccoll.analysis.setting import Choice, Setting, recorded_mpi_version
from hpccoll.analysis.size_ranges import choose_ranges
from hpccoll.analysis.strength import exceeds_noise_of_launches
from hpccoll.analysis.unmeasured import are_smaller_unmeasured
from hpccoll.cases.case import AGGREGATED, IDLE, LOAD, SINGLE
from hpccoll.cases.catalogue import choice_parameters
from hpccoll.cases.library_algorithms import library_algorithms, library_collective, library_table
from hpccoll.cases.variables import assignment
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import UnusableError
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.extensions.tables.unused_gains import UnusedGain, unused_gains
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.host_load import describe_disturbance
from hpccoll.store.rows import Results, Row, Run

DEFAULT = "default"
"""The name of a library's own choice, and of the variant that measures it."""


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """The choice at a measured size, with the figures of the case in which it gains least. Times are in seconds."""

    nbytes: int  # the size S, in bytes
    seconds: float
    interval: tuple[float, float]  # the ends of the 95 % intervals of all rounds
    gain: float  # the time of the default over its own
    gain_ends: tuple[float, float]  # likewise, from the ends of both intervals
    runner_up: str  # the fastest other algorithm
    lead: float  # the time of that over its own: what the choice gains, or below 1 loses
    lead_at_least: float  # likewise, of the other algorithm that its interval leaves the fastest
    lead_at_most: float  # of the runner-up, by the ends of both intervals that are farthest apart
    within_noise: bool  # whether the runner-up measured faster, and by no more than the intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRange:
    """What a library is to do in a range of sizes."""

    collective: str  # by the project's name
    ranks: int
    nodes: tuple[int, ...]  # the numbers of nodes on which these ranks were measured
    oversubscribed: bool  # whether there were more ranks than cores
    first: int  # the smallest size S, in bytes
    below: int | None  # the first size of the next range; None for the last one
    choice: Choice  # an algorithm of the library; native is its default
    sizes: tuple[SizeChoice, ...]  # at its measured sizes, ascending

    @property
    def ranks_of_call(self) -> "RanksOfCall":
        return self.collective, self.ranks, self.nodes

    @property
    def reaches_below(self) -> bool:
        """Whether it chooses an algorithm for sizes below all measured ones, which may differ from them."""
        if self.first or self.choice.is_native:
            return False
        return are_smaller_unmeasured(self.collective, self.ranks, self.sizes[0].nbytes)


RanksOfCall: TypeAlias = tuple[str, int, tuple[int, ...]]
"""The collective, the number of ranks, and the numbers of nodes on which they were measured."""


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """The choices among the algorithms of a library."""

    ranges: tuple[LibraryRange, ...]  # by collective, ranks and size
    runs: tuple[Run, ...]  # the runs that measured them
    left_out: tuple[str, ...]  # which results do not count, in words
    under_load: tuple[Finding, ...] = ()  # where they differ from the choices under load
    # by collective, number of ranks, and numbers of nodes: what may gain where the default stays
    unused: Mapping[RanksOfCall, tuple[UnusedGain, ...]] = field(default_factory=dict)
    noise: tuple[str, ...] = ()  # how noisy the results are, and what disturbed them, in words
    # ranges that the format of a table cannot express, which are among those left out
    inexpressible: tuple[LibraryRange, ...] = ()


def library_choices(
    results: Results, library: str, name: str, *, by_nodes: bool, has_default: bool
) -> LibraryChoices:
    """Return what a library is to do, by collective, ranks and size.

    Args:
        results: results of the variant ``default`` and of variants that force one algorithm.
        library: ``openmpi``, ``mpich`` or ``nccl``.
        name: how the version of the MPI library begins; empty for any.
        by_nodes: whether tables of the library know the number of nodes.
        has_default: whether they can leave calls to the library.

    Raises:
        BadInputError: if no algorithm was measured next to the default, or machines or MPI
            libraries are mixed.
    """
    left_out = Counter[str]()
    rows = tuple(_candidates(results.ours, library, name, left_out))
    settings = measured_settings(replace(results, rows=rows))

    def group_of(setting: Setting) -> tuple[str, int, int, str]:
        nodes = setting.nodes if by_nodes else 0
        return setting.collective, setting.ranks, nodes, setting.load

    groups = defaultdict[tuple[str, int, int, str], list[tuple[Setting, MeasuredSetting]]](list)
    for setting, measured in settings.items():
        groups[group_of(setting)].append((setting, measured))
    ranges: list[LibraryRange] = []
    choices: dict[tuple[tuple[str, int, int, str], int], Choice] = {}  # by group and size
    unused: dict[RanksOfCall, tuple[UnusedGain, ...]] = {}
    for group, members in sorted(groups.items()):
        *_, load = group
        chosen_ranges = list(_ranges(members, left_out, has_default=has_default))
        for chosen in chosen_ranges:
            for size in chosen.sizes:
                choices[group, size.nbytes] = chosen.choice
        if load == IDLE and chosen_ranges:
            ranges += chosen_ranges
            unused[chosen_ranges[0].ranks_of_call] = _unused_gains(members, chosen_ranges)
    under_load = load_findings(
        settings, lambda setting, size: choices.get((group_of(setting), size))
    )
    lines = tuple(f"{format_count(count, 'result')} {why}" for why, count in left_out.items())
    if not ranges:
        raise _nothing_to_choose(library, lines)
    measuring = {row.run_id for row in rows}
    runs = tuple(run for run in results.runs if run.run_id in measuring)
    noise = tuple(_noise_lines(replace(results, rows=rows, runs=runs)))
    return LibraryChoices(tuple(ranges), runs, lines, tuple(under_load), unused, noise)


def _unused_gains(
    members: Iterable[tuple[Setting, MeasuredSetting]], ranges: Iterable[LibraryRange]
) -> tuple[UnusedGain, ...]:
    """Return what algorithms may gain in the ranges that keep the default."""
    kept = [chosen for chosen in ranges if chosen.choice.is_native]
    if not kept:
        return ()
    sizes = [size.nbytes for chosen in kept for size in chosen.sizes]
    settings = [measured for _, measured in members]
    return tuple(unused_gains(settings, kept[0].choice, sizes))


def _noise_lines(results: Results) -> Iterator[str]:
    """Yield how noisy results are, and what disturbed their runs."""
    yield noise_note(results)
    disturbance = describe_disturbance(run.provenance for run in results.runs)
    if disturbance:
        yield f"Disturbed: {disturbance}."


def _nothing_to_choose(library: str, left_out: Sequence[str]) -> UnusableError:
    why = ""
    if left_out:
        why = f" ({', '.join(left_out)} left out)"
    sweep = f"workflows/config/{'gpu-nccl' if library == 'nccl' else 'libraries'}.yaml"
    remedy = f"hpccoll sweep {sweep}, with the variants {DEFAULT} and {library}-..."
    return UnusableError(
        "PATHS", f"no algorithm of {library} was measured beside its default{why}; do: {remedy}"
    )


def _timing_of_choices(results: Results) -> str:
    """Return the timing by which choices are made: of single operations, if any were timed so."""
    timings = set()
    for row in results.rows:
        if row.algorithm == NATIVE:
            timings.add(row.timing)
    if SINGLE in timings or AGGREGATED not in timings:
        return SINGLE
    return AGGREGATED


def _candidates(results: Results, library: str, name: str, left_out: Counter[str]) -> Iterator[Row]:
    """Yield the rows of the default and of forced algorithms, each under its own name.

    Their variant is what else their runs set: only rows for which that is the same are compared.
    """
    runs = {run.run_id: run for run in results.runs}
    timing = _timing_of_choices(results)
    transport = "nccl" if library == "nccl" else "mpi"
    for row in results.rows:
        run = runs.get(row.run_id)
        library_name = library_collective(library, row.collective)
        if (
            not run
            or not library_name
            or not _is_plain_call(row, timing)
            or row.transport != transport
        ):
            continue
        if not recorded_mpi_version(run.provenance).startswith(name):
            continue
        is_default = row.variant in (None, DEFAULT)
        forced = _forced(row, run, library, library_name)
        if not is_default and not forced:
            continue
        ran = row.executed.partition(" (")[0]
        if row.interval is None:
            left_out["without a 95 % interval"] += 1
            continue
        if row.requested and ran not in (UNKNOWN, row.requested):
            left_out[f"of {row.variant}, which ran {ran}"] += 1
            continue
        if is_default:
            yield replace(row, variant=_other_variables(run))
        if forced:
            variant = _other_variables(run, _forcing_variables(row, library))
            params = dict(forced.params)
            if row.load:
                params[LOAD] = row.load
            yield replace(row, variant=variant, algorithm=forced.algorithm, params=params)


def _is_plain_call(row: Row, timing: str) -> bool:
    """Return whether a row is of a call of the library itself that a table can decide."""
    is_call = row.algorithm == NATIVE and row.timing == timing and not row.aggregators
    return is_call and row.usable and not choice_parameters(row.collective, row.params)


def _forcing_variables(row: Row, library: str) -> Collection[str]:
    """Return the variables of the environment that force the algorithm of a row."""
    if library == "nccl":
        return ("NCCL_ALGO", "NCCL_PROTO")
    variant = named_variants().get(row.variant or "")
    return variant.environment if variant else ()


def _other_variables(run: Run, own: Collection[str] = ()) -> str | None:
    """Return what a run sets, but for ``own``, that may decide how fast collectives are; None for nothing."""
    settings = {**collective_variables(run), **run.environment, **run.communicator}
    words = []
    for name, value in sorted(settings.items()):
        if name not in own:
            words.append(assignment(name, str(value)))
    return " ".join(words) or None


def _forced(row: Row, run: Run, library: str, name: str) -> Choice | None:
    """Return the algorithm of a row of the collective ``name``, both by the library's words; None if no table has it.

    Of NCCL, whose tables cannot leave a call to it, also what the default ran, if a line names it.
    """
    if library != "nccl":
        is_variant = row.variant == f"{library}-{row.requested}"
        if is_variant and row.requested in library_algorithms(library)[name]:
            return Choice(row.requested or "", row.transport)
        return None
    facts = library_table()["nccl"]
    word = row.requested or row.executed.partition(" (")[0]
    line = re.search(r"\bproto (\w+)", row.evidence or "")
    protocol = (line[1] if line else run.environment.get("NCCL_PROTO", "")).lower()
    if not protocol and word not in facts["every_protocol"]:
        protocol = "simple"
    if name not in facts["functions"].get(word, ()) or protocol not in facts["protocols"]:
        return None
    return Choice(word, row.transport, (("protocol", protocol),))


def _ranges(
    members: Sequence[tuple[Setting, MeasuredSetting]], left_out: Counter[str], *, has_default: bool
) -> Iterator[LibraryRange]:
    """Yield the ranges of a collective on a number of ranks; none if no size has the default and another algorithm."""
    choices = chain.from_iterable(measured.curves for _, measured in members)
    native = next((choice for choice in choices if choice.is_native), None)
    if native is None:
        _leave_out(members, left_out)
        return
    compared = _compared(members, native, left_out)
    sizes = _shared_sizes(compared, left_out)
    if not sizes:
        return
    excluded = None if has_default else native
    offered = [
        replace(case.measured, curves=_curves(case.measured, sizes, excluded)) for case in compared
    ]
    setting = compared[0].setting
    if not set.intersection(*(set(measured.curves) for measured in offered)):
        why = f"of {setting.collective}, whose types, placements and variants have no algorithm in common"
        left_out[why] += sum(len(case.measured.rows) for case in compared)
        return
    choices_at: dict[int, dict[Choice, SizeChoice]] = {}
    for size in sizes:
        choices_at[size] = _size_choices(size, [case.times[size] for case in compared], native)
    answers = _answers(choose_ranges(*offered).ranges, choices_at, native, has_default=has_default)
    # A range begins at the geometric mean of the sizes at its cut.
    begins = {after: math.isqrt(before * after - 1) + 1 for before, after in pairwise(sizes)}
    spans = []
    for choice, group in groupby(answers, itemgetter(0)):
        spans.append((choice, tuple(answer for _, answer in group)))
    nodes = tuple(sorted({case.setting.nodes for case in compared}))
    for (choice, size_choices), following in zip(spans, [*spans[1:], None], strict=True):
        below = None
        if following:
            below = begins[following[1][0].nbytes]
        chosen = LibraryRange(
            collective=setting.collective,
            ranks=setting.ranks,
            nodes=nodes,
            oversubscribed=compared[0].measured.oversubscribed,
            first=begins.get(size_choices[0].nbytes, 0),
            below=below,
            choice=choice,
            sizes=size_choices,
        )
        if has_default and chosen.reaches_below:
            chosen = replace(chosen, first=_first_below(sizes[0]))
        yield chosen


def _first_below(smallest: int) -> int:
    """Return where the choice at the smallest measured size begins, below which the default stays.

    It is half that size: the geometric mean of it and of a quarter of it. A call of that size may
    have fewer bytes, because its blocks are of equal sizes.
    """
    return (smallest + 1) // 2


def _answers(
    ranges: Iterable[ChoiceRange],
    choices_at: Mapping[int, Mapping[Choice, SizeChoice]],
    native: Choice,
    *,
    has_default: bool,
) -> Iterator[tuple[Choice, SizeChoice]]:
    """Yield the choice at each size, ascending: that of its range, or the default where that should stay."""
    for chosen in ranges:
        measured = [size for size in chosen.sizes if chosen.choice in choices_at[size]]
        candidates = {size: choices_at[size][chosen.choice] for size in measured}
        if has_default:
            fitting = _sizes_to_change(candidates)
        else:
            fitting = set(candidates)
        for size in chosen.sizes:
            choice = chosen.choice if size in fitting else native
            yield choice, choices_at[size][choice]


@dataclass(frozen=True, slots=True)
class _ComparedSetting:
    """A setting with sizes at which the default and another algorithm were measured."""

    setting: Setting
    measured: MeasuredSetting
    times: Mapping[int, Mapping[Choice, ChoiceTime]]  # at these sizes


def _compared(
    members: Iterable[tuple[Setting, MeasuredSetting]], native: Choice, left_out: Counter[str]
) -> list[_ComparedSetting]:
    compared = []
    for setting, measured in members:
        times = {}
        for size in measured.sizes:
            times_at_size = measured.times_at(size)
            if native in times_at_size and len(times_at_size) > 1:
                times[size] = times_at_size
        if times:
            compared.append(_ComparedSetting(setting, measured, times))
        else:
            _leave_out([(setting, measured)], left_out)
    return compared


def _leave_out(members: Iterable[tuple[Setting, MeasuredSetting]], left_out: Counter[str]) -> None:
    for setting, measured in members:
        if setting.variant:
            setting_name = f"{setting.collective} with {setting.variant}"
        else:
            setting_name = setting.collective
        left_out[f"of {setting_name}, with no default or no other algorithm beside"] += len(
            measured.rows
        )


def _shared_sizes(compared: Sequence[_ComparedSetting], left_out: Counter[str]) -> list[int]:
    """Return the sizes that all settings have, ascending."""
    if not compared:
        return []
    shared = set.intersection(*(set(case.times) for case in compared))
    unshared = 0
    for case in compared:
        unshared += sum(len(times) for size, times in case.times.items() if size not in shared)
    if unshared:
        collective = compared[0].setting.collective
        left_out[f"of {collective} at sizes that not all types, placements and variants have"] += (
            unshared
        )
    return sorted(shared)


def _curves(measured: MeasuredSetting, sizes: Sequence[int], excluded: Choice | None) -> Curves:
    """Return the curves of a setting at some sizes, without those that have none of them, or are of ``excluded``."""
    curves = {}
    for choice, curve in measured.curves.items():
        kept = {size: curve[size] for size in sizes if size in curve}
        if kept and choice != excluded:
            curves[choice] = kept
    return curves


def _sizes_to_change(choices: Mapping[int, SizeChoice]) -> set[int]:
    """Return the sizes at which a choice replaces the default.

    Between sizes at which it is clearly faster, another size needs no range of its own, unless the
    default is clearly faster there.
    """
    clear = []
    for size, choice in choices.items():
        if exceeds_noise_of_launches(choice.gain, choice.gain_ends[0]):
            clear.append(size)
    if not clear:
        return set()
    return {
        size
        for size, choice in choices.items()
        if clear[0] <= size <= clear[-1] and choice.gain_ends[1] > 1
    }


def _size_choices(
    size: int, cases: Sequence[Mapping[Choice, ChoiceTime]], native: Choice
) -> dict[Choice, SizeChoice]:
    """Return each choice that was measured in all cases, in the case of its least gain."""
    by_choice = defaultdict[Choice, list[SizeChoice]](list)
    for times in cases:
        for choice in times:
            by_choice[choice].append(_size_choice(size, choice, times, native))
    least_gains = {}
    for choice, measured in by_choice.items():
        if len(measured) == len(cases):
            least_gains[choice] = min(measured, key=attrgetter("gain", "lead"))
    return least_gains


def _size_choice(
    size: int, choice: Choice, times: Mapping[Choice, ChoiceTime], native: Choice
) -> SizeChoice:
    """Return how a choice compares with the others of a case; no launch measured two of them."""
    own_time = times[choice]
    native_time = times[native]
    seconds = own_time.seconds
    low, high = own_time.ends
    native_low, native_high = native_time.ends
    rivals = [rival for rival in times if rival != choice]
    runner_up = min(rivals, key=lambda rival: times[rival].seconds)
    lowest = min(times[rival].ends[0] for rival in rivals)
    name = DEFAULT if runner_up == native else runner_up.name
    lead = times[runner_up].seconds / seconds
    lead_at_most = times[runner_up].ends[1] / low
    return SizeChoice(
        nbytes=size,
        seconds=seconds,
        interval=(low, high),
        gain=native_time.seconds / seconds,
        gain_ends=(native_low / high, native_high / low),
        runner_up=name,
        lead=lead,
        lead_at_least=lowest / high,
        lead_at_most=lead_at_most,
        within_noise=lead < 1 <= lead_at_most,
    )
