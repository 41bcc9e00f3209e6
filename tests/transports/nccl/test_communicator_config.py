"""nccl4py: settings and buffers arrive at NCCL, for which a recorder stands in, and are let go of in order."""

from types import SimpleNamespace

import numpy as np
import pytest
from fake_gpu_cluster import Cluster
from mpi4py import MPI
from nccl4py_recorder import Handle, HostGpu, NCCLError, Recorder, Room

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import nccl_config
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout
from hpccoll.transports.nccl import communicator_config, communicators, cupy_device
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers
from hpccoll.transports.nccl.vendor import NcclVendorTransport
from hpccoll.transports.operation import Operation


@pytest.fixture
def nccl(monkeypatch):
    """Return the recorder in the place of nccl4py."""
    recorder, cluster = Recorder(), Cluster(1)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: recorder)
    monkeypatch.setattr(cupy_device, "CupyDevice", lambda _gpu, _communicator: cluster.devices[0])
    return recorder


def all_reduce(count=1024):
    call = COLLECTIVES["all_reduce"].call(1)
    return Operation(call, Layout.of(1), (), count, np.dtype("float32"), REDUCTIONS["sum"], in_place=False)


def planned(settings, how=None, comm=MPI.COMM_SELF):
    """Return a plan of an all-reduce and its transport."""
    gpu, asked = HostGpu(), all_reduce()
    library = ConfiguredNccl(nccl_config(settings)) if settings else None
    transport = NcclVendorTransport(comm, gpu, library=library, buffers=NcclBuffers(comm, gpu, how) if how else None)
    src, dst = (transport.empty(asked.count, asked.dtype) for _ in range(2))
    return transport.plan(asked, src, dst), transport


def test_a_communicator_is_made_with_the_settings_in_the_numbers_of_nccl(nccl):
    plan, transport = planned({"traffic_class": 106, "cta_policy": "efficiency", "net_name": "IB"})
    assert nccl.made == (1, b"an id", 0, {"traffic_class": 106, "cta_policy": 1, "net_name": "IB"})
    plan.close()
    transport.close()
    communicators.close_all_worlds()
    assert nccl.names == ["get_unique_id", "comm_init_rank_config", "all_reduce", "comm_destroy"]


def test_its_parts_have_its_settings_and_are_destroyed_before_it_and_it_once(nccl):
    made = communicators.NcclWorld(MPI.COMM_SELF, ConfiguredNccl({"max_ctas": 4}))
    part = made.communicator.commSplit(0, 1)
    assert (part.comm, made.communicator.commSplit(communicator_config.NO_COLOR, 1)) == (9, None)
    made._workers = {5: part}
    made.close()
    part.destroy()
    made.abort()
    assert [arguments["comm"] for name, arguments in nccl.said if name == "comm_destroy"] == [9, 7]
    assert "comm_abort" not in nccl.names
    assert made.communicator.comm == 0


@pytest.mark.parametrize(
    ("how", "known", "forgotten"),
    [
        ("symmetric", "comm_window_register", "comm_window_deregister"),
        ("registered", "comm_register", "comm_deregister"),
        ("allocated", None, None),
    ],
)
def test_buffers_are_known_before_the_first_call_and_forgotten_before_the_communicator_and_their_memory_go(
    nccl, how, known, forgotten
):
    plan, transport = planned({"max_ctas": 4}, how)
    plan.close()
    transport.close()
    communicators.close_all_worlds()
    about = 2 if known else 0
    assert [name for name in nccl.names if name != "mem_free"] == [
        *["mem_alloc"] * 2, "get_unique_id", "comm_init_rank_config", *[known] * about, "all_reduce",
        *[forgotten] * about, "comm_destroy",
    ]  # fmt: skip
    asked = [arguments for name, arguments in nccl.said if name == known]
    assert [(one["comm"], one["size"], one.get("win_flags", 1)) for one in asked] == [(7, 4096, 1)] * about
    freed = [number for number, name in enumerate(nccl.names) if name == "mem_free"]
    assert len(freed) == 2
    gone = [number for number, name in enumerate(nccl.names) if name == forgotten]
    assert all(number < after for number, after in zip(gone, freed, strict=False))
    assert [nccl.said[number][1]["ptr"] for number in freed][:about] == [one["buff"] for one in reversed(asked)]


def test_buffers_are_known_to_a_communicator_of_cupy_as_well(nccl, monkeypatch):
    done = []
    cupys = SimpleNamespace(comm=42, allReduce=lambda *_: done.append("allReduce"), destroy=lambda: None)
    monkeypatch.setattr(
        communicators, "nccl_world", lambda *_: SimpleNamespace(communicator=cupys, workers=lambda _: cupys)
    )
    plan, transport = planned({}, "symmetric")
    plan.close()
    transport.close()
    assert done == ["allReduce"]
    assert {arguments["comm"] for name, arguments in nccl.said if "window" in name} == {42}


def test_where_nccl_makes_no_window_the_case_is_skipped_with_the_reason(nccl):
    nccl.windows = False
    with pytest.raises(BadInputError, match=r"communicator buffers: 'symmetric' .* no symmetric windows of these GPUs"):
        planned({"max_ctas": 4}, "symmetric")
    communicators.close_all_worlds()
    assert "comm_window_deregister" not in nccl.names


@pytest.mark.usefixtures("nccl")
def test_where_another_rank_has_no_window_none_goes_on():
    told = iter([[4096, 4096], [(True, None), (False, None)]])
    comm = SimpleNamespace(allgather=lambda _mine: next(told))
    with pytest.raises(BadInputError, match="no symmetric windows"):
        NcclBuffers(comm, HostGpu(), "symmetric").register(None, 2, [np.empty(1024, np.float32)])


@pytest.mark.usefixtures("nccl")
def test_where_nccl_refuses_a_buffer_at_one_rank_all_hear_its_words():
    told = iter([[4096, 4096], [(True, None), (True, "InternalError (3): internal error")]])
    comm = SimpleNamespace(allgather=lambda _mine: next(told))
    with pytest.raises(communicator_config.NcclError, match="InternalError"):
        NcclBuffers(comm, HostGpu(), "registered").register(None, 2, [np.empty(1024, np.float32)])


def test_who_is_refused_a_buffer_tells_the_others(nccl):
    def refuse(**_):
        raise NCCLError("InternalError (3): internal error")

    nccl._comm_register, heard = refuse, []
    comm = SimpleNamespace(allgather=lambda mine: heard.append(mine) or [mine, mine])
    with pytest.raises(communicator_config.NcclError, match="InternalError"):
        NcclBuffers(comm, HostGpu(), "registered").register(SimpleNamespace(comm=7), 2, [np.empty(4, "f").view(Room)])
    assert heard == [16, (True, "InternalError (3): internal error")]


def test_memory_that_nccl_has_not_ends_the_job_as_cupys_does(nccl):
    def refuse(**_):
        raise NCCLError("UnhandledCudaError (1): unhandled cuda error")

    nccl._mem_alloc = refuse
    with pytest.raises(MemoryError, match="NCCL cannot allocate 16 bytes: UnhandledCudaError"):
        NcclBuffers(MPI.COMM_SELF, HostGpu(), "allocated").empty(4, np.dtype("float32"))


@pytest.mark.parametrize("sizes", [[4096, 0], [0, 0, 4096], [4096, 8192]])
def test_what_is_not_of_one_size_at_all_workers_no_rank_registers(nccl, sizes):
    comm = SimpleNamespace(allgather=lambda _mine: sizes)
    buffers = NcclBuffers(comm, HostGpu(), "symmetric")
    buffers.register(SimpleNamespace(comm=7), 2, [np.empty(1024, np.float32)])
    assert not nccl.said


def test_what_a_communicator_knew_that_was_aborted_is_not_asked_for_again(nccl):
    plan, transport = planned({"max_ctas": 4}, "symmetric")
    plan.close()
    communicators.abort_all_worlds()  # as after a stall
    transport.close()
    del plan, transport
    assert nccl.names[-3:] == ["comm_abort", "mem_free", "mem_free"]
    assert "comm_window_deregister" not in nccl.names


def test_where_nccl_refuses_the_call_its_buffers_are_forgotten_and_it_is_said_as_cupy_does(nccl):
    def refuse(**_):
        raise NCCLError("InvalidUsage (5): invalid usage")

    nccl._all_reduce = refuse
    with pytest.raises(RuntimeError, match="InvalidUsage") as caught:
        planned({"max_ctas": 4}, "symmetric")
    assert type(caught.value).__name__ == "NcclError"  # by which a refusal is told from a crash
    assert nccl.names[-2:] == ["comm_window_deregister"] * 2
    communicators.abort_world(MPI.COMM_SELF)


def test_what_cannot_be_destroyed_or_aborted_costs_nothing_more(nccl):
    def refuse(**_):
        raise NCCLError("InternalError (3): internal error")

    nccl._comm_destroy = nccl._comm_abort = refuse
    made = communicator_config.ConfiguredCommunicator(Handle(7))
    made.abort()
    made.destroy()
    assert nccl.names == ["comm_abort"]


def test_settings_that_nccl_refuses_are_a_refusal_too(nccl):  # noqa: ARG001
    with pytest.raises(RuntimeError, match="InvalidArgument"):
        ConfiguredNccl({"max_ctas": 0}).NcclCommunicator(1, b"an id", 0)


def test_what_has_gone_wrong_since_is_said(nccl):  # noqa: ARG001
    communicator_config.ConfiguredCommunicator(Handle(7)).check_async_error()
    with pytest.raises(communicator_config.NcclError, match="error 1"):
        communicator_config.ConfiguredCommunicator(Handle(8)).check_async_error()


@pytest.fixture
def lack():
    communicator_config.missing_for_config.cache_clear()
    yield communicator_config.missing_for_config
    communicator_config.missing_for_config.cache_clear()


def test_without_nccl4py_it_is_said_what_to_install(lack, monkeypatch):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: None)
    assert lack(22700) == "nccl4py not found: pip install 'hpccoll[nccl4py]'"


@pytest.mark.parametrize(
    ("there", "of_cupy", "said"),
    [
        (22602, 22602, "NCCL 2.26.2 is too old: these settings need 2.27.0 or later"),
        (22700, 22700, None),
        (23203, 23203, None),
        (23203, 22809, "nccl4py loads NCCL 2.32.3, and CuPy 2.28.9: they must be the same"),
    ],
)
def test_an_nccl_that_would_not_heed_the_settings_is_too_old_and_two_are_too_many(
    lack, monkeypatch, there, of_cupy, said
):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_cupy_nccl_version", lambda: of_cupy)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=lambda: there))
    assert lack(22700) == said


def test_nccl4py_without_a_library_says_so(lack, monkeypatch):
    def none():
        raise RuntimeError('Failure finding "libnccl.so.2":\n no such file')

    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=none))
    assert lack(22700) == 'nccl4py finds no NCCL: Failure finding "libnccl.so.2": no such file'
