"""An import of outputs made at random: correct ones tell what was printed, damaged ones nothing that was not."""

import pytest
from fuzz_outputs import imported, mistakes, was_printed
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_outputs import SUITES, output_of_seed

MUTATIONS = 500


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
def test_a_damaged_output_is_never_imported_as_another_one(suite, path):
    share = range(list(SUITES).index(suite), MUTATIONS, len(SUITES))
    assert not [mistake for seed in share for mistake in mistakes(seed, suite, path)[2]]
