"""Write the report: the page and a picture file of each chart."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpccoll.analysis.chart_groups import ChartGroup, chart_groups
from hpccoll.analysis.recommendations import recommend
from hpccoll.common.terminal import printable
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import write_picture
from hpccoll.render.charts import FIGURES, OVERVIEW_FIGURES, STEP_FIGURES, Figure, overview_group
from hpccoll.render.html_page import ReportChart, render_page
from hpccoll.render.output_directory import PAGE_NAME, input_names, inputs_text, recorded_inputs
from hpccoll.store.durable_files import replacing_file
from hpccoll.store.rows import Results


def build_report(results: Results, out: Path, title: str, paths: Sequence[Path] = ()) -> Path:
    """Write ``index.html`` and ``charts/NAME.svg`` and ``.png`` below ``out``; return the path of the page.

    The page opens offline. It is written even if there are no results. Each file is written atomically: if the disk is
    full, an earlier report stays readable.

    The page records the ``paths`` of its inputs, so that another report does not replace it unnoticed.

    Raises:
        UnusableError: the page in ``out`` is no report.
        OSError: a file cannot be written.
    """
    recorded_inputs(out)
    (out / "charts").mkdir(parents=True, exist_ok=True)
    recommendations = recommend(results)
    answers = Answers(recommendations)
    groups = chart_groups(results.without_imports, recommendations, input_names(results, paths))
    charts = [chart for group in groups for chart in _group_charts(group, STEP_FIGURES if group.of_steps else FIGURES)]
    if len({group.collective for group in groups}) > 1:
        charts += _group_charts(overview_group(groups, answers), OVERVIEW_FIGURES)
    for chart in charts:
        _save_chart(chart, out)
    index = out / PAGE_NAME
    with replacing_file(index) as unfinished:
        unfinished.write_text(
            render_page(results, answers, groups, charts, title, inputs_text(paths, out)), encoding="utf-8"
        )
    return index


def _group_charts(group: ChartGroup, figures: Iterable[Figure]) -> list[ReportChart]:
    specifications = ((figure, figure.specification(group)) for figure in figures if group.drawn)
    return [
        ReportChart(
            figure.title_of(group), figure.group_caption(group), group, _printable(specification),
            f"charts/{group.name}-{figure.name}",
        )
        for figure, specification in specifications
        if specification
    ]  # fmt: skip


def _printable(value: Any) -> Any:
    """Return a specification with printable text only, because a picture is an XML file."""
    match value:
        case str():
            return printable(value)
        case Mapping():
            return {name: _printable(part) for name, part in value.items()}
        case list() | tuple():
            return [_printable(part) for part in value]
    return value


def _save_chart(chart: ReportChart, out: Path) -> None:
    write_picture(chart.specification, out / f"{chart.files}.svg", out / f"{chart.files}.png")
