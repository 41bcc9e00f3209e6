"""The file of a diagnosis: all slots with their times, from which the procedure can be asked again, and the verdict."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.records import from_builtins, to_builtins
from hpccoll.diagnosis.nodes_alone import DOES
from hpccoll.diagnosis.recorded import Load, MeasuredSlots, Question, RecordedDiagnosis
from hpccoll.diagnosis.slot_records import (
    OF_A_RACK,
    Component,
    Diagnosis,
    Floats,
    Integers,
    Purpose,
    Slots,
)
from hpccoll.diagnosis.verdict import MachineVerdict, verdict_of
from hpccoll.store.sealed_file import (
    COMPRESSION,
    DIAGNOSIS,
    IntegrityError,
    OtherContentError,
    attach_scales,
    create_scales,
    create_text,
    open_sealed,
    stored_object,
    write_sealed,
)

COLUMNS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "host": (("node",), "", "name of the node"),
    "purpose": (("slot",), "", "why the slot was measured"),
    "request": (("slot",), "", "number of the request that the slot is of"),
    "measured": (("slot",), "", "1; 0 after a slot of the request that got no answer"),
    "partner": (
        ("slot", "endpoint"),
        "",
        "endpoint (rail * nodes + node) that it transfers to; itself if it rests",
    ),
    "seconds": (
        ("slot", "endpoint"),
        "s",
        "time of the transfer to the partner; infinite if it missed its deadline",
    ),
    "rate": (("rate_number",), "", "what each node did alone"),
    "repetitions": (("rate_number",), "", "how often"),
    "alone_s": (("rate_number", "repetition", "node"), "s", "time of what each node did alone"),
}
"""The dimensions, the unit and the meaning of each column."""

TEXTS: Mapping[str, str] = {
    "question": "what was asked",
    "load": "what was transferred",
    "provenance": "the machine, libraries and settings",
    "diagnosis": "what the procedure returned, with numbers of nodes and racks; null if it was interrupted",
    "verdict": "the same with names, as 'hpccoll diagnose --json' prints it; null if that failed",
}
"""What each text in JSON is; the names of their datasets end with ``_json``."""


def write_diagnosis(
    recorded: RecordedDiagnosis, path: Path, verdict: MachineVerdict | None = None
) -> Path:
    """Write a diagnosis, whole or not at all, and return where: beside a finished one that has come to ``path``.

    Args:
        recorded: the diagnosis.
        path: the file.
        verdict: its verdict; None if the caller does not have it.

    Raises:
        OSError: if the file cannot be written.
    """
    if is_taken(path):
        path = path.with_name(f"{path.stem}-{recorded.provenance['run_id']}{path.suffix}")
    write_sealed(path, DIAGNOSIS, lambda file: _write_content(file, recorded, verdict))
    return path


def _write_content(file: Any, recorded: RecordedDiagnosis, verdict: MachineVerdict | None) -> None:
    file.attrs.update(kind=recorded.kind, machine=recorded.machine)
    file.attrs["status"] = "complete" if recorded.diagnosis else "interrupted"
    # a fault of ours must not cost the measurement, from which the verdict follows
    with suppress(Exception):
        verdict = verdict or verdict_of(recorded)
    for name, meaning in TEXTS.items():
        if name == "verdict":
            text = _to_json(verdict.to_json() if verdict else None)
        else:
            text = _to_json(getattr(recorded, name))
        create_text(file, f"{name}_json", text, f"JSON: {meaning}")
    columns = _columns(recorded)
    sizes: dict[str, int] = {}
    for name, (dims, _, _) in COLUMNS.items():
        sizes.update(zip(dims, columns[name].shape, strict=True))
    create_scales(file, sizes)
    for name, (dims, unit, meaning) in COLUMNS.items():
        values = columns[name]
        if values.dtype == object:
            dataset = create_text(file, name, values.tolist(), meaning)
        else:
            dataset = file.create_dataset(
                name, data=values, **(COMPRESSION if len(dims) > 1 else {})
            )
            dataset.attrs["long_name"] = meaning
            if unit:
                dataset.attrs["units"] = unit
        attach_scales(file, dataset, dims)


def _columns(recorded: RecordedDiagnosis) -> dict[str, Any]:
    question = recorded.question
    slots = [request.slots for request in recorded.measured]
    endpoints = len(question.hosts) * question.rails
    counts = []
    purposes = []
    partners = [np.empty((0, endpoints), np.int64)]
    for request in slots:
        counts.append(len(request.partners))
        purposes.append(request.purpose)
        partners.append(request.partners)
    purpose_of_slots = np.repeat(np.array(purposes, object), counts)
    request_of_slots = np.repeat(np.arange(len(slots)), counts)
    seconds, is_measured = _times(recorded.measured, endpoints)
    repetitions, alone = _times_alone(recorded.rates, len(question.hosts))
    return {
        "host": np.array(question.hosts, object),
        "purpose": purpose_of_slots,
        "request": request_of_slots,
        "measured": is_measured,
        "partner": np.concatenate(partners),
        "seconds": seconds,
        "rate": np.array(list(recorded.rates), object),
        "repetitions": repetitions,
        "alone_s": alone,
    }


def _times(measured: Sequence[MeasuredSlots], endpoints: int) -> tuple[Floats, NDArray[np.uint8]]:
    """Return the seconds [slots, endpoints] of all slots, and which slots [slots] were measured."""
    slots = sum(len(request.slots.partners) for request in measured)
    seconds = np.full((slots, endpoints), np.nan)
    is_measured = np.zeros(slots, np.uint8)
    first = 0
    for request in measured:
        rows = slice(first, first + len(request.seconds))
        seconds[rows] = request.seconds
        is_measured[rows] = 1
        first += len(request.slots.partners)
    return seconds, is_measured


def _times_alone(rates: Mapping[str, Floats], nodes: int) -> tuple[Integers, Floats]:
    """Return how often nodes measured each rate, and the seconds [rates, repetitions, nodes], filled up with NaN."""
    repetitions = np.array([len(seconds) for seconds in rates.values()], np.int64)
    alone = np.full((len(rates), max(repetitions, default=0), nodes), np.nan)
    for number, seconds in enumerate(rates.values()):
        alone[number, : len(seconds)] = seconds
    return repetitions, alone


def read_diagnosis(path: Path) -> RecordedDiagnosis:
    """Read a diagnosis, the same that was written.

    Raises:
        BadInputError: if the file cannot be read, holds something else, or contradicts itself.
    """
    with open_sealed(path, DIAGNOSIS) as file:
        size = path.stat().st_size
        texts = {name: stored_object(file, f"{name}_json", size).asstr()[()] for name in TEXTS}
        columns = {name: _values(stored_object(file, name, size)) for name in COLUMNS}
        question = from_builtins(json.loads(texts["question"]), Question)
        load = from_builtins(json.loads(texts["load"]), Load)
        diagnosis = json.loads(texts["diagnosis"], object_hook=_with_numbers)
        if diagnosis is not None:
            diagnosis = from_builtins(diagnosis, Diagnosis)
        recorded = RecordedDiagnosis(
            question=question,
            load=load,
            measured=tuple(_requests(columns)),
            diagnosis=diagnosis,
            rates=_rates(columns),
            kind=str(file.attrs["kind"]),
            machine=str(file.attrs["machine"]),
            provenance=json.loads(texts["provenance"]),
        )
        _check_numbers(recorded, columns)
        return recorded


def _values(dataset: Any) -> Any:
    return dataset.asstr()[:] if dataset.dtype == object else dataset[:]


def _rates(columns: Mapping[str, Any]) -> dict[str, Floats]:
    """Return what each node did alone, without the NaN that fill up the column."""
    rates = {}
    for name, count, alone in zip(
        columns["rate"], columns["repetitions"], columns["alone_s"], strict=True
    ):
        rates[name] = alone[:count]
    return rates


def _requests(columns: Mapping[str, Any]) -> Iterator[MeasuredSlots]:
    """Yield the requests with their times; all but a few slots at the ends of requests were measured."""
    request_of = columns["request"]
    is_in_order = np.isin(np.diff(request_of, prepend=0), (0, 1)).all()
    if not is_in_order or columns["seconds"].shape != columns["partner"].shape:
        raise IntegrityError("its slots have no times, or no order")
    purposes = from_builtins(columns["purpose"].tolist(), list[Purpose])
    for number in np.unique(request_of):
        rows = request_of == number
        is_measured = columns["measured"][rows].astype(bool)
        if (is_measured[1:] > is_measured[:-1]).any():
            raise IntegrityError("slots were measured after one without an answer")
        first = int(rows.argmax())
        slots = Slots(columns["partner"][rows], purposes[first])
        yield MeasuredSlots(slots, columns["seconds"][rows][is_measured])


def _check_numbers(recorded: RecordedDiagnosis, columns: Mapping[str, Any]) -> None:
    """Raise IntegrityError if a number of a node, a rack or an endpoint is out of range, or a name is unknown."""
    question = recorded.question
    nodes = len(question.hosts)
    endpoints = nodes * question.rails
    is_known = (
        len(question.racks or question.hosts) == nodes and tuple(columns["host"]) == question.hosts
    )
    is_known = is_known and _are_endpoints(columns["partner"], endpoints)
    if is_known and recorded.diagnosis:
        is_known = all(
            _exists(component, question) for component in _components(recorded.diagnosis)
        )
    if not is_known:
        raise IntegrityError("its slots or its faults name nodes that it has not")
    are_of_nodes = columns["alone_s"].shape[2:] == (nodes,)
    if not are_of_nodes or not recorded.rates.keys() <= DOES.keys():
        raise IntegrityError("what its nodes did alone is unknown, or not that of its nodes")
    for name in ("run_id", "begun"):
        if not isinstance(recorded.provenance.get(name), str):
            raise IntegrityError(
                "its provenance does not say which diagnosis it is, and when it began"
            )


def _components(diagnosis: Diagnosis) -> Iterator[Component]:
    """Yield all components that a diagnosis names."""
    for effect in diagnosis.effects:
        yield effect.component
    for fault in diagnosis.faults:
        yield fault.component
        yield from chain.from_iterable(fault.candidates)


def _are_endpoints(partners: Integers, endpoints: int) -> bool:
    """Return whether the partners [slots, endpoints] are numbers of endpoints, one for each of them."""
    if partners.shape[1:] != (endpoints,):
        return False
    are_in_range = (partners >= 0) & (partners < endpoints)
    return bool(are_in_range.all())


def _exists(component: Component, question: Question) -> bool:
    """Return whether a machine has the nodes or the rack, and the rail of a component, and its kind has as many."""
    names = question.rack_names if component.kind in OF_A_RACK else question.hosts
    are_in_range = all(0 <= number < len(names) for number in component.where)
    return (
        are_in_range
        and _is_number_of_parts(component)
        and 0 <= (component.rail or 0) < question.rails
    )


def _is_number_of_parts(component: Component) -> bool:
    """Return whether a component has as many nodes or racks as its kind has."""
    parts = len(component.where)
    match component.kind:
        case "link":
            return parts == 2
        case "shared_link":
            return parts > 1
        case _:
            return parts == 1


NOT_FINITE = "NaN", "Infinity", "-Infinity"


def _to_json(record: object) -> str:
    """Return a record as JSON, with the words of NOT_FINITE for such numbers."""
    text = json.dumps(to_builtins(record))
    return json.dumps(json.loads(text, parse_constant=str), indent=1)


def _with_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object of JSON with numbers for the words of NOT_FINITE."""
    numbers = {name: float(value) for name, value in fields.items() if value in NOT_FINITE}
    return {**fields, **numbers}


def diagnosis_of_job(directory: Path, job: str, allocation: str) -> Path:
    """Return the file of the diagnosis that precedes a job in an allocation, in the directory of its raw file."""
    return directory / f"{job}.diagnosis-{allocation}.h5"


def is_interrupted(path: Path) -> bool:
    """Return whether a file is that of a diagnosis that was interrupted."""
    try:
        return read_diagnosis(path).diagnosis is None
    except BadInputError:
        return False


def is_taken(path: Path) -> bool:
    """Return whether a diagnosis may not be written to ``path``: only an interrupted one is replaced."""
    return path.exists() and not is_interrupted(path)


def find_diagnoses(paths: Iterable[Path]) -> tuple[list[RecordedDiagnosis], list[BadInputError]]:
    """Return the diagnoses at and below the paths, one of each run, and the errors of damaged files in directories.

    Raises:
        BadInputError: if a path does not exist, a named file cannot be read, or a directory holds
            no diagnosis; it has the errors of damaged files in the directory.
    """
    diagnoses: dict[object, RecordedDiagnosis] = {}
    damaged: list[BadInputError] = []
    for path in paths:
        runs = set()
        unreadable: list[BadInputError] = []
        for file in sorted(path.rglob("*.h5")) if path.is_dir() else [path]:
            try:
                recorded = read_diagnosis(file)
            except BadInputError as error:
                if file == path:
                    raise
                if not isinstance(error, OtherContentError):
                    unreadable.append(error)
            else:
                run = recorded.provenance["run_id"]
                runs.add(run)
                diagnoses.setdefault(run, recorded)
        damaged += unreadable
        if not runs and unreadable:
            raise combine_errors(*unreadable)
        if not runs:
            raise BadInputError("--report", str(path), DIAGNOSIS.elsewhere)
    return list(diagnoses.values()), damaged
