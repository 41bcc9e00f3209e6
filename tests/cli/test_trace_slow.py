"""``hpccoll trace`` of files with times: what is slow, and as a page."""

import json
import re

import pytest

from tests.cli_runner import invoke
from tests.page_elements import elements
from tests.traces import kernel_files
from tests.written_runs import write_run


@pytest.fixture
def traced(tmp_path):
    """The traces of two ranks, the second of which comes 5 ms late to ten all-gathers of 1 MiB."""
    (directory := tmp_path / "traces").mkdir()
    for rank in range(2):
        events = [kernel_files.step(3, 0, 200_000)]
        for number in range(1, 11):
            begin, late = 10_000.0 * number, 5_000.0 * rank
            more = {"Out msg nelems": 1 << 18, "In msg nelems": 1 << 17}
            events.append(
                kernel_files.kernel("_allgather_base", number, begin + late, 7_000 - late, **more)
            )
        kernel_files.write_kineto(directory / f"rank{rank}.json", rank, events, host=f"n{rank}")
    return directory


def test_the_late_rank_and_the_transfer_are_in_the_json(traced):
    ran = invoke("trace", traced, "--json")
    found = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert (found["ranks"], found["operations"], found["not_joined"]) == (2, 20, [])
    assert found["transfer_s"] == pytest.approx(0.02)
    assert found["waiting_s"] == pytest.approx(0.025)
    assert (found["step_s"], found["share"]) == (
        pytest.approx(0.2),
        pytest.approx((0.35 + 0.1) / 2),
    )
    (late,) = found["late"]
    assert (late["rank"], late["host"], late["share"]) == (1, "n1", 1.0)
    assert late["median_s"] == pytest.approx(5e-3)


def test_execution_traces_show_calls_and_null_for_times(tmp_path):
    calls = [("allreduce", 35, 2049000, "Float")]
    (tmp_path / "et.json").write_text(json.dumps(kernel_files.execution_trace(calls)))
    found = json.loads(invoke("trace", tmp_path, "--json").out)
    assert [found[key] for key in ("step_s", "share", "exposed", "waiting_s", "transfer_s")] == [
        None
    ] * 5
    assert found["slow"][0]["collectives"][0]["operations"] == 1


def test_the_page_has_the_chart_and_the_tables_and_replaces_no_other_page(traced, tmp_path):
    out = tmp_path / "page"
    assert invoke("trace", traced, "--out", out).code == 0
    text = (out / "index.html").read_text()
    assert [each.text for each in elements(text).all("h3")] == [
        "Operations by rank over time",
        "Collectives",
        "Who came last",
        "Ranks",
    ]
    (chart,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
    (bars,) = json.loads(chart)["datasets"].values()
    assert sum(bar["part"] == "waiting" for bar in bars) == 10
    assert sum(bar["part"] == "transfer" for bar in bars) == 20
    assert invoke("trace", traced / "rank0.json", "--out", out).is_bad_input("--out", "page")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("<p>mine</p>")
    assert invoke("trace", traced, "--out", tmp_path / "other").code == 2


def test_files_of_the_inspector_are_one_job_by_the_name_of_the_communicator(tmp_path):
    for rank in range(4):
        lines = [
            kernel_files.inspector_line(rank, number, 100 if rank == 2 else 600)
            for number in range(1, 20)
        ]
        (tmp_path / f"n{rank // 2}-pid{70 + rank}.log").write_text("\n".join(lines))
    found = json.loads(invoke("trace", tmp_path, "--json").out)
    assert (found["ranks"], found["transfer_s"]) == (4, pytest.approx(19 * 1e-4))
    assert [(late["rank"], late["host"]) for late in found["late"]] == [(2, "n1")]
    assert found["late"][0]["median_s"] == pytest.approx(5e-4)


def test_ranks_that_a_group_names_and_that_left_no_trace_are_named_and_end_with_3(traced, tmp_path):
    whole = invoke("trace", traced)
    assert (whole.code, "nothing is recorded" in whole.out) == (0, False)
    for rank in range(2):
        events = [
            kernel_files.kernel("allreduce", n, 100.0 * n, 33, **{"Process Group Ranks": ""})
            for n in range(9)
        ]
        kernel_files.write_kineto(tmp_path / f"rank{rank}.json", rank, events, ranks=6)
    result = invoke("trace", *(tmp_path / f"rank{rank}.json" for rank in range(2)))
    assert (result.code, "nothing is recorded of ranks 2-5" in result.out) == (3, True)
    assert "no rank waits" not in result.out


@pytest.mark.parametrize("write", ["inspector", "log"])
def test_ranks_of_the_largest_communicator_that_left_no_file_are_named_and_end_with_3(
    write, tmp_path
):
    for rank in range(4):
        text = kernel_files.nccl_log(rank, 5)
        if write == "inspector":
            text = "\n".join(
                kernel_files.inspector_line(rank, number, 100) for number in range(1, 20)
            )
        (tmp_path / f"rank{rank}.log").write_text(text)
    whole = invoke("trace", tmp_path)
    assert (whole.code, "nothing is recorded" in whole.out) == (0, False)
    (tmp_path / "rank3.log").unlink()
    result = invoke("trace", tmp_path)
    assert (result.code, "nothing is recorded of rank 3" in result.out) == (3, True)


def test_where_no_communicator_numbers_all_ranks_none_is_said_to_be_missing(tmp_path):
    """Two communicators of 4 are joined by those of 2: nobody knows how many ranks the job has."""
    for rank in range(8):
        process = f"n{rank}", 70
        lines = [
            *(
                kernel_files.inspector_line(rank % 4, n, 100, process, id=f"0xa{rank // 4}")
                for n in range(1, 9)
            ),
            *(
                kernel_files.inspector_line(
                    rank // 4, n, 90, process, id=f"0xd{rank % 4}", n_ranks=2
                )
                for n in range(9)
            ),
        ]
        (tmp_path / f"rank{rank}.log").write_text("\n".join(lines))
    (tmp_path / "rank7.log").unlink()
    result = invoke("trace", tmp_path)
    assert (result.code, "nothing is recorded" in result.out) == (0, False)


def test_a_rank_whose_log_has_fewer_calls_than_others_did_not_join(tmp_path):
    for rank in range(4):
        (tmp_path / f"nccl.{rank}.log").write_text(
            kernel_files.nccl_log(rank, 4 if rank == 2 else 5)
        )
    ran = invoke("trace", tmp_path, "--json")
    assert (ran.code, json.loads(ran.out)["not_joined"]) == (3, [2])


def test_measurements_of_buffers_of_the_host_are_no_curve_for_kernels(tmp_path):
    (directory := tmp_path / "traces").mkdir()
    for rank in range(2):
        events = [
            kernel_files.kernel(
                "allreduce", 1, 100.0, 33.0, **{"In msg nelems": 4096, "Out msg nelems": 4096}
            )
        ]
        kernel_files.write_kineto(directory / f"rank{rank}.json", rank, events, host=f"n{rank}")
    results = write_run(tmp_path / "results" / "raw.h5")
    (found,) = json.loads(invoke("trace", directory, "--against", results, "--json").out)["slow"][
        0
    ]["against"]
    assert (found["bytes"], found["transfer_s"], found["factor"]) == (
        16384,
        pytest.approx(33e-6),
        None,
    )
    assert invoke("trace", directory, "--against", tmp_path / "none").code == 2
