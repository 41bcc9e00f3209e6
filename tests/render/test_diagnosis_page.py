"""The page of a diagnosis: the map, effects with their thresholds, and what was measured, of every kind of record."""

import json
from dataclasses import replace

import numpy as np
import pytest
from chart_outline import values
from page_elements import elements
from recorded_diagnoses import interrupted, recorded
from simulated_machine import Environment

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_factor
from hpccoll.diagnosis.ranked_effects import MOST_RANKED
from hpccoll.diagnosis.slot_records import Component
from hpccoll.diagnosis.transfer_ratios import MeasuredRatios
from hpccoll.diagnosis.verdict import verdict_of
from hpccoll.render.diagnosis_page import diagnosis_page, write_diagnosis_page
from hpccoll.render.diagnosis_text import diagnosis_lines

NODE = Component("node", (5,)), 20
ONE_RACK = Environment()


@pytest.fixture(scope="module")
def of_64():
    return recorded(64, NODE)


def charts(page):
    """Return the specifications of the charts of a page, by their names."""
    scripts = elements(page).all("script", type="application/json")
    return {
        each.attributes["id"].removesuffix("-spec"): json.loads("".join(each.inside))
        for each in scripts
    }


def tables(page):
    return [each.table() for each in elements(page).all("table")]


def test_the_map_has_a_cell_for_each_pair_with_the_factor_of_the_analysis(of_64):
    data = values(charts(diagnosis_page(of_64))["pairs"])
    cells = [each for each in data if "first" in each]
    ratios = MeasuredRatios(of_64).of_pairs
    assert len(cells) == 2 * 64 * 63
    before, after = cells[: 64 * 63], cells[64 * 63 :]
    for panel, factors in ((before, ratios.before), (after, ratios.after)):
        (cell,) = (each for each in panel if (each["sender"], each["receiver"]) == ("n5", "n20"))
        assert (cell["value"], cell["text"]) == (
            round(factors[5, 20], 4),
            format_factor(factors[5, 20]),
        )
    assert [each["border"] for each in data if each.get("border")] == 2 * [*range(8, 64, 8)]


def test_nodes_of_a_rack_are_beside_each_other():
    diagnosis = recorded(16, environment=Environment(rack=4))
    racks = tuple(f"r{node % 2}" for node in range(16))
    shuffled = replace(interrupted(diagnosis), question=replace(diagnosis.question, racks=racks))
    data = values(charts(diagnosis_page(shuffled))["pairs"])
    place = {each["sender"]: each["first"] for each in data if "first" in each}
    assert sorted(place, key=place.get) == [
        f"n{node}" for node in (*range(0, 16, 2), *range(1, 16, 2))
    ]
    assert {each["border"] for each in data if each.get("border")} == {8}


def test_colours_reach_to_the_largest_effect_and_say_what_is_beyond(of_64):
    colours = [
        layer["encoding"]["color"]
        for layer in charts(diagnosis_page(of_64))["pairs"]["spec"]["layer"][:1]
    ]
    (scale,) = (each["scale"] for each in colours)
    assert (scale["domain"], scale["clamp"]) == ([1, of_64.diagnosis.faults[0].effect], True)
    assert "or more" in colours[0]["legend"]["labelExpr"]


def test_many_nodes_have_a_mark_for_each_direction_and_slow_ones_their_names():
    faults = (Component("send", (100,)), 20), (Component("uplink", (3,)), 30)
    shown = charts(diagnosis_page(recorded(128, *faults)))
    assert "pairs" not in shown
    # the uplink is the gravest fault, and a picture has the first map
    assert [*shown][:2] == ["racks", "nodes"]
    nodes, racks = values(shown["nodes"]), values(shown["racks"])
    marks = [each for each in nodes if "value" in each]
    assert len(marks) == 2 * 2 * 128
    assert {each["label"] for each in nodes if "label" in each} == {"n100"}
    assert {each["label"] for each in racks if "label" in each} == {"rack3"}
    slow = max(marks, key=lambda each: each["value"])
    assert (slow["node"], slow["series"], slow["panel"]) == ("n100", "sends", "as measured")


def test_without_anything_to_take_out_there_is_one_panel():
    chart = charts(diagnosis_page(recorded(16, environment=ONE_RACK)))["pairs"]
    assert ("facet" in chart, len(values(chart))) == (False, 16 * 15)


def test_the_most_noticeable_effects_have_intervals_and_thresholds_and_the_others_are_counted(
    of_64,
):
    page = diagnosis_page(of_64)
    data = values(charts(page)["node-effects"])
    names = list(dict.fromkeys(each["name"] for each in data))
    assert (len(names), names[0], len(data)) == (MOST_RANKED, "n5", 3 * MOST_RANKED)
    (retest,) = (
        e for e in of_64.diagnosis.effects if e.component == NODE[0] and e.purpose == "retest"
    )
    first = data[0]
    assert [first[key] for key in ("value", "low", "high", "threshold")] == [
        retest.effect,
        retest.low,
        retest.high,
        retest.threshold,
    ]
    assert f"{64 - MOST_RANKED} nodes" in elements(page).words
    figures = [row for table in tables(page) for row in table if row[0] == "n5"]
    assert [row[1] for row in figures] == ["retest", "screen"]
    assert figures[0][2].startswith(format_factor(retest.effect))


def test_a_direction_that_the_verdict_does_not_name_is_not_marked_slow():
    page = diagnosis_page(recorded(16, (Component("send", (5,)), 30), environment=ONE_RACK))
    marks = {
        each["panel"]: each["outcome"]
        for each in values(charts(page)["node-effects"])
        if each["name"] == "n5"
    }
    slow = {panel for panel, outcome in marks.items() if outcome == "slow"}
    assert (len(marks), slow) == (3, {"send"})


def test_slots_are_listed_by_their_purpose(of_64):
    rows = tables(diagnosis_page(of_64))[-1]
    assert [row[0] for row in rows] == [
        *dict.fromkeys(each.slots.purpose for each in of_64.measured)
    ]
    assert sum(int(row[2]) for row in rows) == of_64.diagnosis.slots


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(
            lambda: recorded(2, (Component("send", (1,)), 30), environment=ONE_RACK), id="two nodes"
        ),
        pytest.param(lambda: recorded(4, environment=ONE_RACK), id="few healthy nodes"),
        pytest.param(lambda: recorded(8, (Component("link", (2, 6)), 30)), id="link"),
        pytest.param(lambda: recorded(32, (Component("uplink", (3,)), 30)), id="uplink"),
        pytest.param(lambda: recorded(16, NODE, environment=ONE_RACK, rails=2), id="rails"),
        pytest.param(lambda: recorded(16, NODE, hung=(9,)), id="hung"),
        pytest.param(lambda: interrupted(recorded(16, NODE)), id="interrupted"),
        pytest.param(lambda: recorded(128, NODE), id="many nodes"),
    ],
)
def test_every_kind_of_record_is_written_with_its_verdict_and_as_a_picture(record, tmp_path):
    diagnosis = record()
    page, picture = tmp_path / "page.html", tmp_path / "map.svg"
    write_diagnosis_page(diagnosis, page)
    write_diagnosis_page(diagnosis, picture)
    answer = [each.words for each in elements(page.read_text()).one(class_="answers").all("p")]
    assert answer == [line.strip() for line in diagnosis_lines(verdict_of(diagnosis))]
    assert picture.read_bytes().startswith(b"<svg")


@pytest.mark.parametrize(
    "nothing",
    [
        pytest.param(lambda: replace(recorded(8), measured=(), diagnosis=None), id="not begun"),
        pytest.param(
            lambda: recorded(4, hung=(1, 2, 3), environment=ONE_RACK), id="nobody answers"
        ),
    ],
)
def test_without_a_transfer_there_is_a_page_and_no_picture(nothing, tmp_path):
    assert charts(diagnosis_page(nothing())) == {}
    with pytest.raises(UnusableError, match="no map"):
        write_diagnosis_page(nothing(), tmp_path / "map.png")


def test_what_nodes_do_alone_is_listed_with_the_slowest_first():
    seconds = np.full((5, 16), 0.01) * np.linspace(1, 1.01, 5)[:, None]
    seconds[:, 7] *= 1.5
    page = diagnosis_page(
        replace(recorded(16), rates={"memory": seconds, "product": seconds[:, ::-1]})
    )
    (table,) = (each for each in tables(page) if len(each[0]) == 5 and "slow" in each[0])
    assert [row[0] for row in table][:2] == ["n7", "n8"]
    assert [row[-1] for row in table] == ["slow"] * 2 + [""] * (MOST_RANKED - 2)


def test_the_cost_of_distance_is_said_if_there_is_one():
    far = diagnosis_page(recorded(64, environment=Environment(rack=8, far=0.08)))
    assert "across racks" in elements(far).words
    assert "across racks" not in elements(diagnosis_page(recorded(16, environment=ONE_RACK))).words


def test_names_of_hosts_are_escaped():
    diagnosis = recorded(2, environment=ONE_RACK)
    named = replace(diagnosis, question=replace(diagnosis.question, hosts=("<b>one", "</script>")))
    page = diagnosis_page(named)
    assert "<b>one" not in page
    assert page.count("</script>") == page.count("<script")


def test_a_page_of_1024_nodes_is_small(tmp_path):
    write_diagnosis_page(
        recorded(1024, NODE, environment=Environment(rack=32)), tmp_path / "page.html"
    )
    assert (tmp_path / "page.html").stat().st_size < 3e6
