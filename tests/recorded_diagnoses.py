"""Diagnoses of simulated machines, as ``hpccoll diagnose`` records them."""

from dataclasses import replace

import numpy as np
from simulated_machine import Environment, MachineWithRails, SimulatedMachine

from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import Load, Question, RecordedDiagnosis, Recorder

IN_RACKS = Environment(rack=8)
LOAD = Load(program="MPI", memory="host", bytes=4 << 20, together=True)


def recorded(
    nodes,
    *faults,
    environment=IN_RACKS,
    hung=(),
    failing=(),
    begun="2026-11-26T08:00:00+00:00",
    seed=0,
    **asked,
):
    """Return the diagnosis of nodes n0, n1, ... with faults of some per cent; a failing node has no times."""
    rails = [
        SimulatedMachine(
            nodes,
            environment,
            [(each, percent) for each, percent in faults if each.rail in (None, rail)],
            np.random.default_rng([seed, nodes, rail][: 2 + bool(rail)]),
            hung,
        )
        for rail in range(asked.get("rails", 1))
    ]
    machine, known = MachineWithRails(rails) if len(rails) > 1 else rails[0], rails[0].known_racks
    racks = known and tuple(f"rack{number}" for number in known)
    question = Question(tuple(f"n{node}" for node in range(nodes)), seed, racks, **asked)

    def measure(slots):
        fails = np.isin(np.arange(slots.partners.shape[1]) % nodes, failing)
        seconds = machine.measure(slots)
        return np.where((fails | fails[slots.partners])[: len(seconds)], np.nan, seconds)

    recorder = Recorder(measure)
    found = ask(question, recorder)
    return RecordedDiagnosis(
        question,
        LOAD,
        tuple(recorder.measured),
        found,
        {},
        "simulated",
        "a simulated machine",
        {"run_id": f"{begun} {seed}", "begun": begun},
    )


def interrupted(diagnosis):
    """Return the diagnosis as it is if a signal ended it after the first request."""
    return replace(diagnosis, measured=diagnosis.measured[:1], diagnosis=None)


def comparable(diagnosis):
    """Return a diagnosis as a text that is equal to that of a copy, although NaN is not."""
    measured = [
        (each.slots.purpose, each.slots.partners.tolist(), each.seconds.tolist())
        for each in diagnosis.measured
    ]
    rates = {name: values.tolist() for name, values in diagnosis.rates.items()}
    return repr((replace(diagnosis, measured=(), rates={}), measured, rates))
