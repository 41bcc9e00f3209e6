"""What outputs say themselves against their numbers: each is imported with its reason not to be judged."""

import json
import re
from dataclasses import replace

import pytest
from imported_outputs import OUTPUTS, given_for, read

from hpccoll.analysis.printed_caveats import caveats_of
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import notes, raw_results, read_output
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

TABLE = (OUTPUTS / "nccl_all_reduce.txt").read_text()
JSON = json.loads((OUTPUTS / "nccl_all_gather.json").read_text())
OSU, OSU_FULL = (
    (OUTPUTS / f"osu_{name}.txt").read_text() for name in ("allreduce", "allreduce_full")
)
GIB = 1 << 30


def rows_of(directory, text, name="nccl"):
    """Return the rows of a text, about which the user says what he says about an example, and the notes on it."""
    given = given_for(name)
    output = read(directory, text, ranks=given.ranks, nodes=given.nodes)
    path = directory / "out.txt"
    return to_results(ResultFiles(raw_results=[raw_results({path: output}, path)])).rows, [
        *notes(path, output)
    ]


def json_with(args=(), env=(), results=None, **config):
    content = {
        **JSON,
        "config": {**JSON["config"], "iterations": 20, **config},
        "args": [*JSON["args"], *args],
    }
    return json.dumps(
        {**content, "env": [*JSON["env"], *env], "results": results or JSON["results"]}
    )


def caveats(directory, text, name="nccl", *, alike=False):
    """Return the caveats of the last row of a text."""
    *_, row = rows_of(directory, text, name)[0]
    return caveats_of(row, alike=alike)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", []),
        (r"warmup iters: \d+", "warmup iters: 0", ["-w 0"]),
        ("validation: 1", "validation: 0", []),
        (" iters: 20", " iters: 1", ["single operation"]),
        (" iters: 20 agg iters: 1", " iters: 1 agg iters: 20", []),
    ],
)
def test_a_header_says_how_reliable_its_results_are(old, new, said, tmp_path):
    text = re.sub(old, new, TABLE) if old else TABLE
    rows, notes_of = rows_of(tmp_path, text)
    found = caveats_of(rows[-1], alike=True)
    assert [word in each for word, each in zip(said, found, strict=True)] == [True] * len(said)
    assert [note for note in notes_of if "cannot be judged" in note] == [
        f"{tmp_path / 'out.txt'} cannot be judged: {each}" for each in found
    ]


def test_data_that_nobody_checked_is_noted_and_judged(tmp_path):
    rows, said = rows_of(tmp_path, TABLE.replace("validation: 1", "validation: 0"))
    assert ("-c 0" in " ".join(said), caveats_of(rows[-1])) == (True, [])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, ""),
        ({"warmup_iters": 0}, "-w 0"),
        ({"iterations": 1}, "single operation"),
        ({"args": ["-a", "2"]}, "-a 2"),
        ({"args": ["-a", "0"]}, "-a 0"),
        ({"args": ["-D", "1"]}, "device_implementation=1"),
        ({"graph": 5}, "graph=1"),
        ({"args": ["-a", "3"]}, "average=3"),
    ],
)
def test_options_of_the_json_that_change_small_sizes_are_caveats(content, said, tmp_path):
    found = caveats(tmp_path, json_with(**content))
    assert (said in " ".join(found), bool(found)) == (True, bool(said))


def test_what_an_option_adds_to_the_start_of_an_operation_does_not_count_at_large_sizes(tmp_path):
    rows, _ = rows_of(tmp_path, json_with(["-z", "2"], graph=5))
    assert caveats_of(rows[-1])
    assert not caveats_of(replace(rows[-1], bytes=GIB))
    assert not caveats_of(rows[-1], alike=True)


def test_a_mean_over_ranks_stands_for_the_slowest_only_where_that_is_printed_and_near(tmp_path):
    assert "OSU: -f" in " ".join(caveats(tmp_path, OSU, "osu"))
    rows, _ = rows_of(tmp_path, OSU_FULL, "osu")
    said = {(row.dtype, row.bytes): " ".join(caveats_of(row)) for row in rows}
    assert ("1.11x" in said["int8", 1], said["int8", 1048576]) == (True, "")
    assert not caveats(tmp_path, OSU, "osu", alike=True)


def test_the_variables_of_the_json_say_which_algorithm_was_requested_and_secrets_stay_out(tmp_path):
    path = tmp_path / "out.json"
    path.write_text(json_with(env=["NCCL_ALGO=Ring", "NCCL_NVLS_ENABLE=0", "NCCL_API_KEY=x"]))
    results = to_results(
        ResultFiles(raw_results=[raw_results({path: read_output(path, SuppliedMetadata())}, path)])
    )
    assert {row.requested for row in results.rows} == {"ring"}
    assert results.runs[0].provenance["variables"] == {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}


def test_rccl_tests_may_print_the_algorithm_that_ran(tmp_path):
    rows, _ = rows_of(tmp_path, (OUTPUTS / "rccl_reduce_scatter_in_place.txt").read_text())
    assert [row.executed for row in rows] == ["ring"]
    assert {row.executed for row in rows_of(tmp_path, TABLE)[0]} == {"unknown"}
