"""The command compare: what keeps it from saying that all is unchanged, and the exit code of each."""

import json

import pytest
from cli_runner import invoke
from imported_outputs import OUTPUTS
from printed_outputs import nccl_tests_output
from written_runs import write_run

UNCHANGED = "8 cases: 8 unchanged"


@pytest.fixture
def compare(tmp_path):
    """Return a function that compares two runs of eight cases, of which the new one is changed."""

    def compare(*factors, **changes):
        old = write_run(tmp_path / "old.h5", seed=1)
        new = write_run(tmp_path / "new" / "new.h5", factors, seed=2, **changes)
        return invoke("compare", old, new.parent)

    return compare


def test_equal_runs_are_unchanged(compare):
    ended = compare()
    assert (ended.code, ended.out.startswith(UNCHANGED), ended.err) == (0, True, "")


def test_a_case_that_the_new_run_lacks_ends_with_3(compare):
    ended = compare((("ring", 1024), None))
    assert (ended.code, ended.out.startswith("8 cases: 1 missing, 7 unchanged")) == (3, True)


def test_wrong_results_end_with_3_however_fast_they_are(compare):
    ended = compare(status="wrong", wrong=1)
    assert (ended.code, ended.out.startswith("8 cases: 8 wrong")) == (3, True)


def test_a_damaged_file_beside_a_whole_one_is_named_and_ends_with_3(compare, tmp_path):
    whole = write_run(tmp_path / "whole.h5", seed=2)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "cut.h5").write_bytes(whole.read_bytes()[:-99])
    ended = compare()
    assert (ended.code, "cut.h5" in ended.err) == (3, True)


def test_an_output_that_was_cut_short_is_named_and_ends_with_3(tmp_path):
    whole, cut = OUTPUTS / "nccl_all_reduce.txt", tmp_path / "cut.txt"
    cut.write_text("".join(whole.read_text().splitlines(keepends=True)[:-4]))
    codes = [invoke("compare", whole, new, "--require", 0).code for new in (whole, cut)]
    assert codes == [0, 3]
    ended = invoke("compare", whole, cut, "--require", 0)
    assert f"{cut} ends before its last line" in ended.err


def test_runs_without_a_common_case_are_refused(tmp_path):
    ours = write_run(tmp_path / "ours.h5")
    assert invoke("compare", ours, OUTPUTS / "nccl_all_reduce.txt").is_bad_input(
        "no case in common"
    )


def test_a_case_on_another_number_of_ranks_is_not_the_same_case(tmp_path):
    outputs = [(OUTPUTS / "osu_allreduce.txt", "--ranks", ranks) for ranks in (4, 8)]
    for number, (path, *given) in enumerate(outputs):
        raw = tmp_path / f"{number}.h5"
        assert invoke("import", path, *given, "--nodes", 2, "--out", raw).code == 0
    assert invoke("compare", tmp_path / "0.h5", tmp_path / "1.h5").is_bad_input(
        "they differ in ranks 4, now 8"
    )


def test_a_geometry_that_alone_became_slower_is_named_in_text_json_and_page(tmp_path):
    sides = {"old": {2: 400, 3: 380, 4: 360}, "new": {2: 400, 3: 180, 4: 360}}
    for side, rates in sides.items():
        (tmp_path / side).mkdir()
        for number in range(2):
            outputs = []
            for nodes, rate in rates.items():
                path = tmp_path / side / f"{nodes}-{number}.txt"
                noisy = {1 << 30: rate * (1 + 0.001 * number)}
                path.write_text(nccl_tests_output(noisy, ranks=8 * nodes, nodes=nodes))
                outputs.append(path)
        invoke("import", *sorted((tmp_path / side).glob("*.txt")), "--out", tmp_path / f"{side}.h5")
    both = tmp_path / "old.h5", tmp_path / "new.h5"
    ended = invoke("compare", *both, "--json", "--out", tmp_path / "compare.html")
    (geometry,) = json.loads(ended.out)["geometries"]
    assert (geometry["kind"], geometry["nodes"]) == ("geometry_odd_nodes", 3)
    assert ended.code == 3
    assert "this geometry, not a node" in invoke("compare", *both).out
    assert "this geometry, not a node" in (tmp_path / "compare.html").read_text()
