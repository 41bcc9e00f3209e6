"""Models in words: the golden page, and which of two algorithms overtakes the other."""

from dataclasses import replace

from golden_page import assert_golden
from model_observations import observation
from modelled_runs import TRIPS, modelled, whole_model

from hpccoll.model.validation import Crossing, Overtaking
from hpccoll.render.model_report import _crossing_text, model_lines

KIB = 1024.0
RING, STAR = (
    Overtaking("ring", (8 * KIB,), 64 << 10), Overtaking("star", (2 * KIB, 4 * KIB, 8 * KIB), 64 << 10),
)  # fmt: skip
ALIKE, RING_EVER, STAR_EVER = (Overtaking(name, (), 64 << 10) for name in (None, "ring", "star"))


def test_equal_crossings_are_printed_once_and_different_ones_for_each_side():
    sides = (RING, replace(RING, sizes=(9 * KIB,), largest=16 << 10)), (STAR, STAR), (RING, STAR), (ALIKE, RING)
    sides = (*sides, (RING, STAR_EVER), (RING, RING_EVER))
    assert_golden("crossings", (_crossing_text(Crossing(("ring", "star"), *each)) for each in sides))


def test_the_whole_report_is_the_golden_page():
    assert_golden("fit", model_lines(whole_model()))


def test_a_common_mapping_is_named_once_and_differing_ones_in_each_name():
    def named(*mappings):
        each = [("ring", 1024), ("ring", 4096), ("star", 1024), ("star", 4096)]
        others = [
            observation("all_reduce", name, size, 1.0, about={"mapping": mapping})
            for name, size in each
            for mapping in mappings
        ]
        return "\n".join(model_lines(modelled(TRIPS, others)))

    assert "6 nodes, float32 sum, mapping block, measured over predicted time" in named("block")
    assert "mapping=" not in named("block")
    assert "6 nodes, float32 sum, measured over predicted time" in named("block", "cyclic")
    assert {"mapping=block", "mapping=cyclic"} <= set(named("block", "cyclic").split())
    assert "mapping" not in named(None)
