"""The tables of the report as HTML: everything that comes from outside is escaped here."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, zip_longest

from hpccoll.report.calls import sized, traffic
from hpccoll.report.groups import Group, Point
from hpccoll.report.library import library_facts
from hpccoll.report.naming import counted
from hpccoll.report.pairs import pair_words
from hpccoll.report.wires import in_sizes, measured_to_counted, ports_used, rate_unit, share
from hpccoll.schedule.promise import AUTO
from hpccoll.store.rows import Missing, Run
from hpccoll.store.scheduler import WORDS, Scheduled
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

    return _number(head, key, lambda value: f"{value / scale:.{digits}f}", always=True)


def _number(
    head: str, key: Callable[[Point], float | None], words: Callable[[float], str], *, always: bool = False
) -> Column:
    """A column of numbers, empty where there is none."""

    def text(point: Point) -> str:
        value = key(point)
        return "" if value is None else words(value)

    return Column(head, text, key, always)


def _sent(field: str) -> Callable[[Point], float | None]:
    def sent(point: Point) -> float | None:
        value: int | None = getattr(point.row, field)
        return value if point.row.nodes > 1 else None

    return sent


def _sizes(head: str, field: str) -> Column:
    """A column of bytes of a node, in units of S."""
    return _number(head, lambda p: in_sizes(p.row, getattr(p.row, field)), lambda value: f"{value:.3f}")


def _ports(point: Point) -> str:
    """Return what part of the bytes each port carried, where there are several."""
    row = point.row
    return ", ".join(f"{port} {part:.0%}" for port, part in ports_used(row).items()) if len(row.port_sent) > 1 else ""


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


def _by_round(point: Point) -> str:
    times = point.row.round_medians_s
    return ", ".join("-" if t is None else f"{t * 1e6:.2f}" for t in times) if len(times) > 1 else ""


def _transport(point: Point) -> str:
    """Return how bytes were moved; that of ``auto`` is its choice's, which its evidence names."""
    return "" if point.row.algorithm == AUTO else point.row.transport


def _size(point: Point) -> str:
    return format_size(point.row.requested_bytes) if sized(point.row.collective) else ""


LONG = 40
"""Characters above which the text of a cell may be broken into lines."""

_YES = {True: "yes", False: "no"}


def _columns(points: Iterable[Point]) -> tuple[Column, ...]:
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    return (
        _plain("collective", "collective"),
        Column("series", lambda point: point.series, always=True),
        Column("size", _size, lambda point: point.row.requested_bytes, always=True),
        _count("ranks", "ranks", always=True),
        _count("nodes", "nodes"),
        _plain("in place", "in_place"),
        Column("transport", _transport),
        _plain("device", "device"),
        _plain("dtype", "dtype"),
        _plain("op", "op"),
        _plain("root", "root"),
        Column("pair", pair_words),
        Column("traffic", lambda point: traffic(point.row) or ""),
        _count("aggregators", "aggregators"),
        _plain("mapping", "mapping"),
        _scaled("median (us)", "median_s", 1e-6, 2),
        Column("95 % interval (us)", _interval, lambda p: p.row.ci_low_s, always=True),
        Column("by round (us)", _by_round),
        _scaled("p99 (us)", "p99_s", 1e-6, 2),
        _number("by events of GPUs (us)", lambda p: p.row.device_s, lambda value: f"{value / 1e-6:.2f}"),
        _scaled(f"algbw ({unit})", "algbw_Bps", scale, 3),
        _scaled(f"busbw ({unit})", "busbw_Bps", scale, 3),
        _number("of the wire", lambda p: share(p.row, p.wire), lambda value: f"{value:.1%}"),
        _number("counted (B)", _sent("wire_bytes_predicted"), lambda value: f"{value:.0f}"),
        _number("between racks (B)", _sent("rack_bytes_predicted"), lambda value: f"{value:.0f}"),
        _number("sent (B)", _sent("wire_bytes_measured"), lambda value: f"{value:.0f}"),
        _sizes("sent by a node (S)", "worker_sent_measured"),
        _sizes("received by a node (S)", "worker_received_measured"),
        Column("by port", _ports),
        _number(
            "sent / counted with headers", lambda p: measured_to_counted(p.row, p.wire), lambda value: f"{value:.3f}"
        ),
        _count("wrong", "wrong", always=True),
        _plain("status", "status", always=True),
        _plain("reason", "reason"),
        _count("rounds", "rounds"),
        _count("iterations", "iterations"),
        _plain("converged", "converged"),
        _plain("oversubscribed", "oversubscribed"),
        _plain("requested", "requested"),
        _plain("executed", "executed"),
        _plain("evidence", "evidence"),
        _plain("timing", "timing"),
        Column("kind", lambda point: point.kind),
        _plain("run", "run_id"),
    )


def rows_table(groups: Iterable[Group]) -> str:
    """Return the table of all rows; a column in which all agree becomes one sentence above it."""
    points = list(chain.from_iterable(group.points for group in groups))
    columns = _columns(points)
    texts = {column: [column.text(point) for point in points] for column in columns}
    shown = [column for column in columns if column.always or len(set(texts[column])) > 1]
    same = [f"{column.head} {texts[column][0]}" for column in columns if column not in shown and texts[column][0]]
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


def plain_table(head: Sequence[str], body: Iterable[Sequence[str]], parts: Iterable[str] = ()) -> str:
    """Return a small table of texts; the first of each line links to the part of the page that ``parts`` names."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    links = (f'<td><a href="#{escape(part)}">{escape(part)}</a></td>' for part in parts)
    lines = ([_cell(cell) for cell in cells] for cells in body)
    rows = "".join(f"<tr>{''.join([link or line[0], *line[1:]])}</tr>" for link, line in zip_longest(links, lines))
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def missing_table(missing: Iterable[Missing]) -> str:
    """Return the cases without a result: one line for all of a job that share a reason, the cases folded.

    Those that were not run come last: something else is the cause.
    """
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for gap in missing:
        alike[gap.status, gap.job, gap.reason].append(gap.case)
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("cases", "status", "job", "reason"))
    rows = "".join(
        f"<tr><td>{_folded(cases)}</td>{_cell(status)}{_cell(job)}<td class=words>{escape(reason)}</td></tr>"
        for (status, job, reason), cases in sorted(
            alike.items(), key=lambda group: (group[0][0] == "not run", -len(group[1]))
        )
    )
    return f'<div class="scroll gaps"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _folded(cases: Sequence[str]) -> str:
    if len(cases) == 1:
        return escape(cases[0])
    listed = "".join(f"<li>{escape(case)}</li>" for case in cases)
    return f"<details><summary>{counted(len(cases), 'case')}</summary><ul>{listed}</ul></details>"


def scheduled_table(jobs: Iterable[Scheduled]) -> str:
    """Return Slurm's jobs and what became of them."""
    head = ("Slurm job", "job", "state", "hosts", "time limit", "log")
    return plain_table(head, [(job.id, job.job, _state(job), job.hosts, job.limit, job.log) for job in jobs])


def _state(job: Scheduled) -> str:
    reason = f", {job.reason}" if job.reason else ""
    return f"{WORDS.get(job.state, 'its state')} ({job.state}{reason})"


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
            flat[prefix + name] = _listed(value) if isinstance(value, list | tuple) else value
    return flat


def _listed(values: Iterable[object]) -> str:
    """Return the values of a list in words, also where they are records."""
    return "; ".join(
        ", ".join(f"{name} {said}" for name, said in _flat(value).items()) if isinstance(value, Mapping) else str(value)
        for value in values
    )
