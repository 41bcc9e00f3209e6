"""``hpccoll import`` of PICO's results: archives and directories of runs, with their metadata and allocations."""

import json
import os
import re
import tarfile
from pathlib import Path

import pytest
from cli_runner import invoke
from imported_outputs import OUTPUTS
from pico_archives import TIMESTAMP, allocation, row, times, write_machine

import hpccoll
from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.interop.pico_algorithms import COLLECTIVES, PicoName, algorithm_table, pico_algorithms
from hpccoll.render.answers import Answers
from hpccoll.schedule.collective import NATIVE, check_parameters
from hpccoll.store.load_results import read_results
from hpccoll.store.result_files import read_raw

HOSTS = ("n1", "n2", "n3", "n4")
FILES = {
    "0/1024_ring_over_int32.csv": times(5000, 4000, 4500),
    "0/1024_default_ompi_int32.csv": times(3000),
    "alloc.csv": allocation(HOSTS),
}


def imported(tmp_path, *paths, code=0):
    out = tmp_path / "pico.h5"
    ended = invoke("import", *paths, "--out", out)
    assert ended.code == code, ended.err
    return ended, read_results([out]) if code == 0 else None


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("given", ["root", "machine", "run"])
def test_a_run_is_read_as_it_lies(tmp_path, packed, given):
    machine = write_machine(tmp_path / "data", {TIMESTAMP: FILES}, [row()], packed=packed)
    (run,) = machine.iterdir()
    path = {"root": tmp_path / "data", "machine": machine, "run": run}[given]
    _, results = imported(tmp_path, path)
    rows = {row.algorithm: row for row in results.rows}
    assert rows.keys() == {"ring", NATIVE}
    ring = rows["ring"]
    assert (ring.bytes, ring.dtype, ring.op, ring.in_place) == (4096, "int32", "sum", False)
    assert (ring.ranks, ring.nodes, ring.ranks_per_node, ring.iterations) == (4, 4, 1, 3)
    assert ring.median_s == 4.5e-6
    assert (ring.kind, ring.source, ring.executed) == ("imported", "pico", "unknown")
    assert ring.params == {"implementation": "ring_over"}
    assert not rows[NATIVE].params
    (run,) = results.runs
    assert run.hosts == HOSTS
    assert (run.provenance["machine"], run.provenance["library"]) == ("leonardo", "Open MPI 4.1.6")


def test_every_iteration_and_no_other_time_is_kept(tmp_path):
    machine = write_machine(tmp_path / "data", {TIMESTAMP: FILES}, [row()])
    imported(tmp_path, machine)
    (ring,) = (
        history.outcome
        for history in read_raw(tmp_path / "pico.h5").histories()
        if history.outcome.case.algorithm == "ring"
    )
    assert ring.times.max_ns.tolist() == [5000, 4000, 4500]
    assert not ring.times.min_ns.size
    assert not ring.times.start_ns.size
    dataset = hpccoll.open(tmp_path / "pico.h5").times(per_rank=True)
    assert dataset.sizes["rank"] == 0
    assert dataset.max_ns.max() == 5000


def test_times_of_all_ranks_are_kept(tmp_path):
    text = "highest,rank0,rank1\n30,30,20\n25,10,25\n"
    files = {"0/1024_ring_over_int32.csv": text}
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, [row(nnodes=2)])
    imported(tmp_path, machine)
    (history,) = read_raw(tmp_path / "pico.h5").histories()
    assert history.outcome.times.end_ns.tolist() == [[30, 20], [10, 25]]
    assert history.outcome.times.slowest_rank.tolist() == [0, 1]


def test_the_allocation_wins_over_the_metadata(tmp_path):
    hosts = [host for host in HOSTS for _ in range(2)]
    files = FILES | {"alloc.csv": allocation(hosts)}
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, [row()])
    _, results = imported(tmp_path, machine)
    assert {(row.ranks, row.nodes, row.ranks_per_node) for row in results.rows} == {(8, 4, 2)}


def test_tests_on_the_nodes_of_an_allocation_of_another_number_of_ranks_have_its_hosts(tmp_path):
    hosts = [host for host in HOSTS for _ in range(2)]
    files = {
        "0/1024_ring_over_int32.csv": times(5000),
        "1/1024_ring_over_int32.csv": times(5000),
        "alloc.csv": allocation(hosts),
    }
    rows = [row(tasks_per_node=2), row(test=1)]
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, rows)
    _, results = imported(tmp_path, machine)
    assert {row.ranks for row in results.rows} == {4, 8}
    assert {run.hosts for run in results.runs} == {HOSTS}


def test_cabinets_of_hosts_are_racks_and_shapes_of_a_torus_are_nodes(tmp_path):
    files = {"0/1024_ring_over_int32.csv": times(5000)}
    places = allocation(["n1,x1c0s6b0n0", "n2,x1c0s6b1n0", "n3,x2c0s6b0n0", "n4,x2c3s6b0n0"])
    lumi = write_machine(
        tmp_path / "data", {TIMESTAMP: files | {"alloc_4.csv": places}}, [row()], machine="lumi"
    )
    other = TIMESTAMP.replace("2025", "2024")
    fugaku = write_machine(
        tmp_path / "data",
        {other: files},
        [row(nnodes="2x2x2", mpi_lib="FJMPI", timestamp=other)],
        machine="fugaku",
    )
    _, results = imported(tmp_path, lumi, fugaku)
    assert {(row.nodes, row.racks) for row in results.rows} == {(4, 2), (8, 1)}
    assert {run.provenance.get("torus") for run in results.runs} == {None, "2x2x2"}
    assert {run.machine for run in results.runs} == {
        "lumi, Open MPI 4.1.6",
        "fugaku, Fujitsu MPI 4.0.1".replace("4.0.1", "4.1.6"),
    }


def test_lines_and_answers_of_two_machines_with_as_many_nodes_name_their_machine(tmp_path):
    files = {
        "0/1024_ring_over_int32.csv": times(5000),
        "0/1024_default_ompi_int32.csv": times(3000),
    }
    machines = [
        write_machine(tmp_path / name, {TIMESTAMP: files}, [row()], machine=name)
        for name in ("lumi", "leonardo")
    ]
    _, results = imported(tmp_path, *machines)
    recommendations = recommend(results)
    (group,) = chart_groups(results, recommendations)
    assert {point.series for point in group.imports} == {
        f"{name} ({machine})" for name in ("ring_over", NATIVE) for machine in ("lumi", "leonardo")
    }
    shown, folded = Answers(recommendations).split("all_reduce")
    assert {answer.where for answer in (*shown, *folded)} == {
        "4 nodes, lumi, Open MPI 4.1.6",
        "4 nodes, leonardo, Open MPI 4.1.6",
    }


def test_the_same_case_of_two_runs_stays_two_results(tmp_path):
    other = TIMESTAMP.replace("2025", "2024")
    runs = {
        TIMESTAMP: {"0/1024_ring_over_int32.csv": times(5000)},
        other: {"0/1024_ring_over_int32.csv": times(9000)},
    }
    machine = write_machine(tmp_path / "data", runs, [row(), row(timestamp=other)])
    _, results = imported(tmp_path, machine)
    assert sorted(row.median_s for row in results.rows) == [5e-6, 9e-6]
    assert results.done[0] == results.planned == 2


def test_segments_ports_and_notes_are_parameters(tmp_path):
    files = {
        "0/1048576_bine_bdw_remap_segmented_over_16384_int32.csv": times(5000),
        "0/1048576_BINE-B_CONT-UTOFU-4096-6_int32.csv": times(5000) + "Average runtime: 0.000005\n",
    }
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, [row(notes="a note")])
    _, results = imported(tmp_path, machine)
    found = {(row.algorithm, row.transport, *sorted(row.params.items())) for row in results.rows}
    on_torus = {
        "addresses": "peers",
        "copied": "nothing",
        "gather": "bine",
        "implementation": "BINE-B_CONT",
        "peers": "torus",
        "ports": 6,
        "scatter": "bine",
        "segment": 4096,
    }
    assert ("reduce_scatter_all_gather", "utofu", *on_torus.items()) in found
    assert any("segment" in dict(params) for _, _, *params in found)
    raw = read_raw(tmp_path / "pico.h5")
    assert {history.outcome.params["notes"] for history in raw.histories()} == {"a note"}


def test_an_algorithm_has_the_name_of_ours_only_where_it_takes_the_same_steps(tmp_path):
    files = {
        "0/1024_recursive_doubling_over_int32.csv": times(5000),
        "0/4_ring_over_int32.csv": times(5000),
        "1/1024_recursive_doubling_over_int32.csv": times(5000),
        "1/4_ring_over_int32.csv": times(5000),
    }
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, [row(), row(test=1, nnodes=6)])
    _, results = imported(tmp_path, machine)
    assert {(row.ranks, row.algorithm) for row in results.rows} == {
        (4, "recursive_doubling"),
        (4, "ring"),
        (6, "recursive_doubling_over"),
        (6, "ring_over"),
    }


def test_rings_along_a_torus_have_its_lengths_as_parameters(tmp_path):
    files = {f"{test}/1024_RING-B_CONT-UTOFU-0-6_int32.csv": times(5000) for test in range(5)}
    shapes = ("2x3x4", "4x8", "2x2x2x2", "8")
    rows = [row(test=test, nnodes=shape) for test, shape in enumerate(shapes)]
    rows.append(row(test=4, nnodes="3x3", tasks_per_node=2))
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, rows, machine="fugaku")
    _, results = imported(tmp_path, machine)
    found = {
        (row.ranks, row.algorithm, row.params.get("planes"), row.params.get("rows"))
        for row in results.rows
    }
    assert found == {
        (24, "bucket", 2, 3),
        (32, "bucket", 1, 4),
        (16, "RING-B_CONT", None, None),
        (8, "RING-B_CONT", None, None),
        (18, "RING-B_CONT", None, None),
    }


def test_a_segment_that_has_no_effect_and_ports_in_turn_are_parameters_of_ours(tmp_path):
    files = {
        "0/1048576_BINE-L-UTOFU-4096-6_int32.csv": times(5000),
        "1/1048576_BINE-BINOMIAL_TREE-UTOFU-0-6_int32.csv": times(5000),
    }
    rows = [row(), row(test=1, collective_type="REDUCE")]
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, rows)
    _, results = imported(tmp_path, machine)
    found = {(row.collective, row.algorithm): row.params for row in results.rows}
    exchanged = found["all_reduce", "bine"]
    assert (exchanged["implementation"], exchanged["first"]) == ("BINE-L-4096", "near")
    assert "segment" not in exchanged
    assert found["reduce", "bine"]["port_use"] == "in turn"


def test_what_is_not_imported_is_listed_with_its_reason(tmp_path):
    files = FILES | {
        "aggregated_results_summary.csv": "collective_type\n",
        "0/notes.txt": "",
        "0/2_ring_over_int32.csv": "highest\n",
        "0/1_ring_over_int32.csv": times(0),
        "1/1024_ring_over_int32.csv": times(10),
        "2/1_ring_over_int32.csv": times(10),
        "3/1024_ring_over_int32.csv": "mean\n3\n",
        "4/1024_ring_over_int32.csv": "highest\n300\n4",
    }
    rows = [
        row(),
        row(test=2, collective_type="ALLGATHER"),
        row(test=3),
        row(test=4, collective_type="REDUCE_SCATTER"),
    ]
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, rows)
    ended, results = imported(tmp_path, machine)
    assert len(results.rows) == 3
    assert len(re.findall("left out: 1 file:", ended.err)) == 8


def test_a_damaged_archive_a_cut_file_and_missing_metadata_end_in_one_line(tmp_path):
    machine = write_machine(tmp_path / "data", {TIMESTAMP: FILES}, [row()])
    (archive,) = machine.iterdir()
    whole = archive.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:40] + b"xx" + whole[42:], b"text"):
        archive.write_bytes(damaged)
        ended, _ = imported(tmp_path, machine, code=2)
        assert ended.err.count("\n") == 1
        assert archive.name in ended.err
    archive.write_bytes(whole)
    (tmp_path / "data" / "leonardo_metadata.csv").unlink()
    ended, _ = imported(tmp_path, archive, code=2)
    assert "_metadata.csv" in ended.err
    nothing = tmp_path / "nothing.tar.gz"
    with tarfile.open(nothing, "w:gz"):
        pass
    imported(tmp_path, nothing, code=2)


@pytest.mark.parametrize("text", ["highest\nfast\n", "highest\n1.5\n", "highest,rank0\n3\n"])
def test_a_file_with_something_else_than_times_is_named(tmp_path, text):
    files = {"0/1024_ring_over_int32.csv": text}
    machine = write_machine(tmp_path / "data", {TIMESTAMP: files}, [row()])
    ended, _ = imported(tmp_path, machine, code=2)
    assert "1024_ring_over_int32.csv" in ended.err


def test_a_directory_of_outputs_is_one_import(tmp_path):
    for name in ("nccl_all_reduce.txt", "imb_defects.txt", "nccl_all_gather.json"):
        source = OUTPUTS / name
        if source.exists():
            (tmp_path / name).write_text(source.read_text())
    (tmp_path / "other.txt").write_text("nothing that a benchmark prints\n")
    ended, results = imported(tmp_path, tmp_path)
    assert {row.collective for row in results.rows} >= {"all_reduce", "all_gather"}
    assert "left out: 1 file" in ended.err


def test_a_directory_without_results_is_refused(tmp_path):
    (tmp_path / "other.txt").write_text("nothing that a benchmark prints\n")
    imported(tmp_path, tmp_path, code=2)


def test_a_table_of_small_runs_is_judged_by_large_ones_beside_the_library(tmp_path):
    later = TIMESTAMP.replace("2025", "2026")
    small = {
        "0/1024_neighbor_ompi_int32.csv": times(*[4000] * 6),
        "0/1024_default_ompi_int32.csv": times(*[5000] * 6),
    }
    large = {
        "0/1024_neighbor_ompi_int32.csv": times(*[6000] * 6),
        "0/1024_ring_over_int32.csv": times(*[5000] * 6),
        "0/1024_default_ompi_int32.csv": times(*[10000] * 6),
    }
    gathers = {"collective_type": "ALLGATHER", "MPI_Op": "null"}
    rows = [row(**gathers), row(timestamp=later, nnodes=16, **gathers)]
    machine = write_machine(tmp_path / "data", {TIMESTAMP: small, later: large}, rows)
    for name, timestamp in (("small.h5", TIMESTAMP), ("large.h5", later)):
        archive = machine / f"{timestamp}.tar.gz"
        assert invoke("import", archive, "--out", tmp_path / name).code == 0
    made = invoke("tune", tmp_path / "small.h5", "--out", tmp_path / "table.json")
    assert made.code == 0, made.err
    judged = invoke("tune", "--judge", tmp_path / "table.json", tmp_path / "large.h5", "--json")
    assert judged.code == 0, judged.err
    (setting,) = json.loads(judged.out)["settings"]
    (size,) = setting["sizes"]
    assert (size["choice"], size["chosen_for_nodes"]) == ("neighbor_ompi", 4)
    assert (size["regret"], size["default_regret"]) == (1.2, 2.0)


@pytest.mark.parametrize("collective", COLLECTIVES.values())
def test_algorithms_of_the_table_have_one_of_ours_or_the_reason_and_a_source(collective):
    sources = algorithm_table()["sources"]
    row = hpccoll.schedule.collective_table.COLLECTIVES[collective]
    ours = {*row.algorithms, NATIVE}
    for name, algorithm in pico_algorithms(collective).items():
        assert bool(algorithm.ours) != bool(algorithm.why), name
        assert not algorithm.ours or algorithm.ours in ours, name
        assert algorithm.ours or not algorithm.differences, name
        if algorithm.ours not in ("", NATIVE):
            check_parameters(row.algorithm(algorithm.ours), algorithm.our_params((2, 2, 2)))
        assert algorithm.source.partition(":")[0] in sources, name


@pytest.mark.skipif("HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory")
def test_the_table_has_every_name_of_the_public_results():
    for table in (Path(os.environ["HPCCOLL_DATA"]) / "pico").glob("*_metadata.csv"):
        header, *lines = table.read_text().splitlines()
        rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        called = {(row["timestamp"], row["test_id"]): row["collective_type"] for row in rows}
        for archive in (table.parent / table.name.removesuffix("_metadata.csv")).iterdir():
            with tarfile.open(archive) as opened:
                for path in map(Path, opened.getnames()):
                    match = re.fullmatch(r"\d+_(.+)_[a-z]+\d+\.csv", path.name)
                    if match:
                        collective = called[path.parts[0], path.parts[1]]
                        name = PicoName.parse(match[1]).name
                        assert name in pico_algorithms(COLLECTIVES[collective]), path
