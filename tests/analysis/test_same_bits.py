"""Which choices give the same bits: findings, and results that keep those of a reference."""

import json
from dataclasses import replace

import pytest
from cli_runner import invoke
from row_examples import make_row
from written_runs import write_run

from hpccoll.analysis.same_bits import same_bits_findings, with_bits_of
from hpccoll.common.errors import UnusableError
from hpccoll.schedule.summation_tree import parse_tree
from hpccoll.store.row_orders import with_orders
from hpccoll.store.rows import Results

SIZES = 1024, 1 << 16


def results_of(*rows):
    return Results(rows=tuple(rows), runs=(), planned=len(rows))


def measured(ranks=4, **changes):
    """Return rows of three choices, with their orders: two of them add alike at 4 ranks."""
    rows = []
    for nbytes in SIZES:
        for algorithm in ("ring", "recursive_doubling", "binomial_tree"):
            rows.append(make_row(algorithm, ranks, nbytes, **changes))
    return list(with_orders(rows))


def test_rows_of_our_schedules_have_an_order_and_others_have_none():
    assert all(row.order and row.ranks_agree for row in measured())
    assert not any(row.order for row in measured(op="max"))
    assert not any(row.order for row in measured(dtype="int32"))
    assert not any(row.order for row in measured(ranks_per_node=None))
    assert not any(row.order for row in measured(kind="modelled"))
    (native,) = with_orders([make_row("native", 4)])
    assert native.order is None


def test_choices_that_add_alike_are_named():
    (finding,) = same_bits_findings(results_of(*measured()))
    assert finding.kind == "same_bits"
    assert "the same at all sizes with recursive_doubling and binomial_tree" in finding.text
    assert not list(same_bits_findings(results_of(*measured(ranks=2))))


def test_the_bits_of_native_are_named_where_its_order_is_known():
    rows = measured()
    orders = {row.requested_bytes: row.order for row in rows if row.algorithm == "ring"}
    native = [
        replace(make_row("native", 4, nbytes), order=orders[nbytes], ranks_agree=True)
        for nbytes in SIZES
    ]
    native[1] = replace(native[1], order=rows[1].order)
    (finding,) = same_bits_findings(results_of(*rows, *native))
    assert finding.kind == "same_bits"
    assert "ring below 64 KiB" in finding.text
    assert "recursive_doubling and binomial_tree at all but 1 KiB" in finding.text
    kept = with_bits_of(results_of(*rows, *native), "native")
    assert {(row.algorithm, row.requested_bytes) for row in kept.rows} == {
        ("ring", 1024),
        ("native", 1024),
        ("native", 1 << 16),
        ("recursive_doubling", 1 << 16),
        ("binomial_tree", 1 << 16),
    }


def native_rows(orders, **changes):
    """Return rows of native with these orders by size; None if one is not known."""
    rows = []
    for nbytes, order in orders.items():
        row = make_row("native", 4, nbytes, **changes)
        rows.append(replace(row, order=order, ranks_agree=True))
    return rows


def test_nothing_is_said_of_sizes_at_which_the_order_of_native_is_not_known():
    rows = [row for row in measured() if row.requested_bytes == SIZES[1]]
    beyond = native_rows({1 << 20: rows[0].order})
    assert not [f for f in same_bits_findings(results_of(*rows, *beyond)) if f.kind == "same_bits"]
    kept = with_bits_of(results_of(*rows, *beyond), "native")
    assert [row.algorithm for row in kept.rows] == ["native"]


def test_native_of_another_variant_or_of_two_orders_is_no_reference():
    rows = measured()
    ring = {row.requested_bytes: row.order for row in rows if row.algorithm == "ring"}
    doubling = {row.requested_bytes: row.order for row in rows if row.algorithm != "ring"}
    variant = native_rows(ring, variant="mpich-ring")
    kept = with_bits_of(results_of(*rows, *native_rows(doubling), *variant), "native")
    assert {row.algorithm for row in kept.rows if row.variant is None} == {
        "native",
        "recursive_doubling",
        "binomial_tree",
    }
    two = native_rows(doubling), native_rows(ring, transport="nccl")
    with pytest.raises(UnusableError, match="keep-bits-of"):
        with_bits_of(results_of(*rows, *two[0], *two[1]), "native")


def test_only_the_bits_of_an_algorithm_are_kept_and_rows_without_an_order():
    rows = [*measured(), *measured(op="max")]
    kept = with_bits_of(results_of(*rows), "rabenseifner")
    assert [row.op for row in kept.rows] == ["max"] * 6
    kept = with_bits_of(results_of(*measured()), "binomial_tree")
    assert {row.algorithm for row in kept.rows} == {"recursive_doubling", "binomial_tree"}


def test_bits_of_native_without_its_order_and_unknown_names_are_refused():
    for name in ("native", "nothing"):
        with pytest.raises(UnusableError, match="keep-bits-of"):
            with_bits_of(results_of(*measured()), name)


def test_choices_whose_ranks_disagree_are_warned_of_and_never_kept():
    rows = measured()
    rows[0] = replace(rows[0], ranks_agree=False)
    findings = {finding.kind for finding in same_bits_findings(results_of(*rows))}
    assert "ranks_disagree" in findings
    kept = with_bits_of(results_of(*rows), "ring")
    assert [row.requested_bytes for row in kept.rows] == [1 << 16]


def test_a_table_chooses_only_among_equal_bits_and_refuses_an_order_that_is_not_known(tmp_path):
    write_run(tmp_path / "run.h5")  # of two ranks, whose numbers are added in one order only
    table = tmp_path / "table.json"
    made = invoke("tune", tmp_path, "--out", table, "--keep-bits-of", "ring")
    assert made.code == 0, made.err
    assert made.out.startswith("kept: 8 of 8 results")
    refused = invoke("tune", tmp_path, "--out", tmp_path / "b.json", "--keep-bits-of", "native")
    assert refused.is_bad_input("--keep-bits-of", "native")
    assert invoke("tune", tmp_path, "--keep-bits-of", "ring", "--judge", table).is_bad_input(
        "--keep-bits-of"
    )


def test_exported_rows_have_the_digest_of_their_order(tmp_path):
    write_run(tmp_path / "run.h5")
    rows = json.loads(invoke("export", tmp_path / "run.h5").out)
    assert {row["order"] for row in rows} == {f"{parse_tree('(0 1)').digest:016x}"}
    assert all(row["ranks_agree"] for row in rows)
