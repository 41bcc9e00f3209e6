"""The file of a diagnosis: all slots with their times, from which the procedure can be asked again, and the verdict."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.records import from_builtins, to_builtins
from hpccoll.diagnosis.nodes_alone import DOES
from hpccoll.diagnosis.recorded import Load, MeasuredSlots, Question, RecordedDiagnosis
from hpccoll.diagnosis.records import OF_A_RACK, Component, Diagnosis, Purpose, Slots
from hpccoll.diagnosis.verdict import verdict_of
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
    "partner": (("slot", "endpoint"), "", "endpoint (rail * nodes + node) that it transfers to; itself if it rests"),
    "seconds": (("slot", "endpoint"), "s", "time of the transfer to the partner; infinite if it missed its deadline"),
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


def write_diagnosis(recorded: RecordedDiagnosis, path: Path) -> Path:
    """Write a diagnosis, whole or not at all, and return where: beside a finished one that has come to ``path``.

    Raises:
        OSError: if the file cannot be written.
    """
    if is_taken(path):
        path = path.with_name(f"{path.stem}-{recorded.provenance['run_id']}{path.suffix}")
    write_sealed(path, DIAGNOSIS, lambda file: _write_content(file, recorded))
    return path


def _write_content(file: Any, recorded: RecordedDiagnosis) -> None:
    file.attrs.update(kind=recorded.kind, machine=recorded.machine)
    file.attrs["status"] = "complete" if recorded.diagnosis else "interrupted"
    verdict = None
    with suppress(Exception):  # a fault of ours costs no measurement, from which the verdict follows
        verdict = verdict_of(recorded).to_json()
    for name, meaning in TEXTS.items():
        text = _to_json(verdict if name == "verdict" else getattr(recorded, name))
        create_text(file, f"{name}_json", text, f"JSON: {meaning}")
    columns = _columns(recorded)
    sizes = {
        dim: size for name, (dims, *_) in COLUMNS.items() for dim, size in zip(dims, columns[name].shape, strict=True)
    }
    create_scales(file, sizes)
    for name, (dims, unit, meaning) in COLUMNS.items():
        values = columns[name]
        if values.dtype == object:
            dataset = create_text(file, name, values.tolist(), meaning)
        else:
            dataset = file.create_dataset(name, data=values, **(COMPRESSION if len(dims) > 1 else {}))
            dataset.attrs.update(long_name=meaning, **({"units": unit} if unit else {}))
        attach_scales(file, dataset, dims)


def _columns(recorded: RecordedDiagnosis) -> dict[str, Any]:
    question, measured, rates = recorded.question, recorded.measured, recorded.rates
    endpoints, nodes = len(question.hosts) * question.rails, len(question.hosts)
    counts = [len(each.slots.partners) for each in measured]
    seconds = np.full((sum(counts), endpoints), np.nan)
    is_measured = np.zeros(sum(counts), np.uint8)
    for first, each in zip(np.cumsum([0, *counts]).tolist(), measured, strict=False):
        seconds[first : first + len(each.seconds)] = each.seconds
        is_measured[first : first + len(each.seconds)] = 1
    repetitions = np.array([len(values) for values in rates.values()], np.int64)
    alone = np.full((len(rates), max(repetitions, default=0), nodes), np.nan)
    for number, values in enumerate(rates.values()):
        alone[number, : len(values)] = values
    return {
        "host": np.array(question.hosts, object),
        "purpose": np.repeat(np.array([each.slots.purpose for each in measured], object), counts),
        "request": np.repeat(np.arange(len(measured)), counts),
        "measured": is_measured,
        "partner": np.concatenate([np.empty((0, endpoints), np.int64), *(each.slots.partners for each in measured)]),
        "seconds": seconds,
        "rate": np.array([*rates], object),
        "repetitions": repetitions,
        "alone_s": alone,
    }


def read_diagnosis(path: Path) -> RecordedDiagnosis:
    """Read a diagnosis, the same that was written.

    Raises:
        BadInputError: if the file cannot be read, holds something else, or contradicts itself.
    """
    with open_sealed(path, DIAGNOSIS) as file:
        size = path.stat().st_size
        text = {name: stored_object(file, f"{name}_json", size).asstr()[()] for name in TEXTS}
        column = {name: stored_object(file, name, size) for name in COLUMNS}
        values = {name: each.asstr()[:] if each.dtype == object else each[:] for name, each in column.items()}
        found = json.loads(text["diagnosis"], object_hook=_with_numbers)
        question = from_builtins(json.loads(text["question"]), Question)
        recorded = RecordedDiagnosis(
            question=question,
            load=from_builtins(json.loads(text["load"]), Load),
            measured=tuple(_requests(values)),
            diagnosis=None if found is None else from_builtins(found, Diagnosis),
            rates={
                name: alone[:count]
                for name, count, alone in zip(values["rate"], values["repetitions"], values["alone_s"], strict=True)
            },
            kind=str(file.attrs["kind"]),
            machine=str(file.attrs["machine"]),
            provenance=json.loads(text["provenance"]),
        )
        _check_numbers(recorded, values)
        return recorded


def _requests(values: Mapping[str, Any]) -> Iterator[MeasuredSlots]:
    """Yield the requests with their times; all but a few slots at the ends of requests were measured."""
    request = values["request"]
    if not np.isin(np.diff(request, prepend=0), (0, 1)).all() or values["seconds"].shape != values["partner"].shape:
        raise IntegrityError("its slots have no times, or no order")
    purposes = from_builtins(values["purpose"].tolist(), list[Purpose])
    for number in np.unique(request):
        rows = request == number
        partners, is_measured = values["partner"][rows], values["measured"][rows].astype(bool)
        if (is_measured[1:] > is_measured[:-1]).any():
            raise IntegrityError("slots were measured after one without an answer")
        slots = Slots(partners, purposes[int(rows.argmax())])
        yield MeasuredSlots(slots, values["seconds"][rows][is_measured])


def _check_numbers(recorded: RecordedDiagnosis, values: Mapping[str, Any]) -> None:
    """Raise IntegrityError if a number of a node, a rack or an endpoint is out of range, or a name is unknown."""
    question = recorded.question
    endpoints = len(question.hosts) * question.rails
    found = recorded.diagnosis
    faults, components = (found.faults, [each.component for each in found.effects]) if found else ((), [])
    components += [part for fault in faults for some in ((fault.component,), *fault.candidates) for part in some]
    limits = [(len(question.rack_names if each.kind in OF_A_RACK else question.hosts), each) for each in components]
    if (
        len(question.racks or question.hosts) != len(question.hosts)
        or (*values["host"],) != question.hosts
        or values["partner"].shape[1:] != (endpoints,)
        or not ((values["partner"] >= 0) & (values["partner"] < endpoints)).all()
        or any(not 0 <= number < limit for limit, each in limits for number in each.where)
        or any(not _is_number_of_parts(each) for each in components)
        or any(not 0 <= (each.rail or 0) < question.rails for each in components)
    ):
        raise IntegrityError("its slots or its faults name nodes that it has not")
    if values["alone_s"].shape[2:] != (len(question.hosts),) or not recorded.rates.keys() <= DOES.keys():
        raise IntegrityError("what its nodes did alone is unknown, or not that of its nodes")
    if not all(isinstance(recorded.provenance.get(name), str) for name in ("run_id", "begun")):
        raise IntegrityError("its provenance does not say which diagnosis it is, and when it began")


def _is_number_of_parts(component: Component) -> bool:
    """Return whether a component has as many nodes or racks as its kind has."""
    several = {"link": len(component.where) == 2, "shared_link": len(component.where) > 1}
    return several.get(component.kind, len(component.where) == 1)


NOT_FINITE = "NaN", "Infinity", "-Infinity"


def _to_json(record: object) -> str:
    """Return a record as JSON, with the words of NOT_FINITE for such numbers."""
    return json.dumps(json.loads(json.dumps(to_builtins(record)), parse_constant=str), indent=1)


def _with_numbers(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: float(value) if value in NOT_FINITE else value for name, value in fields.items()}


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
    """Return the diagnoses at and below the paths, of copies one, and the errors of damaged files in directories.

    Raises:
        BadInputError: if a path does not exist, a named file cannot be read, or a directory holds no diagnosis; it has
            the errors of damaged files in the directory.
    """
    found: dict[object, RecordedDiagnosis] = {}
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
                found.setdefault(run, recorded)
        damaged += unreadable
        if not runs and unreadable:
            raise combine_errors(*unreadable)
        if not runs:
            raise BadInputError("--report", str(path), DIAGNOSIS.elsewhere)
    return list(found.values()), damaged
