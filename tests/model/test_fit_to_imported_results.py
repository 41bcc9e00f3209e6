"""From other people's results to predictions: ``import``, ``fit`` and ``predict`` of the command line."""

import json

import pytest
import raw_examples
from cli_runner import invoke
from model_observations import observation
from pico_archives import allocation, row, times, write_machine

from hpccoll.model.machine import Machine, MessageCosts, Tier
from hpccoll.model.machine_file import read_machine
from hpccoll.model.validation import predicted_seconds
from hpccoll.schedule import Layout
from hpccoll.store import hdf5
from hpccoll.store.result_files import read_raw

ELEMENTS = (256, 4096, 1 << 16, 1 << 20, 1 << 24)
TRUE = Machine(
    tiers={
        "rack": Tier(
            (
                MessageCosts(latency_s=2e-6, overhead_s=2e-7, byte_s=5e-10),
                MessageCosts(1 << 15, 1e-5, 2e-7, byte_s=1e-10, synchronous=True),
            )
        )
    },
    fold_s={"int32": 2e-10},
)
FAR = Machine(
    tiers={**TRUE.tiers, "fabric": Tier((MessageCosts(latency_s=1e-4, byte_s=2e-9),))},
    fold_s=TRUE.fold_s,
)
ALGORITHMS = {"ring_over": "ring", "recursive_doubling_over": "recursive_doubling"}


def stamp(nodes):
    return f"2025_03_13___15_38_{nodes:02d}"


def files_of(layout, machine=TRUE, hosts=()):
    """Return the files of a run of all-reduces on a layout."""
    files = {}
    for name, ours in ALGORITHMS.items():
        for elements in ELEMENTS:
            case = observation("all_reduce", ours, 4 * elements, 1.0, layout, {"dtype": "int32"})
            nanoseconds = round(1e9 * predicted_seconds(case, machine))
            files[f"0/{elements}_{name}_int32.csv"] = times(*[nanoseconds] * 6)
    if hosts:
        files["alloc.csv"] = allocation(hosts)
    return files


def results_of(tmp_path, nodes, **shapes):
    """Return the raw file of runs on some numbers of nodes; ``shapes`` are the words of the table for them."""
    runs = {stamp(number): files_of(Layout.of(number, 1)) for number in nodes}
    rows = [
        row(timestamp=stamp(number), nnodes=shapes.get(f"of_{number}", number)) for number in nodes
    ]
    machine = write_machine(tmp_path / "data", runs, rows)
    assert invoke("import", machine, "--out", tmp_path / "results.h5").code == 0
    return tmp_path / "results.h5"


def ring_at(rows, **values):
    """Return the time of the only row of a ring with these values."""
    (found,) = (
        row
        for row in rows
        if row["algorithm"] == "ring" and all(row[key] == value for key, value in values.items())
    )
    return found


def test_the_file_of_a_fit_promises_what_the_fit_said_of_results_held_out(tmp_path):
    results = results_of(tmp_path, (4, 8, 32))
    file = tmp_path / "machine.yaml"
    fit = ("fit", results, "--max-nodes", "8")
    assert invoke(*fit, "--out", file).code == 0
    (model,) = json.loads(invoke(*fit, "--json").out)
    in_memory = {
        (row["algorithm"].partition(" ")[0], row["ranks"], row["bytes"]): row["predicted_s"]
        for row in model["rows"]
    }
    assert {ranks for _, ranks, _ in in_memory} == {4, 8, 32}
    against = invoke("predict", "--machine", file, "--against", results, "--json")
    promised = json.loads(against.out)
    assert len(promised) == len(in_memory)
    for held in promised:
        key = held["algorithm"], held["ranks"], held["bytes"]
        assert held["median_s"] == pytest.approx(in_memory[key], rel=1e-9)
    asked = ("--nodes", "32", "-a", "ring", "-d", "int32", "-b", "256K", "--json")
    (predicted,) = json.loads(invoke("predict", "--machine", file, *asked).out)
    assert predicted["median_s"] == pytest.approx(in_memory["ring", 32, 1 << 18], rel=1e-9)


def test_one_command_fits_results_and_predicts_several_collectives(tmp_path):
    results = results_of(tmp_path, (4, 8, 32))
    what = ("--nodes", "64", "-b", "64K", "-d", "int32", "-a", "ring", "--json")
    both = ("-c", "all_reduce,all_gather", *what)
    at_once = invoke("predict", "--fit", results, "--max-nodes", "8", *both)
    assert at_once.code == 0, at_once.err
    rows = json.loads(at_once.out)
    assert {(row["collective"], row["nodes"]) for row in rows} == {
        ("all_reduce", 64),
        ("all_gather", 64),
    }
    assert invoke("fit", results, "--max-nodes", "8", "--out", tmp_path / "m.json").code == 0
    assert json.loads(invoke("predict", "--machine", tmp_path / "m.json", *both).out) == rows
    refused = invoke("predict", "--fit", results, *both[:-1], "--out", tmp_path / "p.html")
    assert refused.is_bad_input("--out")


def test_reductions_of_a_type_that_was_not_measured_are_assumed_and_said(tmp_path):
    results = results_of(tmp_path, (4, 8))
    what = (
        "predict",
        "--fit",
        results,
        "--max-nodes",
        "8",
        "--nodes",
        "8",
        "-b",
        "64M",
        "-a",
        "ring",
    )
    (measured,) = json.loads(invoke(*what, "--json", "-d", "int32").out)
    (assumed,) = json.loads(invoke(*what, "--json", "-d", "float32").out)
    assert assumed["median_s"] == measured["median_s"]
    assert "assumed: reductions of float32 as fast as those of int32" in assumed["distance"]
    assert "assumed" not in measured["distance"]


def test_the_torus_of_a_fit_is_in_its_file(tmp_path):
    results = results_of(tmp_path, (8, 32), of_8="2x2x2", of_32="2x4x4")
    assert invoke("fit", results, "--max-nodes", "32", "--out", tmp_path / "m.json").code == 0
    machine = read_machine(tmp_path / "m.json", "--machine")
    assert machine.measured.tori == ["2x2x2", "2x4x4"]
    assert machine.torus.dimensions == 3
    what = ("predict", "--machine", tmp_path / "m.json", "--nodes", "64", "-a", "ring", "-b", "1M")
    (predicted,) = json.loads(invoke(*what, "--json").out)
    assert predicted["params"]["torus"] == "4x4x4"
    assert "assumed: a torus of 4x4x4 nodes" in invoke(*what).out
    assert "assumed: a torus" not in invoke(*what, "--torus", "2x4x8").out


def test_a_transport_that_no_result_has_is_refused(tmp_path):
    results = results_of(tmp_path, (4, 8))
    assert invoke("fit", results, "--transport", "mpi", "--max-nodes", "8").code == 0
    assert invoke("fit", results, "--transport", "utofu").is_bad_input("--transport", "mpi")


def test_the_library_of_a_fit_is_one_of_those_in_the_results(tmp_path):
    results = results_of(tmp_path, (4, 8))
    what = ("fit", results, "--max-nodes", "8", "--library")
    assert invoke(*what, "Open MPI").code == 0
    assert invoke(*what, "MPICH").is_bad_input("--library", "Open MPI 4.1.6")


@pytest.mark.parametrize("most_nodes", [-1, 0, 3])
def test_fewer_nodes_than_any_job_has_are_refused(most_nodes, tmp_path):
    fit = invoke("fit", results_of(tmp_path, (4, 8)), "--max-nodes", most_nodes)
    assert fit.is_bad_input("--max-nodes", f"{most_nodes} is not valid", "at least 4")


def test_results_of_our_own_have_no_library_to_choose(tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "own.h5")
    ended = invoke("fit", tmp_path / "own.h5", "--library", "MPICH")
    assert ended.is_bad_input("--library")
    assert "choose from" not in ended.err


HOSTS = ("a1.cluster", "a2.cluster", "a3.cluster", "a4.cluster", "b1", "b2", "b3", "b4")


def in_two_racks(tmp_path):
    """Return the directory of runs inside one rack and in two, whose results name hosts but no racks."""
    two_racks = Layout((0, 1), (0, 1)), Layout(tuple(range(8)), (0,) * 4 + (1,) * 4)
    runs = {
        stamp(2): files_of(two_racks[0], FAR, hosts=(HOSTS[0], HOSTS[-1])),
        stamp(4): files_of(Layout.of(4, 1), hosts=HOSTS[:4]),
        stamp(8): files_of(two_racks[1], FAR, hosts=HOSTS),
    }
    rows = [row(timestamp=stamp(nodes), nnodes=nodes) for nodes in (2, 4, 8)]
    return write_machine(tmp_path / "data", runs, rows)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{host.partition('.')[0]} rack-{host[0]}\n" for host in HOSTS),
        "SwitchName=left Level=0 LinkSpeed=1 Nodes=a[1-4]\nSwitchName=right Level=0 LinkSpeed=1 Nodes=b[1-4]\n",
    ],
    ids=["lines", "topology"],
)
def test_racks_of_hosts_from_a_file_are_tiers_of_a_fit(text, tmp_path):
    machine = in_two_racks(tmp_path)
    (tmp_path / "racks").write_text(text)
    imported = invoke(
        "import", machine, "--racks", tmp_path / "racks", "--out", tmp_path / "results.h5"
    )
    assert imported.code == 0, imported.err
    racks = {
        attempt.nodes: attempt.layout.rack
        for attempt, _ in read_raw(tmp_path / "results.h5").attempts
    }
    assert racks == {2: (0, 1), 4: (0,) * 4, 8: (0,) * 4 + (1,) * 4}
    fit = ("fit", tmp_path / "results.h5", "--max-nodes", "8", "--out", tmp_path / "m.json")
    assert invoke(*fit).code == 0
    fitted = read_machine(tmp_path / "m.json", "--machine")
    assert fitted.measured.nodes_per_rack == 4
    near, far = (
        fitted.machine().in_job(8).tiers[tier].of(1024).latency_s for tier in ("rack", "fabric")
    )
    assert far > 3 * near


def test_a_host_without_a_rack_is_refused(tmp_path):
    machine = in_two_racks(tmp_path)
    (tmp_path / "racks").write_text("a1 left\na2 left\n")
    refused = invoke(
        "import", machine, "--racks", tmp_path / "racks", "--out", tmp_path / "results.h5"
    )
    assert refused.is_bad_input("--racks", "a host with a rack in the file, which has 2")
    assert not (tmp_path / "results.h5").exists()


def test_launches_without_hosts_are_in_one_rack_and_said(tmp_path):
    runs = {stamp(4): files_of(Layout.of(4, 1))}
    machine = write_machine(tmp_path / "data", runs, [row(timestamp=stamp(4))])
    (tmp_path / "racks").write_text("a1 left\n")
    imported = invoke(
        "import", machine, "--racks", tmp_path / "racks", "--out", tmp_path / "results.h5"
    )
    assert (imported.code, "1 launch without names of hosts" in imported.err) == (0, True)
