"""The text of a plan, and its JSON with the evidence that each job requires."""

import json
from dataclasses import replace

import raw_examples
from golden_page import assert_golden

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.cases.variants import named_variants
from hpccoll.render import plan_text

NCCL = raw_examples.case(algorithm="native", transport="nccl", device="cuda")


def job(variant=None, *cases, environment=None, **more):
    known = named_variants()[variant].environment if variant in named_variants() else {}
    name = ".".join(filter(None, ("nccl", "n2x8", variant)))
    environment = {**known, **(environment or {})}
    cases = cases or (NCCL,)
    communicator = named_variants()[variant].communicator if variant in named_variants() else {}
    return raw_examples.job(
        *cases,
        name=name,
        ranks=16,
        nodes=2,
        variant=variant,
        environment=environment,
        communicator=communicator,
        **more,
    )


def plan_of(*jobs, setup=(), **more):
    launcher = Launcher(command="srun -N {nodes} -n {ranks}", setup=setup)
    known = {
        "profile": "slurm",
        "launcher": launcher,
        "skips": (),
        "resources": {},
        "estimated_s": 1,
    } | more
    return Plan(name="x", jobs=jobs, **known)


ONE_NODE = raw_examples.case(algorithm="native", transport="nccl", device="cuda", nodes=1, ranks=8)


def test_the_text_of_a_plan():
    own = job(
        "mine",
        raw_examples.case(algorithm="native"),
        environment={"UCX_TLS": "tcp", "NCCL_IB_HCA": "=mlx5"},
    )
    traced = replace(job("tree", environment={"NCCL_ALGO": "Tree"}), name="nccl.n2x8.tree")
    jobs = (
        job(None, NCCL, ONE_NODE),
        job("nccl-sharp"),
        job("nccl-sharp-off"),
        job("nccl-symmetric"),
        own,
        traced,
        job("nccl-gdr"),
        job("nccl-gdr-off", raw_examples.case(algorithm="native", nodes=1, ranks=8)),
    )
    slurm = {
        "nodes": 2,
        "tasks": 16,
        "runtime": 5,
        "mem_mb": 0,
        "constraint": "[a*1&b*1]",
        "slurm_extra": "",
    }
    reasons = (
        ("n2x8.a", "a: too large"),
        ("n2x8.a", "a: too large"),
        ("n2x8.b", "b: too large"),
        ("n2x8.b", "no"),
    )
    skips = tuple(Skip(case="x", job=name, reason=reason) for name, reason in reasons)
    plan = plan_of(
        *jobs,
        setup=("module load hpcx",),
        resources={each.name: slurm for each in jobs},
        notes=("A is set",),
        estimated_s=20000,
        skips=skips,
        offline=True,
    )
    plan = replace(plan, launcher=replace(plan.launcher, slurm=True))
    page = [*plan_text.plan_lines(plan)]
    on_cpu = raw_examples.case(algorithm="native")
    for cases in ([NCCL], [NCCL, ONE_NODE], [NCCL, replace(ONE_NODE, transport="mpi")], [on_cpu]):
        page += ["", "-- probes", *plan_text.plan_lines(plan_of(job(None, *cases)))]
    cpu_of_one_node = replace(ONE_NODE, device="cpu", transport="mpi")
    for cases, slurm in (
        ([NCCL, ONE_NODE], True),
        ([NCCL, ONE_NODE], False),
        ([NCCL, cpu_of_one_node], True),
    ):
        waiting = job(None, *cases)
        of = plan_of(
            waiting, launcher=Launcher(command="srun", slurm=slurm), resources={waiting.name: {}}
        )
        page += ["", f"-- waiting for several nodes, Slurm {slurm}", *plan_text.plan_summary(of)]
    tuned = job("tuned", environment={"NCCL_ALGO": "Tree"})
    for of in ((job("nccl-sharp"), job("nccl-sharp-off")), (job("nccl-sharp"), tuned)):
        page += [
            "",
            "-- evidence",
            *json.dumps(plan_text.plan_json(plan_of(*of))["evidence"], indent=1).splitlines(),
        ]
    assert_golden("plan", page)


def test_a_plan_that_is_printed_as_json_is_a_plan(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan_text.plan_json(plan_of(job()))))
    assert Plan.load(tmp_path / "plan.json").jobs[0].shapes == (Shape(2, 16),)


def test_the_summary_adds_up_the_time_limits_and_the_node_hours_if_each_job_has_a_limit():
    jobs = job("nccl-sharp"), job("nccl-sharp-off")
    limits = {each.name: {"runtime": minutes} for each, minutes in zip(jobs, (40, 50), strict=True)}
    summary = next(plan_text.plan_summary(plan_of(*jobs, resources=limits, estimated_s=600)))
    assert "about 10 min" in summary
    assert "90 min and 3 node-hours" in summary
    without = plan_of(*jobs, resources={jobs[0].name: {"runtime": 40}})
    assert "node-hours" not in next(plan_text.plan_summary(without))
