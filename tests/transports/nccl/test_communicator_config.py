"""nccl4py: settings and buffers are passed to NCCL, replaced by a recorder, and released in order."""

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
from hpccoll.transports.transport_interface import Operation


@pytest.fixture
def nccl(monkeypatch):
    """Replace nccl4py by a recorder, and return it."""
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


def test_a_communicator_is_created_with_nccls_values_of_the_settings(nccl):
    plan, transport = planned({"traffic_class": 106, "cta_policy": "efficiency", "net_name": "IB"})
    assert nccl.made == (1, b"an id", 0, {"traffic_class": 106, "cta_policy": 1, "net_name": "IB"})
    plan.close()
    transport.close()
    communicators.close_all_worlds()
    assert nccl.names == ["get_unique_id", "comm_init_rank_config", "all_reduce", "comm_destroy"]


def test_split_communicators_are_destroyed_first_and_each_once(nccl):
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
def test_buffers_are_registered_before_the_call_and_deregistered_before_their_memory_is_freed(
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


def test_buffers_can_be_registered_with_a_communicator_of_cupy(nccl, monkeypatch):
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


def test_a_window_that_nccl_cannot_create_is_bad_input(nccl):
    nccl.windows = False
    with pytest.raises(BadInputError, match=r"communicator buffers: 'symmetric' .* no symmetric windows of these GPUs"):
        planned({"max_ctas": 4}, "symmetric")
    communicators.close_all_worlds()
    assert "comm_window_deregister" not in nccl.names


@pytest.mark.usefixtures("nccl")
def test_a_window_missing_on_one_rank_is_bad_input_on_all():
    told = iter([[4096, 4096], [(True, None), (False, None)]])
    comm = SimpleNamespace(allgather=lambda _mine: next(told))
    with pytest.raises(BadInputError, match="no symmetric windows"):
        NcclBuffers(comm, HostGpu(), "symmetric").register(None, 2, [np.empty(1024, np.float32)])


@pytest.mark.usefixtures("nccl")
def test_a_registration_error_of_one_rank_is_raised_on_all():
    told = iter([[4096, 4096], [(True, None), (True, "InternalError (3): internal error")]])
    comm = SimpleNamespace(allgather=lambda _mine: next(told))
    with pytest.raises(communicator_config.NcclError, match="InternalError"):
        NcclBuffers(comm, HostGpu(), "registered").register(None, 2, [np.empty(1024, np.float32)])


def test_a_registration_error_is_sent_to_all_ranks(nccl):
    def refuse(**_):
        raise NCCLError("InternalError (3): internal error")

    nccl._comm_register, heard = refuse, []
    comm = SimpleNamespace(allgather=lambda mine: heard.append(mine) or [mine, mine])
    with pytest.raises(communicator_config.NcclError, match="InternalError"):
        NcclBuffers(comm, HostGpu(), "registered").register(SimpleNamespace(comm=7), 2, [np.empty(4, "f").view(Room)])
    assert heard == [16, (True, "InternalError (3): internal error")]


def test_failed_allocations_raise_memory_error(nccl):
    def refuse(**_):
        raise NCCLError("UnhandledCudaError (1): unhandled cuda error")

    nccl._mem_alloc = refuse
    with pytest.raises(MemoryError, match="NCCL cannot allocate 16 bytes: UnhandledCudaError"):
        NcclBuffers(MPI.COMM_SELF, HostGpu(), "allocated").empty(4, np.dtype("float32"))


@pytest.mark.parametrize("sizes", [[4096, 0], [0, 0, 4096], [4096, 8192]])
def test_buffers_of_unequal_sizes_are_not_registered(nccl, sizes):
    comm = SimpleNamespace(allgather=lambda _mine: sizes)
    buffers = NcclBuffers(comm, HostGpu(), "symmetric")
    buffers.register(SimpleNamespace(comm=7), 2, [np.empty(1024, np.float32)])
    assert not nccl.said


def test_aborted_communicators_need_no_deregistration(nccl):
    plan, transport = planned({"max_ctas": 4}, "symmetric")
    plan.close()
    communicators.abort_all_worlds()  # as after a stall
    transport.close()
    del plan, transport
    assert nccl.names[-3:] == ["comm_abort", "mem_free", "mem_free"]
    assert "comm_window_deregister" not in nccl.names


def test_buffers_are_deregistered_if_nccl_rejects_the_call(nccl):
    def refuse(**_):
        raise NCCLError("InvalidUsage (5): invalid usage")

    nccl._all_reduce = refuse
    with pytest.raises(RuntimeError, match="InvalidUsage") as caught:
        planned({"max_ctas": 4}, "symmetric")
    assert type(caught.value).__name__ == "NcclError"  # by which a refusal is told from a crash
    assert nccl.names[-2:] == ["comm_window_deregister"] * 2
    communicators.abort_world(MPI.COMM_SELF)


def test_errors_of_destroy_and_abort_are_ignored(nccl):
    def refuse(**_):
        raise NCCLError("InternalError (3): internal error")

    nccl._comm_destroy = nccl._comm_abort = refuse
    made = communicator_config.ConfiguredCommunicator(Handle(7))
    made.abort()
    made.destroy()
    assert nccl.names == ["comm_abort"]


def test_invalid_settings_raise_an_error(nccl):  # noqa: ARG001
    with pytest.raises(RuntimeError, match="InvalidArgument"):
        ConfiguredNccl({"max_ctas": 0}).NcclCommunicator(1, b"an id", 0)


def test_asynchronous_errors_are_raised(nccl):  # noqa: ARG001
    communicator_config.ConfiguredCommunicator(Handle(7)).check_async_error()
    with pytest.raises(communicator_config.NcclError, match="error 1"):
        communicator_config.ConfiguredCommunicator(Handle(8)).check_async_error()


@pytest.fixture
def missing():
    communicator_config.missing_for_config.cache_clear()
    yield communicator_config.missing_for_config
    communicator_config.missing_for_config.cache_clear()


def test_without_nccl4py_the_reason_names_the_package(missing, monkeypatch):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: None)
    assert missing(22700) == "nccl4py not found: pip install 'hpccoll[nccl4py]'"


@pytest.mark.parametrize(
    ("there", "of_cupy", "said"),
    [
        (22602, 22602, "NCCL 2.26.2 is too old: these settings need 2.27.0 or later"),
        (22700, 22700, None),
        (23203, 23203, None),
        (23203, 22809, "nccl4py loads NCCL 2.32.3, and CuPy 2.28.9: they must be the same"),
    ],
)
def test_old_and_different_nccl_versions_are_reasons(missing, monkeypatch, there, of_cupy, said):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_cupy_nccl_version", lambda: of_cupy)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=lambda: there))
    assert missing(22700) == said


def test_nccl4py_without_a_library_is_a_reason(missing, monkeypatch):
    def none():
        raise RuntimeError('Failure finding "libnccl.so.2":\n no such file')

    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=none))
    assert missing(22700) == 'nccl4py finds no NCCL: Failure finding "libnccl.so.2": no such file'
