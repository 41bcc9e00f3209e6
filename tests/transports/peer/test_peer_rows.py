"""What follows from cases over peer: rows, their evidence, the report, a tuned table and auto, plans of sweeps."""

import json
from pathlib import Path

import pytest
import yaml
from cli_runner import invoke

from hpccoll.analysis.choice_table import load_table
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).parents[2] / "measure" / "nccl_on_host_ranks.py"
SHORT = (
    "--device",
    "cuda",
    "--in-place",
    "-b",
    "64",
    "-e",
    "64K",
    "-f",
    "1024",
    "-n",
    "6",
    "-w",
    "1",
)
CHOICES = [["channels", 2], ["protocol", "simple"]]


@pytest.fixture(scope="module")
def measured(mpiexec, nccl_library, tmp_path_factory):
    """The raw file of a launch over NCCL and peer, on the test library."""
    out = tmp_path_factory.mktemp("rows") / "F.h5"
    words = "-t", "nccl,peer", "-a", "ring,native", "--param", "graph=0,1"
    ended = mpiexec(2, RANKS, nccl_library, *SHORT, *words, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


@pytest.mark.mpi
def test_rows_name_the_transport_what_ran_and_how_it_was_timed(measured):
    rows = [row for row in read_results([measured]).rows if row.transport == "peer"]
    assert {(row.algorithm, row.status, row.wrong, row.timing) for row in rows} == {
        ("ring", "ok", 0, "aggregated")
    }
    assert {(row.bytes, row.params["graph"]) for row in rows} == {
        (64, 0),
        (64, 1),
        (1 << 16, 0),
        (1 << 16, 1),
    }
    assert {row.executed for row in rows} == {"ring"}
    assert all("hpccoll ran its schedule" in row.evidence for row in rows)
    assert all("CUDA IPC" in row.evidence for row in rows)


@pytest.mark.mpi
def test_the_report_has_a_line_for_each_transport(measured):
    ended = invoke("report", measured)
    assert ended.code == 0, ended.err
    page = (measured.parent / "F.report" / "index.html").read_text()
    assert "ring nccl" in page
    assert "ring peer" in page


@pytest.mark.mpi
def test_a_tuned_table_can_choose_peer_and_auto_then_runs_it(
    measured, mpiexec, nccl_library, tmp_path
):
    place = tmp_path / "t.json"
    ended = invoke("tune", measured, "--out", place)
    assert ended.code == 0, ended.err
    table = load_table(place, "table")
    for entry in table["entries"]:
        sizes = {"first": 0, "below": None, "sizes": [64, 1 << 16]}
        choice = {"algorithm": "ring", "transport": "peer", "params": CHOICES}
        entry["ranges"] = [{**entry["ranges"][0], **sizes, "choice": choice}]
    place.write_text(json.dumps(table))
    out = tmp_path / "G.h5"
    words = "-t", "nccl,peer", "-a", "auto", "--table", place
    ended = mpiexec(2, RANKS, nccl_library, *SHORT, *words, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [row for row in read_results([out]).rows if row.algorithm == "auto"]
    assert rows
    for row in rows:
        assert (row.status, row.executed) == ("ok", "ring over peer")
        assert row.evidence.startswith("ring channels=2 protocol=simple over peer by the table")


def test_a_sweep_plans_schedules_over_both_and_the_librarys_calls_over_nccl_alone(tmp_path):
    config = tmp_path / "s.yaml"
    keys = {
        "collectives": ["all_reduce"],
        "algorithms": ["ring", "native"],
        "devices": ["cuda"],
        "transports": ["nccl", "peer"],
        "ranks": [4],
        "bytes": [64],
        "in_place": True,
    }
    config.write_text(yaml.safe_dump(keys))
    ended = invoke("plan", config, "--profile", "local", "--json")
    assert ended.code == 0, ended.err
    cases = [case for job in json.loads(ended.out)["jobs"] for case in job["cases"]]
    assert {(case["algorithm"], case["transport"]) for case in cases} == {
        ("ring", "nccl"),
        ("ring", "peer"),
        ("native", "nccl"),
    }
