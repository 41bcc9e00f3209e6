"""The tables of the report as HTML: everything that comes from outside is escaped here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain

from hpccoll.report.groups import Group, Point
from hpccoll.store.rows import Missing, Run
from hpccoll.units import format_size


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of rows.

    Args:
        head: its name, with the unit.
        text: what a cell says.
        key: what it is sorted by, where that is not its text; numbers are aligned right.
        always: whether it is shown even where all rows agree.
    """

    head: str
    text: Callable[[Point], str]
    key: Callable[[Point], float | None] | None = None
    always: bool = False


def _scaled(head: str, field: str, scale: float, digits: int) -> Column:
    def key(point: Point) -> float | None:
        value: float | None = getattr(point.row, field)
        return value

    def text(point: Point) -> str:
        value = key(point)
        return "" if value is None else f"{value / scale:.{digits}f}"

    return Column(head, text, key, always=True)


def _plain(head: str, field: str, *, always: bool = False) -> Column:
    def text(point: Point) -> str:
        value = getattr(point.row, field)
        return _YES[value] if isinstance(value, bool) else "" if value is None else str(value)

    return Column(head, text, always=always)


def _count(head: str, field: str, *, always: bool = False) -> Column:
    def key(point: Point) -> float | None:
        value: int | None = getattr(point.row, field)
        return value

    return Column(head, _plain(head, field).text, key, always)


def _interval(point: Point) -> str:
    row = point.row
    low, high = row.ci_low_s, row.ci_high_s
    return "" if low is None or high is None else f"{low * 1e6:.2f} to {high * 1e6:.2f}"


LONG = 40
"""Characters above which the text of a cell may be broken into lines."""

_YES = {True: "yes", False: "no"}
COLUMNS = (
    _plain("collective", "collective"),
    Column("series", lambda point: point.series, always=True),
    Column("size", lambda p: format_size(p.row.requested_bytes), lambda p: p.row.requested_bytes, always=True),
    _count("ranks", "ranks", always=True),
    _count("nodes", "nodes"),
    _plain("in place", "in_place"),
    _plain("transport", "transport"),
    _plain("device", "device"),
    _plain("dtype", "dtype"),
    _plain("op", "op"),
    _plain("root", "root"),
    _plain("mapping", "mapping"),
    _scaled("median (us)", "median_s", 1e-6, 2),
    Column("95 % interval (us)", _interval, lambda p: p.row.ci_low_s, always=True),
    _scaled("p99 (us)", "p99_s", 1e-6, 2),
    _scaled("algbw (GB/s)", "algbw_Bps", 1e9, 3),
    _scaled("busbw (GB/s)", "busbw_Bps", 1e9, 3),
    _count("wrong", "wrong", always=True),
    _plain("status", "status", always=True),
    _plain("reason", "reason"),
    _count("iterations", "iterations"),
    _plain("converged", "converged"),
    _plain("oversubscribed", "oversubscribed"),
    _plain("executed", "executed"),
    _plain("timing", "timing"),
    _plain("kind", "kind"),
    _plain("run", "run_id"),
)


def rows_table(groups: Iterable[Group]) -> str:
    """Return the table of all rows; a column in which all agree becomes one sentence above it."""
    points = list(chain.from_iterable(group.points for group in groups))
    texts = {column: [column.text(point) for point in points] for column in COLUMNS}
    shown = [column for column in COLUMNS if column.always or len(set(texts[column])) > 1]
    same = [f"{column.head} {texts[column][0]}" for column in COLUMNS if column not in shown and texts[column][0]]
    agreed = f'<p class="note">The same in all rows: {escape(", ".join(same))}.</p>' if same else ""
    head = "".join(f'<th scope="col" tabindex="0">{escape(column.head)}</th>' for column in shown)
    body = "".join(_row(point, [(column, texts[column][i]) for column in shown]) for i, point in enumerate(points))
    table = f'<table class="sortable"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'{agreed}<div class="scroll tall">{table}</div>'


def _row(point: Point, cells: Iterable[tuple[Column, str]]) -> str:
    marked = "".join(_keyed(column.key(point), text) if column.key else _cell(text) for column, text in cells)
    return f'<tr class="{escape(point.row.status)}">{marked}</tr>'


def _keyed(key: float | None, text: str) -> str:
    return f'<td class="number" data-key="{"" if key is None else key}">{escape(text)}</td>'


def _cell(text: str) -> str:
    return f"<td{' class=words' if len(text) > LONG else ''}>{escape(text)}</td>"


def plain_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a small table of texts."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    rows = "".join("<tr>" + "".join(map(_cell, cells)) + "</tr>" for cells in body)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def missing_table(missing: Iterable[Missing]) -> str:
    """Return the cases without a result, each with its reason."""
    return plain_table(("case", "reason", "status", "job"), [(m.case, m.reason, m.status, m.job) for m in missing])


def provenance(run: Run) -> str:
    """Return one run, folded: where its raw file is, and everything it recorded of where it ran."""
    facts = {
        "raw file": run.path,
        "machine": run.machine,
        "kind": run.kind,
        "created": run.created,
        "status": run.status,
    }
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>"
        for name, value in (facts | _flat(run.provenance)).items()
    )
    title = f"run {run.run_id}: job {run.job}, attempt {run.attempt}, {run.created}, {run.status}"
    return f"<details><summary>{escape(title)}</summary><dl>{listed}</dl></details>"


def _flat(facts: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return flat
