"""Outputs of nccl-tests and rccl-tests as people have them: builds, launchers, loops of runs, versions, options."""

import json
import re
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.store.load_results import read_results

INPUTS = Path(__file__).parents[1] / "inputs"
PLAIN = (INPUTS / "nccl-plain-for-comparison.txt").read_text()
OLD = (INPUTS / "nccl-before-2.17.txt").read_text()


def import_inputs(tmp_path, *files, **options):
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return invoke("import", *files, *words, "--out", tmp_path / "imported.h5")


def import_text(tmp_path, *texts, **options):
    """Import texts, each as a file."""
    files = [tmp_path / f"out{number}.txt" for number, _ in enumerate(texts)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    return import_inputs(tmp_path, *files, **options)


def imported(tmp_path, ended):
    """Return the rows of an import that succeeded."""
    assert ended.code == 0, ended.err
    return read_results([tmp_path / "imported.h5"]).rows


def busbw(rows):
    return [row.busbw_Bps / 1e9 for row in rows]


def header(text, **fields):
    """Return an output with other values in its header line."""
    for name, value in fields.items():
        text = re.sub(rf"\b{name.replace('_', ' ')}: \d+", f"{name.replace('_', ' ')}: {value}", text)
    return text


# Builds without MPI


def single(text, rank, host):
    """Return the output of a process that measures alone."""
    lines = [line for line in text.splitlines(keepends=True) if not re.match(r"#  Rank  [123]", line)]
    lines = [re.sub(r"(\d) +\d+\.\d\d +0 ", r"\1    0.00       0 ", line) for line in lines]
    lines = [re.sub(r"(\d) +\d+\.\d\d( +0\s)$", r"\1    0.00\2", line) for line in lines]
    return "".join(lines).replace("node0", host).replace("700", str(700 + rank))


def test_a_run_of_a_single_rank_is_imported(tmp_path):
    rows = imported(tmp_path, import_text(tmp_path, single(PLAIN, 0, "node0")))
    assert {row.ranks for row in rows} == {1}


@pytest.mark.parametrize("prefix", ["", "{rank}: ", "[1,{rank}]<stdout>:"])
def test_processes_that_each_measured_alone_are_refused(prefix, tmp_path):
    outputs = [
        [f"{prefix.format(rank=rank)}{line}" for line in single(PLAIN, rank, f"node{rank}").splitlines(keepends=True)]
        for rank in range(2)
    ]
    after_each_other = "".join(outputs[0] + outputs[1])
    by_turns = "".join(line for pair in zip(*outputs, strict=True) for line in pair)
    for text in (after_each_other, by_turns):
        assert import_text(tmp_path, text).is_bad_input("MPI=1")


# Prefixes


@pytest.mark.parametrize(
    "prefix",
    ["0: ", " 3: ", "[0] ", "[pod/launcher-0/mpi] ", "launcher-0 mpi ", "mpi-1  | ", "Jul 18 15:41:05 ", "<0@node1> ",
     "Thu Jul 18 15:41:05 2024[1,0]<stdout>:", "[prterun-n1-77@1,0]<stdout>: ", "[rank0]:", "(Worker pid=7) "],
)  # fmt: skip
def test_a_prefix_of_a_launcher_changes_nothing(prefix, tmp_path):
    plain = imported(tmp_path, import_text(tmp_path, PLAIN))
    text = "".join(f"{prefix}{line}" for line in PLAIN.splitlines(keepends=True))
    others = f"{prefix}1 node\n1: node1:7:7 [0] NCCL INFO Using network IB\n{text}1: 1048576 1 2 3\n"
    for each in (text, others, text.replace("\n", "\r\n")):
        rows = imported(tmp_path, import_text(tmp_path, each))
        assert [(row.case_id, row.median_s) for row in rows] == [(row.case_id, row.median_s) for row in plain]


@pytest.mark.parametrize("form", ["{number:6d}\t{line}", "{number}:{line}", "job-{number} {line}"])
def test_a_prefix_that_differs_from_line_to_line_is_named(form, tmp_path):
    lines = PLAIN.splitlines(keepends=True)
    text = "".join(form.format(number=number, line=line) for number, line in enumerate(lines, 1))
    assert import_text(tmp_path, text).is_bad_input("line 1:", "sed")


def test_a_title_within_a_sentence_is_no_prefix(tmp_path):
    text = f"{PLAIN}[job 7] again, after # nThread 1:\n{PLAIN}"
    assert {row.rounds for row in imported(tmp_path, import_text(tmp_path, text))} == {2}


def test_tabs_between_columns_are_blanks(tmp_path):
    rows = imported(tmp_path, import_text(tmp_path, re.sub(" {2,}", "\t", PLAIN)))
    assert len(rows) == 4


def test_lines_of_other_processes_are_said_to_be_left_out(tmp_path):
    text = "".join(f"0: {line}" for line in PLAIN.splitlines(keepends=True))
    assert "'0:'" in import_text(tmp_path, f"{text}1: something\n").err


def test_a_message_quotes_at_most_three_lines(tmp_path):
    lines = [f"launcher says {number}\n" for number in range(50)]
    ended = import_text(tmp_path, PLAIN + "".join(lines))
    assert 0 < ended.err.count("launcher says") <= 3
    assert "47 more lines" in ended.err
    without_rows = "".join(line for line in PLAIN.splitlines(keepends=True) if not line.strip()[:1].isdigit())
    refused = import_text(tmp_path, without_rows + "".join(lines))
    assert refused.code == 2
    assert refused.err.count("launcher says") <= 3


# Outputs as they are quoted on pages


def results(tmp_path, text, **options):
    return [
        (row.case_id, row.median_s, row.wrong) for row in imported(tmp_path, import_text(tmp_path, text, **options))
    ]


@pytest.mark.parametrize(
    "quote",
    [
        lambda text: re.sub("^# ?", "", text, flags=re.MULTILINE),
        lambda text: re.sub("^#", r"\\#", text, flags=re.MULTILINE),
        lambda text: re.sub("^# +", "#", re.sub(" +", " ", text), flags=re.MULTILINE),
        lambda text: re.sub("# +out-of-place.*\n", "", text),
        lambda text: text.replace("all_reduce_perf", "all_reduce_perf_mpi"),
        lambda text: "".join(json.dumps({"log": line, "time": 7}) + "\n" for line in text.splitlines(keepends=True)),
        lambda text: "".join(json.dumps({"time": 7, "message": line}) + "\n" for line in text.splitlines()),
    ],
)  # fmt: skip
def test_an_output_that_a_page_or_a_build_changed_has_the_same_results(quote, tmp_path):
    text = quote(PLAIN)
    assert text != PLAIN
    assert results(tmp_path, text) == results(tmp_path, PLAIN)


def test_a_table_of_one_placement_needs_the_line_that_says_it(tmp_path):
    lines = [line[:80] + "\n" if "float" in line else line for line in PLAIN.splitlines(keepends=True)]
    text = re.sub("# +out-of-place.*\n", "", "".join(lines)).replace("     time   algbw   busbw  #wrong \n", "\n", 1)
    assert import_text(tmp_path, text).is_bad_input("out-of-place, in-place")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"identifier": "x", "benchmark": [{"8": {"oop_time": 1, "oop_busbw": 2.5}}]}\n', "nccl_version"),
        ("# OMB Python MPI Latency Test\n# Size (B)      Latency (us)\n1     397.10\n", "calls of Python"),
        ("  #bytes #repetitions      t[usec]   Mbytes/sec\n    1024    1000     3.09    331.39\n", "# Benchmarking"),
        ("# Size       Avg Latency(us)\n4                       1.12\n", "# OSU ... Test"),
        ("".join(line for line in PLAIN.splitlines(keepends=True) if "float" in line), "# size count"),
        (PLAIN[PLAIN.index("# Out of bounds"):], "the table"),
        (f'{{"data": {{"stdout":\n{json.dumps(PLAIN)}}}}}', "jq -r"),
    ],
)  # fmt: skip
def test_a_part_of_an_output_is_refused_with_what_it_lacks(text, hint, tmp_path):
    assert import_text(tmp_path, text, nodes=2, ranks=4).is_bad_input(hint)


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: re.sub("#  Rank  [012].*\n", "", text),
        lambda text: re.sub("#  Rank  [123].*\n", "", text.replace("#  Rank  0 ", "#  Rank  0 .. Rank  3 ")),
        lambda text: re.sub("#  Rank  [23].*\n", "...\n", text),
    ],
)  # fmt: skip
def test_lost_lines_of_devices_are_replaced_by_what_the_user_says(cut, tmp_path):
    text = cut(PLAIN)
    assert import_text(tmp_path, text).is_bad_input("--ranks and --nodes")
    assert import_text(tmp_path, text, ranks=6, nodes=2).is_bad_input(6)
    rows = imported(tmp_path, import_text(tmp_path, text, ranks=4, nodes=2))
    assert {(row.ranks, row.nodes) for row in rows} == {(4, 2)}


def test_a_list_of_devices_that_agrees_with_the_bandwidths_is_not_replaced(tmp_path):
    assert import_text(tmp_path, PLAIN, ranks=8, nodes=2).is_bad_input("--ranks", 8, 4)


# Programs that another line names


def test_a_line_above_a_run_may_name_its_program(tmp_path):
    broadcast = re.sub(r"(\d+\.\d\d) +\d+\.\d\d( +0)", r"\1 \1\2", OLD.replace("sum      -1", "none       0"))
    text = f"+ srun ./all_reduce_perf_mpi -g 1\n{OLD}== broadcast_perf ==\n{broadcast}+ ./sendrecv_perf\n{broadcast}"
    ended = import_text(tmp_path, text)
    assert {(row.collective, row.rounds) for row in imported(tmp_path, ended)} == {("all_reduce", 1), ("broadcast", 1)}
    assert "taken to be broadcast_perf" in ended.err
    assert "sendrecv is left out" in ended.err


@pytest.mark.parametrize("above", ["./all_gather_perf\n", "make all_reduce_perf sendrecv_perf\n", "./other_perf\n"])
def test_a_name_that_is_unclear_or_contradicts_the_table_is_not_taken(above, tmp_path):
    assert import_text(tmp_path, above + OLD).is_bad_input("--program", "all_reduce")


# Outputs that check themselves


@pytest.mark.parametrize(
    "change",
    [
        lambda text: re.sub("#  Rank  1.*\n", "", text), lambda text: re.sub("#  Rank  3.*\n", "", text),
        lambda text: re.sub("(#  Rank  3.*\n)", r"\1\1", text), lambda text: text.replace("Rank  3", "Rank  7"),
        lambda text: text.replace("Rank  3", "Rank 3x"), lambda text: text.replace(" 15.57 ", " 14.01 "),
        lambda text: text.replace("  101.00 ", "  201.00 "), lambda text: text.replace("   1048576  ", "   2097152  "),
        lambda text: text.replace("all_reduce_perf", "all_gather_perf"), lambda text: text.replace("sum", "none"),
        lambda text: text.replace("nGpus 1", "nGpus 2"), lambda text: text.replace("   busbw", ""),
        lambda text: re.sub("(#       size.*\n)", r"\1\1", text),
    ],
)  # fmt: skip
def test_an_output_that_contradicts_itself_is_refused(change, tmp_path):
    text = change(PLAIN)
    assert text != PLAIN
    assert import_text(tmp_path, text).code == 2


def test_a_lost_line_of_many_devices_shows_in_the_digits_of_the_bandwidths(tmp_path):
    assert imported(tmp_path, import_text(tmp_path, OLD, program="all_reduce"))
    text = re.sub("#  Rank 15.*\n", "", OLD)
    assert import_text(tmp_path, text, program="all_reduce").is_bad_input("15 ranks", 16)


def test_nodes_with_unequal_numbers_of_ranks_need_bandwidths_that_show_them(tmp_path):
    uneven = (
        re.sub("#  Rank  3.*\n", "", PLAIN).replace("all_reduce", "broadcast").replace("sum      -1", "none       0")
    )
    uneven = re.sub(r"(\d+\.\d\d) +\d+\.\d\d( +0)", r"\1 \1\2", uneven)
    assert import_text(tmp_path, uneven).is_bad_input("--ranks", 3)
    assert {row.ranks for row in imported(tmp_path, import_text(tmp_path, uneven, ranks=3))} == {3}


def test_nodes_may_be_listed_in_another_order_in_another_run(tmp_path):
    swapped = PLAIN.replace("node0", "nodeX").replace("node1", "node0").replace("nodeX", "node1")
    assert {row.rounds for row in imported(tmp_path, import_text(tmp_path, PLAIN + swapped))} == {2}
    other = PLAIN.replace("node1", "node2")
    assert import_text(tmp_path, PLAIN + other).is_bad_input("node0, node1", "node0, node2")


def test_hosts_of_one_name_need_the_number_of_nodes(tmp_path):
    text = PLAIN.replace("node1", "node0")
    assert import_text(tmp_path, text).is_bad_input("--nodes", "node0")
    assert {row.nodes for row in imported(tmp_path, import_text(tmp_path, text, nodes=2))} == {2}


# Several runs in a file


def test_runs_on_other_ranks_are_launches_of_their_own(tmp_path):
    two = re.sub("#  Rank  [13].*\n", "", PLAIN).replace("Rank  2", "Rank  1")
    two = re.sub(r"(\d+\.\d\d) +\d+\.\d\d( +0)", r"\1 \1\2", two)
    rows = imported(tmp_path, import_text(tmp_path, f"2 nodes:\n{two}4 ranks:\n{PLAIN}"))
    assert {(row.ranks, row.rounds) for row in rows} == {(2, 1), (4, 1)}
    assert len(read_results([tmp_path / "imported.h5"]).runs) == 2


def test_runs_with_other_options_are_no_rounds(tmp_path):
    rows = imported(tmp_path, import_text(tmp_path, PLAIN + header(PLAIN, graph=8) + header(PLAIN, agg_iters=16)))
    assert {row.rounds for row in rows} == {1}
    assert {tuple(row.params.items()) for row in rows} == {(), (("graph", 1),), (("agg_iters", 16),)}


def test_a_run_that_failed_between_others_is_said_to_have_no_result(tmp_path):
    failed = PLAIN[: PLAIN.index("#       size")]
    ended = import_text(tmp_path, f"{PLAIN}{failed}node0: Test NCCL failure\n{PLAIN}")
    assert {row.rounds for row in imported(tmp_path, ended)} == {2}
    assert "line 21: the run that begins here has no result" in ended.err


def test_a_program_without_a_collective_of_ours_is_left_out(tmp_path):
    sendrecv = PLAIN.replace("all_reduce_perf", "sendrecv_perf")
    ended = import_text(tmp_path, f"{sendrecv}{PLAIN}")
    assert {row.collective for row in imported(tmp_path, ended)} == {"all_reduce"}
    assert "sendrecv_perf is left out" in ended.err
    assert import_text(tmp_path, sendrecv).is_bad_input("sendrecv_perf is left out")


def test_a_run_that_is_cut_before_another_is_said(tmp_path):
    cut = PLAIN[: PLAIN.index("# Out of bounds")]
    assert import_text(tmp_path, cut + PLAIN).code == 3


def test_runs_of_several_libraries_are_refused(tmp_path):
    other = PLAIN.replace("22904", "22807")
    assert import_text(tmp_path, PLAIN + other).is_bad_input("NCCL 2.28.7", "NCCL 2.29.4")
    assert import_text(tmp_path, PLAIN + (INPUTS / "rccl-tests-2.17.txt").read_text()).is_bad_input("RCCL 2.28.3")


# Options


@pytest.mark.parametrize(
    ("change", "params"),
    [
        (lambda text: header(text, graph=1), {"graph": 1}), (lambda text: header(text, graph=20), {"graph": 1}),
        (lambda text: header(text, agg_iters=4), {"agg_iters": 4}),
        (lambda text: header(text, unalign=1), {"unalign": 1}),
        (lambda text: text.replace("graph: 0", "graph: 0 local_reg: 2"), {"local_reg": 2}),
        (lambda text: header(text, validation=0).replace("iters: 20", "iters: 50"), {}),
        (lambda text: text.replace("#\n# Using", "# Blocking Enabled: wait after each, no barrier\n#\n# Using", 1),
         {"blocking": 2}),
    ],
)  # fmt: skip
def test_an_option_that_changes_what_is_measured_is_a_parameter(change, params, tmp_path):
    text = change(PLAIN)
    assert text != PLAIN
    assert {tuple(row.params.items()) for row in imported(tmp_path, import_text(tmp_path, text))} == {
        (*params.items(),)
    }


def test_options_in_the_json_are_parameters(tmp_path):
    content = json.loads((Path(__file__).parent / "outputs" / "nccl_all_gather.json").read_text())
    content["args"] += ["-R", "2", "-a3", "--unalign=1", "-z", "1"]
    content["config"].update(graph=5, aggregated_iterations=2, blocking_collectives=True)
    rows = imported(tmp_path, import_text(tmp_path, json.dumps(content)))
    expected = {"graph": 1, "agg_iters": 2, "local_register": 2, "average": 3, "unalign": 1}
    assert {(row.timing, tuple(sorted(row.params.items()))) for row in rows} == {
        ("single", tuple(sorted(expected.items())))
    }


# Versions


@pytest.mark.parametrize(
    ("line", "program", "library"),
    [
        ("# nccl-tests version 2.19.6 nccl-headers=22707 nccl-library=22707", "nccl-tests 2.19.6", "NCCL 2.27.7"),
        ("# nccl-tests version 2.20 (0a1b) nccl-headers=23102 nccl-library=23101", "nccl-tests 2.20", "NCCL 2.31.1"),
        ("# nccl-tests version 2.20-x nccl-headers=2.28.3 nccl-library=2.28.9", "nccl-tests 2.20-x", "NCCL 2.28.9"),
        ("NCCL version 2.18.5+cuda12.2", "nccl-tests", "NCCL 2.18.5"),
        ("n0:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4", "nccl-tests", "NCCL 2.21.5"),
        ("", "nccl-tests", "unknown"),
    ],
)  # fmt: skip
def test_versions_are_read_in_every_form(line, program, library, tmp_path):
    text = PLAIN.replace(PLAIN.splitlines()[0], line)
    imported(tmp_path, import_text(tmp_path, text))
    provenance = read_results([tmp_path / "imported.h5"]).runs[0].provenance
    assert (provenance["program"], provenance["library"]) == (program, library)


def test_a_version_line_without_a_library_is_said(tmp_path):
    text = PLAIN.replace(" nccl-headers=22904 nccl-library=22904", "")
    assert "version of the library" in import_text(tmp_path, text).err


OLDEST = """# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  31001 on     node-a device  0 [0x1a] Tesla V100-SXM2-16GB
#   Rank  1 Pid  31001 on     node-a device  1 [0x1c] Tesla V100-SXM2-16GB
#
#                                             out-of-place                       in-place
#       size         count    type{head}    time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)         {pad}    (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        {count}   float{cell}   100.0   10.49   {busbw}  0e+00    98.5   10.65   {second}  0e+00
 Out of bounds values : 0 OK
# Avg bus bandwidth    : 7.9
#
"""
OLD_PROGRAMS = {
    "all_reduce": (" redop", " sum", "10.49", "10.65"), "all_gather": ("", "", "5.24", "5.32"),
    "broadcast": (" root", " 1", "10.49", "10.65"), "reduce": (" redop root", " max 0", "10.49", "10.65"),
    "reduce_scatter": (" redop", " sum", "5.24", "5.32"), "alltoall": (" redop", "", "5.24", "5.32"),
}  # fmt: skip
"""For each program of versions 2.0 to 2.12: its columns besides, their cells, and busbw on two ranks."""


@pytest.mark.parametrize("program", OLD_PROGRAMS)
def test_outputs_that_do_not_name_their_program_are_imported_if_the_user_does(program, tmp_path):
    head, cell, first, second = OLD_PROGRAMS[program]
    text = OLDEST.format(head=head, pad=" ", count=262144, cell=cell, busbw=first, second=second)
    assert import_text(tmp_path, text).is_bad_input("--program", "all_to_all" if program == "alltoall" else program)
    rows = imported(tmp_path, import_text(tmp_path, text, program=f"{program}_perf"))
    assert [row.ranks for row in rows] == [2, 2]
    assert sorted(busbw(rows)) == pytest.approx(sorted(map(float, (first, second))), rel=0.02)
    for other in {"all_reduce", "broadcast"} - {program}:
        assert import_text(tmp_path, text, program=other).is_bad_input(f"--program {other}")


def test_an_old_output_with_wrong_elements_is_wrong_though_no_row_says_so(tmp_path):
    text = OLDEST.format(head=" redop", pad=" ", count=262144, cell=" sum", busbw="10.49", second="10.65")
    text = text.replace(" 0 OK", " 3 FAILED")
    for each in (text, text.replace(" Out of", "# Out of")):
        rows = imported(tmp_path, import_text(tmp_path, each, program="all_reduce"))
        assert {row.status for row in rows} == {"wrong"}
        assert all("3 wrong elements" in row.reason for row in rows)


def test_an_old_output_of_rccl_tests_without_the_name_of_the_library_is_known_by_a_line_of_its_own(tmp_path):
    text = OLDEST.format(head=" redop", pad=" ", count=262144, cell=" sum", busbw="10.49", second="10.65")
    own = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
    for each in (text.replace(" Out of", f"{own}# Out of"), text.replace("Tesla V100-SXM2-16GB", "Vega 20")):
        rows = imported(tmp_path, import_text(tmp_path, each, program="all_reduce"))
        assert {(row.source, row.transport, row.device) for row in rows} == {("rccl-tests", "rccl", "rocm")}


def test_rows_of_a_run_that_is_left_out_may_have_any_columns(tmp_path):
    other = PLAIN.replace("all_reduce_perf", "alltoallv_perf").replace(" sum ", " sum  7 ")
    assert {row.collective for row in imported(tmp_path, import_text(tmp_path, other + PLAIN))} == {"all_reduce"}


def test_a_program_that_the_output_contradicts_is_refused(tmp_path):
    assert import_text(tmp_path, PLAIN, program="all_gather").is_bad_input("--program", "all_reduce")
    assert import_text(tmp_path, OLD, program="allreduce").is_bad_input("--program", "all_reduce_perf")


def test_a_log_of_a_host_whose_name_begins_with_a_digit_is_no_row(tmp_path):
    lines = PLAIN.splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "2097152" in line)
    text = "".join((*lines[:at], "4090-box:7:9 [0] NCCL INFO Connected all rings\n", *lines[at:]))
    assert len(imported(tmp_path, import_text(tmp_path, text))) == 4
