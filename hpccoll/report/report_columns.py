"""The columns of the table of rows: what a cell says of a point, and what it is sorted by."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpccoll.report.call_labels import has_size, traffic_pattern
from hpccoll.report.chart_groups import SeriesPoint
from hpccoll.report.rank_pairs import pair_label
from hpccoll.report.wire_bandwidth import in_units_of_size, measured_to_counted, ports_used, rate_unit, wire_share
from hpccoll.schedule.collective import AUTO
from hpccoll.units import format_number, format_size

_YES = {True: "yes", False: "no"}


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of the table of rows.

    Args:
        head: its name, with the unit.
        text: what a cell says.
        key: what it is sorted by, where that is not its text; numbers are aligned right.
        always: whether it is shown even where all rows agree.
    """

    head: str
    text: Callable[[SeriesPoint], str]
    key: Callable[[SeriesPoint], float | None] | None = None
    always: bool = False


def _scaled(head: str, field: str, scale: float, digits: int) -> ReportColumn:
    def key(point: SeriesPoint) -> float | None:
        value: float | None = getattr(point.row, field)
        return value

    return _number(head, key, lambda value: format_number(value / scale, digits), always=True)


def _number(
    head: str, key: Callable[[SeriesPoint], float | None], words: Callable[[float], str], *, always: bool = False
) -> ReportColumn:
    """A column of numbers, empty where there is none."""

    def text(point: SeriesPoint) -> str:
        value = key(point)
        return "" if value is None else words(value)

    return ReportColumn(head, text, key, always)


def _sent(field: str) -> Callable[[SeriesPoint], float | None]:
    def sent(point: SeriesPoint) -> float | None:
        value: int | None = getattr(point.row, field)
        return value if point.row.nodes > 1 else None

    return sent


def _sizes(head: str, field: str) -> ReportColumn:
    """A column of bytes of a node, in units of S."""
    return _number(head, lambda p: in_units_of_size(p.row, getattr(p.row, field)), lambda value: f"{value:.3f}")


def _ports(point: SeriesPoint) -> str:
    """Return what part of the bytes each port carried, where there are several."""
    row = point.row
    return ", ".join(f"{port} {part:.0%}" for port, part in ports_used(row).items()) if len(row.port_sent) > 1 else ""


def _plain(head: str, field: str, *, always: bool = False) -> ReportColumn:
    def text(point: SeriesPoint) -> str:
        value = getattr(point.row, field)
        return _YES[value] if isinstance(value, bool) else "" if value is None else str(value)

    return ReportColumn(head, text, always=always)


def _count(head: str, field: str, *, always: bool = False) -> ReportColumn:
    def key(point: SeriesPoint) -> float | None:
        value: int | None = getattr(point.row, field)
        return value

    return ReportColumn(head, _plain(head, field).text, key, always)


def _interval(point: SeriesPoint) -> str:
    row = point.row
    low, high = row.ci_low_s, row.ci_high_s
    return "" if low is None or high is None else f"{low * 1e6:.2f} to {high * 1e6:.2f}"


def _by_round(point: SeriesPoint) -> str:
    times = point.row.round_medians_s
    return ", ".join("-" if t is None else f"{t * 1e6:.2f}" for t in times) if len(times) > 1 else ""


def _transport(point: SeriesPoint) -> str:
    """Return how bytes were moved; that of ``auto`` is its choice's, which its evidence names."""
    return "" if point.row.algorithm == AUTO else point.row.transport


def _size(point: SeriesPoint) -> str:
    return format_size(point.row.requested_bytes) if has_size(point.row.collective) else ""


def report_columns(points: Iterable[SeriesPoint]) -> tuple[ReportColumn, ...]:
    """Return all columns, in order; bandwidths are in the unit that suits the highest of ``points``."""
    scale, unit = rate_unit(max((point.row.busbw_Bps or 0.0 for point in points), default=0.0))
    return (
        _plain("collective", "collective"),
        ReportColumn("series", lambda point: point.series, always=True),
        ReportColumn("size", _size, lambda point: point.row.requested_bytes, always=True),
        _count("ranks", "ranks", always=True),
        _count("nodes", "nodes"),
        _plain("in place", "in_place"),
        ReportColumn("transport", _transport),
        _plain("device", "device"),
        _plain("dtype", "dtype"),
        _plain("op", "op"),
        _plain("root", "root"),
        ReportColumn("pair", pair_label),
        ReportColumn("traffic", lambda point: traffic_pattern(point.row) or ""),
        _count("aggregators", "aggregators"),
        _plain("mapping", "mapping"),
        _scaled("median (us)", "median_s", 1e-6, 2),
        ReportColumn("95 % interval (us)", _interval, lambda p: p.row.ci_low_s, always=True),
        ReportColumn("by round (us)", _by_round),
        _scaled("p99 (us)", "p99_s", 1e-6, 2),
        _number("by events of GPUs (us)", lambda p: p.row.device_s, lambda value: f"{value / 1e-6:.2f}"),
        _scaled(f"algbw ({unit})", "algbw_Bps", scale, 3),
        _scaled(f"busbw ({unit})", "busbw_Bps", scale, 3),
        _number("of the wire", lambda p: wire_share(p.row, p.wire), lambda value: f"{value:.1%}"),
        _number("counted (B)", _sent("wire_bytes_predicted"), lambda value: f"{value:.0f}"),
        _number("between racks (B)", _sent("rack_bytes_predicted"), lambda value: f"{value:.0f}"),
        _number("sent (B)", _sent("wire_bytes_measured"), lambda value: f"{value:.0f}"),
        _sizes("sent by a node (S)", "worker_sent_measured"),
        _sizes("received by a node (S)", "worker_received_measured"),
        ReportColumn("by port", _ports),
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
        ReportColumn("kind", lambda point: point.kind),
        _plain("run", "run_id"),
    )
