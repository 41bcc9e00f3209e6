"""Outputs of the Intel MPI Benchmarks: a section for each number of processes, which are the first ranks."""

import re

import pytest
from imported_outputs import OUTPUTS, import_files, read, refused

from hpccoll.interop.benchmark_output import BenchmarkOutput
from hpccoll.interop.import_results import notes

TEXT = (OUTPUTS / "imb_mpi1.txt").read_text()
ROW = "         1024         1000         5.10         5.30         5.20\n"
NODES = {"nodes": 2}


def section(name="Reduce_scatter", processes=4):
    return (
        f"# Benchmarking {name} \n# #processes = {processes} \n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "         1024         1000         4.10         4.30         4.25\n"
    )


def program(version):
    return f"#    Intel{version} part    \n"


MPI1, ALLREDUCE = program("(R) MPI Benchmarks 2021.7, MPI-1"), section("Allreduce")


def test_the_pure_form_of_a_non_blocking_benchmark_is_a_case_of_its_own(tmp_path):
    text = (OUTPUTS / "imb_nbc.txt").read_text()
    output = read(
        tmp_path,
        text.replace("# All processes", f"{section('Iallreduce_pure')}\n# All processes"),
        **NODES,
    )
    assert [round(result.seconds * 1e6, 6) for result in output.results] == [6.5, 4.25]
    assert len({result.case.id for result in output.results}) == 2


@pytest.mark.parametrize(("processes", "nodes"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 4)])
def test_uneven_ranks_are_counted_on_the_nodes_that_they_fill_first(processes, nodes):
    output = BenchmarkOutput(source="imb", program="IMB", ranks=6, nodes=4)  # 2, 2, 1 and 1
    assert output.nodes_of(processes) == nodes


def test_groups_that_run_at_once_are_left_out(tmp_path):
    groups = section("Multi-Allreduce").replace(
        "# #processes = 4", "# ( 2 groups of 2 processes running simultaneous )"
    )
    output = read(tmp_path, TEXT.replace("# All processes", f"{groups}\n# All processes"), **NODES)
    assert (len(output.results), len(output.remarks)) == (5, 3)


def test_the_note_on_sizes_that_are_too_small_names_their_collective_alone(tmp_path):
    of_vector = (OUTPUTS / "imb_2018_reduce_scatter.txt").read_text()
    text = of_vector.replace("            0 ", "            8 ", 1)
    small = section("Allreduce").replace(" 1024 ", "    4 ")
    output = read(tmp_path, text.replace("# All processes", f"{small}\n# All processes"), **NODES)
    assert {each.case.collective for each in output.results} >= {"all_reduce", "reduce_scatter"}
    [note] = [each for each in notes(tmp_path, output) if "element" in each]
    assert ("reduce_scatter" in note, "all_reduce" in note) == (True, False)


def replaced(text, pattern, new):
    changed, count = re.subn(pattern, new, text)
    assert count, pattern
    return changed


@pytest.mark.parametrize(
    "change",
    [
        (r"t_avg\[usec\]", "t_avg[msec]"),
        ("#bytes ", "#Kbytes "),
        ("5.20\n", "nan\n"),
        ("5.20\n", "1e300\n"),
        ("        5.20\n", "\n"),
        (ROW, f"{10**16}{ROW[13:]}"),
        ("MPI-1 part", "MPI-1 part (GPU)"),
        ("# #processes = 4 \n", ""),
        ("#processes = 4", "#processes = 400000000"),
    ],
)
def test_what_could_be_misread_is_refused_with_its_line(change, tmp_path):
    assert re.search(r"line \d", refused(tmp_path, replaced(TEXT, *change), **NODES))


@pytest.mark.parametrize("missing", [1, 3])
def test_a_row_within_which_the_output_ends_is_left_out_and_the_output_is_cut(missing, tmp_path):
    output = read(tmp_path, MPI1 + ALLREDUCE.replace(" 1024 ", "  512 ") + ROW[:-missing], **NODES)
    assert [result.case.bytes for result in output.results] == [512]
    assert (output.truncated, "ends within" in output.remarks[-1]) == (True, True)


def test_nodes_must_be_given_and_ranks_must_be_those_of_the_output(tmp_path):
    out, path = tmp_path / "imb.h5", OUTPUTS / "imb_nbc.txt"
    assert import_files(out, path, nodes=None).is_bad_input("--nodes")
    assert import_files(out, path, ranks=8).is_bad_input("--ranks", 8, 4)
    assert import_files(out, path, nodes=5).is_bad_input("--nodes", 5, 4)
    assert not out.exists()
    assert import_files(out, path, ranks=4).code == 0


@pytest.mark.parametrize(
    ("line", "size"), [(" (R) MPI Benchmarks 2018", 1024), ("(R) MPI Benchmarks 2018", 4096)]
)
def test_a_later_source_built_as_2018_counts_the_block_of_the_non_blocking_form(
    line, size, tmp_path
):
    text = program(f"{line}, MPI-NBC") + section("Ireduce_scatter_pure")
    assert [result.case.bytes for result in read(tmp_path, text, **NODES).results] == [size]


def test_without_a_version_reduce_scatter_is_left_out_with_the_reason(tmp_path):
    output = read(tmp_path, section() + ALLREDUCE, **NODES)
    assert [result.case.collective for result in output.results] == ["all_reduce"]
    assert (len(output.remarks), "version" in output.remarks[0]) == (1, True)


def test_the_types_are_those_that_the_output_names(tmp_path):
    types = "# MPI_Datatype                   :   MPI_INT \n# MPI_Datatype for reductions    :   MPI_DOUBLE \n"
    output = read(tmp_path, types + ALLREDUCE + section("Bcast"), **NODES)
    assert [result.case.dtype for result in output.results] == ["float64", "int32"]


@pytest.mark.parametrize("part", ["IMB-P2P", "MPI-RMA", "MT"])
def test_benchmarks_of_other_parts_are_named_and_left_out(part, tmp_path):
    text = program(f"(R) MPI Benchmarks 2021.7, {part}") + section("PingPong")
    assert f"PingPong of the part {part} is left out" in refused(tmp_path, text, **NODES)


@pytest.mark.parametrize(
    "why", ["out-of-mem.; needed X=   9.000 GB", "int-overflow; The", "time-out.; T"]
)
def test_a_size_that_was_not_measured_becomes_a_remark(why, tmp_path):
    output = read(tmp_path, f"{ALLREDUCE}   2147483648  {why}\n", **NODES)
    assert (len(output.results), len(output.remarks)) == (1, 1)


def test_what_a_build_that_checks_prints_of_a_defect_is_no_line_of_the_table(tmp_path):
    defect = "0: Error Allreduce, size = 2048, sample #0\nProcess 0: Got invalid buffer:\nBuffer entry: 8.1\npos: 0\n"
    row = "         2048         1000         4.10         4.30         4.25\n"
    output = read(tmp_path, f"{ALLREDUCE}{defect}{row}", **NODES)
    assert (len(output.results), len(output.remarks)) == (2, 4)


def test_several_runs_are_rounds_unless_each_had_one_process_or_they_had_unlike_numbers_of_them(
    tmp_path,
):
    single = MPI1 + section("Allreduce", processes=1)
    assert read(tmp_path, single, nodes=1).ranks == 1
    assert "launcher" in refused(tmp_path, single + single, nodes=1)
    run = MPI1 + ALLREDUCE
    results = read(tmp_path, run + run, **NODES).results
    assert (len(results), len({result.case.id for result in results})) == (2, 1)
    assert re.search(
        r"line 10\b.*4 processes", refused(tmp_path, run.replace("= 4", "= 8") + run, **NODES)
    )


def test_the_nodes_of_a_section_follow_from_the_processes_of_the_whole_run(tmp_path):
    pair = replaced(
        section("PingPong", processes=2),
        r"t_(min|max|avg)",
        lambda found: {"avg": "t"}.get(found[1], "u"),
    )
    results = read(tmp_path, pair + ALLREDUCE, **NODES).results
    assert [(result.case.ranks, result.case.nodes) for result in results] == [(2, 1), (4, 2)]


def test_sizes_that_the_user_chose_may_come_in_any_order(tmp_path):
    text = ALLREDUCE + "          512         1000         3.10         3.30         3.25\n"
    assert "line 5" in refused(tmp_path, text, **NODES)
    assert len(read(tmp_path, "# Message lengths were user defined\n" + text, **NODES).results) == 2
