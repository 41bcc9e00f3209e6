"""``hpccoll run`` that says where the time of its cases goes: phase_ranks.py PLACE ARGUMENTS.

PLACE is ``gpu``, or the directory of the NCCL test library. The last line of rank 0 has the calls
and the seconds of each phase there; a phase inside another one counts in both.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "gpu")]

from mpi4py import MPI  # noqa: E402

from hpccoll.cli.job_program import main  # noqa: E402
from hpccoll.measure.run.prepared_case import PreparedCase  # noqa: E402
from hpccoll.measure.run.result_check_gpu import GpuCheck  # noqa: E402
from hpccoll.measure.run.stream_timing import StreamTiming  # noqa: E402
from hpccoll.transports.gpu import Gpu, device_count  # noqa: E402
from hpccoll.transports.nccl.stream_plan import StreamPlan  # noqa: E402

PHASES: dict[str, tuple[type, str]] = {
    "preparation of a case": (PreparedCase, "__init__"),
    "first run and capture, in the preparation": (StreamPlan, "prepared"),
    "capture of many operations": (StreamPlan, "repeated"),
    "fills": (GpuCheck, "reset"),
    "operations, timed or not": (StreamTiming, "run"),
    "checks": (GpuCheck, "wrong"),
    "end of a case": (PreparedCase, "close"),
    "release of memory": (Gpu, "release"),
}
found = {phase: [0, 0.0] for phase in PHASES}


def add_up(phase: str, kind: Any, method: str) -> None:
    """Have a method add its calls and its seconds to a phase."""
    do = getattr(kind, method)

    def timed(*about: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return do(*about, **more)
        finally:
            found[phase][0] += 1
            found[phase][1] += time.perf_counter() - began

    setattr(kind, method, timed)


PLACE, *ARGUMENTS = sys.argv[1:]
for name, where in PHASES.items():
    add_up(name, *where)
if PLACE != "gpu":
    from nccl_on_host import install

    install(Path(PLACE))
elif MPI.COMM_WORLD.size > device_count():
    from rank_gpu import share_a_gpu

    share_a_gpu(MPI.COMM_WORLD.rank)
start = time.perf_counter()
code = main(ARGUMENTS)
passes = found["preparation of a case"][0]
if MPI.COMM_WORLD.rank == 0:
    print(
        json.dumps({"phases": found, "passes": passes, "seconds": time.perf_counter() - start}),
        flush=True,
    )
sys.exit(code)
