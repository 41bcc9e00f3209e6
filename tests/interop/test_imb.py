"""Outputs of the Intel MPI Benchmarks: a section for each number of processes, which are the first ranks."""

import pytest
from imported_outputs import OUTPUTS, import_files, read_example, summary_of

from hpccoll.errors import BadInputError
from hpccoll.interop.benchmark_output import BenchmarkOutput, SuppliedMetadata
from hpccoll.interop.imb import read_imb

SCATTER = "reduce_scatter", "native", "MPI_Reduce_scatter", "float32", "sum", False
RESULTS = {
    "imb_mpi1.txt": [
        ("send_recv", "ping_pong", None, "int8", None, False, 1024, 2, 1, 5.0),
        ("all_reduce", "native", None, "float32", "sum", False, 1024, 2, 1, 3.2),
        ("all_reduce", "native", None, "float32", "sum", False, 1024, 4, 2, 5.2),
        (*SCATTER, 1024, 4, 2, 4.25),  # 256 bytes are a rank's block
        ("barrier", "native", None, "float32", None, False, 1, 4, 2, 2.2),
    ],
    "imb_2018_reduce_scatter.txt": [(*SCATTER, 1024, 4, 2, 4.25)],  # in 2018 they are the vector
    "imb_nbc.txt": [("all_reduce", "native", "MPI_Iallreduce", "float32", "sum", False, 1024, 4, 2, 6.5)],
}
TEXT = (OUTPUTS / "imb_mpi1.txt").read_text()
ROW = "         1024         1000         5.10         5.30         5.20\n"


def read(tmp_path, text, **given):
    path = tmp_path / "imb.txt"
    path.write_text(text)
    return read_imb(path, text.splitlines(keepends=True), SuppliedMetadata(**{"nodes": 2, **given}))


@pytest.mark.parametrize("name", RESULTS)
def test_each_line_is_a_result_of_the_processes_of_its_section(name):
    output = read_example(name)
    assert [summary_of(result) for result in output.results] == RESULTS[name]
    assert {(result.case.transport, result.case.device, result.case.timing) for result in output.results} == {
        ("mpi", "cpu", "mean")
    }
    assert (output.source, output.ranks, output.truncated) == ("imb", 4, False)


def test_every_example_is_checked():
    assert {path.name for path in OUTPUTS.glob("imb_*")} == set(RESULTS)


def test_a_line_is_kept_as_it_was_printed():
    reported = read_example("imb_mpi1.txt").results[2].reported
    assert (reported["t_min[usec]"], reported["t_max[usec]"]) == ("5.10", "5.30")


def test_what_ours_has_not_and_sizes_that_were_not_measured_become_remarks():
    assert len(read_example("imb_mpi1.txt").remarks) == 2


def test_a_benchmark_that_ours_has_not_may_have_any_columns():
    assert len(read_example("imb_2018_reduce_scatter.txt").remarks) == 1


def test_the_pure_form_of_a_non_blocking_benchmark_is_a_case_of_its_own(tmp_path):
    section = (
        "# Benchmarking Iallreduce_pure \n# #processes = 4 \n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "         1024         1000         5.10         5.30         5.20\n"
    )
    text = (OUTPUTS / "imb_nbc.txt").read_text().replace("# All processes", f"{section}\n# All processes")
    output = read(tmp_path, text)
    assert [round(result.seconds * 1e6, 6) for result in output.results] == [6.5, 5.2]
    assert len({result.case.id for result in output.results}) == 2


@pytest.mark.parametrize(("processes", "nodes"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 4)])
def test_uneven_ranks_are_counted_on_the_nodes_that_they_fill_first(processes, nodes):
    output = BenchmarkOutput(source="imb", program="IMB", ranks=6, nodes=4)  # 2, 2, 1 and 1
    assert output.nodes_of(processes) == nodes


def test_groups_that_run_at_once_are_left_out(tmp_path):
    section = (
        "# Benchmarking Multi-Allreduce \n# ( 2 groups of 2 processes each running simultaneous ) \n"
        "       Group      #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "           0         1024         1000         5.10         5.30         5.20\n"
    )
    output = read(tmp_path, TEXT.replace("# All processes", f"{section}\n# All processes"))
    assert len(output.results) == len(RESULTS["imb_mpi1.txt"])
    assert len(output.remarks) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("t_avg[usec]", "t_avg[msec]"), lambda text: text.replace("#bytes ", "#Kbytes "),
        lambda text: text.replace("5.20\n", "nan\n"), lambda text: text.replace("5.20\n", "1e300\n"),
        lambda text: text.replace("        5.20\n", "\n"), lambda text: text[: text.index(ROW) + len(ROW) - 3],
        lambda text: text[: text.index(ROW) + len(ROW) - 1], lambda text: text.replace(ROW, f"{10**16}{ROW[13:]}"),
        lambda text: text.replace("MPI-1 part", "MPI-1 part (GPU)"),
        lambda text: text.replace("# #processes = 4 \n", ""),
        lambda text: text.replace("#processes = 4", "#processes = 400000000"),
    ],
)  # fmt: skip
def test_what_could_be_misread_is_refused_with_its_line(change, tmp_path):
    text = change(TEXT)
    assert text != TEXT
    with pytest.raises(BadInputError, match=r"line [0-9]+"):
        read(tmp_path, text)


def test_nodes_must_be_given_and_ranks_must_be_those_of_the_output(tmp_path):
    out = tmp_path / "imb.h5"
    assert import_files(out, OUTPUTS / "imb_nbc.txt", nodes=None).is_bad_input("--nodes")
    assert import_files(out, OUTPUTS / "imb_nbc.txt", ranks=8).is_bad_input("--ranks", 8, 4)
    assert import_files(out, OUTPUTS / "imb_nbc.txt", nodes=5).is_bad_input("--nodes", 5, 4)
    assert not out.exists()
    assert import_files(out, OUTPUTS / "imb_nbc.txt", ranks=4).code == 0
