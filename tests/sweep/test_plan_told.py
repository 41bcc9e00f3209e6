"""A plan in words: environments, the evidence that is demanded, and which job is the control of which."""

import json

import pytest
import raws

from hpccoll.case import Launcher, Plan, Shape
from hpccoll.evidence.variants import VARIANTS
from hpccoll.sweep import tell

NCCL = raws.case(algorithm="native", transport="nccl", device="cuda")


def job(variant=None, *cases, environment=None, **more):
    known = VARIANTS[variant].environment if variant in VARIANTS else {}
    name = ".".join(filter(None, ("nccl", "n2x8", variant)))
    environment = {**known, **(environment or {})}
    cases = cases or (NCCL,)
    return raws.job(*cases, name=name, ranks=16, nodes=2, variant=variant, environment=environment, **more)


@pytest.fixture
def told():
    """The lines of a plan of some jobs below the one of each; and all it says as JSON."""

    def tell_of(*jobs):
        launcher = Launcher(command="srun -N {nodes} -n {ranks}")
        plan = Plan(name="x", profile="slurm", jobs=jobs, skips=(), launcher=launcher, resources={}, estimated_s=1)
        texts = "\n".join(list(tell.lines(plan))[1:]).replace("\n  ", "\t").splitlines()
        sections = {text.partition(":")[0]: text.split("\t")[1:] for text in texts}
        return sections, json.loads(tell.as_json(plan))

    return tell_of


def test_every_job_says_its_environment_its_evidence_and_its_control(told):
    lines, read = told(job("nccl-sharp"), job("nccl-sharp-off"))
    sharp = lines["nccl.n2x8.nccl-sharp"]
    assert "environment: NCCL_COLLNET_ENABLE=1 NCCL_ALGO=CollnetDirect,CollnetChain SHARP_COLL_LOG_LEVEL=3" in sharp
    assert "requested: sharp" in sharp
    assert f"evidence: {VARIANTS['nccl-sharp'].demands.words}" in sharp
    assert "negative control: nccl-sharp-off, nccl.n2x8.nccl-sharp-off" in sharp
    assert read["evidence"]["nccl.n2x8.nccl-sharp"]["control_job"] == "nccl.n2x8.nccl-sharp-off"
    assert read["jobs"][0]["environment"]["NCCL_COLLNET_ENABLE"] == "1"


def test_a_control_that_is_not_in_the_sweep_is_missed(told):
    lines, read = told(job("nccl-sharp"))
    assert "negative control: nccl-sharp-off, which is no variant of this sweep" in lines["nccl.n2x8.nccl-sharp"]
    assert read["evidence"]["nccl.n2x8.nccl-sharp"]["control_job"] is None


def test_a_launch_that_is_probed_is_shown_with_its_probe(told):
    lines, _ = told(job(), job("mine", raws.case(algorithm="native"), environment={"UCX_TLS": "tcp"}))
    assert lines["nccl.n2x8"] == [
        f"evidence: {tell.BY_NCCL}",
        "srun -N 2 -n 16 hpccoll run --probe ...",
        "srun -N 2 -n 16 hpccoll run --job ...",
    ]
    assert lines["nccl.n2x8.mine"] == ["environment: UCX_TLS=tcp", "srun -N 2 -n 16 hpccoll run --job ..."]


def test_what_a_variant_of_ones_own_asks_for_is_demanded(told):
    _, read = told(job("mine", environment={"NCCL_ALGO": "Tree"}))
    told_of = read["evidence"]["nccl.n2x8.mine"]
    assert (told_of["requested"], told_of["demanded"]) == (["tree"], "lines of the library's logs that show tree")


def test_a_plan_that_is_printed_as_json_is_a_plan(told, tmp_path):
    _, read = told(job())
    (tmp_path / "plan.json").write_text(json.dumps(read))
    assert Plan.load(tmp_path / "plan.json").jobs[0].shapes == (Shape(2, 16),)
