"""The transport and the evidence of a prepared case, whose transport moves nothing here."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from catalogue_cases import case

from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.measure.run.payload import concatenated
from hpccoll.schedule import Layout
from hpccoll.transports.guarded_memory import GuardedBuffers
from hpccoll.transports.transport_interface import aligned_empty


class IdleTransport(GuardedBuffers):
    """A transport that moves nothing, whose plans say that they leave the result in ``result_of(right result)``."""

    result_of = staticmethod(lambda result: result)

    def __init__(self, comm, _compiled=None):
        super().__init__(aligned_empty)
        self.comm = comm

    def plan(self, operation, _src, dst):
        result = self.result_of(operation.result(dst, self.comm.rank))
        return SimpleNamespace(result=result, run=lambda: None, executor=None, close=lambda: None)


@pytest.fixture
def module(mpiexec):  # noqa: ARG001  skips without an MPI
    from hpccoll.measure.run import prepared_case

    return prepared_case


@pytest.fixture
def evidence(module, monkeypatch):
    """Return what ran in a case, and the evidence for it."""
    monkeypatch.setattr(module, "load_class", lambda _: IdleTransport)

    def evidence(prepared, ranks=4, sent=None, **known):
        return module.PreparedCase(
            SimpleNamespace(rank=0), Layout.of(ranks, 2), prepared, **known
        ).evidence(sent)

    return evidence


def test_the_bytes_of_a_library_are_compared_with_algorithms_up_to_a_number_of_ranks(
    evidence, monkeypatch
):
    from hpccoll.measure.run import matching_bytes

    native = case(algorithm="native", bytes=8192)
    monkeypatch.setattr(matching_bytes, "MAX_COMPARED_RANKS", 4)
    executed, words = evidence(native, 4, 2 * 8192)
    assert executed == "unknown"
    assert words.startswith(
        "the ports sent 1.000 S a node, as much as binomial_tree or swing or hierarchical"
    )
    many = "the ports sent 0.667 S a node; not compared with algorithms: more than 4 ranks"
    assert evidence(native, 6, 2 * 8192) == ("unknown", many)


def prepared_with_right_result(module, *asked):
    """Return a case of rank 1 of 2 out of place, whose result is the right one."""
    made = module.PreparedCase(
        SimpleNamespace(rank=1), Layout.of(2), replace(case(*asked), in_place=False)
    )
    made.reset()
    now = replace(made.payload, generation=made.check.generation)
    made.dst[made._result_span()] = concatenated(now.expected(in_place=False), now.dtype)
    return made


@pytest.mark.parametrize("asked", [("all_reduce", "ring"), ("reduce_scatter", "native")])
def test_writes_outside_the_result_are_wrong_and_named(module, monkeypatch, asked):
    monkeypatch.setattr(module, "load_class", lambda _: IdleTransport)
    made = prepared_with_right_result(module, *asked)
    assert (made.wrong(), made.diagnose()) == (0, None)
    assert [guard.where for guard in made.guards] == [
        "before src",
        "after src",
        "before dst",
        "after dst",
    ]
    # Out of place a library may write the second half alone, the result of rank 1; a schedule may
    # write all of dst.
    assert np.shares_memory(made.guards[2].memory, made.dst) == (asked[1] == "native")
    outside = [
        (guard.memory, f"2 of 128 elements {guard.where} were overwritten") for guard in made.guards
    ]
    for memory, words in [
        *outside,
        (made.src, f"src was overwritten: 2 of {made.src.size} elements, from 0 B on"),
    ]:
        before = memory[:2].copy()
        memory[:2] = 1e-9
        assert (made.wrong(), made.diagnose()) == (2, f"rank 1: {words}")
        memory[:2] = before


@pytest.mark.parametrize(
    ("result_of", "words"),
    [
        (
            lambda result: result[:-1],
            "the plan says that its result has 1023 elements; expected: 1024",
        ),
        (np.copy, "never written"),  # the right size elsewhere: what counts is dst
    ],
)
def test_a_plan_with_another_result_than_that_of_the_case_is_wrong_in_all_elements(
    module, monkeypatch, result_of, words
):
    monkeypatch.setattr(module, "load_class", lambda _: IdleTransport)
    monkeypatch.setattr(IdleTransport, "result_of", staticmethod(result_of))
    made = prepared_with_right_result(module)
    made.plan.result[:], made.dst[:] = made.dst[: len(made.plan.result)], made.payload.sentinel()
    assert made.wrong() == 1024
    assert words in made.diagnose()


def test_the_choice_of_a_table_and_an_assumption_of_the_user_are_part_of_the_evidence(evidence):
    ring, over_shm = (
        evidence(case(algorithm="ring", transport=name), choice="by a table")
        for name in ("mpi", "shm")
    )
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
        made = module.make_transport(
            asked, SimpleNamespace(), gpu, module.RunSettings(communicator)
        )
        assert type(made).__name__ == kind
        assert (made.library and made.library._settings) == settings
        assert made.buffers.registration == buffers
