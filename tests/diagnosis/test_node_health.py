"""The health of one node: its rates and devices beside a reference."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import absent, critical, warning
from hpccoll.diagnosis.node_health import (
    SLOWEST,
    NodeReference,
    NodeState,
    judge_node,
    read_node_reference,
    write_node_reference,
)

MEMORY = "memory copies on 8 CPUs"
PORT = {"state": "ACTIVE", "rate (Gbit/s)": 400.0, "MTU": 9000}
LOWEST = 20e9


def state(rate=LOWEST, port=PORT, **about):
    facts = {"port mlx5_0:1": port} if port else {}
    return NodeState(rates={MEMORY: rate}, facts=facts, **about)


REFERENCE = NodeReference.of("n1", [state(rate) for rate in (22e9, LOWEST, 21e9)])


def kinds(health, severity):
    return [finding.kind for finding in health.findings if finding.severity == severity]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.5, "healthy"), (SLOWEST, "healthy"), (SLOWEST - 0.01, "bad")]
)
def test_a_rate_far_below_the_lowest_of_the_reference_is_bad(ratio, verdict):
    health = judge_node(state(ratio * LOWEST), REFERENCE)
    assert health.verdict == verdict
    assert kinds(health, "critical") == ["slow"] * (verdict == "bad")


def test_the_line_of_a_bad_node_has_the_ratio_and_both_rates():
    assert judge_node(state(9e9), REFERENCE).line == (
        f"bad: {MEMORY} at 0.45 of the reference (9 GB/s of 20 GB/s)"
    )


def test_a_slow_node_on_which_something_else_runs_cannot_be_judged():
    health = judge_node(state(9e9, other_load="other processes used 3 cores"), REFERENCE)
    assert health.verdict == "cannot tell"
    assert kinds(health, "warning") == ["slow_beside_others"]
    assert "3 cores" in health.line


def test_a_fault_that_is_certain_counts_whatever_else_runs():
    fault = critical("gpu_memory_errors", "GPU 0: 1 uncorrected memory error")
    health = judge_node(state(9e9, other_load="others", findings=[fault]), REFERENCE)
    assert (health.verdict, health.line) == ("bad", f"bad: {fault}")


def test_without_a_reference_rates_are_said_and_not_judged():
    health = judge_node(state(1.0), None)
    assert health.verdict == "healthy"
    assert kinds(health, "warning") == ["no_reference"]
    fault = critical("gpu_silent", "GPU 0 does not answer")
    assert judge_node(state(findings=[fault]), None).verdict == "bad"


def test_a_rate_that_the_reference_has_and_the_check_has_not_leaves_the_verdict_open():
    health = judge_node(NodeState(facts=REFERENCE.facts), REFERENCE)
    assert (health.verdict, kinds(health, "warning")) == ("cannot tell", ["rate_unmeasured"])


def test_a_rate_that_the_reference_lacks_is_not_judged():
    health = judge_node(NodeState(rates={"other": 1.0}, facts=REFERENCE.facts), REFERENCE)
    assert "bad" not in health.verdict


@pytest.mark.parametrize(
    ("port", "kind"),
    [
        (None, "device_missing"),
        ({**PORT, "state": "DOWN"}, "device_worse"),
        ({**PORT, "rate (Gbit/s)": 200.0}, "device_worse"),
        ({**PORT, "MTU": 1500}, "device_worse"),
    ],
)
def test_a_device_that_is_missing_or_worse_is_bad(port, kind):
    health = judge_node(state(port=port, other_load="others"), REFERENCE)
    assert (health.verdict, kinds(health, "critical")) == ("bad", [kind])


@pytest.mark.parametrize(
    "port",
    [
        {**PORT, "rate (Gbit/s)": 800.0},
        {**PORT, "MTU": None},
        {**PORT, "MTU": 8996},
        {"state": None},
    ],
)
def test_a_device_that_is_better_or_unknown_is_not_bad(port):
    assert judge_node(state(port=port), REFERENCE).verdict == "healthy"


def test_notes_stand_behind_the_rates_of_a_healthy_node():
    notes = [warning("pcie_slow", "slow PCIe"), absent("rate_skipped", "no mpiexec")]
    assert judge_node(state(findings=notes), REFERENCE).line == (
        f"healthy: {MEMORY} 20 GB/s; slow PCIe; no mpiexec"
    )


def test_a_reference_has_the_rates_that_all_repeats_have():
    states = [NodeState(rates={"a": 1.0, "b": 2.0}), NodeState(rates={"a": 3.0})]
    assert NodeReference.of("n1", states).rates == {"a": [1.0, 3.0]}


def test_a_reference_whose_repeats_differ_as_faults_do_says_so():
    assert REFERENCE.wide_rates() == []
    (wide,) = NodeReference.of("n1", [state(LOWEST), state(0.5 * LOWEST)]).wide_rates()
    assert MEMORY in wide


def test_a_reference_is_read_as_it_was_written(tmp_path):
    write_node_reference(REFERENCE, tmp_path / "node.json")
    found = read_node_reference(tmp_path / "node.json")
    assert (found.rates, found.facts, found.host) == (
        REFERENCE.rates,
        REFERENCE.facts,
        REFERENCE.host,
    )


@pytest.mark.parametrize("content", ["{}", "[1]", '{"schema": "hpccoll-reference 2.0"}', "x"])
def test_another_file_is_no_reference_of_a_node(tmp_path, content):
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(BadInputError, match="--make-reference"):
        read_node_reference(tmp_path / "f.json")
