"""The page of a judgement: its answers, then for each part of the results a chart and tables.

``accept`` and ``compare`` fill it, and add sections of their own: their templates extend
``judgement.html``.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpccoll.render.page_frame import render, vega_script


class JudgementTable(NamedTuple):
    """A table of measurements with their verdicts."""

    head: Sequence[str]
    body: Sequence[Sequence[str]]
    title: str = ""
    meaning: str = ""  # a note below the title
    folded: bool = False  # whether a reader has to open it


class JudgementPart(NamedTuple):
    """The measurements that have one chart."""

    anchor: str  # what links to it name
    heading: str
    verdict: str  # shown if the page has several parts
    chart: Mapping[str, object] | None
    tables: Sequence[JudgementTable]


class JudgementPage(NamedTuple):
    """What every page of a judgement shows."""

    title: str  # of the window
    heading: str
    answers: Sequence[str]  # the most important first
    judged: Sequence[JudgementPart]
    links: Mapping[str, str]  # the texts of the links at the top by the anchors that they lead to
    figure: str  # the end of the anchors of charts
    figure_title: str
    caption: str  # how to read a chart
    lede: str = ""  # below the heading


def judgement_html(template: str, page: JudgementPage, sections: Mapping[str, object]) -> str:
    """Return the HTML of a page, with the sections that its template adds."""
    has_chart = any(part.chart for part in page.judged)
    vega = vega_script() if has_chart else ""
    return render(template, {**page._asdict(), **sections, "vega": vega})
