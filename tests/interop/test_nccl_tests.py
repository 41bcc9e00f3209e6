"""Outputs of nccl-tests and rccl-tests as people have them: versions, options, loops of runs, quotes, JSON, records."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from golden_page import assert_golden
from imported_outputs import OUTPUTS, read, read_example, refused

from hpccoll.common.errors import BadInputError
from hpccoll.interop.nccl_tests import read_pair

INPUTS = Path(__file__).parents[1] / "inputs"
PLAIN = (INPUTS / "nccl-plain-for-comparison.txt").read_text()
OLD = (INPUTS / "nccl-before-2.17.txt").read_text()
RCCL = (INPUTS / "rccl-tests-2.17.txt").read_text()
TABLE = (OUTPUTS / "nccl_all_reduce.txt").read_text()
JSON = json.loads((OUTPUTS / "nccl_all_gather.json").read_text())
SAME_RATES = r"(\d+\.\d\d) +\d+\.\d\d( +0)", r"\1 \1\2"
"""Gives the rows of a table the bandwidths of a factor of 1, as of broadcast, or of all-reduce on two ranks."""


def changed(text, *changes):
    """Return a text after replacements of regular expressions, each of which occurs."""
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert count, pattern
    return text


def plain(*changes):
    return changed(PLAIN, *changes)


def each_line(text, form="{line}"):
    return "".join(
        form.format(number=n, line=line) for n, line in enumerate(text.splitlines(keepends=True), 1)
    )


def rounds(output):
    """Return the collective, the ranks, the nodes and the number of rounds of the cases of an output."""
    counts = Counter(result.case.id for result in output.results)
    cases = {result.case.id: result.case for result in output.results}
    return {(case.collective, case.ranks, case.nodes, counts[name]) for name, case in cases.items()}


def results(output):
    return [(result.case.id, result.seconds, result.wrong) for result in output.results]


SINGLES = [
    plain(
        ("#  Rank  [123].*\n", ""),
        (r"(\d) +\d+\.\d\d +0 ", r"\1    0.00       0 "),
        (r"(\d) +\d+\.\d\d( +0)$", r"\1    0.00\2"),
        ("node0", f"node{rank}"),
        ("700", str(700 + rank)),
    )
    for rank in range(2)
]
"""The outputs of two processes that each measured alone."""
UNEVEN = plain(
    ("#  Rank  3.*\n", ""), ("all_reduce", "broadcast"), ("sum      -1", "none       0"), SAME_RATES
)
BROADCAST = changed(OLD, ("sum      -1", "none       0"), SAME_RATES)
SENDRECV = plain(("all_reduce_perf", "sendrecv_perf"))
TWO = plain(("#  Rank  [13].*\n", ""), ("Rank  2", "Rank  1"), SAME_RATES)
LOST = plain(("#  Rank  [012].*\n", ""))


@pytest.mark.parametrize(
    "text",
    [
        plain(("^# ?", "")),
        plain(("^#", r"\\#")),
        plain((" +", " "), ("^# +", "#")),
        plain((" {2,}", "\t")),
        plain(("# +out-of-place.*\n", "")),
        plain(("all_reduce_perf", "all_reduce_perf_mpi")),
        f"0: 1 node\n1: n1:7:7 [0] NCCL INFO Using IB\n{each_line(PLAIN, '0: {line}')}1: 1048576 1 2 3\n",
        "".join(
            json.dumps({"log": line, "time": 7}) + "\n" for line in PLAIN.splitlines(keepends=True)
        ),
        plain(("( 2097152 )", r"4090-box:7:9 [0] NCCL INFO Connected all rings\n\1")),
        each_line(
            plain((r"^( +\d.*?-1)( .*?)(  +\d+\.\d+ +\d+\.\d+ +\d+\.\d+ +0)$", r"\1[0] \2[0] \3")),
            "[0] {line}",
        ),
        plain(("all_reduce_perf", "alltoallv_perf"), (" sum ", " sum  7 ")) + PLAIN,
    ],
)
def test_what_a_page_a_launcher_or_a_build_changed_has_the_same_results(text, tmp_path):
    assert results(read(tmp_path, text)) == results(read(tmp_path, PLAIN))


def test_remarks_name_what_is_left_out_and_what_was_assumed(tmp_path):
    text = f"+ srun ./all_reduce_perf_mpi -g 1\n{OLD}== broadcast_perf ==\n{BROADCAST}+ ./sendrecv_perf\n{BROADCAST}"
    output = read(tmp_path, text)
    assert {case[0] for case in rounds(output)} == {"all_reduce", "broadcast"}
    failed = (
        f"{PLAIN}{PLAIN[: PLAIN.index('#       size')]}node0: Test NCCL failure\n{SENDRECV}{PLAIN}"
    )
    unversioned = plain((" nccl-headers=22904 nccl-library=22904", ""))
    remarks = "\n".join(
        [
            *output.remarks,
            *(one for t in (failed, unversioned) for one in read(tmp_path, t).remarks),
        ]
    )
    for said in (
        "taken to be broadcast_perf",
        "sendrecv is left out",
        "line 21: the run that begins here has no result",
        "sendrecv_perf is left out",
        "version of the library",
    ):
        assert said in remarks
    cut = PLAIN[: PLAIN.index("# Out of bounds")]
    within_row = read(tmp_path, cut.rstrip()[:-2])
    assert results(within_row) == results(read(tmp_path, PLAIN))[:-2]
    assert "line 15 is left out" in within_row.remarks[-1]
    assert within_row.truncated
    with pytest.raises(BadInputError, match="ends within it"):
        read_pair(tmp_path / "output", cut.rstrip()[:-2])
    assert (read(tmp_path, cut + PLAIN).truncated, read(tmp_path, PLAIN).truncated) == (True, False)


OLDEST = """# nThread 1 nGpus 2 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  31001 on     node-a device  0 [0x1a] Tesla V100-SXM2-16GB
#   Rank  1 Pid  31001 on     node-a device  1 [0x1c] Tesla V100-SXM2-16GB
#
#                                             out-of-place                       in-place
#       size         count    type{head}    time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float{cell}   100.0   10.49   {first}  0e+00    98.5   10.65   {second}  0e+00
 Out of bounds values : 0 OK
# Avg bus bandwidth    : 7.9
#
"""
FIELDS = "head", "cell", "first", "second"
OLD_PROGRAMS = {
    "all_reduce": (" redop", " sum", "10.49", "10.65"), "all_gather": ("", "", "5.24", "5.32"),
    "reduce": (" redop root", " max 0", "10.49", "10.65"), "alltoall": (" redop", "", "5.24", "5.32"),
}  # fmt: skip
"""For programs of versions 2.0 to 2.12: their columns besides, the cells of these, and busbw on two ranks."""
OLD_ALL_REDUCE = OLDEST.format(**dict(zip(FIELDS, OLD_PROGRAMS["all_reduce"], strict=True)))


@pytest.mark.parametrize("program", OLD_PROGRAMS)
def test_outputs_that_do_not_name_their_program_are_imported_if_the_user_does(program, tmp_path):
    text = OLDEST.format(**dict(zip(FIELDS, OLD_PROGRAMS[program], strict=True)))
    assert ("all_to_all" if program == "alltoall" else program) in refused(tmp_path, text)
    seconds = [one.seconds for one in read(tmp_path, text, program=f"{program}_perf").results]
    assert seconds == pytest.approx([100e-6, 98.5e-6])
    for other in {"all_reduce", "broadcast"} - {program}:
        assert f"--program {other}" in refused(tmp_path, text, program=other)


@pytest.mark.parametrize("program", ["all_gather", "reduce_scatter"])
def test_algbw_of_the_first_versions_left_out_the_own_block_as_busbw_does(program, tmp_path):
    """Up to June 2020: on two ranks both are half of the size over the time (all_gather.cu of v2.0.0)."""
    head, cell = (" redop", " sum") if program == "reduce_scatter" else ("", "")
    text = OLDEST.format(head=head, cell=cell, first="5.24", second="5.32")
    text = changed(text, ("10.49", " 5.24"), ("10.65", " 5.32"))
    assert [one.seconds for one in read(tmp_path, text, program=program).results] == pytest.approx(
        [100e-6, 98.5e-6]
    )
    assert "algbw" in refused(
        tmp_path, changed(text, ("5.24   5.24", "4.24   4.24")), program=program
    )


@pytest.mark.parametrize("sign", [" Out", "# Out"])
def test_an_old_output_with_wrong_elements_is_wrong_though_no_row_says_so(sign, tmp_path):
    text = changed(OLD_ALL_REDUCE, (" 0 OK", " 3 FAILED"), (" Out", sign))
    assert all(
        "3 wrong elements" in one.failure
        for one in read(tmp_path, text, program="all_reduce").results
    )


def test_types_and_reductions_that_ours_has_not_are_left_out_with_remarks(tmp_path):
    row = next(line for line in TABLE.splitlines(keepends=True) if line.strip().startswith("1024 "))
    others = row.replace(" float", "f8e4m3"), row.replace("   sum", "mulsum")
    output = read(tmp_path, TABLE.replace(row, "".join((row, *others))))
    assert (len(output.results), len(output.remarks)) == (
        len(read(tmp_path, TABLE).results),
        2 * len(others),
    )


# The JSON of option -J


def json_with(**config):
    return {**JSON, "config": {**JSON["config"], **config}}


def test_options_in_the_json_are_parameters(tmp_path):
    content = json_with(graph=5, aggregated_iterations=2, blocking_collectives=True)
    content["args"] = [*JSON["args"], "-R", "2", "-a3", "--unalign=1", "-z", "1"]
    (case, *_) = (one.case for one in read(tmp_path, json.dumps(content)).results)
    assert (case.timing, dict(case.params)) == (
        "single",
        {"graph": 1, "agg_iters": 2, "local_register": 2, "average": 3, "unalign": 1},
    )


def test_of_json_that_a_time_limit_cut_all_whole_results_are_read(tmp_path):
    text = json.dumps(JSON)
    whole = read(tmp_path, text).results
    begin = text.index('"results"') + len('"results": [')
    counts = set()
    for end in range(begin, len(text) - 1, 7):
        try:
            output = read(tmp_path, text[:end])
        except BadInputError:
            counts.add(0)
            continue
        assert [one.case for one in output.results] == [
            one.case for one in whole[: len(output.results)]
        ]
        assert output.truncated
        counts.add(len(output.results))
    assert {0, len(whole)} <= counts


def test_all_columns_are_kept_as_they_were_printed():
    reported = read_example("nccl_all_gather.json").results[0].reported
    assert (reported["time"], reported["p99_us"]) == ("12.25", "13.5")
    table = read_example("nccl_reduce_scatter_per_iteration.txt").results[0].reported
    assert (table["i_p99"], table["i_p99 in_place"]) == ("24.00", "23.00")
    (result,) = read_example("rccl_reduce_scatter_in_place.txt").results
    assert {"RING", "LL", "4"} <= {*result.reported.values()}


# rccl-tests: results of RCCL on AMD's GPUs, not of NCCL

BANNER = "".join((OUTPUTS / "rccl_all_reduce.txt").read_text().splitlines(keepends=True)[1:])
BY_GPU = changed(
    (OUTPUTS / "rccl_reduce_scatter_in_place.txt").read_text(),
    ("^(.*ccl-tests|RCCL|Librccl).*\n", ""),
)
ERRORS = "# Errors with asterisks indicate errors that have exceeded the maximum threshold.\n"
RECORDS = "rccl_all_gather.json", "rccl_all_reduce_lines.json", "rccl_broadcast.csv"


RECORD = json.loads((OUTPUTS / RECORDS[0]).read_text())


def test_ranks_are_those_of_a_group_with_all_gpus_of_its_processes_and_nodes_are_asked_for(
    tmp_path,
):
    for more in ({"nodes": 2, "ranks": 32}, {"ranksPerNode": 4, "gpusPerRank": 4}):
        assert read(tmp_path, json.dumps([each | more for each in RECORD]), nodes=2).ranks == 16
    assert "--nodes" in refused(tmp_path, json.dumps(RECORD), ranks=16)
    assert "--ranks" in refused(tmp_path, json.dumps(RECORD), ranks=8, nodes=2)


@pytest.mark.parametrize("name", RECORDS)
def test_records_have_headings_of_older_versions_too_and_none_is_cut(name, tmp_path):
    text = (OUTPUTS / name).read_text()
    given = {"nodes": 2} if name == RECORDS[0] else {}
    older = text.replace("ranksPerNode", "rankspernode").replace('"wrong"', '"#wrong"')
    assert read(tmp_path, older, **given).results
    for cut in (2, 8, 30):
        assert refused(tmp_path, text.rstrip()[:-cut], **given)


def out_of_place(**changes):
    return {**JSON, "results": [{**FIRST, "out_of_place": {**FIRST["out_of_place"], **changes}}]}


FIRST = JSON["results"][0]
ONE_LINE = {"program": "all_reduce"}
CASES = {
    "ranks, nodes and rounds are those of the runs": [
        (SINGLES[0], {}), (f"{PLAIN}[job 7] again, after # nThread 1:\n{PLAIN}", {}), (UNEVEN, {"ranks": 3}),
        (LOST, {"ranks": 4, "nodes": 2}),
        (plain(("#  Rank  [123].*\n", ""), ("#  Rank  0 ", "#  Rank  0 .. Rank  3 ")), {"ranks": 4, "nodes": 2}),
        (PLAIN + plain(("node0", "nodeX"), ("node1", "node0"), ("nodeX", "node1")), {}),
        (plain(("node1", "node0")), {"nodes": 2}), (f"2 nodes:\n{TWO}4 ranks:\n{PLAIN}", {}),
        (PLAIN + plain(("graph: 0", "graph: 8")), {}), (OLD, ONE_LINE),
        (changed(TABLE, ("Group  0 Pid  52", "Group  1 Pid  52"), ("0.06", "0.04"), ("15.73", "10.49"),
                 ("15.97", "10.65")), {}),
    ],
    "an option that changes what is measured is a parameter": [
        (plain(change), {}) for change in (
            ("graph: 0", "graph: 20"), ("agg iters: 1", "agg iters: 4"), ("graph: 0", "graph: 0 local_reg: 2"),
            ("iters: 20", "iters: 50"),
            ("#\n# Using", "# Blocking Enabled: wait after each, no barrier\n#\n# Using"),
        )
    ],
    "versions are read in every form": [
        (plain((r"\A.*", line)), {}) for line in (
            "# nccl-tests version 2.19.6 nccl-headers=22707 nccl-library=22707",
            "# nccl-tests version 2.20 (0a1b) nccl-headers=23102 nccl-library=23101",
            "# nccl-tests version 2.20-x nccl-headers=2.28.3 nccl-library=2.28.9",
            "n0:7:7 [0] NCCL INFO NCCL version 2.21.5+cuda12.4", "",
        )
    ],
    "a banner, the GPUs, or a line of its own show RCCL where nothing else names it": [
        (BANNER, {}), (BY_GPU, {"library": "of ROCm 6.2"}),
        (json.dumps(JSON).replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"), {}),
        (OLD_ALL_REDUCE.replace(" Out of", f"{ERRORS}# Out of"), ONE_LINE),
        (OLD_ALL_REDUCE.replace("Tesla V100-SXM2-16GB", "Vega 20"), ONE_LINE),
    ],
    "what contradicts itself or the user": [
        ("".join(SINGLES), {}),
        ("".join("".join(pair) for pair in zip(*map(str.splitlines, SINGLES, [True] * 2), strict=True)), {}),
        (each_line(PLAIN, "{number:6d}\t{line}"), {}),
        (plain((r"^( +\d{7} .{67}).*", r"\1"), ("# +out-of-place.*\n", ""), ("  time   algbw   busbw  #wrong $", "")),
         {}),
        (LOST, {}), (LOST, {"ranks": 6, "nodes": 2}), (PLAIN, {"ranks": 8, "nodes": 2}), (PLAIN, {"nodes": 1}),
        *((above + OLD, {}) for above in
          ("./all_gather_perf\n", "make all_reduce_perf sendrecv_perf\n", "./other_perf\n")),
        (OLD.replace("#  Rank 15", "# "), ONE_LINE), (UNEVEN, {}), (PLAIN + plain(("node1", "node2")), {}),
        (plain(("node1", "node0")), {}), (SENDRECV, {}), (PLAIN + plain(("22904", "22807")), {}), (PLAIN + RCCL, {}),
        (PLAIN, {"program": "all_gather"}), (OLD, {"program": "allreduce"}),
        *((plain(change), {}) for change in (
            ("#  Rank  1.*\n", ""), ("#  Rank  3.*\n", ""), ("(#  Rank  3.*\n)", r"\1\1"), ("Rank  3", "Rank  7"),
            ("Rank  3", "Rank 3x"), (" 15.57 ", " 14.01 "), (" 101.00 ", " 201.00 "), (" 1048576 ", " 2097152 "),
            ("all_reduce_perf", "all_gather_perf"), ("sum", "none"), ("nGpus 1", "nGpus 2"), ("   busbw", ""),
            ("(#       size.*\n)", r"\1\1"),
        )),
    ],
    "what could be misread": [
        *((changed(TABLE, change), {}) for change in (
            (r"\(us\)", "(ms)"), (r" \(B\)", "(KB)"), ("   time", "cputime"), ("100.00", "nan"), ("100.00", "1e300"),
            ("1048576  ", f"{10**16} "), ("     N/A\n", "\n"), ("all_reduce_perf", "allreduce_perf"),
            ("100.00 ", "100.00 7 "),
        )),
        *((json.dumps(each), {}) for each in (
            out_of_place(time="nan"), out_of_place(time=-1.0), out_of_place(nwrong="x"),
            *({**JSON, "results": [each]} for each in
              ({**FIRST, "out_of_place": {"cpu_time": 1.0}}, {**FIRST, "size": "1K"}, None)),
            {**JSON, "config": None}, {**JSON, "args": ["sendrecv_perf"]}, json_with(devices={}, ngpus=10**9),
            json_with(ngpus=10**9),
        )),
        *((json.dumps([RECORD[0], RECORD[1] | change, *RECORD[2:]]), {"nodes": 2}) for change in (
            {"time": "nan"}, {"time": -1}, {"size": "1K"}, {"name": "SendRecv"}, {"inPlace": 2}, {"wrong": "x"},
            {"ranksPerNode": 0}, {"ranksPerNode": 10**12}, {"busBw": None}, {"type": ""}, {"gpusPerRank": "4.0"},
            {"ranksPerNode": 8},
        )),
    ],
    "a part of an output": [
        (text, {"nodes": 2, "ranks": 4}) for text in (
            '{"identifier": "x", "benchmark": [{"8": {"oop_time": 1, "oop_busbw": 2.5}}]}\n',
            "# OMB Python MPI Latency Test\n# Size (B)      Latency (us)\n1     397.10\n",
            "  #bytes #repetitions      t[usec]   Mbytes/sec\n    1024    1000     3.09    331.39\n",
            "# Size       Avg Latency(us)\n4                       1.12\n",
            "".join(line for line in PLAIN.splitlines(keepends=True) if "float" in line),
            PLAIN[PLAIN.index("# Out of bounds"):], f'{{"data": {{"stdout":\n{json.dumps(PLAIN)}}}}}',
        )
    ],
}  # fmt: skip
"""Texts, and what the user says of them."""


def test_the_ranks_rounds_parameters_and_versions_that_outputs_have_or_why_they_are_refused(
    tmp_path,
):
    page = []
    for title, cases in CASES.items():
        page.append(f"== {title}")
        for text, given in cases:
            try:
                output = read(tmp_path, text, **given)
            except BadInputError as refusal:
                page.append(f"{given} refused: {refusal}".replace(f"{tmp_path}/", ""))
                continue
            (case, *_) = (one.case for one in output.results)
            found = f"{output.source}, {output.program}, {output.library}: {sorted(rounds(output))}"
            page.append(f"{given} {found}, {case.transport}, {case.device}, {dict(case.params)}")
    assert_golden("nccl_tests", page, Path(__file__).parent / "golden")
