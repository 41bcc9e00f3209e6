"""Predictions as a raw file, which export, status, report and ``hpccoll.open`` read like any other.

The file has one job, and an attempt for each number of nodes and each kind of prediction:
``simulated`` from a schedule, ``modelled`` by NCCL's own formulas. A case has one time, at which
all of its ranks end. Nothing ran, and the file says so: a prediction has no hosts, no count of
wrong elements, and no bytes on wires.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import Case, Effort, Job
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange
from hpccoll.common.version import __version__
from hpccoll.model.machine_file import MachineFile, describe_machine
from hpccoll.model.predict import Prediction, Predictions, Request
from hpccoll.store.case_times import CaseTimes
from hpccoll.store.hdf5 import check_replaceable
from hpccoll.store.raw_results import Attempt, Outcome, RawResults
from hpccoll.store.schema import MODELLED

JOB_NAME = "predict"
FILE_RANKS = IntegerRange(1, 1 << 14)
"""The ranks of a layout in a file, which has a line for each of them."""

REDUCTION = "sum"
"""The reduction of predictions: a model has one rate for all of them."""

_ONCE = Effort(warmup=0, min_iterations=1, max_iterations=1)


def check_file(path: Path, machine: MachineFile, request: Request) -> None:
    """Check, before anything is simulated, that a file can hold the predictions of a request.

    Raises:
        BadInputError: if a layout has too many ranks, or ``path`` holds anything but predictions.
    """
    ranks = request.layout(machine, max(request.nodes)).workers
    if ranks > FILE_RANKS.maximum:
        raise BadInputError(
            "--out",
            f"{path}: {ranks} ranks",
            f"{FILE_RANKS} in a file; a picture or --json has more",
        )
    check_replaceable(path, "predictions", lambda attempt: attempt.predicted)


def raw_predictions(predicted: Predictions, path: Path) -> RawResults:
    """Return predictions as the content of a raw file."""
    machine = predicted.machine
    request = predicted.request
    requested = dict(request.choices(machine))
    launches: dict[_Launch, list[Outcome]] = defaultdict(list)
    for prediction in predicted.predictions:
        are_switches = machine.aggregators.kind == "switches"
        aggregators = 0 if are_switches else prediction.aggregators  # which are ranks
        launch = _Launch(
            prediction.nodes,
            prediction.ranks_per_node,
            aggregators,
            prediction.kind,
            prediction.assumed,
        )
        outcome = _outcome(prediction, machine, requested[prediction.algorithm], aggregators)
        launches[launch].append(outcome)
    attempts = []
    cases: list[Case] = []
    for number, (launch, outcomes) in enumerate(launches.items(), 1):
        attempts.append((_attempt(number, launch, machine, request.nodes_per_rack), outcomes))
        cases += [outcome.case for outcome in outcomes]
    largest = max((attempt for attempt, _ in attempts), key=lambda attempt: attempt.ranks)
    nodes = max(attempt.nodes for attempt, _ in attempts)
    job = Job(
        name=JOB_NAME,
        ranks=largest.ranks - largest.aggregators,
        nodes=nodes,
        aggregators=request.aggregators or 0,
        effort=_ONCE,
        cases=tuple(cases),
    )
    return RawResults(path=path, job=job, attempts=attempts)


class _Launch(NamedTuple):
    """What the predictions of an attempt have in common."""

    nodes: int
    ranks_per_node: int
    aggregators: int  # those that are ranks
    kind: str
    assumed: str | None


def _attempt(
    number: int, launch: _Launch, machine: MachineFile, nodes_per_rack: int | None
) -> Attempt:
    """Return an attempt that says what was predicted, and that nothing ran."""
    if launch.kind == MODELLED:
        prediction = f"{machine.name}: times by NCCL's own formulas, which have no interval"
    else:
        # sentences, without the source of a description
        without_source = 2 if machine.measured else 1
        prediction = "; ".join(describe_machine(machine, simulated=True)[:without_source])
    provenance = {
        "hpccoll": __version__,
        "prediction": prediction,
        "fitted_to": machine.measured.machine if machine.measured else None,
        "machine_file": machine.model_dump(mode="json", by_alias=True, exclude_none=True),
        "assumed": launch.assumed,
    }
    layout = machine.layout(
        launch.nodes,
        launch.ranks_per_node,
        launch.aggregators,
        nodes_per_rack=nodes_per_rack,
    )
    return Attempt.not_launched(number, launch.kind, machine.name, layout, provenance)


def _outcome(
    prediction: Prediction,
    machine: MachineFile,
    requested: Mapping[str, int | str],
    aggregators: int,
) -> Outcome:
    """Return a prediction as the outcome of a case."""
    case = _case(prediction, machine, requested)
    where = f"{prediction.kind} on {machine.name}"
    how = prediction.stand_ins or _how(prediction)
    words = (where, how, prediction.distance, prediction.assumed)
    evidence = "; ".join(filter(None, words))
    ranks = prediction.nodes * prediction.ranks_per_node + aggregators
    times = CaseTimes.of_one(prediction.value_s, ranks, one_clock=True)
    return Outcome(
        case=case,
        status="ok",
        bytes=prediction.nbytes,
        params=prediction.params,
        executed="nothing",
        evidence=evidence,
        times=times,
        predicted_low_s=prediction.low_s,
        predicted_high_s=prediction.high_s,
    )


def _case(prediction: Prediction, machine: MachineFile, requested: Mapping[str, int | str]) -> Case:
    family = collective(prediction.collective)
    transport, _, device = machine.transport.partition(" on ")
    op: str | None = None
    if family.reduces:
        op = REDUCTION
    root: int | None = None
    if family.rooted:
        root = 0
    return Case(
        collective=prediction.collective,
        algorithm=prediction.algorithm,
        transport=transport,
        device=device or "cpu",
        dtype=prediction.dtype,
        op=op,
        bytes=prediction.requested_bytes,
        in_place=family.in_place,
        root=root,
        params=requested,
        ranks=prediction.nodes * prediction.ranks_per_node,
        nodes=prediction.nodes,
        mapping=prediction.mapping,
    )


def _how(prediction: Prediction) -> str:
    """Return how all ranks were simulated, or by which protocol NCCL's formula has the time."""
    if prediction.exact is None:
        return f"protocol {prediction.params.get('protocol')}"
    return "every message an event" if prediction.exact else "step by step, all ranks at once"
