"""A diagnosis by ranks: diagnosis_ranks.py OUT [OPTIONS], a JSON file and object.

The object has fields of DiagnosisOptions, and ``nodes``: the node of each rank, by default its host. They are said to
be on one machine unless ``machines`` is true.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from hpccoll.analysis.diagnosis.recorded import DiagnosisOptions
from hpccoll.measure import mpi_startup

comm = mpi_startup.start_mpi("cpu")

from hpccoll.measure import diagnosis_runner, provenance, ranks  # noqa: E402 they start MPI

options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
nodes = options.pop("nodes", None)
if options.pop("machines", False):
    provenance.boot_id = ranks.boot_id = lambda: nodes[comm.rank]
if nodes:
    provenance.node_name = ranks.node_name = lambda: nodes[comm.rank]
began = time.monotonic()
stop = mpi_startup.StopSignal()
recorded = diagnosis_runner.run_diagnosis(
    ranks.Ranks(comm), DiagnosisOptions(**{"seed": 1, **options}), stop=lambda: stop.signal,
    progress=lambda *done: print(*done, flush=True),
)  # fmt: skip
if recorded:
    found = recorded.diagnosis
    result = {
        "took": time.monotonic() - began, "load": asdict(recorded.load), "hosts": recorded.question.hosts,
        "faults": found and [asdict(each) for each in found.faults], "slots": found and found.slots,
        "noise": found and found.noise, "smallest": found and found.smallest_effect,
        "rates": {name: seconds.tolist() for name, seconds in recorded.rates.items()},
        "kind": recorded.kind, "machine": recorded.machine, "provenance": recorded.provenance,
        "measured": [
            (each.slots.purpose, each.slots.partners.tolist(), each.seconds.tolist()) for each in recorded.measured
        ],
    }  # fmt: skip
    Path(sys.argv[1]).write_text(json.dumps(result, default=str))
    diagnosis_runner.end_launch(recorded, 3)
