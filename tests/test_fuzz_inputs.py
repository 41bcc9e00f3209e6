"""A few of the bad inputs that tests/fuzz_inputs.py makes: each ends with 2 and a line for each mistake."""

from itertools import islice

import pytest
from cli_runner import invoke
from fuzz_inputs import fault, inputs, names, planned, read, run_limited, shown

SEED = 20261122


@pytest.mark.parametrize("number", range(5))
def test_a_bad_input_gives_one_line_per_mistake_and_leaves_no_file(number, tmp_path, monkeypatch):
    for attempt, bad_input in enumerate(islice(inputs(SEED + number, (planned, read, shown)), 6)):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        bad_input.write_files(directory)
        monkeypatch.chdir(directory)
        before = names(directory)
        result = invoke(*bad_input.arguments)
        assert fault(result.code, result.out, result.err) is None, (bad_input.arguments, result)
        assert names(directory) == before, bad_input.arguments


def test_a_bad_input_needs_little_time_and_memory():
    for bad_input in islice(inputs(SEED), 3):
        problem, cost, result = run_limited(bad_input)
        assert problem is None, (bad_input.arguments, cost, result)
