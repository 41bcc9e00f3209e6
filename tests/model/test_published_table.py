"""Tables of published figures: what is valid in one, and what is read again from a written one."""

import csv
import io
from dataclasses import replace

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import read_machine
from hpccoll.model.published_rates import (
    TABLE,
    PublishedFigure,
    figures_by_fabric,
    figures_of,
    with_tables,
)
from hpccoll.model.published_table import COLUMNS, check_table, own_tables, table_text

GIB = 1 << 30
FIGURE = PublishedFigure(
    network="400g",
    gpus_per_node=8,
    nodes=3,
    collective="all_reduce",
    nbytes=GIB,
    dtype="float32",
    in_place=True,
    algorithm="ring",
    forced=True,
    rate=321e9,
    run="pod 1",
    source="Example Lab, acceptance of 2026-11",
    gpu="H100",
    operator="Example Lab",
    library="2.28.9",
)


def table(directory, text, name="own.csv"):
    path = directory / name
    path.write_text(text)
    return path


def with_cell(column, value):
    """Return the text of a table of one figure, with another cell."""
    header, cells = csv.reader(table_text([("nvlink4", FIGURE)]).splitlines())
    cells[header.index(column)] = value
    text = io.StringIO()
    csv.writer(text).writerows([header, cells])
    return text.getvalue()


def test_the_table_of_the_package_is_valid():
    check_table(TABLE, "--published")


def test_written_figures_are_read_again_beside_the_published_ones_until_the_context_ends(tmp_path):
    path = table(tmp_path, table_text([("nvlink4", FIGURE)]))
    published = list(figures_by_fabric()["nvlink4"])
    with with_tables(*own_tables(tmp_path, "--published")):
        assert list(figures_by_fabric()["nvlink4"]) == [
            *published,
            replace(FIGURE, owner=path.name),
        ]
    assert list(figures_by_fabric()["nvlink4"]) == published


def test_a_class_of_ones_own_needs_no_published_fabric(tmp_path):
    table(tmp_path, table_text([("my-fabric", FIGURE)]))
    machine = read_machine("8xh100-400g", "--cluster")
    own = machine.machine_class.model_copy(update={"fabric": "my-fabric"})
    machine = machine.model_copy(update={"machine_class": own})
    with with_tables(*own_tables(tmp_path, "--published")):
        assert [figure.run for figure in figures_of(machine)] == ["pod 1"]


@pytest.mark.parametrize(
    ("column", "value", "choice"),
    [
        ("nodes", "three", "whole number"),
        ("nodes", "0", "whole number"),
        ("bytes", "", "whole number"),
        ("busbw_GBps", "-1", "above 0"),
        ("busbw_GBps", "nan", "above 0"),
        ("collective", "allreduce", "all_reduce"),
        ("dtype", "float", "float32"),
        ("in_place", "maybe", "yes"),
        ("algorithm", "Rings", "ring"),
        ("fabric", "", "1 to 255"),
        ("source", "", "acceptance of"),
    ],
)
def test_a_cell_that_is_not_valid_is_named_with_file_line_column_and_choices(
    tmp_path, column, value, choice
):
    path = table(tmp_path, with_cell(column, value))
    with pytest.raises(BadInputError) as raised:
        own_tables(tmp_path, "--published")
    line = str(raised.value)
    assert line.startswith(f"--published: {path}, line 2, column {column}")
    assert not value or repr(value) in line
    assert choice in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace(",gpu,", ",card,"), "column gpu"),
        (lambda text: text.replace("source\n", "source,mood\n", 1), "mood"),
        (lambda text: text.replace("source\n", "source,gpu\n", 1), "gpu"),
        (lambda text: text.replace(",ring,", ",ring,,"), "line 2, cells"),
        (lambda text: text + '"open', "line 3"),
        (lambda _: "", "empty"),
    ],
)
def test_a_file_that_is_not_a_table_is_named_in_one_line(tmp_path, change, words):
    path = table(tmp_path, change(table_text([("nvlink4", FIGURE)])))
    with pytest.raises(BadInputError) as raised:
        own_tables(tmp_path, "--published")
    assert str(path) in str(raised.value)
    assert words in str(raised.value)


def test_a_table_may_say_which_rows_somebody_judged_healthy(tmp_path):
    text = table_text([("nvlink4", FIGURE)]).replace("source\n", "source,healthy\n", 1)
    table(tmp_path, f"{text.rstrip()},yes\n")
    assert len(own_tables(tmp_path, "--published")) == 1


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_directory_without_tables_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="CSV"):
        own_tables(tmp_path / name, "--published")


def test_the_columns_are_those_of_the_table_of_the_package():
    with TABLE.open(newline="") as file:
        header = next(csv.reader(file))
    assert list(COLUMNS) == header[: len(COLUMNS)]
