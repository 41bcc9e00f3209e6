"""``hpccoll model``: of a real run, in words and as JSON."""

import json
import re
import shutil

import pytest
from cli_runner import invoke

RUNS = {
    "trips": ["-c", "send_recv", "-a", "ping_pong"],
    "sums": ["-c", "all_reduce", "-a", "ring,recursive_doubling,double_binary_tree,native"],
    "halves": ["-c", "reduce_scatter", "-a", "ring"],
    "gathers": ["-c", "all_gather", "-a", "ring"],
    "shared": ["-c", "all_reduce", "-a", "ring", "-t", "shm"],
}


@pytest.fixture(scope="module")
def measured(mpiexec, tmp_path_factory):
    """Small files of two ranks in one directory, one of them of a transport that has no ping-pong there."""
    directory = tmp_path_factory.mktemp("model")
    for name, words in RUNS.items():
        sizes = "-b", "64K", "-e", "1M", "-f", "4", "-n", "3", "-w", "1"
        ran = mpiexec(2, "-m", "hpccoll", "run", *words, *sizes, "--out", directory / f"{name}.h5")
        assert ran.returncode == 0, ran.stderr
    return directory


@pytest.mark.mpi
def test_measured_times_are_next_to_modelled_ones(measured):
    result = invoke("model", measured)
    assert result.code == 0
    assert re.search(r"inside a node: alpha \S+ \S+, beta \S+ ns a byte, from ping-pongs of \d sizes", result.out)
    folds = r"from \d pairs of cases|taken as 0: no pair of cases shows it"
    assert re.search(rf"a folded byte: gamma \S+ ns, ({folds})", result.out)
    table = result.out.partition("all_reduce of 2 ranks on 1 node,")[2].splitlines()[1:6]
    assert set(table[0].split()) == {"bytes", "ring", "recursive_doubling", "double_binary_tree"}
    assert [line.split()[0] for line in table[1:]] == ["65536", "262144", "1048576", "median"]
    assert "not modelled: native: the algorithm of the library is unknown" in result.out
    assert re.search(r"over shm: no send_recv of 3 sizes, not modelled\Z", result.out.strip())


@pytest.mark.mpi
def test_as_json_it_has_every_row_and_what_was_fitted(measured):
    run, shared = json.loads(invoke("model", measured, "--json").out)
    assert (shared["transport"], shared["links"], len(shared["rows"])) == ("shm", {}, 2 * 3)
    assert {row["reason"] for row in shared["rows"]} == {
        "the run has no ping-pong inside a node (a sweep's 'pairs: all' has all there are)"
    }
    assert sorted(run["files"]) == sorted(str(measured / f"{name}.h5") for name in RUNS)
    link = run["links"]["inside a node"]
    assert link["sizes"] == 3
    assert run["transport"] == "mpi"
    rows = {(row["collective"], row["algorithm"], row["bytes"]): row for row in run["rows"]}
    assert (
        len([row for row in run["rows"] if row["algorithm"] == "ring"]) == 3 * 2 * 3
    )  # files, placements, sizes; none of shm
    ring = rows["all_reduce", "ring", 1 << 20]
    cost = ring["rounds"] * link["alpha_s"] + (1 << 20) * (
        ring["sent"] * link["beta_s"] + ring["reduced"] * (run["gamma_s"] or 0)
    )
    assert (ring["kind"], ring["reason"]) == ("modelled", None)
    assert (ring["dtype"], ring["op"], ring["mapping"], ring["racks"]) == ("float32", "sum", None, 1)
    assert {row["in_place"] for row in run["rows"] if row["algorithm"] == "ring"} == {False, True}
    assert ring["modelled_s"] == pytest.approx(cost)
    assert rows["all_reduce", "native", 1 << 20]["modelled_s"] is None


@pytest.mark.mpi
def test_a_run_without_ping_pongs_cannot_be_fitted(measured, tmp_path):
    shutil.copy(measured / "sums.h5", tmp_path)
    assert invoke("model", tmp_path).is_bad_input("path", "send_recv", "model.yaml")
