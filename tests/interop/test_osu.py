"""Outputs of the OSU Micro-Benchmarks: each line becomes the case that it measured, or is refused."""

from pathlib import Path

import pytest
from golden_page import assert_golden
from imported_outputs import OUTPUTS, import_files, read, refused

MiB = 1 << 20
HEAD = (
    "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n"
)
PAIRS = (
    "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 4 ] [ window size: 64 ]\n"
    "# Size   MB/s   Messages/s\n"
)
NEIGHBORS = (
    "# OSU MPI All-to-Allw Personalized Exchange Latency Test v7.4\n"
    "Time took to create topology graph:9.00 us.\n"
)
GIVEN = {"ranks": 8, "nodes": 2}


def text_of(name):
    return (OUTPUTS / name).read_text()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(
            (text_of(name), (" Test", " Persistent Test"))
            for name in ("osu_latency.txt", "osu_bw.txt")
        ),
        (PAIRS + "8   40.00   5000000.00\n", ("64", "128")),
    ],
)
def test_persistent_messages_and_another_window_are_cases_of_their_own(text, other, tmp_path):
    results = read(tmp_path, text + text.replace(*other), **GIVEN).results
    assert (
        len({result.case.id for result in results})
        == len(results)
        == 2 * len(read(tmp_path, text, **GIVEN).results)
    )


@pytest.mark.parametrize(
    "title", ["# OSU MPI_Put Latency Test v7.4", "# OSU OpenSHMEM Barrier Latency Test v7.4"]
)
def test_another_program_is_left_out_and_its_lines_are_not_taken_for_those_of_the_one_before(
    title, tmp_path
):
    other = f"{title}\n# Window creation: MPI_Win_create\n# Datatype: MPI_DOUBLE.\n# Size     Latency (us)\n8    9.50\n"
    output = read(tmp_path, f"{HEAD}8    1.50\n{other}{HEAD}16    2.50\n", **GIVEN)
    assert [each.case.bytes for each in output.results] == [8, 16]
    assert "line 5" in output.remarks[0]
    assert f"no result; {tmp_path}/out.txt: line 1: {title[2:]}" in refused(
        tmp_path, other, **GIVEN
    )


def test_what_ours_has_not_is_left_out_with_remarks(tmp_path):
    derived = f"{HEAD.replace('(us)', '(us)   Transmit Size')}8   1.50   4\n"
    output = read(
        tmp_path, f"{HEAD.replace('CHAR', 'INT')}2   1.50\n8   0.00\n16  2.50\n\n{derived}", **GIVEN
    )
    assert [result.case.bytes for result in output.results] == [16]
    assert ([size for _, size in output.too_small], len(output.remarks)) == ([2], 2)


def test_ranks_and_nodes_must_be_given_unless_the_output_says_them(tmp_path):
    out, path = tmp_path / "osu.h5", OUTPUTS / "osu_allreduce.txt"
    assert import_files(out, path, ranks=None).is_bad_input("--ranks")
    assert import_files(out, path, nodes=None).is_bad_input("--nodes")
    assert import_files(out, path, ranks=None, nodes=None).is_bad_input("--ranks, --nodes")
    assert not out.exists()
    assert import_files(out, OUTPUTS / "osu_mbw_mr.txt", ranks=None).code == 0
    for name, ranks, said in (("osu_mbw_mr.txt", 4, 8), ("osu_latency.txt", 1, 2)):
        assert import_files(out, OUTPUTS / name, ranks=ranks, nodes=1).is_bad_input(
            "--ranks", ranks, said
        )


def test_the_headings_of_a_non_blocking_barrier_may_begin_without_a_sign(tmp_path):
    head = (
        "# OSU MPI Non-blocking Barrier Latency Test v7.0\n# Overall = "
        "Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
    )
    table = "   Overall(us)  Compute(us)  Pure Comm.(us)  Overlap(%)\n   12.00  8.00  6.50  35.00\n"
    (result,) = read(tmp_path, head + table, **GIVEN).results
    assert round(result.seconds * 1e6, 2) == 6.5


MISLEADING = [
    *(HEAD + rows for rows in (
        "8   1.50\n16\n", "8   1.5", "8   1.50   2.50\n", "8   nan\n", "8K  1.50\n", f"{10**18}  1.50\n",
        "8  1e300\n", "8   5.10   4.50   6.12\n", "8   5.10   5.20   6.12   1000\n", "8   5.10   4.50\n",
        "8   5.10   ok\n", "8   1.50\n8   2.50\n", "16   1.50\n8   2.50\n", "1024  1.50\n204  1.50\n4096  2.50\n",
        "8     1.50\n16    1.50\n32   0.5\n64    2.50\n", "8   1.50\n# Size       Avg Latency(us)\n16   2.50\n",
        "8   1.50\n\n# Datatype: MPI_INT.\n# Size       Avg Latency(us)\n16   2.50\n",
        "8   1.50\n# [ pairs: 4 ] [ window size: 64 ]\n",
        "8    1.50\n# OSU MPI-ROCM Allreduce Latency Test v7.4\n# Size       Latency (us)\n8    9.50\n",
    )),
    HEAD.replace("(us)", "(ms)") + "8   1.50\n", HEAD.replace("Size ", "Size (KB) ") + "8   1.50\n",
    HEAD.replace("MPI_CHAR", "MPI_LONG_DOUBLE") + "16  1.50\n", HEAD.replace("Avg Latency(us)", "Bandwidth (MB/s)"),
    HEAD.replace("(us)", "(us)  Min Latency(us)  Max Latency(us)") + "8  5.10  4.50  5.00\n",
    HEAD.replace("# Data", "# OSU MPI Reduce Latency Test v7.4\n# Data"),
    HEAD.replace(".\n", ".\n# OSU MPI Reduce Latency Test v7.4\n", 1).replace("v7.4\n", "v7.4\n\n", 1),
    "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (GB/s)\n8   1.50\n", f"{PAIRS}1024   40.00   3906.25\n",
    PAIRS.replace("64", "varied"), "".join(PAIRS.splitlines(keepends=True)[::2]) + "8   40.00   5000000.00\n",
    PAIRS.replace("pairs: 4", f"pairs: {10**9 - 1}") + "8   1.50   1.50\n", NEIGHBORS,
    "This test requires exactly two processes\n",
]  # fmt: skip


def test_what_could_be_misread_or_contradicts_itself_is_refused_with_its_line(tmp_path):
    page = [
        refused(tmp_path, text, **({"nodes": 2} if "pairs: 9" in text else GIVEN)).replace(
            f"{tmp_path}/", ""
        )
        for text in MISLEADING
    ]
    assert_golden("osu", page, Path(__file__).parent / "golden")
