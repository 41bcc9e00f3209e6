"""The columns of the table of rows: one declaration for each, in order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import pos
from typing import Any, TypeAlias

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.limits import MEMORY, WIRE, limit_share
from hpccoll.analysis.row_labels import concurrent_label, has_size, traffic_pattern
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.wire_bandwidth import in_units_of_size, measured_to_counted, ports_used
from hpccoll.cases.algorithm_registry import is_workload
from hpccoll.common.terminal import printable
from hpccoll.common.units import format_number, format_size, rate_unit
from hpccoll.schedule.collective import AUTO
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Row
from hpccoll.store.schema import RESULT_COLUMNS


def _between_nodes(row: Row, nbytes: float | None) -> float | None:
    return nbytes if row.nodes > 1 else None


def _workload(row: Row) -> str:
    if not is_workload(row.collective):
        return ""
    arguments = call_arguments(row)
    return " ".join(
        f"{name}={value}" for name, value in sorted(row.params.items()) if name in arguments
    )


def _port_shares(row: Row) -> str:
    if len(row.port_sent) < 2:
        return ""
    return ", ".join(f"{port} {part:.0%}" for port, part in ports_used(row).items())


def _device_time(point: SeriesPoint) -> tuple[float, float] | None:
    """Return the time by events, and what two events in a row take, below which it says nothing."""
    row = point.row
    return None if row.device_s is None else (row.device_s, row.device_floor_s or 0.0)


def _above_floor(time_and_floor: tuple[float, float]) -> str:
    seconds, floor = time_and_floor
    if seconds <= floor:
        return f"<= {format_number(floor / 1e-6, 2)}"
    return format_number(seconds / 1e-6, 2)


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """The declaration of a column."""

    # the name of a field of Row, or what returns the value of a point
    value: str | Callable[[SeriesPoint], Any]
    heading: str  # with the unit; {rate} is that of bandwidths
    format: str = "text"  # a key of FORMATS
    # shown even if all rows agree; else one sentence above the table has the value
    always: bool = False


REPORT_COLUMNS = (
    ReportColumn("collective", "collective"),
    ReportColumn(lambda p: p.series, "series", always=True),
    ReportColumn(
        lambda p: p.row.requested_bytes if has_size(p.row.collective) else None,
        "size",
        "size",
        always=True,
    ),
    ReportColumn("ranks", "ranks", "count", always=True),
    ReportColumn("nodes", "nodes", "count"),
    ReportColumn("in_place", "in place"),
    ReportColumn(lambda p: "" if p.row.algorithm == AUTO else p.row.transport, "transport"),
    ReportColumn("device", "device"),
    ReportColumn("dtype", "dtype"),
    ReportColumn("op", "op"),
    ReportColumn("root", "root"),
    ReportColumn(lambda p: p.pair_label, "pair"),
    ReportColumn(lambda p: traffic_pattern(p.row), "traffic"),
    ReportColumn(lambda p: concurrent_label(p.row), "concurrent"),
    ReportColumn("aggregators", "aggregators", "count"),
    ReportColumn("mapping", "mapping"),
    ReportColumn(lambda p: _workload(p.row), "workload"),
    ReportColumn("median_s", "median (us)", "us", always=True),
    ReportColumn(lambda p: p.row.interval, "95 % interval (us)", "interval_us", always=True),
    ReportColumn(
        lambda p: p.row.round_medians_s if len(p.row.round_medians_s) > 1 else None,
        "by round (us)",
        "list_us",
    ),
    ReportColumn("p99_s", "p99 (us)", "us", always=True),
    ReportColumn("skew_s", "start skew (us)", "us"),
    ReportColumn(_device_time, "by events of GPUs (us)", "at_least_us"),
    ReportColumn("gpu_sm_clock", "lowest GPU clock (MHz)", "mega"),
    ReportColumn("gpu_power", "highest GPU power (W)", "whole"),
    ReportColumn("gpu_temperature", "highest GPU temperature (°C)", "whole"),
    ReportColumn("gpu_nvlink_sent", "sent by a GPU over NVLink (B)", "whole"),
    ReportColumn("forward_s", "forward (us)", "us"),
    ReportColumn("backward_s", "backward (us)", "us"),
    ReportColumn("communication_s", "all communication (us)", "us"),
    ReportColumn("transfer_s", "transfer (us)", "us"),
    ReportColumn("waiting_s", "waiting (us)", "us"),
    ReportColumn("codec_s", "codecs (us)", "us"),
    ReportColumn("exposed_s", "exposed (us)", "us"),
    ReportColumn(lambda p: p.row.exposed_share, "share", "percent"),
    ReportColumn("algbw_Bps", "algbw ({rate})", "rate", always=True),
    ReportColumn("busbw_Bps", "busbw ({rate})", "rate", always=True),
    ReportColumn(lambda p: limit_share(p, WIRE), "of the wire", "percent"),
    ReportColumn(lambda p: limit_share(p, MEMORY), "of memory", "percent"),
    ReportColumn(
        lambda p: _between_nodes(p.row, p.row.wire_bytes_predicted), "counted (B)", "whole"
    ),
    ReportColumn(
        lambda p: _between_nodes(p.row, p.row.rack_bytes_predicted), "between racks (B)", "whole"
    ),
    ReportColumn(lambda p: _between_nodes(p.row, p.row.wire_bytes_measured), "sent (B)", "whole"),
    ReportColumn(
        lambda p: in_units_of_size(p.row, p.row.worker_sent_measured), "sent by a node (S)", "ratio"
    ),
    ReportColumn(
        lambda p: in_units_of_size(p.row, p.row.worker_received_measured),
        "received by a node (S)",
        "ratio",
    ),
    ReportColumn(lambda p: _port_shares(p.row), "by port"),
    ReportColumn(
        lambda p: measured_to_counted(p.row, p.wire), "sent / counted with headers", "ratio"
    ),
    ReportColumn("wrong", "wrong", "count", always=True),
    ReportColumn("status", "status", always=True),
    ReportColumn("reason", "reason"),
    ReportColumn("rounds", "rounds", "count"),
    ReportColumn("iterations", "iterations", "count"),
    *(
        ReportColumn(column.name, column.heading, column.format)
        for column in RESULT_COLUMNS
        if column.heading
    ),
    ReportColumn("converged", "converged"),
    ReportColumn("oversubscribed", "oversubscribed"),
    ReportColumn("requested", "requested"),
    ReportColumn("executed", "executed"),
    ReportColumn("evidence", "evidence"),
    ReportColumn("timing", "timing"),
    ReportColumn("rule", "rule"),
    ReportColumn(lambda p: p.kind, "kind"),
    ReportColumn("run_id", "run"),
)


def _yes_no_or_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


FORMATS: Mapping[str, tuple[Callable[[Any], str], Callable[[Any], float] | None]] = {
    "text": (_yes_no_or_text, None),
    "count": (str, pos),
    "size": (lambda nbytes: format_size(int(nbytes)), pos),
    "us": (lambda seconds: format_number(seconds / 1e-6, 2), pos),
    "at_least_us": (_above_floor, max),
    "interval_us": (
        lambda ends: " to ".join(f"{end * 1e6:.2f}" for end in ends),
        lambda ends: ends[0],
    ),
    "list_us": (
        lambda times: ", ".join("-" if t is None else f"{t * 1e6:.2f}" for t in times),
        None,
    ),
    "rate": (lambda rate: format_number(rate, 3), pos),  # in the unit of the table
    "percent": (lambda share: f"{share:.1%}", pos),
    "whole": (lambda number: f"{number:.0f}", pos),
    "mega": (lambda number: f"{number / 1e6:.0f}", pos),
    "ratio": (lambda ratio: f"{ratio:.3f}", pos),
}
"""How the values of a column that are not None are written, and by what they are sorted; None: by their text."""


Cell: TypeAlias = tuple[float | str | None, str]
"""What a cell is sorted by, None for its text, and its text."""

PLAIN_ROWS = 200
"""The most rows of a table that is plain HTML as a whole."""
PAGE_ROWS = 100
"""The rows of a page of a larger table, which the script of the page draws; the first page is plain HTML."""


class TableColumn:
    """The cells of a column: each different one once, and which one each row has.

    Args:
        heading: the heading.
        cells: the cells, by row.
        is_number: whether its cells are numbers.
    """

    def __init__(self, heading: str, cells: Iterable[Cell], *, is_number: bool) -> None:
        self.heading, self.is_number = heading, is_number
        numbers: dict[Cell, int] = {}
        self.cell_of_row = [numbers.setdefault(cell, len(numbers)) for cell in cells]
        self.cells = list(numbers)

    @property
    def differs(self) -> bool:
        """Whether rows have different texts."""
        return len({text for _, text in self.cells}) > 1

    def record(self) -> dict[str, object]:
        """Return the column as page.js reads it: ``texts`` and ``keys`` of its cells, and the cell of each row."""
        texts = [printable(text) for _, text in self.cells]
        record: dict[str, object] = {
            "texts": texts,
            "number": self.is_number,
            "rows": self.cell_of_row,
        }
        if self.is_number:
            record["keys"] = [
                float(f"{key:.7g}") if isinstance(key, float) else key for key, _ in self.cells
            ]
        return record


@dataclass(frozen=True, slots=True)
class RowsTable:
    """The table of rows: what all rows agree in, its columns, and the status of each row."""

    shared: Sequence[str]
    columns: Sequence[TableColumn]
    statuses: Sequence[str]

    @property
    def head(self) -> list[str]:
        return [column.heading for column in self.columns]

    @property
    def is_paged(self) -> bool:
        """Whether the script of the page draws its rows, a page at a time."""
        return len(self.statuses) > PLAIN_ROWS

    @property
    def rows(self) -> list[tuple[str, list[Cell]]]:
        """The status and the cells of each row that is plain HTML."""
        plain = self.statuses[:PAGE_ROWS] if self.is_paged else self.statuses
        rows = []
        for row, status in enumerate(plain):
            cells = [column.cells[column.cell_of_row[row]] for column in self.columns]
            rows.append((status, cells))
        return rows

    @property
    def record(self) -> dict[str, object]:
        """The whole table as page.js reads it."""
        columns = [column.record() for column in self.columns]
        return {"page": PAGE_ROWS, "statuses": list(self.statuses), "columns": columns}


def rows_table(groups: Iterable[ChartGroup]) -> RowsTable:
    """Return the table of all rows; a column in which all rows agree becomes a part of one sentence above it.

    Bandwidths are in the unit that suits the highest busbw.
    """
    every = chain.from_iterable(
        (*group.points, *group.imports, *group.predictions) for group in groups
    )
    # a prediction may be in several groups
    points = list({id(point): point for point in every}.values())
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    shared, shown = [], []
    for declared in REPORT_COLUMNS:
        cells = (_cell(declared, point, scale) for point in points)
        is_number = FORMATS[declared.format][1] is not None
        column = TableColumn(declared.heading.format(rate=unit), cells, is_number=is_number)
        has_text = any(text for _, text in column.cells)
        if (declared.always and has_text) or column.differs:
            shown.append(column)
        elif has_text:
            shared.append(f"{column.heading} {column.cells[0][1]}")
    return RowsTable(shared, shown, [point.row.status for point in points])


def _cell(column: ReportColumn, point: SeriesPoint, scale: float) -> Cell:
    """Return a cell of a column; ``scale`` is the unit of bandwidths in bytes per second."""
    text, sort_key = FORMATS[column.format]
    value = column.value(point) if callable(column.value) else getattr(point.row, column.value)
    if value is None:
        return "" if sort_key else None, ""
    words = text(value / scale if column.format == "rate" else value)
    return sort_key(value) if sort_key else None, words
