"""The transport and the evidence of a prepared case, whose transport moves nothing here."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from catalogue_cases import case

from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.schedule import Layout
from hpccoll.transports.transport_interface import aligned_empty


class IdleTransport:
    """A transport that moves nothing."""

    empty = staticmethod(aligned_empty)

    def __init__(self, comm, _compiled=None):
        self.comm, self.guarded = comm, []

    def plan(self, operation, _src, dst):
        return SimpleNamespace(
            result=operation.result(dst, self.comm.rank), run=lambda: None, executor=None, close=lambda: None
        )


@pytest.fixture
def module(mpiexec):  # noqa: ARG001  skips without an MPI
    from hpccoll.measure import prepared_case

    return prepared_case


@pytest.fixture
def evidence(module, monkeypatch):
    """Return what ran in a case, and the evidence for it."""
    monkeypatch.setattr(module, "load_class", lambda _: IdleTransport)

    def evidence(prepared, ranks=4, sent=None, **known):
        return module.PreparedCase(SimpleNamespace(rank=0), Layout.of(ranks, 2), prepared, **known).evidence(sent)

    return evidence


def test_the_bytes_of_a_library_are_compared_with_algorithms_up_to_a_number_of_ranks(evidence, monkeypatch):
    from hpccoll.measure import schedule_bytes

    native = case(algorithm="native", bytes=8192)
    monkeypatch.setattr(schedule_bytes, "MAX_COMPARED_RANKS", 4)
    executed, words = evidence(native, 4, 2 * 8192)
    assert executed == "unknown"
    assert words.startswith("the ports sent 1.000 S a node, as much as binomial_tree or hierarchical")
    many = "the ports sent 0.667 S a node; not compared with algorithms: more than 4 ranks"
    assert evidence(native, 6, 2 * 8192) == ("unknown", many)


def test_the_choice_of_a_table_and_an_assumption_of_the_user_are_part_of_the_evidence(evidence):
    ring, over_shm = (evidence(case(algorithm="ring", transport=name), choice="by a table") for name in ("mpi", "shm"))
    assert (ring[0], over_shm[0]) == ("ring", "ring over shm")
    assert ring[1].startswith("by a table; ")
    assert evidence(case(algorithm="ring"), assumed="he says so")[1].endswith("; he says so")
    assert evidence(case(algorithm="native"), assumed="he says so") == ("unknown", "he says so")


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_row_of_the_table_names_classes_that_allocate_buffers_and_lower_plans(module, name):
    row = TRANSPORTS[name]
    for path in (*row.schedules.values(), *row.native.values()):
        assert {"empty", "plan", "close"} <= {*dir(module.load_class(path))}
    assert {*row.native} <= {*row.schedules}


@pytest.mark.parametrize(
    ("communicator", "settings", "buffers"),
    [
        ({"buffers": "symmetric"}, None, "symmetric"),  # CuPy's own communicator is enough
        ({"buffers": "registered", "cta_policy": "zero"}, {"cta_policy": 2}, "registered"),
    ],
)
def test_schedules_and_native_collectives_get_communicator_settings_and_buffers(
    module, communicator, settings, buffers
):
    gpu = SimpleNamespace(release=lambda: None, empty=None)
    for algorithm, kind in (("native", "NcclVendorTransport"), ("ring", "NcclTransport")):
        asked = replace(case(transport="nccl", device="cuda"), algorithm=algorithm)
        made = module.make_transport(asked, SimpleNamespace(), gpu, communicator)
        assert type(made).__name__ == kind
        assert (made.library and made.library._settings) == settings
        assert made.buffers.registration == buffers
