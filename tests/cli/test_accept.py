"""The command accept: verdicts and exit codes on outputs as people have them, what is required, and bad input."""

import json
import re
import shlex
from pathlib import Path

import pytest
import raw_examples
from cli_runner import invoke
from imported_outputs import OUTPUTS
from printed_outputs import nccl_tests_output
from written_runs import SIZES, write_run

from hpccoll.model.machine_content import cluster_names
from hpccoll.store.hdf5 import write_raw_file

H100 = "8xh100-400g"
MIB, GIB = 1 << 20, 1 << 30
HEALTHY = {64 << 20: 268, 256 << 20: 390, GIB: 450, 8 * GIB: 480}
SLOW = HEALTHY | {256 << 20: 170, GIB: 180, 8 * GIB: 185}

RING_LOG = """\
n1:100:120 [0] NCCL INFO NCCL_ALGO set by environment to Ring
n1:100:120 [0] NCCL INFO Using network IB
n1:100:120 [0] NCCL INFO comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
n1:100:100 [0] NCCL INFO AllReduce: {bytes} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}
"""


@pytest.fixture
def output(tmp_path):
    """Return a function that writes an output of nccl-tests with bus bandwidths in GB/s by size."""

    def write(rates, file="nccl.txt", **more):
        path = tmp_path / file
        path.write_text(nccl_tests_output(rates, **more))
        return path

    return write


def accept(*words, code=0):
    """Return the rows of the command's JSON; all else is in ``text``."""
    ended = invoke("accept", *words, "--json")
    assert ended.code == code, ended.err
    return json.loads(ended.out)


def text(*words, code=0):
    ended = invoke("accept", *words)
    assert ended.code == code, ended.err
    return ended.out.splitlines()


def at(rows, nbytes):
    """Return the row of a size, out of place."""
    (row,) = (row for row in rows if row["bytes"] == nbytes and not row["in_place"])
    return row


def test_two_nodes_of_h100_with_180_gb_s_at_1_gib_fail_with_three_causes(output):
    row = at(accept(output(SLOW), "--cluster", H100, code=3), GIB)
    assert (row["verdict"], row["quantity"]) == ("fail", "busbw_Bps")
    assert (round(row["low"] / 1e9), round(row["high"] / 1e9), row["expected_from"]) == (
        445,
        459,
        "published",
    )
    assert row["low"] <= row["expected"] <= row["high"]
    assert row["measured"] == pytest.approx(180e9, rel=1e-3)
    assert len(row["sources"]) >= 2
    assert len(row["causes"]) >= 3
    assert all(cause["check"] and cause["what"] for cause in row["causes"])


def test_one_size_alone_fails(output):
    (row, _) = accept(output({GIB: 180}), "--cluster", H100, code=3)
    assert row["verdict"] == "fail"


def test_the_same_with_450_pass_and_the_first_line_says_so(output):
    rows = accept(output(HEALTHY), "--cluster", H100)
    assert at(rows, GIB)["verdict"] == "pass"
    first, *_ = text(output(HEALTHY), "--cluster", H100)
    assert (first.startswith("pass: "), H100 in first, f"{len(rows)} rows" in first) == (
        True,
        True,
        True,
    )


def test_with_a_log_of_a_ring_the_model_expects_and_no_class_of_nvlstree(output, tmp_path):
    log = tmp_path / "nccl.log"
    log.write_text(RING_LOG.format(bytes=GIB))
    (row, _) = accept(output({GIB: 360}), "--cluster", H100, "--log", log)
    assert (row["expected_from"], row["verdict"]) == ("model", "pass")
    assert 335e9 <= row["low"] <= row["expected"] <= row["high"] <= 375e9
    (slow, _) = accept(output({GIB: 180}), "--cluster", H100, "--log", log, code=3)
    assert (slow["verdict"], slow["expected_from"]) == ("fail", "model")


def test_what_is_published_of_like_machines_alone_is_said_and_decides_nothing(output):
    """3 nodes have no class, and one source has 4."""
    path = output({GIB: 300}, ranks=24, nodes=3)
    rows = accept(path, "--cluster", H100)
    assert {row["verdict"] for row in rows} == {"cannot_tell"}
    assert {row["expected_from"] for row in rows} == {"nearest"}
    assert all(row["reason"] and row["causes"] for row in rows)
    first, *_ = text(path, "--cluster", H100)
    assert first.startswith("no verdict: ")
    assert "2 below what was published" in first
    assert text(path, "--cluster", H100, "--require", "1", code=3)[0].startswith("no verdict: ")


def test_what_nobody_published_is_beside_what_the_ports_carry(output):
    path = output({GIB: 41}, ranks=8 * 64, nodes=64)
    rows = accept(path, "--cluster", H100)
    assert {(row["verdict"], row["expected_from"]) for row in rows} == {("cannot_tell", "physics")}
    assert {round(row["high"] / 1e9) for row in rows} == {406}
    first, *_ = text(path, "--cluster", H100)
    assert first.startswith("no verdict: ")
    assert "10 % of the 406 GB/s that the ports carry" in first
    assert "--make-reference" in first
    text(path, "--cluster", H100, "--require", "1", code=3)


@pytest.mark.parametrize(("rate", "code"), [(12, 0), (60, 3)])
def test_more_than_the_ports_carry_cannot_be(output, rate, code):
    path = output({GIB: rate}, ranks=2, nodes=2)
    path.write_text(path.read_text().replace("H100 80GB HBM3", "RTX PRO 6000"))
    ended = invoke("accept", path, "--cluster", "aws-g7e")
    assert ended.code == code
    assert ended.out.startswith("no verdict: ") == (code == 0)
    assert ("the ports carry 12.5 GB/s at most" in ended.out) == (code == 3)


@pytest.mark.parametrize(
    ("rate", "words"),
    [(358, "within what"), (345, "within 3.7 % of what"), (300, "16 % below what")],
)
def test_the_first_line_says_how_far_a_row_is_from_what_one_source_published(output, rate, words):
    first, *_ = text(output({GIB: rate}, ranks=24, nodes=3), "--cluster", H100)
    assert f"{words} one source published (" in first


def test_the_row_and_the_sentence_agree_on_a_rate_next_to_what_sources_published(output):
    lines = text(output({16 * MIB: 195}, ranks=8, nodes=1), "--cluster", H100)
    assert "within 4.0 % of what 3 sources published (203 to 240 GB/s" in lines[0]
    assert "2 rows: 2 near what was published" in lines[0]
    assert [line for line in lines if "3 sources  near what was published" in line]
    reason = next(line for line in lines if line.startswith("  2 rows"))
    assert " near what " in reason
    inside = text(output({16 * MIB: 230}, ranks=8, nodes=1), "--cluster", H100)
    assert [line for line in inside if "3 sources  within what was published" in line]


def test_sources_that_are_not_enough_are_counted_by_what_they_lack(output):
    first, *_ = text(output({16 * MIB: 195}, ranks=8, nodes=1), "--cluster", H100)
    assert first.count(" (interpolated)") == 2
    assert "1 of the 3 has figures near this size" in first
    path = output({GIB: 300}, ranks=64, nodes=8)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA B200"))
    first, *_ = text(path, "--cluster", "8xb200-400g")
    assert first.count(" (H100)") == 2
    assert "they all differ" in first


def test_a_file_alone_is_answered_with_the_clusters_that_have_its_gpus(output):
    ended = invoke("accept", output(HEALTHY))
    assert ended.is_bad_input("--cluster", "NVIDIA H100 80GB HBM3", "8xh100-400g", "aws-p5")


def test_causes_stand_before_the_rows_and_rows_that_are_better_than_published_are_counted(output):
    path = output(HEALTHY | {512 << 20: 200, GIB: 180, 8 * GIB: 520})
    lines = text(path, "--cluster", H100, code=3)
    assert "2 better than what was published" in lines[0]
    headings = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert headings[0].startswith("likely causes")


def test_absent_values_are_null_and_every_row_has_the_keys_of_the_contract(output):
    keys = (
        "collective",
        "bytes",
        "nodes",
        "ranks",
        "quantity",
        "measured",
        "low",
        "expected",
        "high",
        "verdict",
        "causes",
        "expected_from",
    )
    rows = accept(output({8: 0.0003, GIB: 450}), "--cluster", H100)
    assert all(key in row for row in rows for key in keys)
    unknown = [row for row in rows if row["expected_from"] is None]
    assert all(row[key] is None for row in unknown for key in ("low", "expected", "high"))


def test_the_guides_commands_make_a_reference_of_outputs_and_judge_another_one(
    output, tmp_path, monkeypatch
):
    guide = (
        (Path(__file__).parents[2] / "results" / "CHOOSE.md")
        .read_text()
        .partition("### Against your own runs")[2]
        .partition("\n#")[0]
    )
    commands = [shlex.split(line)[1:] for line in guide.splitlines() if line.startswith("hpccoll ")]
    monkeypatch.chdir(tmp_path)
    curve = {MIB << step: 450 / (1 + 32 / (1 << step)) for step in range(14)}
    for number in range(1, 6):
        output(
            {size: (1 - number / 1000) * rate for size, rate in curve.items()}, f"run{number}.txt"
        )
    for share, code in ((1.0, 0), (0.8, 3)):
        output(
            {size: rate * (share if size >= GIB else 1) for size, rate in curve.items()},
            "today.txt",
        )
        assert [invoke(*words).code for words in commands] == [0, code]


def test_outputs_are_compared_with_each_other_and_with_a_reference_of_outputs(output, tmp_path):
    runs = [
        output({size: (1 - n / 1000) * r for size, r in HEALTHY.items()}, f"{n}.txt")
        for n in range(5)
    ]
    slow = output({size: rate / 2 for size, rate in HEALTHY.items()}, "slow.txt")
    alone = json.loads(invoke("compare", runs[0], slow, "--json").out)
    assert {round(each["new_s"] / each["old_s"], 2) for each in alone["undecided"]} == {2.0}
    assert invoke("compare", "--make-reference", *runs, "--out", tmp_path / "F.json").code == 0
    held = invoke("compare", slow, "--reference", tmp_path / "F.json", "--json")
    # both placements
    assert (held.code, len(json.loads(held.out)["regressions"])) == (3, 2 * len(HEALTHY))


def test_an_output_given_twice_or_copied_makes_no_reference(output, tmp_path):
    one, other = (
        output(HEALTHY),
        output({size: 0.99 * rate for size, rate in HEALTHY.items()}, "other.txt"),
    )
    copy = output(HEALTHY, "copy.txt")
    for runs in ((one, other, one), (one, other, copy)):
        ended = invoke("compare", "--make-reference", *runs, "--out", tmp_path / "F.json")
        assert ended.is_bad_input("--make-reference", "given twice")


def test_a_reference_of_equal_runs_passes_one_more_and_fails_a_slower_one(tmp_path):
    runs = [write_run(tmp_path / f"{seed}.h5", seed=seed) for seed in range(6)]
    slower = dict.fromkeys((("ring", size) for size in SIZES), 1.5)
    slow = write_run(tmp_path / "slow.h5", slower, seed=7)
    reference = tmp_path / "F.json"
    assert invoke("compare", "--make-reference", *runs[:5], "--out", reference).code == 0
    healthy = accept(runs[5], "--reference", reference)
    assert {row["expected_from"] for row in healthy} == {"reference"}
    assert "fail" not in {row["verdict"] for row in healthy}
    rows = accept(slow, "--reference", reference, code=3)
    assert {row["algorithm"] for row in rows if row["verdict"] == "fail"} == {"ring"}


def test_a_run_that_ended_early_lacks_cases_of_the_reference(tmp_path):
    runs = [write_run(tmp_path / f"{seed}.h5", seed=seed) for seed in range(5)]
    ended = dict.fromkeys(
        ((name, size) for name in ("ring", "recursive_doubling") for size in SIZES[2:]), None
    )
    short = write_run(tmp_path / "short.h5", ended, seed=6)
    reference = tmp_path / "F.json"
    assert invoke("compare", "--make-reference", *runs, "--out", reference).code == 0
    assert "of the reference missing" in text(short, "--reference", reference)[0]
    for required, code in ((0, 0), (1, 3)):
        ended = invoke("accept", short, "--reference", reference, "--require", required, "--json")
        assert (ended.code, "of the reference missing" in ended.err) == (code, True)
    assert text(short, "--reference", reference, "--require", 1, code=3)[0].startswith(
        "cannot tell: "
    )


def test_a_gate_requires_rows_of_each_file(output):
    known, unknown = output(HEALTHY), output({GIB: 300}, "three.txt", ranks=24, nodes=3)
    assert (
        "0 rows of three.txt" in text(known, unknown, "--cluster", H100, "--require", 4, code=3)[0]
    )


def test_a_bandwidth_above_all_that_is_known_does_not_pass_by_its_small_sizes(output):
    """It ends with 0 unless rows are required."""
    path = output(HEALTHY | {GIB: 585, 8 * GIB: 585})
    for required, code in (((), 0), (("--require", 1), 3)):
        first, *_ = text(path, "--cluster", H100, *required, code=code)
        assert first.startswith("no verdict: all_reduce 8 GiB")
        assert "above the" in first


def test_files_of_one_name_are_told_apart(output, tmp_path):
    (tmp_path / "b").mkdir()
    paths = output(HEALTHY), output(HEALTHY, "b/nccl.txt")
    assert {row["file"] for row in accept(*paths, "--cluster", H100)} == {*map(str, paths)}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), f"NVIDIA H100 80GB HBM3; do: --cluster {H100}"),
        (("--cluster", H100, "--machine", "m.json"), "only one of --cluster, --machine"),
        (("--cluster", "8xh999"), "hpccoll list clusters"),
        (("--reference", "nowhere.json"), "nowhere.json"),
        (("--cluster", H100, "--log", "nowhere.log"), "nowhere.log"),
        (("--cluster", H100, "--out", "a.pdf"), "--out"),
        (("--cluster", H100, "--require", "-1"), "--require"),
    ],
)
def test_bad_input_is_one_line(output, words, named):
    assert invoke("accept", output(HEALTHY), *words).is_bad_input(named)


def proposed(*words):
    """Return the clusters that accept proposes if the user names none."""
    ended = invoke("accept", *words)
    assert ended.is_bad_input("give one of --cluster, --machine, --reference")
    return re.split(
        r", | or ", ended.err.rstrip("\n").partition("do: ")[2].rpartition("--cluster ")[2]
    )


def test_without_a_cluster_those_with_the_gpus_of_any_output_of_nccl_tests_are_proposed(output):
    path = output(HEALTHY)
    clusters = proposed(path)
    assert clusters[0] == H100
    assert len(clusters) < 10
    headerless = [line for line in path.read_text().splitlines() if "all_reduce_perf" not in line]
    path.write_text("\n".join(line for line in headerless if "version" not in line))
    assert proposed(path) == clusters


def test_a_damaged_file_is_named_before_a_cluster_is_asked_for(output):
    path = output(HEALTHY)
    lines = path.read_text().replace("450.00", "4#0.00").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "4#0.00" in text)
    for kept in (lines, [text.replace("all_reduce_perf", "") for text in lines]):
        path.write_text("\n".join(kept))
        ended = invoke("accept", path)
        assert ended.is_bad_input(f"{path.name}: line {line}", "4#0.00")
        assert "--cluster" not in ended.err


def of_l40s(output, **shape):
    """Return an output of GPUs that no described cluster has."""
    path = output({GIB: 20}, **shape)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA L40S"))
    return path


def guide_cluster(tmp_path):
    """Return the cluster file of the guide, written to a file."""
    guide = (Path(__file__).parents[2] / "results" / "CHOOSE.md").read_text()
    content = guide.partition("# l40s.yaml")[2].partition("\n")[2].partition("```")[0]
    path = tmp_path / "l40s.yaml"
    path.write_text(content)
    return path


def test_gpus_of_no_cluster_are_answered_with_what_a_file_needs_and_the_guides_file_has_it(
    output, tmp_path
):
    path, cluster = of_l40s(output), guide_cluster(tmp_path)
    assert invoke("accept", path).is_bad_input(
        "NVIDIA L40S", "ranks_per_node: 8", "class", "fabric"
    )
    assert {row["expected_from"] for row in accept(path, "--cluster", cluster)} == {"physics"}


def test_of_a_port_that_gpus_share_the_share_of_a_ring_is_beside_what_others_might_get(
    output, tmp_path
):
    path = output({GIB: 11})
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA L40S"))
    words = path, "--cluster", guide_cluster(tmp_path)
    rows = accept(*words)
    assert {(row["verdict"], row["ring_Bps"]) for row in rows} == {("cannot_tell", 12.5e9)}
    assert all(row["ring_Bps"] < row["wire_Bps"] for row in rows)
    first, *others = text(*words)
    assert "88 % of the 12.5 GB/s" in first
    assert any("88 % of 12.5 GB/s" in line for line in others)


def test_what_is_faster_than_a_ring_is_not_beside_one(output, tmp_path):
    rows = accept(of_l40s(output), "--cluster", guide_cluster(tmp_path))
    assert {row["ring_Bps"] for row in rows} == {None}


def test_gpus_of_rocm_are_counted_a_node_for_such_a_file(tmp_path):
    path = tmp_path / "rccl.txt"
    described = (Path(__file__).parents[1] / "inputs" / "rccl-tests-2.17.txt").read_text()
    path.write_text(described.replace("MI300X", "MI250X"))
    assert invoke("accept", path).is_bad_input("2 ranks on a node", "ranks_per_node: 2")


def test_of_nodes_with_unequal_numbers_of_gpus_a_file_has_an_open_number(output):
    path = of_l40s(output, ranks=15, nodes=2)
    path.write_text(path.read_text().replace("node-2 device  0", "node-1 device  7"))
    assert invoke("accept", path).is_bad_input("NVIDIA L40S", "ranks_per_node: ...")


def test_a_file_without_a_class_is_answered_with_the_section_that_it_lacks(output, tmp_path):
    cluster = guide_cluster(tmp_path)
    lines = cluster.read_text().splitlines()
    cluster.write_text("\n".join(line for line in lines if not line.startswith("class")))
    first, *_ = text(of_l40s(output), "--cluster", cluster, code=3)
    assert "section class with fabric and network" in first


@pytest.mark.parametrize(("nodes", "is_named"), [(4, True), (3, True), (8, False)])
def test_figures_of_two_nodes_are_named_beside_four_that_they_do_not_judge(output, nodes, is_named):
    path = output({4 * GIB: 250}, ranks=8 * nodes, nodes=nodes)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"))
    rows = accept(path, "--library", "RCCL", "--cluster", "8xmi300x-400g", code=0)
    assert {row["verdict"] for row in rows} == {"cannot_tell"}
    assert all(("on 2 nodes" in row["reason"]) == is_named for row in rows)


def test_figures_of_four_nodes_are_named_beside_two_that_nobody_published(output):
    path = output({GIB: 250}, ranks=16, nodes=2)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA B200"))
    rows = accept(path, "--cluster", "aws-p6-b200", code=0)
    assert all("on 4 nodes" in row["reason"] for row in rows)


def test_without_names_of_gpus_the_clusters_with_as_many_a_node_are_proposed(output):
    path = output(HEALTHY)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA Graphics Device"))
    clusters = proposed(path)
    assert {H100, "8xmi300x-400g"} <= {*clusters}
    assert "4xgh200-200g" not in clusters


def test_of_results_that_name_no_node_all_clusters_are_proposed():
    assert proposed(OUTPUTS / "osu_allreduce.txt") == cluster_names()


def test_of_results_of_cpus_all_clusters_are_proposed():
    output = OUTPUTS / "osu_allreduce.txt"
    assert proposed(output, "--ranks", "16", "--nodes", "2") == cluster_names()


@pytest.mark.parametrize("content", ["# Avg bus bandwidth    : 140.5\n", "it was fast\n", ""])
def test_an_average_alone_and_a_file_without_sizes_are_refused(tmp_path, content):
    path = tmp_path / "a.txt"
    path.write_text(content)
    assert invoke("accept", path, "--cluster", H100).is_bad_input(path.name)


def test_logs_of_several_runs_are_refused(output, tmp_path):
    for number in (1, 2):
        start = f"ncclCommInitRank comm 0x1 rank 0 nranks 16 commId 0x{number}23 - Init START"
        (tmp_path / f"{number}.log").write_text(f"n1:{number}:{number} [0] NCCL INFO {start}\n")
    logs = [word for number in (1, 2) for word in ("--log", tmp_path / f"{number}.log")]
    assert invoke("accept", output(HEALTHY), "--cluster", H100, *logs).is_bad_input(
        "--log", "one run of 16 ranks"
    )


@pytest.mark.parametrize("suffix", [".html", ".svg"])
def test_the_page_is_written_and_named(output, tmp_path, suffix):
    out = tmp_path / f"page{suffix}"
    assert text(output(HEALTHY), "--cluster", H100, "--out", out)[-1] == f"page: {out}"
    assert out.stat().st_size > 1000


def test_outputs_of_several_programs_are_judged_together():
    outputs = OUTPUTS / "nccl_all_reduce.txt", OUTPUTS / "imb_mpi1.txt"
    rows = accept(*outputs, "--nodes", "2", "--cluster", H100, code=3)
    assert {row["file"] for row in rows} == {path.name for path in outputs}


@pytest.mark.parametrize(
    ("require", "code"), [((), 3), (("--require", 0), 0), (("--require", 1), 3)]
)
def test_a_gate_stays_closed_if_nothing_can_be_told_unless_the_user_requires_no_row(
    output, require, code
):
    path = output({1 << 30: 450})
    path.write_text(path.read_text().replace("H100 80GB HBM3", "L40S"))
    ended = invoke("accept", path, "--cluster", "8xh100-400g", *require)
    assert (ended.code, ended.out.startswith("cannot tell")) == (code, True)
    assert ("0 of 2 rows" in ended.out.splitlines()[-1]) == (require == ())


def test_a_pass_at_a_large_size_needs_no_majority_of_rows(output):
    path = output({1 << 30: 450} | {8 << power: 1 for power in range(8)})
    accepted = invoke("accept", path, "--cluster", "8xh100-400g")
    assert (accepted.code, accepted.out.startswith("pass")) == (0, True)


@pytest.mark.parametrize(
    ("require", "code"), [((), 3), (("--require", 0), 0), (("--require", 1), 3)]
)
def test_a_comparison_in_which_all_is_too_noisy_to_tell_is_no_success(output, require, code):
    runs = [output({8 << power: 1 for power in range(4)}, name) for name in ("old.txt", "new.txt")]
    ended = invoke("compare", *runs, *require)
    assert ended.code == code
    assert ("0 of 8 cases" in ended.out.splitlines()[-1]) == (code == 3)


UNNAMED = "the results do not say which GPUs ran; they are taken for H100 or H200"


@pytest.mark.parametrize("name", ["", "Graphics Device", "NVIDIA Device", "NVIDIA H100 80GB HBM3"])
def test_gpus_without_a_model_in_their_name_are_those_of_the_cluster_that_the_user_names_which_is_said(
    output, name
):
    path = output(HEALTHY)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", name))
    is_unnamed = "H100" not in name
    ended = invoke("accept", path, "--cluster", H100)
    assert (ended.code, ended.out.startswith("pass"), UNNAMED in ended.out) == (0, True, is_unnamed)
    as_json = invoke("accept", path, "--cluster", H100, "--json")
    assert (as_json.code, UNNAMED in as_json.err) == (0, is_unnamed)


def test_results_of_other_gpus_do_not_pass(output):
    path = output(HEALTHY)
    path.write_text(path.read_text().replace("H100 80GB HBM3", "L40S"))
    ended = invoke("accept", path, "--cluster", H100)
    assert (ended.code, ended.out.startswith("cannot tell"), "NVIDIA L40S" in ended.out) == (
        3,
        True,
        True,
    )


def is_refused(*words, verdict="cannot tell", reason=""):
    """Return whether the command ends with 3, with a first line that has another verdict than pass, and a reason."""
    ended = invoke("accept", *words)
    assert (ended.code, ended.out.startswith(f"{verdict}: ")) == (3, True), ended
    return reason in ended.out


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [(3, "4 nodes"), (64, "64 nodes x 8 (or 0.5 to 2 times as many nodes)")],
)
def test_figures_of_other_numbers_of_nodes_decide_nothing_and_the_reason_names_the_number(
    output, nodes, reason
):
    ended = invoke("accept", output({GIB: 350}, ranks=8 * nodes, nodes=nodes), "--cluster", H100)
    assert (ended.code, ended.out.startswith("no verdict: "), reason in ended.out) == (
        0,
        True,
        True,
    )


def test_a_run_without_warm_up_does_not_pass(output):
    path = output(HEALTHY)
    path.write_text(path.read_text().replace("warmup iters: 5", "warmup iters: 0"))
    assert is_refused(path, "--cluster", H100, reason="warm-up")


@pytest.mark.parametrize(
    ("sources", "verdict"), [(["ours"], "no verdict"), (["ours", "theirs"], "pass")]
)
def test_figures_of_one_source_do_not_let_a_run_pass(output, tmp_path, sources, verdict):
    figure = {
        "nodes": 2,
        "bytes": GIB,
        "low_bytes_per_s": 440e9,
        "high_bytes_per_s": 460e9,
        "source": sources,
        "collective": "reduce",
        "algorithm": "default",
    }
    machine = tmp_path / "new.yaml"
    machine.write_text(json.dumps({"like": H100, "published": [figure]}))
    ended = invoke("accept", output({GIB: 450}, name="reduce"), "--cluster", machine)
    assert (ended.code, ended.out.startswith(f"{verdict}: ")) == (0, True), ended
    within = "within what one source published (440 to 460 GB/s, ours (in the file of new))"
    assert (within in ended.out) == (verdict == "no verdict")


BAD = {
    "wrong": {"status": "wrong", "wrong": 1, "reason": "1 element differs"},
    "failed": {"times": None, "status": "failed", "reason": "rank 1 died"},
}


@pytest.mark.parametrize("status", BAD)
def test_wrong_results_and_failed_cases_fail_whatever_is_expected(tmp_path, status):
    cases = [raw_examples.case(size) for size in (8, 16)]
    outcomes = raw_examples.outcome(cases[0]), raw_examples.outcome(cases[1], **BAD[status])
    write_raw_file(raw_examples.raw(*outcomes), tmp_path / "a.h5")
    reason = BAD[status]["reason"]
    for require in ((), ("--require", 0)):
        assert is_refused(
            tmp_path / "a.h5", "--cluster", H100, *require, verdict="fail", reason=reason
        )


def test_a_slow_geometry_is_named_and_changes_no_verdict(output):
    rates = {2: 450, 3: 180, 4: 360}
    files = [
        output({GIB: rate}, f"{nodes}.txt", ranks=8 * nodes, nodes=nodes)
        for nodes, rate in rates.items()
    ]
    where = "--cluster", H100, "--require", 0
    rows = accept(*files, *where)
    assert [row["verdict"] for row in rows] == ["pass"] * 2 + ["cannot_tell"] * 4
    _, geometry, reason, *_ = text(*files, *where)
    assert geometry.startswith("this geometry, not a node: all_reduce 1 GiB on 3 nodes")
    assert "nccl#1856" in reason
    as_json = invoke("accept", *files, *where, "--json")
    assert "this geometry, not a node" in as_json.err
    page = files[0].with_name("accept.html")
    text(*files, *where, "--out", page)
    assert "this geometry, not a node" in page.read_text()
    assert not any("this geometry" in line for line in text(*files[:2], *where))
