import csv
import io
import json
import math

import pytest
from golden_page import assert_golden
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.terminal import printable
from hpccoll.render.export import FORMULA_STARTS, export
from hpccoll.store.rows import ROW_COLUMNS

FIELDS = list(ROW_COLUMNS)
numbers = st.none() | st.floats()
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"))
row_changes = st.fixed_dictionaries(
    {
        "median_s": numbers,
        "busbw_Bps": numbers,
        "wrong": st.none() | st.integers(0, 2**40),
        "reason": st.none() | texts,
        "params": st.dictionaries(texts, st.integers() | texts, max_size=3),
        "in_place": st.booleans(),
        "converged": st.none() | st.booleans(),
    }
)
many = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def absent(value):
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def plain(value):
    """Return a value as JSON has it."""
    return (
        None
        if absent(value)
        else [plain(one) for one in value]
        if isinstance(value, tuple)
        else value
    )


@many
@given(changes=st.lists(row_changes, max_size=3))
def test_json_and_csv_give_back_every_field_in_order_and_nothing_for_what_is_absent(
    make_row, of_rows, changes
):
    rows = [make_row(**change) for change in changes]
    found = json.loads(export(of_rows(*rows), "json"), parse_constant=pytest.fail)
    assert [list(record) for record in found] == [FIELDS] * len(rows)
    head, *lines = csv.reader(io.StringIO(export(of_rows(*rows), "csv"), newline=""))
    assert head == FIELDS
    for record, cells, row in zip(found, lines, rows, strict=True):
        assert record == {name: plain(getattr(row, name)) for name in FIELDS}
        of_csv = dict(zip(head, cells, strict=True))
        for name in ("median_s", "busbw_Bps"):
            assert (None if of_csv[name] == "" else float(of_csv[name])) == record[name]
        assert (json.loads(of_csv["params"]), json.loads(of_csv["in_place"])) == (
            row.params,
            row.in_place,
        )
        reason = printable(row.reason or "")
        assert of_csv["reason"] == (f"'{reason}" if reason.startswith(FORMULA_STARTS) else reason)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_text_is_a_formula_and_numbers_stay_numbers(make_row, of_rows, begin):
    text = f"{begin}cmd|' /C calc'!A0"
    row = make_row(
        median_s=-1e-5,
        **dict.fromkeys(("case_id", "reason", "evidence", "variant", "job", "run_id"), text),
    )
    head, cells = csv.reader(io.StringIO(export(of_rows(row), "csv"), newline=""))
    assert [cell for cell in cells if cell.startswith(FORMULA_STARTS)] == ["-1e-05"]
    assert dict(zip(head, cells, strict=True))["reason"] == (
        "" if begin == "\r" else "'"
    ) + printable(text)


def test_the_tables_of_nccl_tests_and_the_lines_for_logs_are_the_golden_page(
    make_row, make_node_row, of_rows
):
    """Placements, absent cells, reasons, calls of all kinds, mappings, rules, and rows that are left out."""
    plain = {"op": None, "nbytes": 4096}
    failed = {"median_s": None, "status": "failed", "reason": "out of\nmemory"}
    rows = [
        make_row(nbytes=4096, seconds=1e-5, algbw_Bps=1.2e9, busbw_Bps=2.4e9),
        make_row(nbytes=4096, in_place=True, seconds=2e-5),
        *(make_row(in_place=in_place, **failed) for in_place in (False, True)),
        make_row(nbytes=4096, dtype="bfloat16"),
        make_row(collective="all_gather", ranks=4, **plain),
        make_row(collective="broadcast", **plain),
        make_row(collective="gather", root=1, **plain),
        make_row(collective="send_recv", root=1, params={"peer": 0}, **plain),
        make_row(collective="all_to_all_v", **plain),
        make_row(collective="multi_pair", params={"concurrent": 1}, **plain),
        make_row(collective="barrier", nbytes=8, algbw_Bps=None, busbw_Bps=None, op=None),
        make_row("tree", aggregators=1, nbytes=4096, rule="span"),
        make_node_row(),
        make_node_row(mapping="cyclic"),
        *(make_row("star", timing=timing, seconds=1e-5) for timing in ("single", "aggregated")),
        make_row("star", nbytes=4096, seconds=4e-5),
        make_row("star", nbytes=4096, timing="aggregated", **failed),
    ]
    lines = export(of_rows(rows[0], rows[2]), "lines").splitlines()
    assert_golden(
        "export", dict.fromkeys([*export(of_rows(*rows), "nccl-tests").splitlines(), *lines])
    )  # headings once


@many
@given(change=row_changes)
def test_parquet_gives_back_every_field_with_types_that_do_not_depend_on_the_rows(
    make_row, of_rows, change
):
    parquet = pytest.importorskip("pyarrow.parquet")
    empty = parquet.read_table(io.BytesIO(export(of_rows(), "parquet")))
    table = parquet.read_table(io.BytesIO(export(of_rows(make_row(**change)), "parquet")))
    assert table.schema.equals(empty.schema)
    assert table.column_names == FIELDS
    (row,) = table.to_pylist()
    for name, value in change.items():
        expected = None if absent(value) else value
        assert (json.loads(row[name]) if name == "params" else row[name]) == expected


def samples(text):
    """Return the samples of OpenMetrics text by name, as dictionaries of labels with values."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    read = {}
    for family in parser.text_string_to_metric_families(text):
        read[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    return read


def test_openmetrics_have_each_case_once_in_base_units_and_the_latest_launch_counts(
    make_row, make_run, of_rows
):
    rows = [
        make_row(nbytes=64, seconds=2e-5, run_id="run-2"),
        make_row(nbytes=64, seconds=1e-5, run_id="run-1"),
        make_row(nbytes=8, status="failed", median_s=None, busbw_Bps=None),
    ]
    runs = (
        make_run(created="2026-01-01T00:00:00Z"),
        make_run(run_id="run-2", created="2026-02-01T00:00:00Z"),
    )
    read = samples(export(of_rows(*rows, runs=runs), "openmetrics"))
    ((labels, seconds),) = read["hpccoll_time_seconds"]
    assert (labels["message_size_bytes"], labels["nranks"], seconds) == ("64", "2", 2e-5)
    measured = {labels["message_size_bytes"]: value for labels, value in read["hpccoll_measured"]}
    assert measured == {"64": 1, "8": 0}
    assert "nccl_bus_bandwidth_gbs" not in read


def test_openmetrics_of_nccls_own_calls_are_those_of_its_inspector(make_row, of_rows):
    own = {"transport": "nccl", "device": "cuda", "executed": "ring simple", "busbw_Bps": 3e11}
    rows = [make_row("native", 8, 1 << 30, **own), make_row("ring", 8, 1 << 30, transport="nccl")]
    ((labels, rate),) = samples(export(of_rows(*rows), "openmetrics"))["nccl_bus_bandwidth_gbs"]
    assert (labels["collective"], labels["algo_proto"], labels["nranks"]) == (
        "AllReduce",
        "RING_SIMPLE",
        "8",
    )
    assert rate == pytest.approx(300)


def test_calls_of_nccl_in_both_placements_are_samples_of_their_own(make_row, of_rows):
    own = {"transport": "nccl", "device": "cuda"}
    rows = [make_row("native", 8, 1 << 30, in_place=in_place, **own) for in_place in (False, True)]
    read = samples(export(of_rows(*rows), "openmetrics"))["nccl_bus_bandwidth_gbs"]
    assert {labels["in_place"] for labels, _ in read} == {"false", "true"}


def test_chosen_columns_are_exported_in_their_order_and_only_where_rows_have_columns(
    make_row, of_rows
):
    results = of_rows(make_row("ring", nbytes=8))
    columns = ["bytes", "algorithm"]
    assert export(results, "csv", columns) == "bytes,algorithm\n8,ring\n"
    (record,) = json.loads(export(results, "json", columns))
    assert list(record.items()) == [("bytes", 8), ("algorithm", "ring")]
    with pytest.raises(BadInputError, match="did you mean bytes"):
        export(results, "csv", ["byte"])
    with pytest.raises(BadInputError):
        export(results, "lines", columns)
