"""Flipped bits of raw files and journals: fewer than ``python tests/fuzz.py`` flips."""

import fuzz
import pytest


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fuzz.written(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", fuzz.ALLOWED)
def test_a_flipped_bit_is_harmless_or_refused_or_costs_one_line_which_is_named(whole, kind):
    strange = {bit: said for bit, said in fuzz.flips(whole[kind], 40, seed=13) if said not in fuzz.ALLOWED[kind]}
    assert not strange


def test_another_figure_is_a_defect(whole, tmp_path):
    other = fuzz.results(tmp_path / "other.h5")
    other.attempts[0][1].pop()
    fuzz.hdf5.write_raw_file(other, other.path)
    assert fuzz.verdict(other.path, fuzz.read_raw(whole["raw file"])).startswith("other figures")


def test_a_process_that_dies_is_a_defect():
    assert fuzz.in_a_process(lambda: fuzz.os._exit(3)) == "its process ended with 3"
