"""Choices among a library's own algorithms, as its tables can express them: by collective, ranks and size alone.

What a table cannot tell apart (placements, element types, the order of ranks) gets one choice for all of it. Another
algorithm replaces the library's default only where it is faster in each of these cases, by more than the noise and by
more than two launches easily differ.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter

from hpccoll.analysis.library_evidence import collective_variables
from hpccoll.analysis.load_findings import load_findings
from hpccoll.analysis.measured_choices import ChoiceTime, MeasuredSetting, measured_settings
from hpccoll.analysis.setting import Choice, Setting, recorded_mpi_version
from hpccoll.analysis.size_ranges import choose_ranges
from hpccoll.analysis.strength import NOTICEABLE
from hpccoll.cases.case import AGGREGATED, IDLE, LOAD, SINGLE
from hpccoll.cases.catalogue import choice_parameters
from hpccoll.cases.library_algorithms import library_algorithms, library_collective, library_table
from hpccoll.cases.variables import assignment
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import UnusableError
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results, Row, Run

DEFAULT = "default"
"""The name of a library's own choice, and of the variant that measures it."""


@dataclass(frozen=True, slots=True)
class SizeChoice:
    """The choice at a measured size; of several cases, in the one of its least gain. Times are in seconds."""

    nbytes: int  # the size S, in bytes
    seconds: float
    interval: tuple[float, float]  # the ends of the 95 % intervals of all rounds
    gain: float  # the time of the default over its own
    gain_ends: tuple[float, float]  # likewise, from the ends of both intervals
    runner_up: str  # the fastest other algorithm
    lead: float  # the time of that over its own: what the choice gains, or below 1 loses
    lead_at_least: float  # likewise, of the other algorithm that its interval leaves the fastest


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


@dataclass(frozen=True, slots=True)
class LibraryChoices:
    """The choices among the algorithms of a library."""

    ranges: tuple[LibraryRange, ...]  # by collective, ranks and size
    runs: tuple[Run, ...]  # the runs that measured them
    left_out: tuple[str, ...]  # which results do not count, in words
    under_load: tuple[Finding, ...] = ()  # where they differ from the choices under load


def library_choices(results: Results, library: str, name: str, *, by_nodes: bool, has_default: bool) -> LibraryChoices:
    """Return what a library is to do, by collective, ranks and size.

    Args:
        results: results of the variant ``default`` and of variants that force one algorithm.
        library: ``openmpi``, ``mpich`` or ``nccl``.
        name: how the version of the MPI library begins; empty for any.
        by_nodes: whether tables of the library know the number of nodes.
        has_default: whether they can leave calls to the library.

    Raises:
        BadInputError: if no algorithm was measured next to the default, or machines or MPI libraries are mixed.
    """
    left_out = Counter[str]()
    rows = tuple(_candidates(results.ours, library, name, left_out))
    groups = defaultdict[tuple[str, int, int, str], list[tuple[Setting, MeasuredSetting]]](list)
    settings = measured_settings(replace(results, rows=rows))

    def group(setting: Setting) -> tuple[str, int, int, str]:
        return setting.collective, setting.ranks, setting.nodes * by_nodes, setting.load

    for setting, measured in settings.items():
        groups[group(setting)].append((setting, measured))
    found = {key: (*_ranges(members, left_out, has_default=has_default),) for key, members in sorted(groups.items())}
    ranges = tuple(each for (*_, load), of_group in found.items() if load == IDLE for each in of_group)
    at = {(key, size.nbytes): of.choice for key, of_group in found.items() for of in of_group for size in of.sizes}
    under_load = load_findings(settings, lambda setting, size: at.get((group(setting), size)))
    lines = tuple(f"{format_count(count, 'result')} {why}" for why, count in left_out.items())
    if not ranges:
        why = f" ({', '.join(lines)} left out)" if lines else ""
        sweep = f"workflows/config/{'gpu-nccl' if library == 'nccl' else 'libraries'}.yaml"
        remedy = f"hpccoll sweep {sweep}, with the variants {DEFAULT} and {library}-..."
        raise UnusableError("PATHS", f"no algorithm of {library} was measured beside its default{why}; do: {remedy}")
    used = {row.run_id for row in rows}
    return LibraryChoices(ranges, tuple(run for run in results.runs if run.run_id in used), lines, (*under_load,))


def _timing_of_choices(results: Results) -> str:
    """Return the timing by which choices are made: of single operations, if any were timed so."""
    timings = {row.timing for row in results.rows if row.algorithm == NATIVE}
    return SINGLE if SINGLE in timings or AGGREGATED not in timings else AGGREGATED


def _candidates(results: Results, library: str, name: str, left_out: Counter[str]) -> Iterator[Row]:
    """Yield the rows of the default and of forced algorithms, each under its own name.

    Their variant is what else their runs set: only rows for which that is the same are compared.
    """
    runs = {run.run_id: run for run in results.runs}
    timing = _timing_of_choices(results)
    for row in results.rows:
        run, known = runs.get(row.run_id), library_collective(library, row.collective)
        call = row.algorithm == NATIVE and row.timing == timing and not row.aggregators
        if not (run and known and call and row.usable and not choice_parameters(row.collective, row.params)):
            continue
        if not recorded_mpi_version(run.provenance).startswith(name):
            continue
        if row.transport != ("nccl" if library == "nccl" else "mpi"):
            continue
        default = row.variant in (None, DEFAULT)
        forced = _forced(row, run, library, known)
        ran = row.executed.partition(" (")[0]
        if not default and not forced:
            continue
        if row.interval is None:
            left_out["without a 95 % interval"] += 1
        elif row.requested and ran not in (UNKNOWN, row.requested):
            left_out[f"of {row.variant}, which ran {ran}"] += 1
        else:
            if default:
                yield replace(row, variant=_other_variables(run))
            if forced:
                named = named_variants().get(row.variant or "")
                own = ("NCCL_ALGO", "NCCL_PROTO") if library == "nccl" else named.environment if named else ()
                params = {**dict(forced.params), **({LOAD: row.load} if row.load else {})}
                yield replace(row, variant=_other_variables(run, own), algorithm=forced.algorithm, params=params)


def _other_variables(run: Run, own: Collection[str] = ()) -> str | None:
    """Return what a run sets, but for ``own``, that may decide how fast collectives are; None for nothing."""
    sets = {**collective_variables(run), **run.environment, **run.communicator}
    return " ".join(assignment(name, str(value)) for name, value in sorted(sets.items()) if name not in own) or None


def _forced(row: Row, run: Run, library: str, known: str) -> Choice | None:
    """Return the algorithm of a row by the library's words; None if it is none that a table can request.

    Of NCCL, whose tables cannot leave a call to it, also what the default ran, if a line names it.
    """
    if library != "nccl":
        named = row.variant == f"{library}-{row.requested}" and row.requested in library_algorithms(library)[known]
        return Choice(row.requested or "", row.transport) if named else None
    facts, word = library_table()["nccl"], row.requested or row.executed.partition(" (")[0]
    line = re.search(r"\bproto (\w+)", row.evidence or "")
    protocol = (line[1] if line else run.environment.get("NCCL_PROTO", "")).lower()
    protocol = protocol or ("" if word in facts["every_protocol"] else "simple")
    offered = known in facts["functions"].get(word, ()) and protocol in facts["protocols"]
    return Choice(word, row.transport, (("protocol", protocol),)) if offered else None


def _ranges(
    members: Sequence[tuple[Setting, MeasuredSetting]], left_out: Counter[str], *, has_default: bool
) -> Iterator[LibraryRange]:
    """Yield the ranges of one collective on so many ranks; none if no size has the default and another algorithm."""
    native = next((choice for _, each in members for choice in each.curves if choice.is_native), None)
    compared, timed = list[tuple[Setting, MeasuredSetting]](), list[dict[int, dict[Choice, ChoiceTime]]]()
    for setting, each in members:
        times = {size: of for size in each.sizes if native in (of := each.times_at(size)) and len(of) > 1}
        if times:
            compared.append((setting, each))
            timed.append(times)
        else:
            what = f"{setting.collective} with {setting.variant}" if setting.variant else setting.collective
            left_out[f"of {what}, with no default or no other algorithm beside"] += len(each.rows)
    setting, every = members[0][0], [each for _, each in compared]
    sizes = sorted(set[int]().union(*timed).intersection(*timed))
    if unshared := sum(len(of) for times in timed for size, of in times.items() if size not in sizes):
        left_out[f"of {setting.collective} at sizes that not all types, placements and variants have"] += unshared
    if native is None or not sizes:
        return
    at = {size: _size_choices(size, [case[size] for case in timed], native) for size in sizes}
    curves = [
        {choice: {size: curve[size] for size in sizes if size in curve} for choice, curve in each.curves.items()
         if (has_default or choice != native) and not curve.keys().isdisjoint(sizes)}
        for each in every
    ]  # fmt: skip
    if not set.intersection(*map(set, curves)):
        why = f"of {setting.collective}, whose types, placements and variants have no algorithm in common"
        left_out[why] += sum(len(each.rows) for each in every)
        return
    answers = list[tuple[Choice, SizeChoice]]()
    for of_range in choose_ranges(
        *(replace(each, curves=kept) for each, kept in zip(every, curves, strict=True))
    ).ranges:
        found = {size: at[size][of_range.choice] for size in of_range.sizes if of_range.choice in at[size]}
        clear = [size for size, each in found.items() if each.gain_ends[0] > 1 and each.gain >= NOTICEABLE]
        for size in of_range.sizes:
            # Between clear sizes, another one needs no range of its own, unless the default is clearly faster there.
            within = clear and clear[0] <= size <= clear[-1] and size in found and found[size].gain_ends[1] > 1
            choice = of_range.choice if within or (size in found and not has_default) else native
            answers.append((choice, at[size][choice]))
    cuts = {after: math.isqrt(before * after - 1) + 1 for before, after in pairwise(sizes)}  # geometric means
    several = [(choice, tuple(each for _, each in group)) for choice, group in groupby(answers, itemgetter(0))]
    for (choice, of_choice), after in zip(several, [*several[1:], None], strict=True):
        yield LibraryRange(
            collective=setting.collective, ranks=setting.ranks, choice=choice, sizes=of_choice,
            nodes=tuple(sorted({each.nodes for each, _ in compared})), first=cuts.get(of_choice[0].nbytes, 0),
            below=cuts[after[1][0].nbytes] if after else None, oversubscribed=every[0].oversubscribed,
        )  # fmt: skip


def _size_choices(size: int, cases: Sequence[Mapping[Choice, ChoiceTime]], native: Choice) -> dict[Choice, SizeChoice]:
    """Return each choice that was measured in all cases, in the case of its least gain."""
    several = defaultdict[Choice, list[SizeChoice]](list)
    for times in cases:
        seconds = {each: time.seconds for each, time in times.items()}  # no launch has two of them
        low, high = ({each: time.ends[end] for each, time in times.items()} for end in (0, 1))
        for each, mine in seconds.items():
            others = [other for other in times if other != each]
            rival = min(others, key=seconds.__getitem__)
            several[each].append(SizeChoice(
                size, mine, (low[each], high[each]), seconds[native] / mine,
                (low[native] / high[each], high[native] / low[each]), DEFAULT if rival == native else rival.name,
                seconds[rival] / mine, min(low[other] for other in others) / high[each],
            ))  # fmt: skip
    return {
        choice: min(found, key=lambda each: (each.gain, each.lead))
        for choice, found in several.items()
        if len(found) == len(cases)
    }
