"""Tables of text that are wider than a line."""

from hpccoll.common.text import tables_within

SIZES = "size", ["1 KiB", "1 MiB"]


def columns(*widths):
    return [(f"c{number}", ["x" * width, "y"]) for number, width in enumerate(widths)]


def test_a_table_that_is_too_wide_goes_on_below_with_its_labels():
    lines = list(tables_within(30, SIZES, columns(10, 8, 9)))
    assert [line.split() for line in lines if "c" in line] == [["size", "c0", "c1"], ["size", "c2"]]
    assert [line.split()[:2] for line in lines if "KiB" in line] == [["1", "KiB"]] * 2
    assert max(map(len, lines)) <= 30
    assert len(list(tables_within(60, SIZES, columns(10, 8, 9)))) == 3


def test_a_column_that_is_too_wide_for_a_line_has_a_table_alone():
    heads = [line.split() for line in tables_within(30, SIZES, columns(4, 50, 4)) if "c" in line]
    assert heads == [["size", "c0"], ["size", "c1"], ["size", "c2"]]
