"""Outputs of the Intel MPI Benchmarks: a section for each number of processes, which are the first ranks."""

import pytest
from imported_outputs import OUTPUTS, import_files

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import BenchmarkOutput, SuppliedMetadata
from hpccoll.interop.imb import read_imb

TEXT = (OUTPUTS / "imb_mpi1.txt").read_text()
ROW = "         1024         1000         5.10         5.30         5.20\n"


def read(tmp_path, text, **given):
    path = tmp_path / "imb.txt"
    path.write_text(text)
    return read_imb(path, text.splitlines(keepends=True), SuppliedMetadata(**{"nodes": 2, **given}))


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
    assert len(output.results) == 5
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


def section(name="Reduce_scatter", processes=4):
    return (
        f"# Benchmarking {name} \n# #processes = {processes} \n"
        "       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
        "         1024         1000         4.10         4.30         4.25\n"
    )


def program(version):
    return f"#    Intel{version} part    \n"


@pytest.mark.parametrize(
    ("line", "version", "vector"),
    [
        (" (R) MPI Benchmark Suite V2.3", "2.3", True), (" (R) MPI Benchmark Suite V3.2.2", "3.2.2", True),
        (" (R) MPI Benchmark Suite V3.0v modified by Voltaire", "3.0v", True),
        (" (R) MPI Benchmarks 4.0", "4.0", True), (" (R) MPI Benchmarks 4.1 Update 1", "4.1 Update 1", True),
        (" (R) MPI Benchmarks 2017", "2017", True), (" (R) MPI Benchmarks 2018", "2018", True),
        (" (R) MPI Benchmarks 2018 Update 1", "2018 Update 1", True), ("(R) MPI Benchmarks 2018", "2018", True),
        ("(R) MPI Benchmarks 2019", "2019", True), ("(R) MPI Benchmarks 2019 Update 1", "2019 Update 1", False),
        ("(R) MPI Benchmarks 2019 Update 6", "2019 Update 6", False),
        ("(R) MPI Benchmarks 2021.1", "2021.1", False), ("(R) MPI Benchmarks 2021.9.1", "2021.9.1", False),
    ],
)  # fmt: skip
def test_the_version_says_whether_reduce_scatter_counts_the_vector_or_a_block(line, version, vector, tmp_path):
    output = read(tmp_path, program(f"{line}, MPI-1") + section())
    assert output.program == f"Intel MPI Benchmarks {version}"
    assert [result.case.bytes for result in output.results] == [1024 if vector else 4096]


@pytest.mark.parametrize(("line", "size"), [(" (R) MPI Benchmarks 2018", 1024), ("(R) MPI Benchmarks 2018", 4096)])
def test_a_later_source_built_as_2018_counts_the_block_of_the_non_blocking_form(line, size, tmp_path):
    text = program(f"{line}, MPI-NBC") + section("Ireduce_scatter_pure")
    assert [result.case.bytes for result in read(tmp_path, text).results] == [size]


def test_without_a_version_reduce_scatter_is_left_out_with_the_reason(tmp_path):
    output = read(tmp_path, section() + section("Allreduce"))
    assert [result.case.collective for result in output.results] == ["all_reduce"]
    assert len(output.remarks) == 1
    assert "version" in output.remarks[0]


def test_the_types_are_those_that_the_output_names(tmp_path):
    types = "# MPI_Datatype                   :   MPI_INT \n# MPI_Datatype for reductions    :   MPI_DOUBLE \n"
    output = read(tmp_path, types + section("Allreduce") + section("Bcast"))
    assert [result.case.dtype for result in output.results] == ["float64", "int32"]


@pytest.mark.parametrize("part", ["IMB-P2P", "MPI-RMA", "MT", "MPI-2", "MPI-IO", "MPI-4"])
def test_benchmarks_of_other_parts_are_named_and_left_out(part, tmp_path):
    output = read(tmp_path, program(f"(R) MPI Benchmarks 2021.7, {part}") + section("PingPong"))
    assert output.results == []
    assert part in output.remarks[0]


@pytest.mark.parametrize(
    "why", ["out-of-mem.; needed X=   9.000 GB", "int-overflow.; The", "int-overflow; The", "time-out.; T"]
)
def test_a_size_that_was_not_measured_becomes_a_remark(why, tmp_path):
    output = read(tmp_path, f"{section('Allreduce')}   2147483648  {why}\n")
    assert (len(output.results), len(output.remarks)) == (1, 1)


def test_defects_make_a_result_wrong(tmp_path):
    text = (
        section("Allreduce").replace("t_avg[usec]", "t_avg[usec]      defects").replace("4.25\n", "4.25         {}\n")
    )
    assert [bool(read(tmp_path, text.format(count)).results[0].failure) for count in ("0.00", "0.01", "12.00")] == [
        False, True, True,
    ]  # fmt: skip


def test_what_a_build_that_checks_prints_of_a_defect_is_no_line_of_the_table(tmp_path):
    defect = "0: Error Allreduce, size = 2048, sample #0\nProcess 0: Got invalid buffer:\nBuffer entry: 8.1\npos: 0\n"
    row = "         2048         1000         4.10         4.30         4.25\n"
    output = read(tmp_path, f"{section('Allreduce')}{defect}{row}")
    assert (len(output.results), len(output.remarks)) == (2, 4)


def test_several_runs_of_one_process_are_refused_and_one_is_not(tmp_path):
    run = program("(R) MPI Benchmarks 2021.7, MPI-1") + section("Allreduce", processes=1)
    assert read(tmp_path, run, nodes=1).ranks == 1
    with pytest.raises(BadInputError, match="launcher"):
        read(tmp_path, run + run, nodes=1)


def test_several_runs_of_the_same_processes_are_rounds_and_of_others_refused(tmp_path):
    run = program("(R) MPI Benchmarks 2021.7, MPI-1") + section("Allreduce")
    results = read(tmp_path, run + run).results
    assert (len(results), len({result.case.id for result in results})) == (2, 1)
    with pytest.raises(BadInputError, match=r"line 10\b.*4 processes"):
        read(tmp_path, run.replace("= 4", "= 8") + run)


def test_the_nodes_of_a_section_follow_from_the_processes_of_the_whole_run(tmp_path):
    pair = (
        section("PingPong", processes=2)
        .replace("t_avg[usec]", "t[usec]")
        .replace("t_min", "t_low")
        .replace("t_max", "t_top")
    )
    results = read(tmp_path, pair + section("Allreduce")).results
    assert [(result.case.ranks, result.case.nodes) for result in results] == [(2, 1), (4, 2)]


def test_sizes_that_the_user_chose_may_come_in_any_order(tmp_path):
    text = section("Allreduce") + "          512         1000         3.10         3.30         3.25\n"
    with pytest.raises(BadInputError, match="line 5"):
        read(tmp_path, text)
    assert len(read(tmp_path, "# Message lengths were user defined\n" + text).results) == 2


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda text: text.replace("4.25", "4.52"), 4), (lambda text: text.replace("4.25", " 4.2"), None),
        (lambda text: text.replace("avg[usec]", "avg[usec]   Mbytes/sec").replace("4.25\n", "4.25       328.00\n"), 4),
        (lambda text: text + text.replace("# Benchmarking Allreduce \n", ""), 5),
        (lambda text: "# Benchmarking Bcast \n" + text, 2),
        (lambda text: text + "         2048         1000         4.10         4.30          4.2\n"
                             "         4096         1000         4.10         4.3         4.20\n", 6),
    ],
)  # fmt: skip
def test_lines_that_contradict_each_other_are_refused(change, line, tmp_path):
    text = change(section("Allreduce"))
    if line is None:
        assert read(tmp_path, text).results
    else:
        with pytest.raises(BadInputError, match=f"line {line}\\b"):
            read(tmp_path, text)
