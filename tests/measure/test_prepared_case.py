"""The evidence, parameters and abort of a prepared case, whose transport moves nothing here."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from catalogue_cases import case

from hpccoll.schedule import Layout
from hpccoll.transports.transport_interface import aligned_empty


class IdleTransport:
    """A transport that moves nothing."""

    empty = staticmethod(aligned_empty)

    def __init__(self, comm, _compiled=None):
        self.comm, self.guarded = comm, []

    def plan(self, operation, _src, dst):
        return SimpleNamespace(result=operation.result(dst, self.comm.rank), run=lambda: None, close=lambda: None)


@pytest.fixture
def prepared_case(mpiexec, monkeypatch):  # noqa: ARG001  skips without an MPI
    from hpccoll.measure import prepared_case, transport_factory

    monkeypatch.setattr(transport_factory, "load_class", lambda _: IdleTransport)
    return prepared_case


def test_the_bytes_of_a_library_are_compared_with_algorithms_up_to_a_number_of_ranks(prepared_case, monkeypatch):
    from hpccoll.measure import schedule_bytes

    def words(ranks):
        native = prepared_case.PreparedCase(
            SimpleNamespace(rank=0), Layout.of(ranks, 2), case(algorithm="native", bytes=8192)
        )
        return native.evidence(2 * 8192)

    monkeypatch.setattr(schedule_bytes, "MAX_COMPARED_RANKS", 4)
    executed, evidence = words(4)
    assert executed == "unknown"
    assert evidence.startswith("the ports sent 1.000 S a node, as much as binomial_tree or hierarchical")
    monkeypatch.setattr(schedule_bytes, "cached_crossings", lambda *_: 1 / 0)
    assert words(6) == (
        "unknown",
        "the ports sent 0.667 S a node; not compared with algorithms: more than 4 ranks",
    )


@pytest.mark.parametrize(
    ("name", "algorithm", "segment", "channels"),
    [
        ("all_reduce", "ring", 1 << 20, 1),  # a unit is a quarter
        ("all_reduce", "ring", 100 << 10, 3),
        ("all_reduce", "ring", 64 << 10, 4),
        ("all_reduce", "double_binary_tree", 64 << 10, 8),  # each of two trees moves a half
        ("all_gather", "ring", 64 << 10, 4),
    ],
)
def test_no_piece_is_larger_than_the_requested_segment(prepared_case, name, algorithm, segment, channels):
    asked = case(name, algorithm, bytes=1 << 20, params={"segment": segment})
    made = prepared_case.PreparedCase(SimpleNamespace(rank=0), Layout.of(4), asked)
    assert made.params["channels"] == made.operation.channels == channels
    assert made.params["segment"] == segment


def test_the_choice_of_a_table_is_named_with_its_transport_unless_that_is_mpi(prepared_case):
    def executed(transport):
        chosen = case(algorithm="ring", transport=transport)
        made = prepared_case.PreparedCase(SimpleNamespace(rank=0), Layout.of(4), chosen, choice="by a table")
        return made.evidence(None)[0]

    assert [executed("mpi"), executed("shm")] == ["ring", "ring over shm"]


def test_an_assumption_of_the_user_is_part_of_the_evidence(prepared_case):
    def evidence(algorithm):
        about = SimpleNamespace(rank=0), Layout.of(4), case(algorithm=algorithm)
        return prepared_case.PreparedCase(*about, assumed="he says so").evidence(None)

    assert evidence("ring")[1].endswith("; he says so")
    assert evidence("native") == ("unknown", "he says so")


def test_an_abort_ends_graphs_then_communicators_and_frees_buffers_when_the_gpu_is_idle(prepared_case):
    from hpccoll.transports.nccl import communicators
    from hpccoll.transports.nccl.stream_plan import StreamPlan

    done = []
    plan = StreamPlan(SimpleNamespace(wait=None), np.zeros(1), [], "")
    plan._graphs = [SimpleNamespace(close=partial(done.append, "graph"))]
    gpu = SimpleNamespace(synchronize=partial(done.append, "idle"))
    case = SimpleNamespace(plan=plan, gpu=gpu, close=partial(done.append, "buffers"))
    aborted = SimpleNamespace(abort=partial(done.append, "communicator"))
    communicators._WORLDS[-1] = SimpleNamespace(communicators=[aborted])
    prepared_case.PreparedCase.abort(case)
    assert done == ["graph", "communicator", "idle", "buffers"]
