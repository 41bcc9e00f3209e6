"""Damaged raw files and journals: fewer than ``python tests/fuzz.py`` damages."""

import fuzz
import pytest


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return fuzz.write_examples(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("kind", fuzz.ALLOWED)
def test_damage_is_harmless_refused_or_named(whole, kind):
    damaged = fuzz.damaged_files(whole[kind], 40, seed=13)
    assert not {what: verdict for what, verdict in damaged if verdict not in fuzz.ALLOWED[kind]}


def test_a_changed_figure_is_a_defect(whole, tmp_path):
    other = fuzz.results(tmp_path / "other.h5")
    other.attempts[0][1].pop()
    fuzz.hdf5.write_raw_file(other, other.path)
    assert fuzz.verdict(other.path, fuzz.read_raw(whole["raw file"])).startswith("other figures")


def test_a_process_that_dies_is_a_defect():
    assert fuzz.in_a_process(lambda: fuzz.os._exit(3)) == "its process ended with 3"
