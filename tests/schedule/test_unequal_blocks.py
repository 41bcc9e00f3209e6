import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import unequal_blocks
from hpccoll.schedule.unequal_blocks import PATTERNS, blocks


@pytest.fixture
def weights(tmp_path):
    """Write a file of weights and return its path."""

    def write(text: str) -> str:
        path = tmp_path / "weights.csv"
        path.write_text(text)
        return str(path)

    return write


def test_in_zipf_traffic_rank_j_is_as_popular_as_one_in_j_to_every_sender():
    found = blocks("zipf", 5, 1000)
    assert (found == found[0]).all()
    assert (found[0, 0] // (found[0] + 1) <= [1, 2, 3, 4, 5]).all()
    # 5000 / (1 + 1/2 + ... + 1/5) = 2189.8, and its parts
    assert found[0].tolist() == [2189, 1094, 729, 547, 437]


@given(st.sampled_from(sorted(PATTERNS)), st.integers(1, 20), st.integers(0, 100_000))
def test_blocks_are_of_the_asked_size_on_average_rounded_down(pattern, p, count):
    found = blocks(pattern, p, count)
    assert found.shape == (p, p)
    assert found.dtype == np.int64
    assert (found >= 0).all()
    assert 0 <= count * p * p - found.sum() < p * p + 1e-6 * count * p * p


def test_a_file_goes_by_its_digest_and_is_refused_when_it_has_changed(weights):
    path = weights("0,3\n1,0\n")
    name = unequal_blocks.named(path)
    assert re.fullmatch(re.escape(path) + "#[0-9a-f]{8}", name)
    assert unequal_blocks.named(name) == name
    assert blocks(name, 2, 8).tolist() == [[0, 24], [8, 0]]
    weights("0,3\n2,0\n")
    assert unequal_blocks.named(path) != name
    with pytest.raises(BadInputError, match="the file as it was planned; it has changed since"):
        unequal_blocks.named(name)


def test_a_file_is_read_once_for_all_sizes(weights, monkeypatch):
    name, read = unequal_blocks.named(weights("0,3\n1,0\n")), []
    parse = np.loadtxt
    monkeypatch.setattr(
        np, "loadtxt", lambda path, **more: read.append(path) or parse(path, **more)
    )
    for count in range(1, 9):
        assert blocks(name, 2, count).tolist() == [[0, 3 * count], [count, 0]]
        assert unequal_blocks.longest(name, 2, count) == 3 * count
    assert len(read) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n4,5,6\n", "2 lines of 2 numbers from 0 to 1e\\+18, a line for each sending rank"),
        ("1,-2\n3,4\n", "numbers from 0 to"),
        ("1,inf\n3,4\n", "numbers from 0 to"),
        ("0,0\n0,0\n", "and not all 0"),
        ("1e308,1e308\n1e308,1e308\n", "numbers from 0 to"),
        ("1,a\n3,4\n", "numbers with commas between them"),
    ],
)
def test_what_is_no_weights_is_refused_in_words(weights, text, words):
    with pytest.raises(BadInputError, match=words):
        blocks(weights(text), 2, 10)


def test_traffic_of_more_ranks_than_there_is_room_for_pairs_of_is_refused():
    with pytest.raises(BadInputError, match="ranks: 4097 is not valid: at most 4096"):
        blocks("zipf", 4097, 8)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "tidal",
            r"choose from uniform, zipf, random, a file \*.csv of weights, a row for each sender",
        ),
        ("nowhere.csv", r"traffic: .*nowhere.csv.* cannot be read: No such file"),
        ("uniform#12", "choose from uniform"),
    ],
)
def test_what_is_no_traffic_is_answered_with_the_choices(name, words):
    with pytest.raises(BadInputError, match=words):
        unequal_blocks.named(name)
