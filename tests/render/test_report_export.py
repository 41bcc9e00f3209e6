import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.terminal import printable
from hpccoll.render.export import FORMATS, FORMULA_STARTS, LINE_FIELDS, export
from hpccoll.store.rows import ROW_COLUMNS

FIELDS = list(ROW_COLUMNS)
numbers = st.none() | st.floats()
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"))
row_changes = st.fixed_dictionaries({
    "median_s": numbers, "busbw_Bps": numbers, "wrong": st.none() | st.integers(0, 2**40), "reason": st.none() | texts,
    "params": st.dictionaries(texts, st.integers() | texts, max_size=3), "in_place": st.booleans(),
    "converged": st.none() | st.booleans(),
})  # fmt: skip
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def absent(value):
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def plain(value):
    """Return a value as JSON has it."""
    return None if absent(value) else [plain(one) for one in value] if isinstance(value, tuple) else value


@many
@given(changes=st.lists(row_changes, max_size=3))
def test_json_gives_back_every_field_in_order_and_never_nan(make_row, of_rows, changes):
    rows = [make_row(**change) for change in changes]
    found = json.loads(export(of_rows(*rows), "json"), parse_constant=pytest.fail)
    assert [list(record) for record in found] == [FIELDS] * len(rows)
    for record, row in zip(found, rows, strict=True):
        assert record == {name: plain(getattr(row, name)) for name in FIELDS}


@many
@given(changes=st.lists(row_changes, max_size=3))
def test_csv_gives_back_every_field_and_leaves_out_what_is_absent(make_row, of_rows, changes):
    rows = [make_row(**change) for change in changes]
    head, *found = csv.reader(io.StringIO(export(of_rows(*rows), "csv"), newline=""))
    assert head == FIELDS
    for cells, row in zip(found, rows, strict=True):
        record = dict(zip(head, cells, strict=True))
        for name in ("median_s", "busbw_Bps"):
            assert (None if record[name] == "" else float(record[name])) == (
                None if absent(v := getattr(row, name)) else v
            )
        assert json.loads(record["params"]) == row.params
        assert json.loads(record["in_place"]) is row.in_place
        reason = printable(row.reason or "")
        assert record["reason"] == (f"'{reason}" if reason.startswith(FORMULA_STARTS) else reason)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_text_is_a_formula_and_numbers_stay_numbers(make_row, of_rows, begin):
    text = f"{begin}cmd|' /C calc'!A0"
    row = make_row(median_s=-1e-5, **dict.fromkeys(("case_id", "reason", "evidence", "variant", "job", "run_id"), text))
    head, cells = csv.reader(io.StringIO(export(of_rows(row), "csv"), newline=""))
    assert [cell for cell in cells if cell.startswith(FORMULA_STARTS)] == ["-1e-05"]
    assert dict(zip(head, cells, strict=True))["reason"] == ("" if begin == "\r" else "'") + printable(text)


def lines_of(text):
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def test_the_nccl_tests_table_has_both_placements_in_a_line(make_row, of_rows):
    rows = (
        make_row(nbytes=4096, seconds=1e-5, algbw_Bps=1.2e9, busbw_Bps=2.4e9),
        make_row(nbytes=4096, in_place=True, seconds=2e-5),
    )
    (cells,) = lines_of(export(of_rows(*rows), "nccl-tests"))
    assert cells == ["4096", "1024", "float", "sum", "-1", "10.00", "1.20", "2.40", "0", "20.00", "0.205", "0.205", "0"]


def test_the_nccl_tests_table_has_one_reason_for_both_placements(make_row, of_rows):
    rows = [make_row(in_place=place, status="skipped", median_s=None, reason="no room") for place in (False, True)]
    assert export(of_rows(*rows, make_row(nbytes=8)), "nccl-tests").count("# 1024 B: skipped: no room") == 1


def test_the_nccl_tests_table_has_na_without_a_measurement(make_row, of_rows):
    text = export(of_rows(make_row(status="failed", median_s=None, reason="out of\nmemory")), "nccl-tests")
    (cells,) = lines_of(text)
    assert cells[5:] == ["N/A"] * 8
    assert "# 1024 B: failed: out of memory" in text


def test_the_nccl_tests_tables_of_two_mappings_name_them(make_node_row, of_rows):
    text = export(of_rows(make_node_row(), make_node_row(mapping="cyclic")), "nccl-tests")
    heads = [line for line in text.splitlines() if line.startswith("# all_reduce ring")]
    assert [head.split("on 2 nodes, ")[1].split(",")[0] for head in heads] == ["mapping block", "mapping cyclic"]


def test_every_series_has_its_own_nccl_tests_table(results):
    text = export(results, "nccl-tests")
    assert text.count("#wrong") == 2 * 11
    assert len(lines_of(text)) == len(results.rows) / 2


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({"collective": "all_gather", "ranks": 4, "nbytes": 4096}, "256"),
        ({"dtype": "float16", "nbytes": 4096}, "2048"),
        ({"dtype": "bfloat16", "nbytes": 4096}, "2048"),
    ],
)
def test_elements_are_counted_as_nccl_tests_counts_them(make_row, of_rows, change, count):
    (cells,) = lines_of(export(of_rows(make_row(**change)), "nccl-tests"))
    assert cells[1] == count


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_row_is_no_error(results, format_name):
    text = export(replace(results, rows=()), format_name)
    assert text.endswith("\n") or format_name == "lines"
    assert not lines_of(text) if format_name in ("nccl-tests", "lines") else text


def test_a_line_has_every_field_of_a_row_in_order_and_none_for_absent_ones(make_row, of_rows):
    (line,) = export(of_rows(make_row(nbytes=1024, seconds=2e-6, ci_low_s=None)), "lines").splitlines()
    fields = [word.partition("=")[::2] for word in line.split()]
    assert fields[0][0] == "case"
    assert tuple(name for name, _ in fields[-len(LINE_FIELDS) :]) == LINE_FIELDS
    values = dict(fields)
    assert (float(values["median_s"]), values["ci_low_s"], values["status"]) == (2e-6, "none", "ok")


def test_an_unknown_format_names_the_choices(results):
    with pytest.raises(BadInputError, match="choose from json, csv, nccl-tests, lines"):
        export(results, "xml")


@pytest.mark.parametrize(
    ("change", "columns", "arguments"),
    [
        ({"collective": "broadcast", "op": None, "nbytes": 4096}, ["1024", "float", "none", "0"], "# broadcast ring"),
        ({"collective": "gather", "op": None, "root": 1, "nbytes": 4096}, ["512", "float", "none", "1"], "# gather"),
        (
            {"collective": "send_recv", "op": None, "root": 1, "params": {"peer": 0}, "nbytes": 4096},
            ["1024", "float", "none", "-1"],
            "# send_recv ring between ranks 1 and 0 over mpi",
        ),
        (
            {"collective": "all_to_all_v", "op": None, "nbytes": 4096},
            ["512", "float", "none", "-1"],
            "# all_to_all_v ring traffic zipf over mpi",
        ),
        (
            {"collective": "multi_pair", "op": None, "params": {"concurrent": 1}, "nbytes": 4096},
            ["1024", "float", "none", "-1"],
            "# multi_pair ring 1 pair at once over mpi",
        ),
        ({"aggregators": 1, "nbytes": 4096}, ["1024", "float", "sum", "-1"], "2 ranks and 1 aggregator on 1 node"),
    ],
)  # fmt: skip
def test_the_nccl_tests_table_has_the_arguments_of_the_call(make_row, of_rows, change, columns, arguments):
    text = export(of_rows(make_row(**change)), "nccl-tests")
    (cells,) = lines_of(text)
    assert cells[1:5] == columns
    assert arguments in text


def test_a_barrier_has_no_bandwidth_in_the_nccl_tests_table(make_row, of_rows):
    row = make_row(collective="barrier", nbytes=8, algbw_Bps=None, busbw_Bps=None, seconds=1e-5)
    (cells,) = lines_of(export(of_rows(row), "nccl-tests"))
    assert cells[5:9] == ["10.00", "N/A", "N/A", "0"]


def test_the_nccl_tests_table_says_how_operations_were_timed(make_row, of_rows):
    def timings(*rows):
        lines = export(of_rows(*rows), "nccl-tests").splitlines()
        return [line.removeprefix("# timing ").partition(": ") for line in lines if line.startswith("# timing")]

    ((timing, _, words),) = timings(make_row())
    assert timing == "single, rule max"
    assert words.endswith("nccl-tests times many, queued back to back")
    ((timing, _, words),) = timings(make_row(timing="aggregated"))
    assert timing == "aggregated"
    assert "over their number, as nccl-tests" in words


def test_the_nccl_tests_table_has_aggregated_rows_where_there_are_some(make_row, of_rows):
    rows = [
        make_row(nbytes=1024, seconds=3e-5), make_row(nbytes=1024, seconds=1e-5, timing="aggregated"),
        make_row(nbytes=4096, seconds=4e-5),
        make_row(nbytes=4096, timing="aggregated", median_s=None, status="failed"),
    ]  # fmt: skip
    text = export(of_rows(*rows), "nccl-tests")
    assert [(cells[0], cells[5]) for cells in lines_of(text)] == [("1024", "10.00"), ("4096", "N/A"), ("4096", "40.00")]
    assert "# left out, because the same cases were also timed aggregated: single 1 row" in text
    assert "left out" not in export(of_rows(rows[0], rows[2]), "nccl-tests")
