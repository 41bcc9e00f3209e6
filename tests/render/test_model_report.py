"""Models in words: the golden page, and which of two algorithms overtakes the other."""

from dataclasses import replace

from golden_page import assert_golden
from model_observations import observation
from modelled_runs import TRIPS, modelled, whole_model

from hpccoll.model.validation import Crossing, Overtaking
from hpccoll.render.model_report import _crossing_text, model_lines

KIB = 1024.0
RING, STAR = (
    Overtaking("ring", (8 * KIB,), 64 << 10),
    Overtaking("star", (2 * KIB, 4 * KIB, 8 * KIB), 64 << 10),
)
ALIKE, RING_EVER, STAR_EVER = (Overtaking(name, (), 64 << 10) for name in (None, "ring", "star"))


def test_equal_crossings_are_printed_once_and_different_ones_for_each_side():
    sides = (
        (RING, replace(RING, sizes=(9 * KIB,), largest=16 << 10)),
        (STAR, STAR),
        (RING, STAR),
        (ALIKE, RING),
    )
    sides = (*sides, (RING, STAR_EVER), (RING, RING_EVER))
    assert_golden(
        "crossings", (_crossing_text(Crossing(("ring", "star"), *each)) for each in sides)
    )


def of_mappings(*mappings):
    """Return a model of two algorithms that ran in each of some mappings."""
    cases = [
        (name, size, each)
        for name in ("ring", "star")
        for size in (1024, 4096)
        for each in mappings
    ]
    others = (
        observation("all_reduce", name, size, 1.0, about={"mapping": each})
        for name, size, each in cases
    )
    return modelled(TRIPS, [*others])


def test_the_whole_report_is_the_golden_page():
    """A common mapping is named once, and differing ones in each name."""
    models = whole_model(), of_mappings("block"), of_mappings("block", "cyclic"), of_mappings(None)
    assert_golden("fit", (line for model in models for line in model_lines(model)))
