"""Which charts of a report are drawn if there are many settings."""

import pytest
from page_elements import elements

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.render import drawn_charts, report_writer
from hpccoll.render.answers import Answers
from hpccoll.render.drawn_charts import drawn_groups
from hpccoll.render.report_columns import PAGE_ROWS, PLAIN_ROWS, rows_table
from hpccoll.render.report_writer import build_report

DTYPES = "float32", "float64", "int32", "int64", "int8", "uint8"


@pytest.fixture
def many(make_row, of_rows):
    """All-reduces of six types, of which one has two algorithms and so an answer, and one broadcast."""
    rows = [make_row("native", 2, 8, seconds=2e-5, dtype=dtype) for dtype in DTYPES]
    rows += [
        make_row("ring", 2, 8, dtype="int8"),
        make_row("chain", 2, 8, collective="broadcast", op=None),
    ]
    return of_rows(*rows)


def test_every_collective_is_drawn_and_settings_with_answers_come_before_others(many, monkeypatch):
    recommendations = recommend(many)
    groups, answers = chart_groups(many, recommendations), Answers(recommendations)
    monkeypatch.setattr(drawn_charts, "MOST_GROUPS", 3)
    drawn = [group for group in groups if group.name in drawn_groups(groups, answers)]
    assert len(drawn) == 3
    assert {group.collective for group in drawn} == {"all_reduce", "broadcast"}
    foremost = answers.foremost("all_reduce")[0]
    assert any(own is foremost for group in drawn for own in group.recommendations)


def test_the_page_says_which_settings_have_no_charts_and_few_pictures_are_pngs(
    many, monkeypatch, tmp_path
):
    monkeypatch.setattr(drawn_charts, "MOST_GROUPS", 3)
    monkeypatch.setattr(report_writer, "MOST_PNGS", 1)
    saved = []
    monkeypatch.setattr(report_writer, "_save_drawing", lambda drawing, _out: saved.append(drawing))
    page = elements(build_report(many, tmp_path, "many").read_text(encoding="utf-8"))
    settings = len(page.all("h3", class_="setting"))
    # the broadcast is alone in its part
    assert page.text.count("No charts of this setting") == settings + 1 - 3
    assert [drawing.endings for drawing in saved] == [
        ("svg", "png"),
        *[("svg",)] * (len(saved) - 1),
    ]
    assert len({drawing.files for drawing in saved}) == len(saved)
    links = {
        link.attributes["href"]
        for link in page.all("a")
        if link.attributes["href"].startswith("charts/")
    }
    assert links == {f"{drawing.files}.{ending}" for drawing in saved for ending in drawing.endings}


def test_settings_without_charts_have_the_table_of_their_choices(
    make_row, of_rows, monkeypatch, tmp_path
):
    monkeypatch.setattr(drawn_charts, "MOST_GROUPS", 1)
    rows = [
        make_row(name, 2, size, seconds=s, dtype=dtype)
        for dtype in DTYPES[:3]
        for name, s in (("native", 2e-5), ("ring", 1e-5))
        for size in (8, 64)
    ]
    page = elements(build_report(of_rows(*rows), tmp_path, "many").read_text(encoding="utf-8"))
    tables = page.all("details", class_="times")
    assert len(tables) == len(page.all("h3", class_="setting")) == 3
    assert [[cell.words for cell in table.all("th", scope="row")] for table in tables] == [
        ["ring", "native"]
    ] * 3


def test_a_large_table_has_its_first_page_as_html_and_all_rows_as_data(make_row, of_rows):
    rows = [make_row("ring", 2, 8 * n, seconds=n * 1e-6) for n in range(1, PLAIN_ROWS + 2)]
    (group,) = chart_groups(of_rows(*rows))
    table = rows_table([group])
    assert (table.is_paged, len(table.rows), len(table.statuses)) == (True, PAGE_ROWS, len(rows))
    record = table.record
    for row, (status, cells) in enumerate(table.rows):
        texts = [column["texts"][column["rows"][row]] for column in record["columns"]]
        assert (record["statuses"][row], texts) == (status, [text for _, text in cells])
    assert not rows_table(chart_groups(of_rows(*rows[:-1]))).is_paged
