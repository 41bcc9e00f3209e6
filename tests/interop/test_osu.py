"""Outputs of the OSU Micro-Benchmarks: each line becomes the case that it measured, or is refused."""

import pytest
from imported_outputs import OUTPUTS, import_example, import_files

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.osu import read_osu

MiB = 1 << 20
BANDWIDTHS = {
    "osu_bw.txt": ("send_recv", {1: 4.1e6, MiB: 12e9}),
    "osu_bibw.txt": ("bidirectional", {1: 4e6, MiB: 8e9}),
    "osu_mbw_mr.txt": ("multi_pair", {1: 10e6, MiB: 6e9}),
}
"""The bandwidths of one direction of a pair by size, in bytes per second."""

HEAD = "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n"
MANY_PAIRS = (
    "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 999999999 ] [ window size: 64 ]\n"
    "# Size    MB/s   Messages/s\n"
)


def read(tmp_path, text, **given):
    path = tmp_path / "osu.txt"
    path.write_text(text)
    return read_osu(path, text.splitlines(keepends=True), SuppliedMetadata(**{"ranks": 8, "nodes": 2, **given}))


@pytest.mark.parametrize("name", BANDWIDTHS)
def test_a_bandwidth_stays_the_bandwidth_of_a_direction_of_a_pair(name, tmp_path):
    rows = import_example(name, tmp_path / "osu.h5")
    collective, expected = BANDWIDTHS[name]
    assert {(row.collective, row.params["call"]) for row in rows} == {(collective, "window")}
    assert {row.requested_bytes: row.busbw_Bps for row in rows} == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", ["osu_latency.txt", "osu_bw.txt"])
def test_persistent_messages_are_cases_of_their_own(name, tmp_path):
    text = (OUTPUTS / name).read_text()
    results = read(tmp_path, text + text.replace(" Test", " Persistent Test")).results
    assert len({result.case.id for result in results}) == len(results) == 4


def test_an_output_may_hold_several_programs(tmp_path):
    texts = [(OUTPUTS / name).read_text() for name in ("osu_allreduce.txt", "osu_latency.txt", "osu_barrier.txt")]
    output = read(tmp_path, "".join(texts))
    assert [result.case.collective for result in output.results] == [*["all_reduce"] * 3, *["send_recv"] * 2, "barrier"]
    assert output.ranks == 8


@pytest.mark.parametrize(
    "title",
    [
        "# OSU MPI_Put Latency Test v7.4", "# OSU MPI Neighborhood Allgather Latency Test v7.4",
        "# OSU OpenSHMEM Barrier Latency Test v7.4", "# OSU MPI Multi-threaded Latency Test v5.3.2",
    ],
)  # fmt: skip
def test_another_program_is_left_out_and_its_lines_are_not_taken_for_those_of_the_one_before(title, tmp_path):
    other = f"{title}\n# Window creation: MPI_Win_create\n# Datatype: MPI_DOUBLE.\n# Size     Latency (us)\n8    9.50\n"
    output = read(tmp_path, f"{HEAD}8    1.50\n{other}{HEAD}16    2.50\n")
    assert [(each.case.bytes, each.reported["Avg Latency(us)"]) for each in output.results] == [
        (8, "1.50"),
        (16, "2.50"),
    ]
    assert "line 5" in output.remarks[0]
    assert title.removeprefix("# ") in output.remarks[0]
    path = tmp_path / "other.txt"
    path.write_text(other)
    assert import_files(tmp_path / "osu.h5", path).is_bad_input("no result", title.removeprefix("# "))


@pytest.mark.parametrize(
    ("end", "version"), [(" v7.4", " 7.4"), (" (Version 2.2)", " 2.2"), ("", "")]
)  # fmt: skip
def test_a_title_may_say_the_version_in_several_forms(end, version, tmp_path):
    output = read(tmp_path, f"{HEAD.replace(' v7.4', end)}8    1.50\n")
    assert (output.program, len(output.results)) == (f"OSU Micro-Benchmarks{version}", 1)


def test_a_program_with_buffers_on_other_devices_is_refused(tmp_path):
    with pytest.raises(BadInputError, match="line 5"):
        read(
            tmp_path,
            f"{HEAD}8    1.50\n# OSU MPI-ROCM Allreduce Latency Test v7.4\n# Size       Latency (us)\n8    9.50\n",
        )


def test_a_time_of_zero_and_less_than_an_element_are_left_out_with_remarks(tmp_path):
    output = read(tmp_path, HEAD.replace("CHAR", "INT") + "2   1.50\n8   0.00\n16  2.50\n")
    assert [result.case.bytes for result in output.results] == [16]
    assert len(output.remarks) == 2


def test_ranks_and_nodes_must_be_given_unless_the_output_says_them(tmp_path):
    out = tmp_path / "osu.h5"
    assert import_files(out, OUTPUTS / "osu_allreduce.txt", ranks=None).is_bad_input("--ranks")
    assert import_files(out, OUTPUTS / "osu_allreduce.txt", nodes=None).is_bad_input("--nodes")
    assert not out.exists()
    assert import_files(out, OUTPUTS / "osu_mbw_mr.txt", ranks=None).code == 0


@pytest.mark.parametrize(("name", "ranks", "said"), [("osu_mbw_mr.txt", 4, 8), ("osu_latency.txt", 1, 2)])
def test_fewer_ranks_than_the_output_has_are_a_contradiction(name, ranks, said, tmp_path):
    out = tmp_path / "osu.h5"
    assert import_files(out, OUTPUTS / name, ranks=ranks, nodes=1).is_bad_input("--ranks", ranks, said)
    assert not out.exists()


def test_columns_that_osu_prints_without_headings_are_read_in_the_order_in_which_it_prints_them(tmp_path):
    full, tails = "   4.50   6.12   1000", "   5.00   6.00   6.10"
    for added in (full, "   Pass", tails, f"{full}   Pass", full + tails, f"{full}   Pass{tails}"):
        result = read(tmp_path, f"{HEAD}8   5.10{added}\n").results[0]
        assert (round(result.seconds * 1e6, 2), result.failure) == (5.1, None), added
        assert result.reported.get("Max Latency(us)") == ("6.12" if full in added else None)
    assert read(tmp_path, f"{HEAD}8   5.10{full}   Fail\n").results[0].failure


def test_the_pure_communication_is_found_below_the_headings_of_other_columns(tmp_path):
    title = "# OSU MPI Non-blocking Allgather Latency Test v7.3\n"
    head = "# Size   Overall(us)   Compute(us)   Pure Comm.(us)   Overlap(%)\n"
    line = "8   14.0   10.0   1.0   0.5   2.5   9.0   8.0   9.5   44.0\n"
    assert read(tmp_path, title + head + line).results[0].seconds == pytest.approx(9e-6)


def test_the_headings_of_a_non_blocking_barrier_may_begin_without_a_sign(tmp_path):
    text = (
        "# OSU MPI Non-blocking Barrier Latency Test v7.0\n# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        "         Overall(us)         Compute(us)      Pure Comm.(us)          Overlap(%)\n"
        "               12.00                8.00                6.50               35.00\n"
    )
    assert [round(result.seconds * 1e6, 2) for result in read(tmp_path, text).results] == [6.5]


PAIRS = (
    "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 4 ] [ window size: 64 ]\n"
    "# Size   MB/s   Messages/s\n"
)
NEIGHBORS = (
    "# OSU MPI All-to-Allw Personalized Exchange Latency Test v7.4\nTime took to create topology graph:9.00 us.\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD.replace("(us)", "(ms)") + "8   1.50\n", 3),
        (HEAD.replace("Size ", "Size (KB) ") + "8   1.50\n", 3),
        (HEAD.replace("MPI_CHAR", "MPI_LONG_DOUBLE") + "16  1.50\n", 2),
        (HEAD + "8   1.50\n16\n", 5),
        (HEAD + "8   1.50\n16  2.", 5),
        (HEAD + "8   1.50   2.50\n", 4),
        (HEAD + "8   nan\n", 4),
        (HEAD + "8   1.5ms\n", 4),
        (HEAD + "8K  1.50\n", 4),
        (HEAD + f"{10**18}  1.50\n", 4),
        (HEAD + "8  1e300\n", 4),
        ("# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (GB/s)\n8   1.50\n", 2),
        (MANY_PAIRS + "8   1.50   1.50\n", 4),
        *((f"{HEAD}8   5.10{added}\n", 4) for added in ("   4.50   6.12", "   5.20   6.12   1000", "   4.50", "   ok")),
        (f"{HEAD}8   1.50\n8   2.50\n", 5), (f"{HEAD}16   1.50\n8   2.50\n", 5),
        (f"{HEAD}8     1.50\n16    1.50\n32    .50\n64    2.50\n".replace(" .50", "0.5"), 6),
        (f"{HEAD}1024  1.50\n204  1.50\n4096  2.50\n", 5),
        (f"{HEAD.replace('(us)', '(us)  Min Latency(us)  Max Latency(us)')}8  5.10  4.50  5.00\n", 4),
        (f"{PAIRS}1024   40.00   3906.25\n", 4), (PAIRS.replace("64", "varied"), 2),
        ("".join(PAIRS.splitlines(keepends=True)[::2]) + "8   40.00   5000000.00\n", 3),
        (f"{HEAD}8   1.50\n# Size       Avg Latency(us)\n16   2.50\n", 5),
        (f"{HEAD}8   1.50\n\n# Datatype: MPI_INT.\n# Size       Avg Latency(us)\n16   2.50\n", 6),
        (f"{HEAD}8   1.50\n# [ pairs: 4 ] [ window size: 64 ]\n", 5),
        (HEAD.replace("Avg Latency(us)", "Bandwidth (MB/s)"), 3),
        (HEAD.replace("# Data", "# OSU MPI Reduce Latency Test v7.4\n# Data"), 2),
        (HEAD.replace(".\n", ".\n# OSU MPI Reduce Latency Test v7.4\n", 1).replace("v7.4\n", "v7.4\n\n", 1), 4),
        (NEIGHBORS, 2),
    ],
)  # fmt: skip
def test_what_could_be_misread_or_contradicts_itself_is_refused_with_its_line(text, line, tmp_path):
    with pytest.raises(BadInputError, match=f"line {line}\\b"):
        read(tmp_path, text, ranks=None if text.startswith(MANY_PAIRS) else 8)


def test_another_window_is_another_case(tmp_path):
    results = [
        read(tmp_path, PAIRS.replace("64", window) + "8   40.00   5000000.00\n").results[0] for window in ("64", "128")
    ]
    assert [result.case.params["call"] for result in results] == ["window", "window of 128"]


def test_a_derived_type_is_left_out(tmp_path):
    output = read(tmp_path, HEAD.replace("(us)", "(us)   Transmit Size") + "8   1.50   4\n")
    assert (output.results, len(output.remarks)) == ([], 1)


def test_a_program_that_was_started_with_too_few_ranks_is_quoted(tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text("This test requires exactly two processes\n")
    assert import_files(tmp_path / "osu.h5", path).is_bad_input("exactly two processes")
