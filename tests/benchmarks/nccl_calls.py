"""NCCL on one rank: every call, grouped messages to itself, graphs, aborts, settings, registered memory, and its log.

On one rank NCCL copies or does nothing in a collective, but messages of a rank to itself are
kernels of NCCL.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from here import Here, rank_environment
from timing import device_seconds, host_seconds, in_turn
from verdicts import Verdict, bound, holds, not_run, recorded, right

from hpccoll.cases.communicator_settings import BUFFERS, COMMUNICATOR_SETTINGS, nccl_config
from hpccoll.common.errors import BadInputError
from hpccoll.evidence.log_set import read_log_files
from hpccoll.render.log_report import log_lines
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout, dtype_of
from hpccoll.schedule.operation import Operation
from hpccoll.transports.gpu import loaded_nccl_version
from hpccoll.transports.nccl import communicator_config, communicators
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers
from hpccoll.transports.nccl.communicators import nccl_world
from hpccoll.transports.nccl.cupy_device import NCCL_UINT8, CupyDevice, group_calls
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.nccl.vendor import NcclVendorTransport

COUNT = 1000
SELF_SENT = 8, 1 << 20
"""The bytes of messages to itself."""
REPEATED = 20
MICRO = 1e6
SUBSYSTEMS = "INIT,ENV,NET,GRAPH,TUNING,COLL"


class OneRank:
    """The part of an MPI communicator of one rank that transports use, without MPI.

    Args:
        handle: its number, which no other has.
    """

    rank, size = 0, 1

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def bcast(self, value: Any) -> Any:
        return value

    def allgather(self, value: Any) -> list[Any]:
        return [value]

    def alltoall(self, values: list[Any]) -> list[Any]:
        return [*values]


def operation(collective: str, dtype: str, op: str, *, in_place: bool) -> Operation:
    """Return a collective of one rank."""
    family = COLLECTIVES[collective]
    call = family.call(1, 0 if family.rooted else None, **dict.fromkeys(family.arguments, "equal"))
    count = 1 if family.token else COUNT
    return Operation(
        call, Layout.of(1), (), count, dtype_of(dtype), REDUCTIONS[op], in_place=in_place
    )


def wrong_elements(here: Here, comm: OneRank, asked: Operation, **options: Any) -> int:
    """Return the elements of the result of NCCL's call that are not those of the source."""
    gpu = here.gpu
    transport = NcclVendorTransport(comm, gpu, **options)
    src, dst = (transport.empty(asked.elements(name, 0), asked.dtype) for name in ("src", "dst"))
    given = np.arange(1, COUNT + 1).astype(asked.dtype if asked.dtype.kind in "fiu" else np.uint16)
    plan = transport.plan(asked, src, dst)
    for array in (dst,) if asked.in_place else (src,):
        array.set(given[: len(array)], stream=gpu.stream)
    gpu.synchronize()
    plan.run()
    found = gpu.download(plan.result)
    wrong = int((found != given[: len(found)]).sum())
    plan.close()
    transport.close()
    return wrong


def every_call(here: Here, comm: OneRank) -> Iterator[Verdict]:
    """Every collective in both placements, and every type and op."""
    names = [
        name
        for name, family in COLLECTIVES.items()
        if not {"peer", "concurrent", "traffic"} & {*family.arguments}
    ]
    wrong = calls = 0
    for name, in_place, graph in product(names, (False, True), (False, True)):
        family = COLLECTIVES[name]
        fits = family.in_place if in_place else family.out_of_place
        if fits and not (in_place and name == "all_to_all"):
            wrong += wrong_elements(
                here, comm, operation(name, "float32", "sum", in_place=in_place), graph=graph
            )
            calls += 1
    for dtype, op in product(DTYPES, REDUCTIONS):
        wrong += wrong_elements(here, comm, operation("all_reduce", dtype, op, in_place=False))
        calls += 1
    yield right(
        f"{calls} calls of NCCL on one rank, {len(names)} collectives, {len(DTYPES)} types: elements",
        wrong,
    )


def self_sends(here: Here, comm: OneRank, nbytes: int) -> StreamPlan:
    """Return the plan of a grouped message of this rank to itself."""
    gpu, count = here.gpu, nbytes // 4
    communicator = nccl_world(comm, gpu).communicator
    source, target = (
        gpu.upload(np.arange(count, dtype=np.int32)),
        gpu.upload(np.zeros(count, np.int32)),
    )
    calls = [
        (call, (gpu.address(array), nbytes, NCCL_UINT8, 0, gpu.stream.ptr))
        for call, array in ((communicator.send, source), (communicator.recv, target))
    ]
    return StreamPlan(
        CupyDevice(gpu, communicator),
        target,
        [group_calls(calls)],
        "a message to itself",
        (source, target),
    )


def messages(here: Here, comm: OneRank) -> Iterator[Verdict]:
    """Messages to itself: alone, as a graph, and many in one graph; their results and their times."""
    gpu = here.gpu
    for nbytes in SELF_SENT:
        wrong, times = 0, {}
        for graph in (False, True):
            plan = self_sends(here, comm, nbytes).prepared(graph=graph)
            for queue, times_of in ((plan.enqueue, 1), (plan.repeated(REPEATED), REPEATED)):
                plan.result.set(np.zeros(nbytes // 4, np.int32), stream=gpu.stream)
                queue()
                gpu.synchronize()
                wrong += int((gpu.download(plan.result) != np.arange(nbytes // 4)).sum())
                name = (f"{times_of} in " if times_of > 1 else "as ") + (
                    "a graph" if graph else "calls"
                )
                times[name] = (
                    MICRO * host_seconds(partial(waited, gpu.synchronize, queue), 200) / times_of
                )
                if times_of == 1:
                    times[f"{name}, device"] = MICRO * device_seconds(gpu, queue, 100)
            plan.close()
        if nbytes == SELF_SENT[0]:
            yield beside_bare_calls(here, comm, nbytes)
        yield right(
            f"messages of {nbytes} B to itself, alone and {REPEATED} times, also as a graph: elements",
            wrong,
        )
        shown = "; ".join(f"{name} {microseconds:.3g}" for name, microseconds in times.items())
        yield recorded(f"a message of {nbytes} B to itself, us each", shown)


def beside_bare_calls(here: Here, comm: OneRank, nbytes: int) -> Verdict:
    """Return what a plan costs beside the calls of CuPy that it makes."""
    from cupy.cuda import nccl

    plan = self_sends(here, comm, nbytes).prepared(graph=False)
    source, target = plan.result, here.gpu.upload(np.zeros(nbytes // 4, np.int32))
    communicator, stream = nccl_world(comm, here.gpu).communicator, here.gpu.stream
    arguments = [
        (here.gpu.address(array), nbytes, NCCL_UINT8, 0, stream.ptr) for array in (source, target)
    ]

    def bare() -> None:
        nccl.groupStart()
        communicator.send(*arguments[0])
        communicator.recv(*arguments[1])
        nccl.groupEnd()
        stream.synchronize()

    ratio = in_turn(lambda: host_seconds(plan.run, 500), lambda: host_seconds(bare, 500))
    plan.close()
    what = f"a plan that sends {nbytes} B to itself / bare calls of CuPy"
    return (
        recorded(what, ratio) if here.on_host else bound(what, ratio, "at most 1.10", ratio <= 1.1)
    )


def waited(wait: Callable[[], object], queue: Callable[[], object]) -> None:
    queue()
    wait()


def life(here: Here) -> Iterator[Verdict]:
    """Communicators that are made, destroyed and aborted, also while a graph of theirs runs."""
    gpu = here.gpu
    for number, end in enumerate(
        (communicators.close_all_worlds, communicators.abort_all_worlds), 100
    ):
        nccl_world(OneRank(number), gpu)
        end()
    comm = OneRank(200)
    plan = self_sends(here, comm, SELF_SENT[1]).prepared(graph=True)
    kept = [*plan._buffers]  # until nothing runs any more
    plan.repeated(REPEATED)()
    plan.close()  # a graph that lives would hang the abort
    communicators.abort_all_worlds()
    gpu.synchronize()
    kept.clear()
    plan = self_sends(here, OneRank(201), SELF_SENT[1]).prepared(graph=False)
    same = (gpu.download(plan.result) == np.arange(SELF_SENT[1] // 4)).all()
    plan.close()
    communicators.close_all_worlds()
    yield holds(
        "communicators are made, destroyed, aborted with a graph in flight, and made again", same
    )


def settings(here: Here) -> Iterator[Verdict]:
    """Communicators with settings, and memory that NCCL allocates, registers and puts into windows; by nccl4py."""
    if reason := communicator_config.missing_for_nccl4py(COMMUNICATOR_SETTINGS[BUFFERS].since):
        yield not_run("settings of communicators, registered memory and windows", reason)
        return
    requested = operation("all_gather", "float32", "sum", in_place=False)
    library = ConfiguredNccl(nccl_config({"max_ctas": 2, "traffic_class": 0}))
    yield right(
        "a communicator with settings: elements",
        wrong_elements(here, OneRank(300), requested, library=library),
    )
    for number, how in enumerate(("allocated", "registered", "symmetric"), 301):
        comm = OneRank(number)
        buffers = NcclBuffers(comm, here.gpu, how)
        what = f"memory of ncclMemAlloc, {how}: elements"
        try:
            yield right(
                what, wrong_elements(here, comm, requested, library=library, buffers=buffers)
            )
        except BadInputError as error:  # NCCL makes no windows on this GPU
            yield recorded(what, str(error))
    communicators.close_all_worlds()


def log(here: Here) -> Iterator[Verdict]:
    """What ``hpccoll evidence`` finds in the log of a process of one rank."""
    what = "hpccoll evidence finds the version, the network and the variables in NCCL's log"
    if here.on_host:
        yield not_run(what, "the NCCL test library writes no log")
        return
    with tempfile.TemporaryDirectory() as place:
        variables = {
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": SUBSYSTEMS,
            "NCCL_DEBUG_FILE": f"{place}/%h.%p.log",
        }
        more = {
            **variables,
            "NCCL_SOCKET_IFNAME": os.environ.get("NCCL_SOCKET_IFNAME", "lo"),
            "NCCL_MAX_CTAS": "2",
        }
        command = [sys.executable, str(Path(__file__))]
        subprocess.run(command, env={**rank_environment(), **more}, check=True, timeout=60)
        lines = [*log_lines(read_log_files([Path(place)]))]
    text = "\n".join(lines)
    version = ".".join(map(str, loaded_nccl_version() or ()))
    # On one rank there is no network between nodes; the line of NCCL_MAX_CTAS shows that variables
    # are read.
    found = {
        "the version": version in text,
        "the variables": "NCCL_MAX_CTAS" in text,
        "the network": "network" in text,
    }
    missed = [name for name, there in found.items() if not there]
    yield bound(
        what, "all" if not missed else f"not {', '.join(missed)}: {text[:300]}", "all", not missed
    )


def nccl(here: Here) -> Iterator[Verdict]:
    """All of it; the communicators are those of one rank without MPI."""
    _ = here.gpu  # first, because it loads the test library
    yield recorded("version of NCCL", ".".join(map(str, loaded_nccl_version() or ())))
    comm = OneRank(1)
    yield from every_call(here, comm)
    yield from messages(here, comm)
    communicators.close_all_worlds()
    yield from settings(here)
    yield from log(here)
    yield from life(here)  # last, because an abort may hang


def main() -> None:
    """Send a message of this rank to itself, for the log of NCCL."""
    here = Here(Path(), 60)
    comm = OneRank(1)
    plan = self_sends(here, comm, SELF_SENT[1]).prepared(graph=False)
    wrong_elements(here, comm, operation("all_gather", "float32", "sum", in_place=False))
    plan.close()
    communicators.close_all_worlds()


if __name__ == "__main__":
    main()
