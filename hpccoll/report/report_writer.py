"""Build the report: the page, and each chart as a picture beside it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from hpccoll.report.chart_groups import ChartGroup, chart_groups
from hpccoll.report.charts import FIGURES
from hpccoll.report.html_page import ReportChart, render_page
from hpccoll.report.output_directory import PAGE_NAME, inputs_meta_tag
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results
from hpccoll.terminal import printable


def build_report(results: Results, out: Path, title: str, paths: Sequence[Path] = ()) -> Path:
    """Write ``index.html`` and ``charts/NAME.svg`` and ``.png`` below ``out``; return the path of the page.

    The page holds everything that it shows and opens offline. It is written even where there is no result at all. Each
    file is whole or not there: an earlier report stays readable where the disk is full.

    Args:
        results: that it is of.
        out: the directory.
        title: of the page.
        paths: that the results were read from; the page names them for whoever writes another report there.
    """
    (out / "charts").mkdir(parents=True, exist_ok=True)
    found = chart_groups(results)
    charts = [chart for group in found for chart in _group_charts(group)]
    for chart in charts:
        _save_chart(chart, out)
    index = out / PAGE_NAME
    with replacing_file(index) as unfinished:
        unfinished.write_text(render_page(results, found, charts, title, inputs_meta_tag(paths, out)), encoding="utf-8")
    return index


def _group_charts(group: ChartGroup) -> list[ReportChart]:
    specifications = ((figure, figure.specification(group)) for figure in FIGURES)
    return [
        ReportChart(figure, group, _printable(specification), f"charts/{group.name}-{figure.name}")
        for figure, specification in specifications
        if specification
    ]


def _printable(value: Any) -> Any:
    """Return a specification with its text printable: what draws knows no other, and a picture is a file of XML."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {name: _printable(part) for name, part in value.items()}
        case list() | tuple():
            return [_printable(part) for part in value]
    return value


def _save_chart(chart: ReportChart, out: Path) -> None:
    svg = vl_convert.vegalite_to_svg(json.dumps(chart.specification))
    with replacing_file(out / f"{chart.files}.svg") as unfinished:
        unfinished.write_text(svg, encoding="utf-8")
    with replacing_file(out / f"{chart.files}.png") as unfinished:
        unfinished.write_bytes(vl_convert.svg_to_png(svg, scale=2))  # which draws nothing again
