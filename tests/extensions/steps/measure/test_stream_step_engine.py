"""Training steps on GPUs that are the host: collectives on streams of their own, next to computations, by events."""

import json
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import raw_examples
from step_times import are_in_order, computations, operations

from hpccoll.cases.case import Effort
from hpccoll.extensions.steps.measure.step_computations import BEGIN, END
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.store.load_results import read_results

RANKS = Path(__file__).with_name("step_ranks.py")
BOTH = "ring", "native"

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def ran(mpiexec, nccl_library):
    """What steps did on a number of ranks."""

    @cache
    def ran(ranks):
        ended = mpiexec(ranks, RANKS, "gpu", "host", nccl_library)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return json.loads(ended.stdout.splitlines()[-1])

    return ran


@pytest.fixture
def steps(ran):
    return ran(2)


@pytest.mark.parametrize("name", [*BOTH, "null", "without overlap", "gemm", "tensor", "zero3"])
def test_every_collective_of_a_step_is_right_and_its_times_are_in_order(steps, name):
    step = steps[name]
    assert step["wrong"] == 0
    assert len(operations(step)) == sum("label" in each for each in step["program"])
    assert are_in_order(step)
    assert all(begin <= end for begin, end in computations(step))
    assert step["device_ns"] >= max(step["events"])


def test_a_bucket_that_is_left_out_is_found_wrong_and_a_refusal_on_one_rank_reaches_all(steps):
    assert (steps["faults"]["left out"] > 0, steps["faults"]["changed"]) == (True, 2)
    assert steps["refusals"] == ["refused", "refused"]


@pytest.mark.parametrize("name", [*BOTH, "without overlap"])
def test_buckets_are_synchronised_while_the_backward_pass_computes_only_with_overlap(steps, name):
    step = steps[name]
    last_computation = computations(step)[-1][1]
    assert (operations(step)[0][BEGIN] < last_computation) == (name != "without overlap")
    assert operations(step)[-1][END] > last_computation


def test_a_computation_that_waits_for_a_collective_begins_after_it(steps):
    step = steps["tensor"]
    number = computed = checked = 0
    awaited = None
    for instruction in step["instructions"]:
        if instruction == "Start":
            number += 1
        elif instruction == "Wait":
            awaited = number - 1
        elif awaited is not None:
            assert computations(step)[computed][0] >= operations(step)[awaited][END]
            checked, awaited = checked + 1, None
        computed += instruction == "Compute"
    assert checked > 10


@pytest.mark.parametrize("mesh", ["pp", "tp x pp", "dp x pp", "pp of four"])
def test_steps_of_pipelines_are_right_on_all_ranks(ran, mesh):
    for algorithm, graph in product(BOTH, (0, 1)):
        step = ran(2 if mesh == "pp" else 4)[f"{mesh} {algorithm} graph={graph}"]
        assert step["wrong"] == 0
        for rank in step["of_ranks"]:
            assert any(stream.startswith("pp") for stream in rank["streams"])
            assert are_in_order(rank)


def test_no_event_is_read_between_the_start_and_the_end_of_the_measured_time(steps):
    order = steps["order"]
    assert order["readings"] == ["clock", "clock", *["event"] * (order["events"] + 1)] * 3
    assert (order["runs"], order["inside"]) == (3, [True] * 3)


def test_replicas_are_reduced_on_a_stream_of_their_own_after_their_shards(ran):
    step = ran(4)["hsdp"]
    assert step["wrong"] == 0
    assert step["after"]
    for number, before in step["after"]:
        assert step["streams"][number] != step["streams"][before]
        assert operations(step)[before][END] <= operations(step)[number][BEGIN]


def test_a_job_stores_timelines_of_steps_and_skips_those_without_cublas_or_over_another_transport(
    mpiexec, nccl_library, tmp_path
):
    cases = [
        raw_examples.case(
            25_332, collective=TRAINING_STEP, device="cuda", in_place=True, algorithm=algorithm,
            transport=transport, params=TrainingStep.of({"model": "resnet50", "scale": 4096, **params}).params,
        )
        for algorithm, params, transport in (
            ("ring", {"compute_us": 5000}, "nccl"), ("null", {"compute_us": 5000}, "nccl"),
            ("native", {"compute": "none"}, "nccl"), ("native", {"compute": "gemm"}, "nccl"), ("ring", {}, "staged"),
        )
    ]  # fmt: skip
    pipeline = TrainingStep.of(
        {"model": "gpt2", "scale": 1 << 20, "compute_us": 500, "parallel": "pp=2"}
    )
    cases.append(
        replace(cases[2], bytes=pipeline.gradient_bytes("float32"), params=pipeline.params)
    )
    effort = Effort(warmup=1, min_iterations=6, max_iterations=6)
    (tmp_path / "job.json").write_text(raw_examples.job(*cases, effort=effort).to_json())
    ranks, out = Path(__file__).parents[3] / "measure" / "nccl_on_host_ranks.py", tmp_path / "F.h5"
    ended = mpiexec(
        2, ranks, nccl_library, "--device", "cuda", "--job", tmp_path / "job.json", "--out", out
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = read_results([out])
    ok = {
        (row.algorithm, row.params.get("compute")): row
        for row in results.rows
        if row.status == "ok"
    }
    ring = ok["ring", None]
    assert (ring.exposed_s is not None, ("native", "none") in ok) == (True, True)
    assert ring.device_s > ring.backward_s > 0
    assert len(results.timelines[ring.key].ranks) == 2
    reasons = " ".join(gap.reason for gap in results.skipped)
    (run,) = results.runs
    assert run.provenance["variables"]["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"
    without_cublas = (
        "cuBLAS, which multiplies matrices, not found; do: pip install 'hpccoll[cuda12]'" in reasons
    )
    assert without_cublas == (("native", "gemm") not in ok)
    assert "over nccl, not staged" in reasons
