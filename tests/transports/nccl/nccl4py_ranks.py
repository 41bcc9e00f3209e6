"""Communicators with settings, registered buffers and newer calls on the test library of NCCL: run on two ranks."""

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from mpi4py import MPI
from nccl_on_host import HostGpu
from rank_checks import run_checks
from schedule_examples import case_of

from hpccoll.cases.communicator_settings import nccl_config
from hpccoll.common.errors import BadInputError
from hpccoll.evidence.log_settings import nccl_logging
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout
from hpccoll.schedule.operation import Operation
from hpccoll.transports.nccl import communicator_config, communicators, nccl_errors
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers, NcclError
from hpccoll.transports.nccl.loaded_library import debug_reset
from hpccoll.transports.nccl.stream_plan import StreamPlan
from hpccoll.transports.nccl.transport import NcclTransport
from hpccoll.transports.nccl.vendor import NcclVendorTransport

COMM, DIRECTORY = MPI.COMM_WORLD, Path(sys.argv[1])
GPU = HostGpu(DIRECTORY)


def planned(collective="all_reduce", settings=None, how=None):
    """Return a plan of NCCL's call and its transport."""
    call, count = COLLECTIVES[collective].call(COMM.size), 1024
    asked = Operation(
        call,
        Layout.of(COMM.size),
        (),
        count,
        np.dtype("float32"),
        REDUCTIONS["sum"],
        in_place=False,
    )
    library = ConfiguredNccl(nccl_config(settings)) if settings else None
    transport = NcclVendorTransport(
        COMM, GPU, library=library, buffers=NcclBuffers(COMM, GPU, how) if how else None
    )
    src, dst = (
        transport.empty(asked.elements(name, COMM.rank), asked.dtype) for name in ("src", "dst")
    )
    return transport.plan(asked, src, dst), transport


def closed(plan, transport):
    """Close a plan, its transport and all communicators, and return all calls of NCCL."""
    plan.close()
    transport.close()
    communicators.close_all_worlds()
    del plan, transport
    return GPU.calls()


def settings_reach_nccl_with_its_values():
    asked = {
        "traffic_class": 106,
        "cta_policy": "efficiency",
        "net_name": "IB",
        "n_channels_per_net_peer": 4,
    }
    assert closed(*planned(settings=asked)) == [
        "CommInitRankConfig trafficClass=106 CTAPolicy=1 nChannelsPerNetPeer=4 netName=IB",
        "AllReduce",
        "CommDestroy",
    ]
    with pytest.raises(nccl_errors.NcclFailedError, match=r"at rank 0: .*InvalidArgument"):
        planned(settings={"max_ctas": 0})
    communicators.close_all_worlds()
    GPU.calls()


def parts_are_destroyed_first_and_each_once():
    world = communicators.NcclWorld(COMM, GPU, ConfiguredNccl({"max_ctas": 4}))
    part = world.workers(1)
    assert (part is None) == (COMM.rank == 1)
    assert world.workers(1) is part
    for each in world.communicators:
        each.destroy()
    if part:
        part.destroy()
        assert part.comm == world.communicator.comm == 0
    for each in world.communicators:
        each.abort()
    destroyed = ["CommDestroy"] * (1 + bool(part))
    assert GPU.calls() == ["CommInitRankConfig maxCTAs=4", "CommSplit", *destroyed]


def buffers_are_registered_before_the_call_and_deregistered_before_their_memory_is_freed():
    for how, known, forgotten in (
        ("symmetric", "CommWindowRegister 4096 1", "CommWindowDeregister"),
        ("registered", "CommRegister 4096", "CommDeregister"),
        ("allocated", None, None),
    ):
        for settings in (None, {"max_ctas": 4}):  # communicators of CuPy and nccl4py
            calls = closed(*planned(settings=settings, how=how))
            about, freed = 2 if known else 0, calls.count("MemFree")
            assert [
                call for call in calls if call != "MemFree" and not call.startswith("CommInit")
            ] == [
                *["MemAlloc 8192"] * 2,
                *[known] * about,
                "AllReduce",
                *[forgotten] * about,
                "CommDestroy",
            ]
            assert freed == 2  # the library ends a process that frees what is registered


def buffers_and_scratch_of_schedules_are_registered():
    asked = case_of("all_reduce-ring", COMM.size).operation(1024, "float32", in_place=False)
    for how, known in (
        ("symmetric", "CommWindowRegister"),
        ("registered", "CommRegister"),
        ("allocated", None),
    ):
        transport = NcclTransport(COMM, GPU, buffers=NcclBuffers(COMM, GPU, how))
        src, dst = (
            transport.empty(asked.elements(name, COMM.rank), asked.dtype) for name in ("src", "dst")
        )
        calls = closed(transport.plan(asked, src, dst), transport)
        registered = [call for call in calls if known and call.startswith(known)]
        assert [call.split()[1] for call in registered] == (
            ["4096", "4096", "2048"] if known else []
        )
        assert sum(call.startswith("MemAlloc") for call in calls) == 3
        assert calls.index("Send") > max([0, *map(calls.index, registered)])
        assert sum("Deregister" in call for call in calls) == len(registered)


def newer_calls_are_nccls_and_grouped_if_a_rank_lacks_them():
    for name, call in (("all_to_all", "AlltoAll"), ("gather", "Gather"), ("scatter", "Scatter")):
        plan, transport = planned(name)
        assert plan.evidence == f"NCCL's {name}"
        assert closed(plan, transport)[1:] == [call, "CommDestroy"]
    if COMM.rank == 1:
        os.environ["NCCL_TEST_VERSION"] = "22707"
    communicator_config.missing_for_nccl4py.cache_clear()
    plan, transport = planned("all_to_all")
    os.environ.pop("NCCL_TEST_VERSION", None)
    communicator_config.missing_for_nccl4py.cache_clear()
    reason = "NCCL 2.27.7 is too old: this needs 2.28.0 or later"
    assert plan.evidence == f"grouped sends and receives, not NCCL's all_to_all: {reason}"
    assert closed(plan, transport)[1:] == ["Send"] * 2 + ["Recv"] * 2 + ["CommDestroy"]


def a_window_that_nccl_does_not_create_is_bad_input_on_all_ranks():
    if COMM.rank == 1:
        os.environ["NCCL_WIN_ENABLE"] = "0"
    with pytest.raises(
        BadInputError,
        match=r"communicator buffers: 'symmetric' .* cannot make symmetric windows on these GPUs",
    ):
        planned(how="symmetric")
    os.environ.pop("NCCL_WIN_ENABLE", None)
    communicators.close_all_worlds()
    calls = GPU.calls()
    assert ("CommWindowDeregister" in calls) == (COMM.rank == 0), calls
    assert "AllReduce" not in calls


def a_registration_error_of_one_rank_is_raised_on_all():
    communicator, buffers = (
        communicators.nccl_world(COMM, GPU).communicator,
        NcclBuffers(COMM, GPU, "registered"),
    )
    array = buffers.empty(1024, np.dtype("float32"))
    if COMM.rank == 1:
        communicator.destroy()
    with pytest.raises(NcclError, match="InvalidArgument"):
        buffers.register(communicator, 2, [array])
    buffers.close()
    communicators.close_all_worlds()


def buffers_of_unequal_sizes_are_not_registered():
    communicator, buffers = (
        communicators.nccl_world(COMM, GPU).communicator,
        NcclBuffers(COMM, GPU, "symmetric"),
    )
    GPU.calls()
    buffers.register(communicator, 2, [buffers.empty(1024 * COMM.rank, np.dtype("float32"))])
    assert not [call for call in GPU.calls() if "Register" in call]
    communicators.close_all_worlds()


def failed_allocations_raise_memory_error():
    with pytest.raises(MemoryError, match=r"NCCL cannot allocate \d+ bytes: UnhandledCudaError"):
        NcclBuffers(COMM, GPU, "allocated").empty(1 << 58, np.dtype("float32"))


def aborted_communicators_need_no_deregistration():
    plan, transport = planned(settings={"max_ctas": 4}, how="symmetric")
    plan.close()
    communicators.abort_all_worlds()  # as after a stall
    transport.close()
    del plan, transport
    assert GPU.calls()[-3:] == ["CommAbort", "MemFree", "MemFree"]


def buffers_are_deregistered_if_nccl_rejects_the_call():
    run = StreamPlan.run

    def refuse(_self):
        raise NcclError("InvalidUsage (5): invalid usage")

    StreamPlan.run = refuse
    with pytest.raises(NcclError, match="InvalidUsage"):
        planned(settings={"max_ctas": 4}, how="registered")
    StreamPlan.run = run
    assert [call for call in GPU.calls() if "egister" in call] == ["CommRegister 4096"] * 2 + [
        "CommDeregister"
    ] * 2
    communicators.abort_world(COMM)


def errors_of_nccl_have_its_text_and_cupys_class():
    communicator = communicators.NcclWorld(COMM, GPU, ConfiguredNccl({"max_ctas": 4})).communicator
    communicator.check_async_error()
    with pytest.raises(NcclError, match=r"InvalidArgument \(4\)") as caught:
        communicator.allReduce(0, 0, 4, 99, 0, GPU.stream.ptr)
    # make_unless_refused recognises NCCL's errors by this name
    assert type(caught.value).__name__ == "NcclError"
    communicator.destroy()


def nccl_logs_until_it_is_silenced():
    before, reset = dict(os.environ), debug_reset()
    with TemporaryDirectory() as logs:
        with nccl_logging(Path(logs), reset):
            closed(*planned())
        (log,) = Path(logs).glob("*.log")
        logged = log.read_text()
        assert "NCCL INFO AllReduce: opCount" in logged
        assert dict(os.environ) == before
        closed(*planned())
        assert log.read_text() == logged


def two_files_of_nccl_are_a_reason():
    assert communicator_config.missing_for_nccl4py(22800) is None
    communicator_config.missing_for_nccl4py.cache_clear()
    with TemporaryDirectory() as other:
        ctypes.CDLL(shutil.copy(DIRECTORY / "libnccl.so.2", Path(other, "libnccl.so.2.30.0")))
        reason = communicator_config.missing_for_nccl4py(22800)
    assert re.search(
        r"different files of NCCL: .*/libnccl\.so\.2, .*/libnccl\.so\.2\.30\.0", reason
    ), reason


if __name__ == "__main__":
    GPU.calls()
    for check in (
        settings_reach_nccl_with_its_values,
        parts_are_destroyed_first_and_each_once,
        buffers_are_registered_before_the_call_and_deregistered_before_their_memory_is_freed,
        buffers_and_scratch_of_schedules_are_registered,
        newer_calls_are_nccls_and_grouped_if_a_rank_lacks_them,
        a_window_that_nccl_does_not_create_is_bad_input_on_all_ranks,
        a_registration_error_of_one_rank_is_raised_on_all,
        buffers_of_unequal_sizes_are_not_registered,
        failed_allocations_raise_memory_error,
        aborted_communicators_need_no_deregistration,
        buffers_are_deregistered_if_nccl_rejects_the_call,
        errors_of_nccl_have_its_text_and_cupys_class,
        nccl_logs_until_it_is_silenced,
        two_files_of_nccl_are_a_reason,
    ):
        run_checks(COMM, [check])
        GPU.calls()
