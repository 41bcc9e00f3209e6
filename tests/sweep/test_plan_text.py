"""A plan in words: environments, the evidence that is demanded, and which job is the control of which."""

import json
from dataclasses import replace

import pytest
import raw_examples

from hpccoll.evidence.variants import named_variants
from hpccoll.spec.case import Shape
from hpccoll.spec.plan import Launcher, Plan, Skip
from hpccoll.sweep import plan_text

NCCL = raw_examples.case(algorithm="native", transport="nccl", device="cuda")


def job(variant=None, *cases, environment=None, **more):
    known = named_variants()[variant].environment if variant in named_variants() else {}
    name = ".".join(filter(None, ("nccl", "n2x8", variant)))
    environment = {**known, **(environment or {})}
    cases = cases or (NCCL,)
    communicator = named_variants()[variant].communicator if variant in named_variants() else {}
    return raw_examples.job(
        *cases, name=name, ranks=16, nodes=2, variant=variant, environment=environment, communicator=communicator,
        **more,
    )  # fmt: skip


class Sections(dict):
    """Lines by the job that they stand below, and the lines that nothing stands above."""

    heads = frozenset()


@pytest.fixture
def told():
    """The lines of a plan of some jobs below the one of each; and all it says as JSON."""

    def tell_of(*jobs, setup=(), **more):
        launcher = Launcher(command="srun -N {nodes} -n {ranks}", setup=setup)
        known = {"profile": "slurm", "skips": (), "resources": {}, "estimated_s": 1} | more
        plan = Plan(name="x", jobs=jobs, launcher=launcher, **known)
        texts = "\n".join(plan_text.lines(plan)).replace("\n  ", "\t").split("\n\n")
        sections = {text.partition(":")[0].partition(",")[0]: text.split("\t")[1:] for text in texts}
        said = Sections(sections)
        said.heads = {line for line in plan_text.lines(plan) if not line.startswith(" ")}
        return said, json.loads(plan_text.as_json(plan))

    return tell_of


def test_every_job_says_its_environment_its_evidence_and_its_control(told):
    lines, read = told(job("nccl-sharp"), job("nccl-sharp-off"))
    sharp = lines["nccl.n2x8.nccl-sharp"]
    assert "environment: NCCL_COLLNET_ENABLE=1 NCCL_ALGO=CollnetDirect,CollnetChain SHARP_COLL_LOG_LEVEL=3" in sharp
    assert "requested: sharp" in sharp
    assert f"evidence: {named_variants()['nccl-sharp'].expected_evidence.description}" in sharp
    assert "negative control: nccl.n2x8.nccl-sharp-off, which has to lose this evidence" in sharp
    assert read["evidence"]["nccl.n2x8.nccl-sharp"]["control_job"] == "nccl.n2x8.nccl-sharp-off"
    assert read["jobs"][0]["environment"]["NCCL_COLLNET_ENABLE"] == "1"


def test_what_communicators_are_made_with_is_said_beside_the_environment(told):
    lines, read = told(job("nccl-symmetric"), job("nccl-symmetric-off"))
    said = lines["nccl.n2x8.nccl-symmetric"]
    assert "communicator, by nccl4py: buffers=symmetric" in said
    assert "requested: symmetric" in said
    assert f"evidence: {named_variants()['nccl-symmetric'].expected_evidence.description}" in said
    assert "negative control: nccl.n2x8.nccl-symmetric-off, which has to lose this evidence" in said
    assert read["jobs"][0]["communicator"] == {"buffers": "symmetric"}


def test_a_control_that_is_not_in_the_sweep_is_missed_and_what_follows_is_said(told):
    lines, read = told(job("nccl-sharp"))
    assert lines["nccl.n2x8.nccl-sharp"][-1] == (
        "negative control: nccl-sharp-off is no variant of this sweep ('nccl-sharp-off:' adds it): "
        "nothing will show that the evidence goes where it is off, and the report will say so"
    )
    assert read["evidence"]["nccl.n2x8.nccl-sharp"]["control_job"] is None
    lines, _ = told(job("nccl-sharp"), job("nccl-sharp-off", raw_examples.case(algorithm="native", nodes=1, ranks=8)))
    assert "nccl-sharp-off is not launched in all of these shapes: " in lines["nccl.n2x8.nccl-sharp"][-1]


def test_a_launch_that_is_probed_is_shown_with_its_probe(told):
    lines, _ = told(job(), job("mine", raw_examples.case(algorithm="native"), environment={"UCX_TLS": "tcp"}))
    assert lines["launches"] == [
        "2x8: srun -N 2 -n 16 hpccoll run --shape 2x8 --device cuda --job JOB.json --out JOB.h5", plan_text.PROBE
    ]  # fmt: skip
    assert lines["nccl.n2x8"] == [f"evidence: {plan_text.BY_NCCL}"]
    assert lines["nccl.n2x8.mine"] == ["environment: UCX_TLS=tcp"]
    assert {"nccl.n2x8: 1 case on 2x8, after a probe", "nccl.n2x8.mine: 1 case on 2x8"} <= lines.heads
    both = raw_examples.case(algorithm="native", transport="nccl", device="cuda", nodes=1, ranks=8)
    lines, _ = told(job(None, NCCL, both))
    assert "nccl.n2x8: 2 cases on 1x8 and 2x8, each after a probe" in lines.heads
    lines, _ = told(job(None, NCCL, replace(both, transport="mpi")))
    assert "nccl.n2x8: 2 cases on 1x8 and 2x8, 2x8 after a probe" in lines.heads
    lines, _ = told(job("mine", raw_examples.case(algorithm="native")))
    assert "launches" in lines
    assert plan_text.PROBE not in lines["launches"]


def test_equal_reasons_are_added_up_over_jobs_and_variants(told):
    why = "only what it is for"
    of = [("n2x8.a", f"a: {why}"), ("n2x8.a", f"a: {why}"), ("n2x8.b", f"b: {why}"), ("n2x8.b", "b: it takes 2 nodes")]
    lines, _ = told(job(), skips=tuple(Skip(case="x", job=name, reason=reason) for name, reason in of))
    assert lines["left out"] == [f"3 cases: {why} (2 of n2x8.a, 1 of n2x8.b)", "1 case: it takes 2 nodes (n2x8.b)"]
    lines, _ = told(job(), skips=tuple(Skip(case="x", job=f"p{p}", reason="no") for p in range(9)))
    assert lines["left out"] == [f"9 cases: no ({', '.join(f'1 of p{p}' for p in range(6))}, 3 more jobs)"]
    lines, _ = told(job(), skips=tuple(Skip(case="x", job=f"p{p}", reason="no") for p in range(7)))
    assert lines["left out"] == [f"7 cases: no ({', '.join(f'1 of p{p}' for p in range(7))})"], "no word is saved"


def test_what_is_set_around_launches_is_shown_as_a_shell_takes_it(told):
    lines, _ = told(job("nccl-one-rail"), setup=("module load hpcx", "export A='^lo'"), notes=("A is set",))
    assert lines["launches"][:2] == ["module load hpcx", "export A='^lo'"]
    assert "environment: NCCL_IB_HCA='=mlx5_0:1'" in lines["nccl.n2x8.nccl-one-rail"]
    assert "note: A is set" in lines.heads


def test_what_a_job_asks_of_slurm_is_a_line_that_a_shell_takes(told):
    asks = {"nodes": 2, "tasks": 16, "mem_mb": 0, "constraint": "[a*1&b*1]", "slurm_extra": "--gpus-per-node=h100:8"}
    lines, _ = told(job(), resources={"nccl.n2x8": asks})
    assert "sbatch --nodes=2 --ntasks=16 '--constraint=[a*1&b*1]' --gpus-per-node=h100:8" in lines["nccl.n2x8"]


@pytest.mark.parametrize(("seconds", "words"), [(1, "1 s"), (119, "119 s"), (2573, "43 min"), (20000, "5.6 h")])
def test_a_long_time_is_in_the_unit_that_people_plan_with(told, seconds, words):
    lines, _ = told(job(), estimated_s=seconds)
    assert any(f"; about {words}, longer where" in head for head in lines.heads)


def test_what_a_variant_of_ones_own_asks_for_is_demanded(told):
    _, read = told(job("mine", environment={"NCCL_ALGO": "Tree"}))
    told_of = read["evidence"]["nccl.n2x8.mine"]
    assert (told_of["requested"], told_of["demanded"]) == (["tree"], "lines of the library's logs that show tree")


def test_a_plan_that_is_printed_as_json_is_a_plan(told, tmp_path):
    _, read = told(job())
    (tmp_path / "plan.json").write_text(json.dumps(read))
    assert Plan.load(tmp_path / "plan.json").jobs[0].shapes == (Shape(2, 16),)
