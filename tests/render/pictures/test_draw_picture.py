"""The picture as a whole: an SVG that is well formed, in which nothing is cut off and no two words overlap."""

import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from drawing_examples import NAMES, view, views

from hpccoll.render.pictures.picture import draw, picture
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.schedule import Copy, Step, dst, tmp

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = {"title", "desc", "rect", "circle", "path", "text"}
NARROW = 0.55
"""The width of a character in font sizes, as fonts have it on average: labels may not overlap even by that."""


def parse(svg):
    return ET.fromstring(svg)  # noqa: S314  it is our own


def box(element):
    """Return what an element covers: left, top, right, bottom."""
    kind, has = element.tag.removeprefix(SVG), element.attrib
    if kind == "text":
        x, y, size = float(has["x"]), float(has["y"]), float(has["font-size"])
        width = NARROW * size * len(element.text)
        left = x - {"start": 0, "middle": width / 2, "end": width}[has["text-anchor"]]
        return left, y - 0.72 * size, left + width, y + 0.2 * size
    if kind == "circle":
        x, y, r = (float(has[name]) for name in ("cx", "cy", "r"))
        return x - r, y - r, x + r, y + r
    if kind == "rect":
        x, y, width, height = (float(has[name]) for name in ("x", "y", "width", "height"))
        return x, y, x + width, y + height
    points = [float(number) for number in re.findall(r"-?\d+\.?\d*", has["d"])]
    if "Q" in has["d"]:  # the middle one only draws the line towards it
        points = points[:2] + points[4:]
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def overlap(one, other):
    return one[0] <= other[2] and other[0] <= one[2] and one[1] < other[3] and other[1] < one[3]


def check(svg):
    """Check that nothing is cut off and no words overlap; return the elements."""
    root = parse(svg)
    left, top, width, height = map(float, root.get("viewBox").split())
    elements = list(root)
    assert {element.tag.removeprefix(SVG) for element in elements} <= SHAPES
    assert [element.tag for element in elements[:3]] == [f"{SVG}title", f"{SVG}desc", f"{SVG}rect"]
    assert (elements[2].get("fill"), box(elements[2])) == (
        "#ffffff",
        (left, top, left + width, top + height),
    )
    for element in elements[3:]:
        a, b, c, d = box(element)
        assert left <= a <= c <= left + width, (element.tag, element.text, element.attrib)
        assert top <= b <= d <= top + height, (element.tag, element.text, element.attrib)
    words = sorted(
        (box(element), element.text) for element in elements if element.tag == f"{SVG}text"
    )
    assert [
        (one[1], other[1]) for one, other in combinations(words, 2) if overlap(one[0], other[0])
    ] == []
    return elements


def texts(view):
    return {element.text for element in check(picture(view))}


@pytest.mark.parametrize("name", NAMES)
def test_no_words_overlap_and_nothing_is_cut_off(name):
    drawn = [check(picture(one)) for ranks in (1, 5, 8, 16) for one in views(name, ranks)]
    assert len(drawn) > 1


def test_a_screen_reader_gets_a_description_that_cannot_break_the_file():
    one = replace(view_of("ring", "all_reduce", 4), name='<&">', sentence="Ring: p units < & >.")
    title, desc, *others = check(picture(one))
    assert title.text == 'all_reduce by <&">, 4 workers on 1 node'
    assert (
        desc.text
        == "Ring: p units < & >. Cost: 6 steps, 1.5 S sent, 0.75 S reduced (declared and counted)."
    )
    assert title.text in {element.text for element in others}


def copying(me):
    yield Step(Copy(dst[me], tmp[0]))


def test_a_file_is_what_its_ending_says_and_a_png_has_two_pixels_for_one(tmp_path):
    one = view("all_reduce-ring", 3)
    for name in ("ring.svg", "ring.png"):
        draw(one, tmp_path / name)
    png = (tmp_path / "ring.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert (tmp_path / "ring.svg").read_text() == picture(one)
    assert int.from_bytes(png[16:20]) == pytest.approx(
        2 * float(parse(picture(one)).get("width")), abs=2
    )
