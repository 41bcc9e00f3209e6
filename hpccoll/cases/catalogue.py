"""The catalogue: which collectives, algorithms and parameters can be requested. It imports no MPI: login nodes plan."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN, WORKLOADS, collective, is_workload
from hpccoll.cases.case import EXECUTORS, IDLE, LOAD, LOADS, TIMINGS, Case, Job, Parameter
from hpccoll.cases.transport_table import (
    DEVICES,
    TRANSPORTS,
    TransportSpec,
    transports_by_device,
    transports_of_native,
)
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError, format_choices
from hpccoll.common.extensions import contributions, use_only
from hpccoll.common.limits import CHANNELS, JOB_BYTES, MAX_BYTES, IntegerRange
from hpccoll.common.records import load_record
from hpccoll.common.units import parse_size
from hpccoll.schedule import (
    DTYPE,
    MAPPINGS,
    REDUCTIONS,
    Collective,
    CollectiveCall,
    itemsize,
    unequal_blocks,
)
from hpccoll.schedule.collective import AUTO, NATIVE, check_parameters

Values = TypeVar("Values")

RUN_PARAMETERS = {"channels": CHANNELS, "window": CHANNELS, "segment": IntegerRange(1, MAX_BYTES)}
"""The parameters of any schedule: the number of channels, the number of channels in flight, and, instead of the number
of channels, the maximum size of a piece: of a unit, or in a pipeline of a slice."""

GRAPH = "graph"
"""The parameter of all cases on the stream of a GPU that, if 1, replays them as a CUDA graph."""

PROTOCOL = "protocol"
"""The parameter of schedules over peer that says how messages move; by default their size decides."""

JOB_FILE = "a job file as 'hpccoll plan' writes it"


def load_job(path: Path, *, on_rank: bool = False) -> Job:
    """Read a job file.

    Args:
        path: the file.
        on_rank: whether this process is a rank, which knows only the extensions that the job names.

    Raises:
        BadInputError: if the file does not exist or is not a job.
    """
    job = load_record(path, "--job", JOB_BYTES, Job, JOB_FILE)
    if on_rank:
        use_only(job.extensions or ())
    try:
        check_job(job)
    except BadInputError as error:
        raise BadInputError("--job", str(path), f"{JOB_FILE} ({error})") from None
    return job


def moved_dtypes(case: Case, workers: int) -> tuple[str, ...]:
    """Return the types of the elements that ``workers`` ranks exchange; BadInputError if they cannot run the case."""
    if not is_workload(case.collective):
        return (case.dtype,)
    return workload(case.collective).moved_dtypes(case, workers)


def check_job(job: Job) -> None:
    """Check what no type of a field says: names of the catalogue, models, and values that must fit each other.

    Raises:
        BadInputError: names the first wrong value.
    """
    if "/" in job.name or job.name.startswith("."):
        raise BadInputError("name", job.name, "part of a file name")
    if not job.cases:
        raise BadInputError("cases", [], "one or more of them")
    if job.executor not in (*EXECUTORS, None):
        raise BadInputError("executor", job.executor, EXECUTORS)
    if job.models:
        for name in WORKLOADS:
            workload(name).check_files(job.models)
    for case in checked_cases(job.cases):
        if case.algorithm.startswith(PLAN) and case.algorithm not in job.plans:
            raise BadInputError("plans", [*job.plans], f"where {case.algorithm} is")
    for name, times in Counter(case.id for case in job.cases).items():
        if times > 1:
            raise BadInputError("case", name, f"each case once; the job has it {times} times")


def check_case(case: Case) -> None:
    """Check that every value of ``case`` is valid.

    Many programs read a job, but only those that run it read the files of its algorithms. Without
    these files, the parameters of such algorithms are not checked.

    Raises:
        BadInputError: names the invalid value and the valid ones.
    """
    _check_all_but_size(case)
    _check_size(case)


def checked_cases(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield each case after ``check_case`` of it. What does not depend on the size is checked at the first size only.

    Raises:
        BadInputError: as ``check_case`` does.
    """
    checked = set[tuple[object, ...]]()
    for case in cases:
        if case.all_but_size not in checked:
            _check_all_but_size(case)
            checked.add(case.all_but_size)
        _check_size(case)
        yield case


def _check_size(case: Case) -> None:
    size = itemsize(case.dtype)
    elements = collective(case.collective).elements(case.bytes, size, 1)
    if elements < 1:
        raise BadInputError("bytes", case.bytes, f"at least one {case.dtype}, {size} bytes")


def _check_all_but_size(case: Case) -> None:
    family = collective(case.collective)
    if not case.algorithm.startswith(PLAN) or _is_read(case.algorithm):
        check_algorithm(case.algorithm, [case.collective])
        _check_parameters(case)
    values: dict[str, tuple[object, tuple[object, ...]]] = {
        "device": (case.device, DEVICES),
        "dtype": (case.dtype, DTYPE.words),
        "op": (case.op, tuple(REDUCTIONS) if family.has_op else (None,)),
        "timing": (case.timing, TIMINGS),
    }
    for key, (value, valid) in values.items():
        if value not in valid:
            raise BadInputError(key, value, valid)
    transports = distinct_transports(
        case.collective, case.algorithm, (case.transport,), case.device
    )
    if case.transport not in transports:
        raise BadInputError(f"transport of {case.algorithm}", case.transport, transports)
    _check_call(case)
    if is_workload(case.collective):
        workload(case.collective).check(case)


def _is_read(algorithm: str) -> bool:
    """Return whether this program has read the file of an algorithm, so that a collective has it."""
    return any(row.has_registered(algorithm) for row in COLLECTIVES.values())


def _check_call(case: Case) -> None:
    family = collective(case.collective)
    if case.root is not None and not family.rooted:
        raise BadInputError("root", case.root, f"none: {case.collective} has no root")
    if case.mapping not in (None, *MAPPINGS):
        raise BadInputError("mapping", case.mapping, MAPPINGS)
    if case.mapping not in distinct_mappings(case.collective, case.algorithm, (case.mapping,)):
        raise BadInputError("mapping", case.mapping, f"none: {case.collective} names its two ranks")
    if case.in_place not in distinct_placements(case.collective, case.algorithm, (case.in_place,)):
        expected = (
            f"{not case.in_place}: the only placement of {case.algorithm} of {case.collective}"
        )
        raise BadInputError("in_place", case.in_place, expected)


def _check_parameters(case: Case) -> None:
    if "segment" in case.params and "channels" in case.params:
        raise BadInputError(
            "parameter segment",
            case.params["segment"],
            "segment or channels: the segment determines the channels",
        )
    for name, value in case.params.items():
        if name == LOAD:
            if value not in LOADS[1:] or case.device != "cpu" or is_workload(case.collective):
                expected = f"{IDLE} (in job files: left out), {LOADS[1]}; on GPUs and in workloads {IDLE} only"
                raise BadInputError(LOAD, value, expected)
            continue
        parameters = known_parameters(case.collective, case.algorithm)
        if name not in parameters:
            raise BadInputError(
                f"parameter of {case.algorithm}", name, parameters or "none: it has no parameters"
            )
        _check_transport_parameter(name, value, TRANSPORTS[case.transport])
        if name in RUN_PARAMETERS:
            RUN_PARAMETERS[name].check(f"parameter {name}", value)
    if case.algorithm in collective(case.collective).algorithms:
        check_parameters(
            collective(case.collective).algorithm(case.algorithm), own_parameters(case)
        )


def _check_transport_parameter(name: str, value: Parameter, transport: TransportSpec) -> None:
    if name == GRAPH and (value not in (0, 1) or (value and not transport.graphs)):
        expected = "0, or over nccl and peer 1, for replay as a CUDA graph"
        raise BadInputError("parameter graph", value, expected)
    if name == PROTOCOL and value not in transport.protocols:
        valid = " or ".join(transport.protocols) or "none: only cases over peer have one"
        raise BadInputError("parameter protocol", value, valid)


def algorithms_of(name: str) -> tuple[str, ...]:
    """Return the algorithms of a collective without floors, and ``native``."""
    names = [
        algorithm.name for algorithm in collective(name).algorithms.values() if not algorithm.floor
    ]
    return (*names, NATIVE)


def measurable_names(name: str) -> tuple[str, ...]:
    """Return all valid names for the algorithm of a collective, floors and ``auto`` included."""
    return (*collective(name).algorithms, NATIVE, AUTO)


def check_algorithm(algorithm: str, names: Sequence[str]) -> None:
    """Check that at least one of the collectives ``names`` has ``algorithm``.

    Raises:
        BadInputError: if none has it; names the valid algorithms, and the collectives that have
            this one.
    """
    if any(is_measurable(algorithm, name) for name in names):
        return
    valid_names = dict.fromkeys(chain.from_iterable(map(measurable_names, names)))
    raise BadInputError(
        "algorithm", algorithm, format_choices(algorithm, valid_names, _hint(algorithm))
    )


def is_measurable(algorithm: str, name: str) -> bool:
    """Return whether an algorithm is among the ``measurable_names`` of a collective, without a list of all.

    No extension is looked for if the collective has the algorithm.
    """
    return algorithm in (NATIVE, AUTO) or algorithm in collective(name).algorithms


def _hint(algorithm: str) -> str:
    """Return what a user may have meant by the name of an algorithm that is unknown; empty if nothing comes near."""
    for file_format in contributions("algorithm_formats"):
        if algorithm.endswith(file_format.suffix):
            return f" ({file_format.name} is {PLAN}{algorithm})"
    elsewhere = [name for name in COLLECTIVES if algorithm in measurable_names(name)]
    if not elsewhere:
        return ""
    return f" (it is an algorithm of {', '.join(elsewhere)})"


def known_parameters(name: str, algorithm: str) -> tuple[str, ...]:
    """Return the valid parameters of a case: arguments of the collective and parameters of a run and of the algorithm.

    Raises:
        BadInputError: if the collective does not have the algorithm.
    """
    family = collective(name)
    if algorithm == NATIVE:
        return (*family.arguments, GRAPH)
    if algorithm == AUTO:
        return tuple(family.arguments)
    check_algorithm(algorithm, [name])
    run_parameters = () if family.uncut else RUN_PARAMETERS
    own = family.algorithms[algorithm].parameters
    return (*family.arguments, *run_parameters, GRAPH, PROTOCOL, *own)


def parameters_by_algorithm(
    name: str, algorithms: Iterable[str], parameters: Mapping[str, Values]
) -> dict[str, dict[str, Values]]:
    """Return for each algorithm of a collective those of the parameters that it has; values may be lists.

    The keys of a workload are not parameters: they have options of their own.

    Raises:
        BadInputError: if no algorithm has a parameter.
    """
    keys = collective(name).arguments if is_workload(name) else ()
    selected = {}
    valid_names: set[str] = set()
    for algorithm in algorithms:
        names = set(known_parameters(name, algorithm)).difference(keys)
        valid_names |= names
        selected[algorithm] = {
            parameter: value for parameter, value in parameters.items() if parameter in names
        }
    for parameter in parameters:
        if parameter not in valid_names:
            raise BadInputError(
                "parameter", parameter, sorted(valid_names) or f"left out: {name} has none"
            )
    return selected


def exact_parameters(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return parameters as cases have them: sizes such as 128K in bytes, files of traffic with a digest.

    Raises:
        BadInputError: if the segment is not a size, or a traffic pattern does not exist.
    """
    exact = dict(parameters)
    if "segment" in exact:
        exact["segment"] = parse_size(exact["segment"], "parameter segment")
    if "traffic" in exact:
        exact["traffic"] = unequal_blocks.named(str(exact["traffic"]))
    return exact


def distinct_placements(name: str, algorithm: str, requested: Sequence[bool]) -> Sequence[bool]:
    """Return those of the values ``requested`` of in_place that differ; if there is one placement only, return that."""
    family = collective(name)
    if not (family.in_place and family.out_of_place):
        return (family.in_place,)
    if algorithm == NATIVE and family.one_buffer:
        return (True,)
    return requested[:1] if _floor(family, algorithm) else requested


def distinct_mappings(
    name: str, algorithm: str, requested: Sequence[str | None]
) -> Sequence[str | None]:
    """Return those of the mappings ``requested`` that differ; none if the call names its two ranks."""
    family = collective(name)
    if "peer" in family.arguments:
        return (None,)
    return requested[:1] if _floor(family, algorithm) else requested


def distinct_parameters(
    name: str, algorithm: str, requested: Mapping[str, Sequence[Parameter]]
) -> dict[str, Sequence[Parameter]]:
    """Return those of the values ``requested`` of parameters that differ: an empty schedule has nothing to cut."""
    distinct = dict(requested)
    if _floor(collective(name), algorithm):
        for key in {*RUN_PARAMETERS, PROTOCOL} & distinct.keys():
            distinct[key] = distinct[key][:1]
    return distinct


def _floor(family: Collective, algorithm: str) -> bool:
    return algorithm in family.algorithms and family.algorithms[algorithm].floor


def distinct_transports(
    name: str, algorithm: str, requested: Sequence[str], device: str = "cpu"
) -> Sequence[str]:
    """Return those of the transports ``requested`` that differ for an algorithm: one for floors and ``auto``.

    The library's own collectives use messages on the host, and each of the requested transports on
    a GPU.

    Raises:
        BadInputError: if the device does not have a transport, even if that makes no difference.
    """
    transports = transports_by_device((device,), requested)[device]
    if algorithm in (NATIVE, AUTO) or _floor(collective(name), algorithm):
        return transports_of_native(algorithm == NATIVE, device, transports)
    return transports


def own_parameters(case: Case) -> dict[str, Parameter]:
    """Return the parameters of the algorithm, without those of a run and of the collective."""
    shared = {*RUN_PARAMETERS, GRAPH, PROTOCOL, LOAD, *collective(case.collective).arguments}
    return {name: value for name, value in case.params.items() if name not in shared}


def choice_parameters(name: str, params: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the parameters that distinguish choices for one call: no arguments of the call, and no default."""
    arguments = {LOAD}
    if name in COLLECTIVES or is_workload(name):
        arguments.update(collective(name).arguments)
    return {
        key: value
        for key, value in params.items()
        if key not in arguments and (key, value) != (GRAPH, 0)
    }


def call_of(case: Case, p: int) -> CollectiveCall:
    """Return the call of ``case`` on ``p`` workers.

    Raises:
        BadInputError: if its root or another argument does not fit ``p``.
    """
    family = collective(case.collective)
    arguments = {name: value for name, value in case.params.items() if name in family.arguments}
    return family.call(p, case.root, **arguments)
