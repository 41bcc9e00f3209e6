"""The maker, and what a job has NCCL's communicators made with on the way to the transport."""

from types import SimpleNamespace

import raw_examples
from mpi4py import MPI

from hpccoll.measure.case_factory import CaseFactory
from hpccoll.transports.nccl import communicator_config

OVER_NCCL = raw_examples.case(algorithm="native", transport="nccl", device="cuda")


def unconfigured(communicator, case=OVER_NCCL, comm=MPI.COMM_SELF):
    return CaseFactory._config_reason(
        SimpleNamespace(job=raw_examples.job(case, communicator=communicator), comm=comm), case
    )


def test_a_case_whose_settings_nobody_can_make_is_skipped_with_the_reason_and_others_are_not(monkeypatch):
    asked = []
    monkeypatch.setattr(communicator_config, "missing_for_config", lambda v: asked.append(v) or f"no NCCL from {v} on")
    assert unconfigured({"max_ctas": 4, "traffic_class": 3}) == "no NCCL from 22600 on"
    assert unconfigured({"max_ctas": 4, "buffers": "symmetric"}) == "no NCCL from 22700 on"
    assert unconfigured({}) is None
    assert unconfigured({"max_ctas": 4}, raw_examples.case(transport="staged", device="cuda")) is None
    assert asked == [22600, 22700]


def test_what_one_rank_lacks_is_the_reason_at_all(monkeypatch):
    monkeypatch.setattr(communicator_config, "missing_for_config", lambda _: None)
    comm = SimpleNamespace(allgather=lambda mine: [mine, "nccl4py not found"])
    assert unconfigured({"max_ctas": 4}, comm=comm) == "nccl4py not found"
