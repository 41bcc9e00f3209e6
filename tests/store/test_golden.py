"""Raw files of earlier schema versions are read."""

from pathlib import Path

import pytest

from hpccoll.store.load_results import read_results

GOLDEN = Path(__file__).parents[2] / "results" / "golden"


def test_a_raw_file_of_schema_1_0_is_read():
    results = read_results([GOLDEN / "raw-1.0.h5"])
    assert results.planned == len(results.rows) == 32
    assert not results.missing
    row = next(r for r in results.rows if r.case_id == "all_reduce.ring.mpi.cpu.float32.sum.4096B.out")
    assert (row.ranks, row.iterations, row.wrong, row.status, row.executed) == (2, 12, 0, "ok", "ring")
    assert row.algbw_Bps == row.busbw_Bps == pytest.approx(4096 / row.median_s)
    assert {(r.wire_bytes_predicted, r.wire_bytes_measured) for r in results.rows} <= {(0, None), (None, None)}
    assert {r.floor for r in results.rows if r.algorithm == "null"} == {True}
