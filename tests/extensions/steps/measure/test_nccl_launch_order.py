"""Jobs for which NCCL keeps the order in which kernels of several communicators are launched."""

import os

import pytest
import raw_examples

from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep

STEP = {
    "collective": TRAINING_STEP,
    "device": "cuda",
    "transport": "nccl",
    "in_place": True,
    "algorithm": "native",
}


@pytest.fixture
def order(monkeypatch, tmp_path):
    """The module, on a host without a file of NCCL's settings."""
    pytest.importorskip("mpi4py.MPI")
    from hpccoll.extensions.steps.measure import nccl_launch_order

    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "nccl.conf"))
    monkeypatch.setenv(nccl_launch_order.VARIABLE, "")  # restored afterwards
    monkeypatch.delenv(nccl_launch_order.VARIABLE)
    return nccl_launch_order


def step(parallel, **about):
    params = TrainingStep.of({"model": "gpt2", "parallel": parallel}).params
    return raw_examples.case(1024, **{**STEP, "params": params, **about})


@pytest.mark.parametrize(
    ("cases", "value"),
    [
        ([step("tp=2,pp=2")], "1"),
        ([step(""), step("dp=2,ep=2")], "1"),
        ([step("dp=4,shard=2")], "1"),
        ([step("")], None),
        ([step("dp=4")], None),
        ([step("tp=2", transport="mpi", device="cpu")], None),
        ([raw_examples.case(1024, transport="nccl", device="cuda")], None),
        ([], None),
    ],
)
def test_only_a_job_with_steps_of_several_communicators_sets_the_variable(order, cases, value):
    order.keep_launch_order(cases)
    assert os.environ.get(order.VARIABLE) == value


def test_the_users_own_setting_remains(order, monkeypatch, tmp_path):
    (tmp_path / "nccl.conf").write_text(f"{order.VARIABLE}=0\n")
    order.keep_launch_order([step("pp=2")])
    assert order.VARIABLE not in os.environ
    (tmp_path / "nccl.conf").unlink()
    monkeypatch.setenv(order.VARIABLE, "0")
    order.keep_launch_order([step("pp=2")])
    assert os.environ[order.VARIABLE] == "0"


@pytest.mark.parametrize(
    ("version", "in_turns"), [((2, 25, 1), True), ((2, 26, 2), False), (None, False)]
)
def test_operations_wait_for_each_other_only_with_an_nccl_without_the_variable(
    order, monkeypatch, version, in_turns
):
    monkeypatch.setattr(order, "loaded_nccl_version", lambda: version)
    assert order.launches_in_turns() == in_turns


def test_operations_take_turns_if_the_user_turns_the_order_of_nccl_off(order, monkeypatch):
    monkeypatch.setattr(order, "loaded_nccl_version", lambda: (2, 28, 9))
    monkeypatch.setenv(order.VARIABLE, "0")
    assert order.launches_in_turns()
