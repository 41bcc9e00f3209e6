"""Build the report: the page, and each chart as a picture beside it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from hpccoll.report.charts import FIGURES
from hpccoll.report.groups import Group, groups
from hpccoll.report.output_directory import PAGE, noted
from hpccoll.report.page import Drawn, page
from hpccoll.store.durable_files import replaced
from hpccoll.store.rows import Results
from hpccoll.terminal import printable


def build(results: Results, out: Path, title: str, paths: Sequence[Path] = ()) -> Path:
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
    found = groups(results)
    charts = [chart for group in found for chart in _charts(group)]
    for chart in charts:
        _save(chart, out)
    index = out / PAGE
    with replaced(index) as unfinished:
        unfinished.write_text(page(results, found, charts, title, noted(paths, out)), encoding="utf-8")
    return index


def _charts(group: Group) -> list[Drawn]:
    specifications = ((figure, figure.specification(group)) for figure in FIGURES)
    return [
        Drawn(figure, group, _printable(specification), f"charts/{group.name}-{figure.name}")
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


def _save(chart: Drawn, out: Path) -> None:
    svg = vl_convert.vegalite_to_svg(json.dumps(chart.specification))
    with replaced(out / f"{chart.files}.svg") as unfinished:
        unfinished.write_text(svg, encoding="utf-8")
    with replaced(out / f"{chart.files}.png") as unfinished:
        unfinished.write_bytes(vl_convert.svg_to_png(svg, scale=2))  # which draws nothing again
