"""Build the report: the page, and each chart as a picture beside it."""

import json
from collections.abc import Sequence
from pathlib import Path

import vl_convert

from hpccoll.report.charts import FIGURES
from hpccoll.report.groups import Group, groups
from hpccoll.report.page import Drawn, page
from hpccoll.report.place import PAGE, noted
from hpccoll.store.rows import Results


def build(results: Results, out: Path, title: str, paths: Sequence[Path] = ()) -> Path:
    """Write ``index.html`` and ``charts/NAME.svg`` and ``.png`` below ``out``; return the path of the page.

    The page holds everything that it shows and opens offline. It is written even where there is no result at all.

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
    index.write_text(page(results, found, charts, title, noted(paths, out)), encoding="utf-8")
    return index


def _charts(group: Group) -> list[Drawn]:
    specifications = ((figure, figure.specification(group)) for figure in FIGURES)
    return [
        Drawn(figure, group, specification, f"charts/{group.name}-{figure.name}")
        for figure, specification in specifications
        if specification
    ]


def _save(chart: Drawn, out: Path) -> None:
    svg = vl_convert.vegalite_to_svg(json.dumps(chart.specification))
    (out / f"{chart.files}.svg").write_text(svg, encoding="utf-8")
    (out / f"{chart.files}.png").write_bytes(vl_convert.svg_to_png(svg, scale=2))  # which draws nothing again
