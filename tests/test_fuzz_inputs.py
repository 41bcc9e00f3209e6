"""A few of the bad inputs that tests/fuzz_inputs.py makes: each ends with 2 and a line for each mistake."""

from itertools import islice

import pytest
from cli_runner import invoke
from fuzz_inputs import fault, inputs, names, planned, read, shown, tried

SEED = 20261122


@pytest.mark.parametrize("number", range(5))
def test_a_bad_input_takes_a_line_for_each_mistake_and_leaves_nothing(number, tmp_path, monkeypatch):
    for attempt, one in enumerate(islice(inputs(SEED + number, (planned, read, shown)), 6)):
        place = tmp_path / str(attempt)
        place.mkdir()
        one.lay(place)
        monkeypatch.chdir(place)
        before = names(place)
        said = invoke(*one.words)
        assert fault(said.code, said.out, said.err) is None, (one.words, said)
        assert names(place) == before, one.words


def test_a_bad_input_takes_little_time_and_memory():
    for one in islice(inputs(SEED), 3):
        wrong, cost, said = tried(one)
        assert wrong is None, (one.words, cost, said)
