"""The rates of a node that is checked, and the whole check."""

import time
from types import SimpleNamespace

import pytest

from hpccoll.common.errors import UnusableError
from hpccoll.common.text import critical
from hpccoll.diagnosis.node_health import NodeState
from hpccoll.sweep import health
from hpccoll.sweep.health import check_node, rates
from hpccoll.sweep.health.checked_node import CheckedNode, MeasurementError

BUS = "0000:19:00.0"


@pytest.fixture
def node(tmp_path):
    return CheckedNode(time.monotonic() + 60, tmp_path)


def severities(state):
    return [(finding.kind, finding.severity) for finding in state.findings]


def test_a_measurement_is_no_part_of_the_launch_of_the_check(node, monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("OMPI_MCA_btl", "self")
    variables = node.run(["env"], "variables", 20).out
    assert "=7\n" not in variables
    assert "OMPI_MCA_btl=self\n" in variables


@pytest.mark.mpi
def test_two_ranks_of_the_node_measure_all_reduce_also_within_a_launch(node, mpiexec, monkeypatch):  # noqa: ARG001
    for name in ("PMI_RANK", "PMI_SIZE", "SLURM_JOB_ID", "SLURM_NTASKS"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setattr(CheckedNode, "cpus", 2)
    monkeypatch.setattr(rates, "HANGS_S", 60)
    (rate,) = rates.all_reduce(node).rates.values()
    assert rate > 0


@pytest.mark.parametrize("missing", ["CPUs", "mpiexec"])
def test_without_a_launcher_or_two_cpus_all_reduce_is_skipped_with_the_reason(
    node, monkeypatch, missing
):
    def no_launcher():
        raise UnusableError("launcher", "no mpiexec")

    monkeypatch.setattr(CheckedNode, "cpus", 1 if missing == "CPUs" else 2)
    monkeypatch.setattr(rates, "mpiexec_command", no_launcher)
    state = rates.all_reduce(node)
    assert (severities(state), dict(state.rates)) == ([("rate_skipped", "absent")], {})


@pytest.fixture
def measured(node, monkeypatch):
    """Return a function that measures all-reduce by a launch with such results."""

    def measured(*rows, skipped=()):
        results = SimpleNamespace(rows=rows, skipped=skipped)
        monkeypatch.setattr(rates, "read_results", lambda _paths: results)
        monkeypatch.setattr(rates, "mpiexec_command", lambda: ["bash", "-c", 'touch "${!#}"', "-"])
        monkeypatch.setattr(CheckedNode, "cpus", 2)
        return rates.all_reduce(node)

    return measured


def row(status, rate=1e9):
    return SimpleNamespace(status=status, busbw_Bps=rate, reason="a reason")


def test_a_wrong_result_is_a_fault(measured):
    assert severities(measured(row("wrong"))) == [("wrong_result", "critical")]


def test_a_case_that_the_launch_skips_is_skipped_with_its_reason(measured):
    gap = SimpleNamespace(reason="no NCCL")
    state = measured(skipped=[gap])
    assert severities(state) == [("rate_skipped", "absent")]
    assert "no NCCL" in state.findings[0].text


def test_a_launch_without_a_time_or_a_file_leaves_the_verdict_open(measured, node, monkeypatch):
    with pytest.raises(MeasurementError) as raised:
        measured(row("failed", None))
    assert raised.value.finding.kind == "check_failed"
    monkeypatch.setattr(rates, "mpiexec_command", lambda: ["sh", "-c", "echo broken >&2; exit 1"])
    with pytest.raises(MeasurementError, match="broken"):
        rates.all_reduce(node)


@pytest.fixture
def node_with_gpus(node, monkeypatch):
    """Return a function that returns a node with a GPU of such a state, whose copies are ``answer``."""

    def node_with_gpus(answer=None, **state):
        node.gpus = [BUS]
        node.gpu_answer = {BUS: state}
        monkeypatch.setattr(CheckedNode, "ask", lambda *_: answer)
        return node

    return node_with_gpus


def test_the_copies_of_each_gpu_are_rates_and_one_that_fails_is_a_fault(node_with_gpus):
    answer = {"rates": {BUS: {"from the host": 50e9}}, "failed": {"0000:3b:00.0": "ECC"}}
    state = rates.gpu_copies(node_with_gpus(answer))
    assert dict(state.rates) == {f"GPU {BUS} from the host": 50e9}
    assert severities(state) == [("gpu_fails", "critical")]


@pytest.mark.parametrize(
    ("answer", "about"), [({"skipped": "no CuPy"}, {}), (None, {"processes": 1})]
)
def test_without_cupy_or_beside_another_process_gpus_are_not_measured(
    node_with_gpus, answer, about
):
    state = rates.gpu_copies(node_with_gpus(answer, **about))
    assert (severities(state), dict(state.rates)) == ([("rate_skipped", "absent")], {})


def test_a_node_without_gpus_measures_none(node):
    assert (rates.gpu_copies(node), rates.nccl_all_reduce(node)) == (NodeState(), NodeState())


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """Return a function that checks a node by one check, beside such a load."""

    def checked(check, others=""):
        monkeypatch.setattr(health, "CHECKS", (check,))
        monkeypatch.setattr(health, "_others", lambda *_: others)
        return check_node(30, tmp_path)

    return checked


def hanging(_node):
    raise MeasurementError(critical("hangs", "memory copies did not end within 20 s"))


def test_a_measurement_that_hangs_is_a_fault_unless_something_else_uses_the_node(checked):
    assert severities(checked(hanging)) == [("hangs", "critical")]
    assert severities(checked(hanging, "others")) == [("slow_beside_others", "warning")]


def test_what_a_check_finds_is_in_the_state_of_the_node(checked):
    found = NodeState(rates={"a": 1.0}, facts={"host": {"CPUs": 2}})
    state = checked(lambda _node: found)
    assert (state.rates, state.facts) == (found.rates, found.facts)


def test_no_measurement_begins_when_the_time_is_over(tmp_path):
    late = CheckedNode(time.monotonic(), tmp_path)
    with pytest.raises(MeasurementError, match="no time left"):
        late.run(["true"], "memory copies", 20)


def test_a_measurement_that_gets_less_than_its_own_time_does_not_hang(tmp_path):
    checked = CheckedNode(time.monotonic() + 1, tmp_path)
    with pytest.raises(MeasurementError) as raised:
        checked.run(["sleep", "1000"], "memory copies", 20)
    assert raised.value.finding.kind == "check_failed"


def load(other_cores=0.0, stolen=0.0):
    return {"other_cores": other_cores, "stolen": stolen, "busiest": [], "seconds": 1.0}


@pytest.mark.parametrize(
    ("fields", "cpus", "busy"),
    [
        (load(), 2, False),
        (load(other_cores=0.5), 2, True),
        (load(other_cores=0.5), 192, False),
        (load(stolen=0.1), 192, True),
    ],
)
def test_other_processes_matter_if_they_use_a_part_of_the_cpus(monkeypatch, fields, cpus, busy):
    monkeypatch.setattr(health, "load_between", lambda *_: fields)
    sample = object()
    assert bool(health._others(sample, sample, cpus)) is busy
