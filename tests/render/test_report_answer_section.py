"""The first screen: it agrees with the table of ``hpccoll tune`` and with the map below it at every size."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import KIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.tune_table import build_table
from hpccoll.common.units import format_size, parse_size
from hpccoll.render.answers import Answers
from hpccoll.render.charts import FIGURES
from hpccoll.render.page_frame import keep_units
from hpccoll.render.report_writer import answer_section

pytestmark = pytest.mark.usefixtures("small_maps")

SIZES = [KIB << 2 * i for i in range(6)]
(MAP,) = (figure for figure in FIGURES if figure.name == "choice")
TIMES = st.lists(st.floats(1e-6, 1e-3), min_size=len(SIZES), max_size=len(SIZES))


def map_cells(results):
    """Return the cells of the map, by placement (None for both) and size, and its group."""
    recommendations = recommend(results)
    (group,) = chart_groups(results, recommendations)
    (cells,) = MAP.specification(group)["datasets"].values()
    placements = {"": None, "out of place": False, "in place": True}
    by_place = {(placements[cell["on"].partition(", ")[2]], cell["size"]): cell for cell in cells}
    assert len(by_place) == len(cells), "a cell is drawn once"
    return by_place, Answers(recommendations)


@st.composite
def random_results(draw):
    """Results of three choices, out of place and in place, of one round or three."""
    drift = draw(st.sampled_from([(1,), (1, 3, 2)]))
    spread = draw(st.sampled_from([0.0, 0.02, 0.3]))
    names = draw(st.sampled_from([("ring", "star", "native"), ("ring", "star")]))
    agree = draw(st.booleans())
    curves = {name: dict(zip(SIZES, draw(TIMES), strict=True)) for name in names}
    others = (
        curves if agree else {name: dict(zip(SIZES, draw(TIMES), strict=True)) for name in names}
    )
    return merged_results(
        *(
            measured_results(each, number=number, in_place=number == 2, drift=drift, spread=spread)
            for number, each in enumerate((curves, others), 1)
        )
    )


def in_range(words, size):
    """Return whether a size is in a range in words, such as ``12 KiB to 64 KiB``."""
    first, *last = map(parse_size, words.split(" to "))
    (end,) = last or [first]
    return first <= size < end or size == end == (SIZES[-1] if last else first)


@given(random_results())
def test_tune_the_answers_of_the_page_and_the_map_agree_on_every_setting_and_size(results):
    cells, answers = map_cells(results)
    shared = {placement for placement, _ in cells} == {None}
    first, others = answers.split("all_reduce")
    for entry in build_table(results).entries:
        for in_place in (
            (False, True) if entry.setting.in_place is None else (entry.setting.in_place,)
        ):
            where = "2 nodes", f"2 nodes, {'in place' if in_place else 'out of place'}"
            lines = [
                line
                for answer in (*first, *others)
                if answer.where in where
                for line in answer.lines
            ]
            for size in SIZES:
                of_range = entry.range_of(size)
                choice = of_range.choice.algorithm
                assert cells[None if shared else in_place, format_size(size)]["series"] == choice
                (line,) = (line for line in lines if in_range(line.sizes, size))
                assert line.strength == of_range.strength
                assert line.strength == "none" or f"`{choice}`" in line.text


EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)


def test_no_line_ends_between_a_number_and_its_unit():
    kept = "from 64~KiB to 4~MiB, 18~% faster at 2~of~7 sizes, 3~us on 4 ranks"
    assert keep_units(kept.replace("~", " ")) == kept.replace("~", "\N{NO-BREAK SPACE}")


def test_settings_without_enough_cores_and_of_fewer_ranks_are_folded():
    def on(ranks):
        results = measured_results({"ring": LATE, "native": EARLY}, number=ranks)
        return replace(
            results,
            rows=tuple(
                replace(row, ranks=ranks, oversubscribed=ranks == 8) for row in results.rows
            ),
        )

    results = merged_results(*map(on, (2, 3, 8)))
    shown, folded = answer_section(results, Answers(recommend(results)), ["all_reduce"]).split(
        '<details class="more">', 1
    )
    assert (shown.count("<h3>"), "on 3 ranks on 2 nodes" in shown, folded.count("<h3>")) == (
        1,
        True,
        2,
    )
    assert (
        "<summary>2 more settings: 2 nodes; 8 ranks on 2 nodes (more ranks than cores)</summary>"
        in folded
    )
