"""Outputs of rccl-tests, the table and the files: they are results of RCCL on AMD's GPUs, not of NCCL."""

import json

import pytest
from imported_outputs import OUTPUTS, given_for, read_example

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import read_output

RECORDS = "rccl_all_gather.json", "rccl_all_reduce_lines.json", "rccl_broadcast.csv"


def read(tmp_path, name, text, **given):
    path = tmp_path / name
    path.write_text(text)
    return read_output(path, SuppliedMetadata(**given) if given else given_for(name))


def test_the_banner_of_rccl_shows_the_suite_where_its_version_line_is_missing(tmp_path):
    name = "rccl_all_reduce.txt"
    text = "".join((OUTPUTS / name).read_text().splitlines(keepends=True)[1:])
    output = read(tmp_path, name, text)
    assert (output.source, output.program, output.library) == ("rccl-tests", "rccl-tests", "RCCL 2.28.3")


def test_gpus_of_amd_show_the_suite_where_nothing_else_names_it(tmp_path):
    name = "rccl_reduce_scatter_in_place.txt"
    lines = (OUTPUTS / name).read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if "ccl-tests" not in line and not line.startswith(("RCCL", "Librccl")))
    output = read(tmp_path, name, text, library="of ROCm 6.2")
    assert (output.source, output.program, output.library) == ("rccl-tests", "rccl-tests", "of ROCm 6.2")
    assert {(one.case.transport, one.case.device) for one in output.results} == {("rccl", "rocm")}


def test_the_columns_of_the_algorithm_are_kept_as_they_were_printed():
    (result,) = read_example("rccl_reduce_scatter_in_place.txt").results
    assert {"RING", "LL", "4"} <= {*result.reported.values()}


def test_json_of_nccl_tests_with_gpus_of_amd_is_that_of_rccl_tests(tmp_path):
    text = (OUTPUTS / "nccl_all_gather.json").read_text().replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X")
    output = read(tmp_path, "out.json", text)
    assert (output.source, output.library, output.results[0].case.transport) == ("rccl-tests", "RCCL 2.27.7", "rccl")


def test_nodes_are_asked_for_because_the_file_counts_groups_under_that_name(tmp_path):
    name = "rccl_all_gather.json"
    with pytest.raises(BadInputError, match="--nodes"):
        read(tmp_path, name, (OUTPUTS / name).read_text(), ranks=16)
    with pytest.raises(BadInputError, match="--ranks"):
        read(tmp_path, name, (OUTPUTS / name).read_text(), ranks=8, nodes=2)


def test_ranks_are_those_of_a_group_with_all_gpus_of_its_processes(tmp_path):
    name = "rccl_all_gather.json"
    text = (OUTPUTS / name).read_text()
    groups = text.replace('"nodes":1, "ranks":16', '"nodes":2, "ranks":32')
    assert read(tmp_path, name, groups).ranks == 16
    gpus = text.replace('"ranksPerNode":16, "gpusPerRank":1', '"ranksPerNode":4, "gpusPerRank":4')
    assert read(tmp_path, name, gpus).ranks == 16


@pytest.mark.parametrize("name", RECORDS)
def test_headings_of_older_versions_are_read(name, tmp_path):
    text = (OUTPUTS / name).read_text()
    assert read(tmp_path, name, text.replace("ranksPerNode", "rankspernode").replace('"wrong"', '"#wrong"')).results


@pytest.mark.parametrize(
    "change",
    [
        {"time": "nan"}, {"time": -1}, {"size": "1K"}, {"name": "SendRecv"}, {"inPlace": 2}, {"wrong": "x"},
        {"ranksPerNode": 0}, {"ranksPerNode": 10**12}, {"busBw": None}, {"type": ""}, {"gpusPerRank": "4.0"},
        {"ranksPerNode": 8},
    ],
)  # fmt: skip
def test_a_record_that_could_be_misread_is_refused_with_its_place(change, tmp_path):
    name = "rccl_all_gather.json"
    records = json.loads((OUTPUTS / name).read_text())
    records[1].update(change)
    with pytest.raises(BadInputError, match="result 2"):
        read(tmp_path, name, json.dumps(records))


@pytest.mark.parametrize("name", RECORDS)
def test_a_file_that_is_cut_within_its_last_record_is_refused(name, tmp_path):
    text = (OUTPUTS / name).read_text().rstrip()
    for cut in (2, 8, 30):
        with pytest.raises(BadInputError):
            read(tmp_path, name, text[:-cut])
