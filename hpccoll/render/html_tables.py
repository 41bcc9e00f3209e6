"""Tables of the report as HTML; all text of results is escaped here."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import chain, zip_longest

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.library_evidence import library_facts
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.common.units import format_count
from hpccoll.render.definitions import with_tooltip
from hpccoll.render.report_columns import ColumnCells, table_columns
from hpccoll.store.rows import Gap, Run
from hpccoll.store.scheduler_log import STATE_DESCRIPTIONS, ScheduledJob

LONG_TEXT = 40
"""Characters from which on the text of a cell wraps."""


def rows_table(groups: Iterable[ChartGroup]) -> str:
    """Return the table of all rows; a column in which all rows agree becomes a part of one sentence above it."""
    every = chain.from_iterable((*group.points, *group.predictions) for group in groups)
    points = [*{id(point): point for point in every}.values()]  # a prediction may be in several groups
    columns = table_columns(points)
    shown = [column for column in columns if (column.always and any(column.texts)) or len(set(column.texts)) > 1]
    shared = [f"{column.heading} {column.texts[0]}" for column in columns if column not in shown and column.texts[0]]
    agreed = f'<p class="note">The same in all rows: {escape(", ".join(shared))}.</p>' if shared else ""
    head = "".join(f'<th scope="col" tabindex="0">{with_tooltip(column.heading)}</th>' for column in shown)
    body = "".join(_row(point, i, shown) for i, point in enumerate(points))
    table = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'{agreed}<div class="scroll tall">{table}</div>'


def _row(point: SeriesPoint, i: int, columns: Iterable[ColumnCells]) -> str:
    cells = (
        _cell(column.texts[i]) if column.sort_keys is None else _number_cell(column.sort_keys[i], column.texts[i])
        for column in columns
    )
    return f'<tr class="{escape(point.row.status)}">{"".join(cells)}</tr>'


def _number_cell(key: float | None, text: str) -> str:
    return f'<td class="number" data-key="{"" if key is None else key}">{escape(text)}</td>'


def _cell(text: str) -> str:
    return f"<td{' class=words' if len(text) > LONG_TEXT else ''}>{escape(text)}</td>"


def plain_table(
    head: Sequence[str], body: Iterable[Sequence[str]], parts: Iterable[str] = (), *, tall: bool = False
) -> str:
    """Return a table of texts.

    Args:
        head: the headings.
        body: the lines.
        parts: the elements of the page to which the first cells of the lines link.
        tall: whether the table scrolls, because it is long.
    """
    heads = "".join(f'<th scope="col">{with_tooltip(cell)}</th>' for cell in head)
    links = (f'<td><a href="#{escape(part)}">{escape(part)}</a></td>' for part in parts)
    lines = ([_cell(cell) for cell in cells] for cells in body)
    rows = "".join(f"<tr>{''.join([link or line[0], *line[1:]])}</tr>" for link, line in zip_longest(links, lines))
    return (
        f'<div class="scroll{" tall" * tall}"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def missing_table(missing: Iterable[Gap]) -> str:
    """Return the cases without a result: one line for each job, status and reason, with its cases folded.

    Cases that were not run come last, because an earlier failure is the cause.
    """
    by_reason: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for gap in missing:
        by_reason[gap.status, gap.job, gap.reason].append(gap.case)
    heads = "".join(f'<th scope="col">{with_tooltip(head)}</th>' for head in ("cases", "status", "job", "reason"))
    rows = "".join(
        f"<tr><td>{_folded(cases)}</td>{_cell(status)}{_cell(job)}<td class=words>{escape(reason)}</td></tr>"
        for (status, job, reason), cases in sorted(
            by_reason.items(), key=lambda group: (group[0][0] == "not run", -len(group[1]))
        )
    )
    return f'<div class="scroll gaps"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _folded(cases: Sequence[str]) -> str:
    if len(cases) == 1:
        return escape(cases[0])
    listed = "".join(f"<li>{escape(case)}</li>" for case in cases)
    return f"<details><summary>{format_count(len(cases), 'case')}</summary><ul>{listed}</ul></details>"


def slurm_jobs_table(jobs: Iterable[ScheduledJob]) -> str:
    """Return the Slurm jobs with their states."""
    head = ("Slurm job", "job", "state", "hosts", "time limit", "log")
    return plain_table(head, [(job.id, job.job, _state_text(job), job.hosts, job.limit, job.log) for job in jobs])


def _state_text(job: ScheduledJob) -> str:
    reason = f", {job.reason}" if job.reason else ""
    return f"{STATE_DESCRIPTIONS.get(job.state, 'its state')} ({job.state}{reason})"


def provenance_list(run: Run) -> str:
    """Return a run, folded: its raw file and its provenance."""
    facts = {
        "raw file": run.path,
        "machine": run.machine,
        "kind": run.kind,
        "created": run.created,
        "status": run.status,
    }
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in (facts | library_facts(run) | _flat(run.provenance)).items()
    )
    title = f"run {run.run_id}: job {run.job}, attempt {run.attempt}, {run.created}, {run.status}"
    return f"<details><summary>{escape(title)}</summary><dl>{listed}</dl></details>"


def _flat(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = _list_text(value) if isinstance(value, list | tuple) else value
    return flat


def _list_text(values: Iterable[object]) -> str:
    """Return the values of a list as text; values may be mappings."""
    return "; ".join(
        ", ".join(f"{name} {text}" for name, text in _flat(value).items()) if isinstance(value, Mapping) else str(value)
        for value in values
    )
