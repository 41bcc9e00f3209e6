"""``hpccoll diagnose --here``: its line, its exit code, its reference, and what it refuses."""

import json

import pytest
from cli_runner import invoke, spawn

from hpccoll.common.text import warning
from hpccoll.diagnosis.node_health import REPEATS, NodeState
from hpccoll.sweep import health

MEMORY = "memory copies on 2 CPUs"


@pytest.fixture
def node(monkeypatch):
    """Return a function that decides what the next checks of this node find."""
    states = []

    def node(*rates, **about):
        states.extend(NodeState(rates={MEMORY: rate}, **about) for rate in rates)

    monkeypatch.setattr(health, "check_node", lambda _seconds: states.pop(0))
    return node


@pytest.fixture
def reference(node, tmp_path):
    """The file of the reference of a node that copies 20 GB/s and more."""
    path = tmp_path / "node.json"
    node(*(rate * 1e9 for rate in range(20, 20 + REPEATS)))
    made = invoke("diagnose", "--here", "--make-reference", path)
    assert (made.code, made.err) == (0, "")
    assert "20 GB/s to 24 GB/s" in made.out
    return path


@pytest.mark.parametrize(
    ("rate", "others", "code", "word"),
    [
        (20e9, "", 0, "healthy: "),
        (9e9, "", 3, "bad: "),
        (9e9, "other processes", 0, "cannot tell: "),
    ],
)
def test_the_line_begins_with_the_verdict_and_only_a_bad_node_ends_with_3(
    node, reference, rate, others, code, word
):
    node(rate, other_load=others)
    ended = invoke("diagnose", "--here", "--reference", reference)
    (line,) = ended.out.splitlines()
    assert (ended.code, line.startswith(word), ended.err) == (code, True, "")


def test_the_record_has_the_verdict_the_rates_and_the_findings(node, reference):
    node(9e9, facts={"host": {"CPUs": 2}})
    ended = invoke("diagnose", "--here", "--reference", reference, "--json")
    record = json.loads(ended.out)
    assert (ended.code, record["verdict"], record["rates"]) == (3, "bad", {MEMORY: 9e9})
    assert record["facts"] == {"host": {"CPUs": 2}}
    (finding,) = record["findings"]
    assert (finding["kind"], finding["ratio"]) == ("slow", pytest.approx(0.45))


def test_a_disturbed_reference_is_written_with_a_warning(node, tmp_path):
    node(10e9, *[20e9] * (REPEATS - 1))
    made = invoke("diagnose", "--here", "--make-reference", tmp_path / "node.json")
    assert (made.code, len(made.err.splitlines())) == (0, 1)
    assert (tmp_path / "node.json").exists()


def test_a_node_that_cannot_be_judged_has_no_reference(node, tmp_path):
    node(20e9, findings=[warning("check_failed", "all-reduce: broken")])
    made = invoke("diagnose", "--here", "--make-reference", tmp_path / "node.json")
    assert (made.code, "broken" in made.out) == (1, True)
    assert not (tmp_path / "node.json").exists()


def test_of_several_processes_on_a_node_one_checks_it(monkeypatch):
    monkeypatch.setenv("SLURM_LOCALID", "1")
    ended = invoke("diagnose", "--here")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--here", "--links"), ("--links", "--here")),
        (("--here", "--out", "f.h5"), ("--out", "--here")),
        (("--reference", "f.json"), ("--reference", "--here")),
        (("--make-reference", "f.json"), ("--make-reference", "--here")),
        (("--here", "--reference", "f.json", "--make-reference", "g.json"), ("--make-reference",)),
        (("--here", "--reference", "missing.json"), ("--reference", "missing.json")),
        (("--here", "--seconds", "0"), ("--seconds",)),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    assert invoke("diagnose", *options).is_bad_input(*words)


@pytest.mark.mpi
def test_this_node_is_checked_as_a_program(mpiexec):  # noqa: ARG001 - there is an MPI library
    ended = spawn("diagnose", "--here", "--json", "--seconds", "100")
    record = json.loads(ended.out)
    assert any(name.startswith("memory copies") for name in record["rates"])
    assert record["facts"]["host"]["CPUs"] >= 1
