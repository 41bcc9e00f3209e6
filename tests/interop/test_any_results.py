"""Results of anybody, read into memory as one: raw files of ours, directories, and outputs of other programs."""

import shutil

import pytest
from imported_outputs import OUTPUTS, import_example
from printed_outputs import nccl_tests_output

from hpccoll.common.errors import BadInputError
from hpccoll.interop.any_results import read_any
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.store.load_results import to_results

NOTHING_MORE = SuppliedMetadata()
TEXT, JSON = OUTPUTS / "nccl_all_reduce.txt", OUTPUTS / "nccl_all_gather.json"


def rows_of(*paths, given=NOTHING_MORE):
    return to_results(read_any(paths, given).files).rows


def test_an_output_has_the_rows_that_its_import_has_and_no_file_is_written(tmp_path):
    imported = import_example(TEXT.name, tmp_path / "a.h5")
    (tmp_path / "a.h5").unlink()
    copy = shutil.copy(TEXT, tmp_path)
    read = rows_of(tmp_path / TEXT.name)
    assert [(row.case_id, row.median_s) for row in read] == [
        (row.case_id, row.median_s) for row in imported
    ]
    assert [*map(str, tmp_path.iterdir())] == [str(copy)]


def test_raw_files_directories_and_outputs_of_several_programs_are_read_together(tmp_path):
    for name in ("kept", "below"):
        (tmp_path / name).mkdir()
        import_example("osu_allreduce.txt", tmp_path / name / "osu.h5")
    shutil.move(tmp_path / "kept" / "osu.h5", tmp_path / "raw-file-of-another-name")
    read = read_any(
        [tmp_path / "raw-file-of-another-name", tmp_path / "below", TEXT, JSON], NOTHING_MORE
    )
    assert sorted(read.file_names.values()) == sorted(
        ["raw-file-of-another-name", "osu.h5", TEXT.name, JSON.name]
    )
    rows = to_results(read.files).rows
    assert {row.source for row in rows} == {"osu", "nccl-tests"}
    assert {row.run_id for row in rows} == read.file_names.keys()


def test_equal_outputs_are_runs_of_their_own(tmp_path):
    outputs = [tmp_path / f"{number}.txt" for number in range(2)]
    for output in outputs:
        output.write_text(nccl_tests_output({1 << 30: 450}))
    assert len(rows_of(*outputs)) == 2 * len(rows_of(outputs[0]))


def test_what_an_output_does_not_say_is_given_and_a_truncated_one_is_named(tmp_path):
    with pytest.raises(BadInputError, match="--nodes"):
        rows_of(OUTPUTS / "osu_allreduce.txt")
    rows = rows_of(OUTPUTS / "osu_allreduce.txt", given=SuppliedMetadata(ranks=8, nodes=2))
    assert {(row.ranks, row.nodes) for row in rows} == {(8, 2)}
    path = tmp_path / "cut.txt"
    path.write_text(TEXT.read_text().partition("# Out of bounds")[0])
    assert read_any([path], NOTHING_MORE).truncated == [path]


@pytest.mark.parametrize("text", ["", "# Avg bus bandwidth    : 140.5\n", "busbw 180 GB/s\n", "{}"])
def test_a_file_without_sizes_is_refused(tmp_path, text):
    path = tmp_path / "out.txt"
    path.write_text(text)
    with pytest.raises(BadInputError, match="nccl-tests"):
        read_any([path], NOTHING_MORE)


@pytest.mark.parametrize("name", ["nowhere.txt", "nowhere.h5"])
def test_a_file_that_does_not_exist_is_named(tmp_path, name):
    with pytest.raises(BadInputError, match=name):
        read_any([tmp_path / name], NOTHING_MORE)
