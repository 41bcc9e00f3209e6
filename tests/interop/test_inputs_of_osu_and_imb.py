"""Outputs of OSU and IMB as people have them, each imported by the command, with the results that it has."""

from pathlib import Path

import pytest
from cli_runner import invoke
from imported_outputs import import_files

from hpccoll.store.load_results import read_results

INPUTS = Path(__file__).parents[1] / "inputs"
MiB = 1 << 20
CHAR, FLOAT = "int8", "float32"

RESULTS = {
    "osu-allreduce-openmpi4.txt": ("all_reduce", CHAR, [(4, 4.1), (1024, 9), (65536, 60), (MiB, 700)]),
    "osu-allreduce-openmpi5.txt": ("all_reduce", CHAR, [(4, 8.3), (1024, 18), (65536, 118), (MiB, 905)]),
    "osu-allreduce-tail.txt": ("all_reduce", CHAR, [(1, 7.92), (1024, 11.7)]),
    "osu-alltoall-cuda-full.txt": (
        "all_to_all", CHAR, [(8, 5.1), (16, 5), (8192, 9.4), (8 * 65536, 88.8)],
    ),
    "osu-barrier-full.txt": ("barrier", FLOAT, [(1, 50.21)]),
    "osu-bibw-openib-lines.txt": ("bidirectional", CHAR, [(1, 0.8), (1024, 1.0777), (65536, 6.3012)]),
    "osu-iallgather.txt": ("all_gather", CHAR, [(8, 159.9)]),
    "osu-latency-cuda-openmpi-warning.txt": ("send_recv", CHAR, [(1, 20.4), (1024, 25.8)]),
    "osu-reduce-header-lacks-columns.txt": ("reduce", CHAR, [(1, 5.1), (2, 5), (1024, 9.4), (65536, 88.8)]),
    "osu-srun-label.txt": ("all_reduce", CHAR, [(1, 5.1), (2, 5), (1024, 9.4), (65536, 88.8)]),
    "osu-validation.txt": ("all_reduce", FLOAT, [(4, 5.1), (1024, 9.4)]),
    "imb-2018-intel-blank-r.txt": ("reduce_scatter", FLOAT, [(1024, 4.2), (MiB, 310)]),
    "imb-2018-update-1.txt": ("reduce_scatter", FLOAT, [(1024, 4.2)]),
    "imb-2019-update-6.txt": ("reduce_scatter", FLOAT, [(4096, 4.2)]),
    "imb-defects.txt": ("all_reduce", FLOAT, [(4, 2.3), (1024, 4.3)]),
    "imb-sendrecv-exchange.txt": ("send_recv", CHAR, [(1024, 5)]),
}  # fmt: skip
"""The collective, the type, and S with the median in microseconds."""

PROGRAMS = {
    "osu-barrier-full.txt": "OSU Micro-Benchmarks 5.3.2", "osu-srun-label.txt": "OSU Micro-Benchmarks 7.4",
    "imb-2018-intel-blank-r.txt": "Intel MPI Benchmarks 2018",
    "imb-2018-update-1.txt": "Intel MPI Benchmarks 2018 Update 1",
    "imb-2019-update-6.txt": "Intel MPI Benchmarks 2019 Update 6", "imb-defects.txt": "Intel MPI Benchmarks 2021.7",
}  # fmt: skip
WRONG = {"osu-validation.txt": [1024], "imb-defects.txt": [1024]}
REFUSED = {
    "osu-rocm.txt": ("MPI-ROCM", "CUDA memory"),
    "imb-singletons.txt": ("IMB", "no result", "PingPong is invalid for 1 process"),
}


def import_input(name, out):
    return import_files(out, INPUTS / name, ranks=8 if name.startswith("osu") else None)


def test_every_input_is_checked():
    names = {path.name for kind in ("osu", "imb") for path in INPUTS.glob(f"{kind}-*")}
    assert names == {*RESULTS, *REFUSED}


@pytest.mark.parametrize("name", RESULTS)
def test_an_output_has_the_results_that_it_prints(name, tmp_path):
    out = tmp_path / "out.h5"
    ended = import_input(name, out)
    assert ended.code == 0, ended.err
    assert PROGRAMS.get(name, "") in ended.out
    collective, dtype, expected = RESULTS[name]
    rows = read_results([out]).rows
    assert {(row.collective, row.dtype) for row in rows} == {(collective, dtype)}
    assert {(row.ranks, row.nodes) for row in rows} == {
        (2 if collective in ("send_recv", "bidirectional") else 8 if name.startswith("osu") else 4, 2)
    }
    found = {row.requested_bytes: row.median_s * 1e6 for row in rows}
    assert found == pytest.approx(dict(expected), rel=0.001)
    assert [row.requested_bytes for row in rows if row.status == "wrong"] == WRONG.get(name, [])
    assert {row.device for row in rows} == {"cuda" if "cuda" in name or "reduce-h" in name else "cpu"}


@pytest.mark.parametrize("name", REFUSED)
def test_an_output_without_a_result_of_ours_is_refused_with_the_reason(name, tmp_path):
    assert import_input(name, tmp_path / "out.h5").is_bad_input(*REFUSED[name])


def test_two_runs_in_one_output_are_rounds(tmp_path):
    import_input("osu-iallgather.txt", tmp_path / "out.h5")
    assert [row.rounds for row in read_results([tmp_path / "out.h5"]).rows] == [2]


@pytest.mark.parametrize(
    ("name", "words", "count"),
    [
        ("osu-latency-cuda-openmpi-warning.txt", "is not part of a table", 3),
        ("osu-bibw-openib-lines.txt", "is not part of a table", 3), ("imb-sendrecv-exchange.txt", "is left out", 2),
    ],
)  # fmt: skip
def test_what_is_no_result_becomes_notes(name, words, count, tmp_path):
    assert import_input(name, tmp_path / "out.h5").err.count(words) >= count


def test_one_round_each_of_two_libraries_cannot_decide(tmp_path):
    outs = [tmp_path / f"{version}.h5" for version in ("4", "5")]
    for out in outs:
        assert import_input(f"osu-allreduce-openmpi{out.stem}.txt", out).code == 0
    assert "measure at least two" in invoke("compare", *outs).out
