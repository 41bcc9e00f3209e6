"""An import of outputs made at random: correct ones tell what was printed, damaged ones nothing that was not."""

import pytest
from cli_runner import invoke
from fuzz_outputs import imported, mistakes, was_printed
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_outputs import SUITES, output_of_seed

from hpccoll.store.load_results import read_results

MUTATIONS = 500
SLACK, LAST_DIGIT = 0.02, 0.005
"""The relative difference that a result may have, and half of the last digit of a printed bandwidth in GB/s."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs") / "output.txt"


@pytest.mark.parametrize("suite", SUITES)
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32))
def test_a_correct_output_has_the_results_that_it_prints_or_is_refused(suite, seed, path):
    made = output_of_seed(seed, suite)
    assert not [each for each in imported(made, path) or () if not was_printed(each, made.results)]


@pytest.mark.parametrize("suite", SUITES)
def test_most_correct_outputs_are_not_refused(suite, path):
    read = [imported(output_of_seed(seed, suite), path) for seed in range(40)]
    assert sum(each is not None for each in read) > 36


@pytest.mark.parametrize("suite", SUITES)
def test_the_command_stores_the_bandwidth_that_was_printed(suite, tmp_path):
    for seed in range(2):
        made = output_of_seed(seed, suite)
        path, out = tmp_path / f"{seed}.txt", tmp_path / f"{seed}.h5"
        path.write_text(made.text)
        options = [word for key, value in made.given.items() for word in (f"--{key}", value)]
        ended = invoke("import", path, *options, "--out", out)
        assert ended.code == 0, ended.err
        for row in read_results([out]).rows:
            if row.rounds > 1:  # of a program that comes twice in an output: the median of both
                continue
            assert [
                each for each in made.results
                if (row.collective, row.ranks, row.nodes, row.requested_bytes, row.in_place)
                == (each.collective, each.ranks, each.nodes, each.bytes, each.in_place)
                and row.median_s == pytest.approx(each.seconds, rel=SLACK)
                and (each.busbw is None or row.busbw_Bps / 1e9 == pytest.approx(each.busbw, rel=SLACK, abs=LAST_DIGIT))
            ], row  # fmt: skip


@pytest.mark.parametrize("suite", SUITES)
def test_a_damaged_output_is_never_imported_as_another_one(suite, path):
    share = range(list(SUITES).index(suite), MUTATIONS, len(SUITES))
    assert not [mistake for seed in share for mistake in mistakes(seed, suite, path)[2]]
