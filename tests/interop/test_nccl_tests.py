"""Outputs of nccl-tests, the table and the JSON: both placements of each line become cases."""

import json

import pytest
from imported_outputs import OUTPUTS, import_files, read_example

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.nccl_tests import read_nccl_tests

TABLE = (OUTPUTS / "nccl_all_reduce.txt").read_text()
JSON = (OUTPUTS / "nccl_all_gather.json").read_text()


def read(tmp_path, text, **given):
    path = tmp_path / "nccl.txt"
    path.write_text(text)
    return read_nccl_tests(path, text.splitlines(keepends=True), SuppliedMetadata(**given))


def changed(change):
    """Return the JSON after a function has changed its content."""
    content = json.loads(JSON)
    change(content)
    return json.dumps(content)


def test_a_process_in_the_json_has_all_its_devices_though_it_lists_one(tmp_path):
    assert read(tmp_path, JSON).ranks == 2
    text = changed(lambda content: content["config"].update(nthreads=2, ngpus=4))
    assert read(tmp_path, text.replace("0.041796", "0.073143").replace("0.042667", "0.074667")).ranks == 8


def test_statistics_of_iterations_are_kept_as_they_were_printed():
    reported = read_example("nccl_all_gather.json").results[0].reported
    assert (reported["time"], reported["p99_us"]) == ("12.25", "13.5")
    table = read_example("nccl_reduce_scatter_per_iteration.txt").results[0].reported
    assert (table["i_p99"], table["i_p99 in_place"]) == ("24.00", "23.00")


def test_ranks_are_those_of_the_first_of_several_groups(tmp_path):
    text = TABLE.replace("Group  0 Pid  52", "Group  1 Pid  52")
    for of_four, of_two in (("0.06", "0.04"), ("15.73", "10.49"), ("15.97", "10.65")):
        text = text.replace(of_four, of_two)
    output = read(tmp_path, text)
    assert (output.ranks, output.nodes, len(output.remarks)) == (2, 1, 1)


@pytest.mark.parametrize(
    ("name", "given"), [("nccl_all_reduce.txt", {"ranks": 8}), ("nccl_all_gather.json", {"nodes": 2})]
)
def test_other_ranks_or_nodes_than_the_output_lists_are_a_contradiction(name, given, tmp_path):
    out = tmp_path / "nccl.h5"
    ended = import_files(out, OUTPUTS / name, **{"ranks": None, "nodes": None, **given})
    assert ended.is_bad_input(*(f"--{key}" for key in given), *given.values())
    assert not out.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("(us)", "(ms)"), lambda text: text.replace(" (B)", "(KB)"),
        lambda text: text.replace("   time", "cputime"), lambda text: text.replace("100.00", "nan"),
        lambda text: text.replace("100.00", "1e300"), lambda text: text.replace("1048576  ", f"{10**16} "),
        lambda text: text.replace("     N/A\n", "\n"), lambda text: text.replace("all_reduce_perf", "allreduce_perf"),
        lambda text: text[: text.index("     N/A\n") + 7], lambda text: text.replace("100.00 ", "100.00 7 "),
    ],
)  # fmt: skip
def test_a_table_that_could_be_misread_is_refused_with_its_line(change, tmp_path):
    text = change(TABLE)
    assert text != TABLE
    with pytest.raises(BadInputError, match=r"line [0-9]+"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["results"][0]["out_of_place"].update(time="nan"),
        lambda content: content["results"][0]["out_of_place"].update(time=-1.0),
        lambda content: content["results"][0]["out_of_place"].update(
            cpu_time=content["results"][0]["out_of_place"].pop("time")
        ),
        lambda content: content["results"][0]["out_of_place"].update(nwrong="x"),
        lambda content: content["results"][0].update(size="1K"),
        lambda content: content["results"].append(None),
        lambda content: content["config"].update(devices={}) or content["config"].update(ngpus=10**9),
        lambda content: content["config"].update(ngpus=10**9),
        lambda content: content.pop("config"),
        lambda content: content.update(args=["sendrecv_perf"]),
    ],
)
def test_json_of_another_content_is_refused(change, tmp_path):
    with pytest.raises(BadInputError):
        read(tmp_path, changed(change))


def test_types_and_reductions_that_ours_has_not_are_left_out_with_remarks(tmp_path):
    lines = TABLE.splitlines(keepends=True)
    row = next(line for line in lines if line.strip().startswith("1024 "))
    others = row.replace(" float", "f8e4m3"), row.replace("   sum", "mulsum")
    output = read(tmp_path, TABLE.replace(row, "".join((row, *others))))
    assert len(output.results) == len(read(tmp_path, TABLE).results)
    assert len(output.remarks) == 2 * len(others)
