"""Predictions as a raw file, which export, status, report and ``hpccoll.open`` read like any other.

The file has one job, and an attempt for each number of nodes and each kind of prediction: ``simulated`` from a
schedule, ``modelled`` by NCCL's own formulas. A case has one time, at which all of its ranks end. Nothing ran, and the
file says so: a prediction has no hosts, no count of wrong elements, and no bytes on wires.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

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
    ranks = machine.layout(max(request.nodes), request.ranks_per_node).workers
    if ranks > FILE_RANKS.maximum:
        raise BadInputError("--out", f"{path}: {ranks} ranks", f"{FILE_RANKS} in a file; a picture or --json has more")
    check_replaceable(path, "predictions", lambda attempt: attempt.predicted)


def raw_predictions(predicted: Predictions, path: Path) -> RawResults:
    """Return predictions as the content of a raw file."""
    machine, request = predicted.machine, predicted.request
    sentences = describe_machine(machine, simulated=True)[
        : 2 if machine.measured else 1
    ]  # without the source of a description
    provenance = {
        "hpccoll": __version__,
        "prediction": "; ".join(sentences),
        "fitted_to": machine.measured.machine if machine.measured else None,
        "machine_file": machine.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    requested = dict(request.choices(machine))
    launches: dict[tuple[int, int, int, str, str | None], list[Outcome]] = defaultdict(list)
    for each in predicted.predictions:
        aggregators = 0 if machine.aggregators.kind == "switches" else each.aggregators  # which are ranks
        outcome = _outcome(each, machine, requested[each.algorithm], aggregators)
        launches[each.nodes, each.ranks_per_node, aggregators, each.kind, each.assumed].append(outcome)
    attempts = []
    for number, ((nodes, per_node, aggregators, kind, assumed), outcomes) in enumerate(launches.items(), 1):
        layout, about = machine.layout(nodes, per_node, aggregators), {**provenance, "assumed": assumed}
        if kind == MODELLED:
            about["prediction"] = f"{machine.name}: times by NCCL's own formulas, which have no interval"
        attempts.append((Attempt.not_launched(number, kind, machine.name, layout, about), outcomes))
    largest = max((attempt for attempt, _ in attempts), key=lambda attempt: attempt.ranks)
    job = Job(
        name=JOB_NAME, ranks=largest.ranks - largest.aggregators, nodes=max(attempt.nodes for attempt, _ in attempts),
        aggregators=request.aggregators or 0, effort=_ONCE,
        cases=tuple(outcome.case for outcomes in launches.values() for outcome in outcomes),
    )  # fmt: skip
    return RawResults(path=path, job=job, attempts=attempts)


def _outcome(one: Prediction, machine: MachineFile, requested: Mapping[str, int | str], aggregators: int) -> Outcome:
    """Return a prediction as the outcome of a case."""
    family, ranks = collective(one.collective), one.nodes * one.ranks_per_node
    transport, _, device = machine.transport.partition(" on ")
    case = Case(
        collective=one.collective, algorithm=one.algorithm, transport=transport, device=device or "cpu",
        dtype=one.dtype, op=REDUCTION if family.reduces else None, bytes=one.requested_bytes, in_place=family.in_place,
        root=0 if family.rooted else None, params=requested, ranks=ranks, nodes=one.nodes, mapping=one.mapping,
    )  # fmt: skip
    how = {
        True: "every message an event", False: "step by step, all ranks at once",
        None: f"protocol {one.params.get('protocol')}",
    }  # fmt: skip
    simulated = one.stand_ins or how[one.exact]
    words = (f"{one.kind} on {machine.name}", simulated, one.distance, one.assumed)
    return Outcome(
        case=case, status="ok", bytes=one.nbytes, params=one.params,
        executed="nothing", evidence="; ".join(filter(None, words)),
        times=CaseTimes.of_one(one.value_s, ranks + aggregators, one_clock=True),
        predicted_low_s=one.low_s, predicted_high_s=one.high_s,
    )  # fmt: skip
