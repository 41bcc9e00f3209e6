"""Rows as OpenMetrics, such as for the textfile collector of Prometheus' node_exporter.

Names and labels are those of NCCL's Inspector where they mean the same: ``nccl_bus_bandwidth_gbs``
with ``collective``, ``nranks``, ``n_nodes`` and ``algo_proto`` is the bus bandwidth of NCCL's own
calls; Inspector's ``message_size`` is a range, ``message_size_bytes`` here is the size. Every row is
in the metrics of ``hpccoll_``, in base units, as Prometheus asks for.

OpenMetrics 1.0; NCCL v2.30.7-1, plugins/profiler/inspector/README.md (Prometheus Output Mode).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from hpccoll.common.errors import UnusableError
from hpccoll.common.terminal import printable
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Results, Row

if TYPE_CHECKING:
    from prometheus_client.metrics_core import GaugeMetricFamily

Value: TypeAlias = Callable[[Row], float | None]

LABELS: Mapping[str, Callable[[Row], object]] = {
    "collective": lambda row: row.collective,
    "algorithm": lambda row: row.algorithm,
    "transport": lambda row: row.transport,
    "dtype": lambda row: row.dtype,
    "op": lambda row: row.op,
    "in_place": lambda row: str(row.in_place).lower(),
    "params": lambda row: " ".join(f"{name}={value}" for name, value in row.params.items()),
    "variant": lambda row: row.variant,
    "message_size_bytes": lambda row: row.requested_bytes,
    "nranks": lambda row: row.ranks,
    "n_nodes": lambda row: row.nodes,
    "timing": lambda row: row.timing,
    "kind": lambda row: row.kind,
}
"""The labels of a row in the metrics of hpccoll, besides its machine."""

METRICS: Mapping[str, tuple[str, Value]] = {
    "hpccoll_time_seconds": (
        "Median time of an operation, of the slowest rank.",
        lambda row: row.median_s,
    ),
    "hpccoll_bus_bandwidth_bytes_per_second": (
        "Bus bandwidth, as nccl-tests defines it.",
        lambda row: row.busbw_Bps,
    ),
    "hpccoll_wrong_elements": (
        "Wrong elements of results over all timed iterations.",
        lambda row: row.wrong,
    ),
    "hpccoll_measured": (
        "1 if the case has a correct result, else 0.",
        lambda row: float(row.status == "ok"),
    ),
}
"""Help text and value of each metric of hpccoll."""

INSPECTOR_METRIC = "nccl_bus_bandwidth_gbs"
INSPECTOR_LABELS: Mapping[str, Callable[[Row], object]] = {
    **LABELS,
    "collective": lambda row: row.collective.title().replace("_", ""),
    "algo_proto": lambda row: row.executed.upper().replace(" ", "_"),
}
"""The labels of a call of NCCL: ``AllReduce`` and what ran, such as ``RING_SIMPLE``, in Inspector's words."""


def openmetrics_text(results: Results) -> str:
    """Return the metrics of all rows. If launches measured a case again, the latest counts.

    Raises:
        UnusableError: if prometheus_client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.metrics_core import GaugeMetricFamily
        from prometheus_client.openmetrics.exposition import generate_latest
    except ModuleNotFoundError:
        raise UnusableError(
            "--format", "openmetrics needs: pip install 'hpccoll[export]'"
        ) from None

    machines = {run.run_id: run.machine for run in results.runs}
    created = {run.run_id: run.created for run in results.runs}
    rows = sorted(results.rows, key=lambda row: created.get(row.run_id, ""))
    families: list[GaugeMetricFamily] = []
    for name, (meaning, value) in METRICS.items():
        family = GaugeMetricFamily(name, meaning, labels=[*LABELS, "machine"])
        labelled = {}
        for row in rows:
            labelled[_texts(LABELS, row, machines)] = value(row)
        _add(family, labelled)
        families.append(family)
    inspector = GaugeMetricFamily(
        INSPECTOR_METRIC,
        "Bus bandwidth of NCCL's own calls in GB/s, as NCCL's Inspector exports it.",
        labels=[*INSPECTOR_LABELS, "machine"],
    )
    own_rates = {}
    for row in rows:
        if row.algorithm == NATIVE and row.transport == "nccl":
            own_rates[_texts(INSPECTOR_LABELS, row, machines)] = _gigabytes(row)
    _add(inspector, own_rates)
    families.append(inspector)

    class Rows:
        def collect(self) -> "Iterable[GaugeMetricFamily]":
            return [family for family in families if family.samples]

    registry = CollectorRegistry()
    registry.register(Rows())
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _add(family: "GaugeMetricFamily", labelled: Mapping[tuple[str, ...], float | None]) -> None:
    for labels, value in labelled.items():
        if value is not None:
            family.add_metric(labels, value)


def _texts(
    labels: Mapping[str, Callable[[Row], object]], row: Row, machines: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the values of the labels of a row, and its machine; empty where it has none."""
    texts = []
    for value_of in labels.values():
        value = value_of(row)
        texts.append("" if value is None else printable(str(value)))
    return (*texts, printable(machines.get(row.run_id, "")))


def _gigabytes(row: Row) -> float | None:
    return None if row.busbw_Bps is None else row.busbw_Bps / 1e9
