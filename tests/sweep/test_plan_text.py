"""The lines of a plan: environments, required evidence, negative controls, launches, and skipped cases."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import raw_examples

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import Launcher, Plan, Skip
from hpccoll.cases.variants import named_variants
from hpccoll.sweep import plan_text
from hpccoll.sweep.plan_text import PlanLine

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


def plan_of(*jobs, setup=(), **more):
    launcher = Launcher(command="srun -N {nodes} -n {ranks}", setup=setup)
    known = {"profile": "slurm", "launcher": launcher, "skips": (), "resources": {}, "estimated_s": 1} | more
    return Plan(name="x", jobs=jobs, **known)


def described(*jobs, **more):
    """Return the lines of a plan: those before the first section, and those of each section, by kind or job name."""
    top, sections = [], {}
    for line in plan_text.plan_lines(plan_of(*jobs, **more)):
        if line.level == "top":
            top.append(line)
        elif line.level == "heading":
            section = sections.setdefault(line.values.get("job", line.kind), [line])
        else:
            section.append(line)
    return SimpleNamespace(top=top, sections=sections)


def details(name, *jobs, **more):
    """Return the values of the lines below the heading of a section, by kind."""
    return {line.kind: line.values for line in described(*jobs, **more).sections[name][1:]}


def as_json(*jobs):
    return json.loads(plan_text.as_json(plan_of(*jobs)))


def test_a_job_has_its_environment_its_evidence_and_its_control():
    jobs = job("nccl-sharp"), job("nccl-sharp-off")
    known = named_variants()["nccl-sharp"]
    assert details("nccl.n2x8.nccl-sharp", *jobs) == {
        "variant": {"purpose": known.purpose},
        "environment": {"variables": known.environment},
        "requested": {"algorithms": ["sharp"]},
        "variant_evidence": {"description": known.evidence_text},
        "control": {"job": "nccl.n2x8.nccl-sharp-off"},
    }
    document = as_json(*jobs)
    assert document["evidence"]["nccl.n2x8.nccl-sharp"] == {
        "requested": ["sharp"],
        "demanded": known.evidence_text,
        "logs": True,
        "control": "nccl-sharp-off",
        "control_job": "nccl.n2x8.nccl-sharp-off",
    }
    assert document["jobs"][0]["environment"]["NCCL_COLLNET_ENABLE"] == "1"


def test_the_settings_of_communicators_follow_the_environment():
    jobs = job("nccl-symmetric"), job("nccl-symmetric-off")
    lines = details("nccl.n2x8.nccl-symmetric", *jobs)
    assert lines["communicator"] == {"settings": {"buffers": "symmetric"}}
    assert lines["requested"] == {"algorithms": ["symmetric"]}
    assert lines["control"] == {"job": "nccl.n2x8.nccl-symmetric-off"}
    assert as_json(*jobs)["jobs"][0]["communicator"] == {"buffers": "symmetric"}


def test_a_control_that_is_missing_or_has_other_shapes_is_reported():
    *_, last = described(job("nccl-sharp")).sections["nccl.n2x8.nccl-sharp"]
    assert last == PlanLine("control_missing", {"control": "nccl-sharp-off"})
    assert as_json(job("nccl-sharp"))["evidence"]["nccl.n2x8.nccl-sharp"]["control_job"] is None
    smaller = job("nccl-sharp-off", raw_examples.case(algorithm="native", nodes=1, ranks=8))
    *_, last = described(job("nccl-sharp"), smaller).sections["nccl.n2x8.nccl-sharp"]
    assert last == PlanLine("control_other_shapes", {"control": "nccl-sharp-off"})


def test_a_launch_that_needs_a_probe_is_listed_with_it():
    own = job("mine", raw_examples.case(algorithm="native"), environment={"UCX_TLS": "tcp"})
    assert details("launches", job(), own) == {
        "launch": {"shape": "2x8", "launcher": "srun -N 2 -n 16 hpccoll", "device": " --device cuda"},
        "probe": {},
    }
    assert details("nccl.n2x8", job(), own) == {"nccl_evidence": {}}
    assert details("nccl.n2x8.mine", job(), own) == {"environment": {"variables": {"UCX_TLS": "tcp"}}}
    assert "probe" not in details("launches", job("mine", raw_examples.case(algorithm="native")))


ONE_NODE = raw_examples.case(algorithm="native", transport="nccl", device="cuda", nodes=1, ranks=8)


@pytest.mark.parametrize(
    ("cases", "probed", "text"),
    [
        ([NCCL], ["2x8"], "1 case on 2x8, after a probe"),
        ([NCCL, ONE_NODE], ["1x8", "2x8"], "2 cases on 1x8 and 2x8, each after a probe"),
        ([NCCL, replace(ONE_NODE, transport="mpi")], ["2x8"], "2 cases on 1x8 and 2x8, 2x8 after a probe"),
        ([raw_examples.case(algorithm="native")], [], "1 case on 2x8"),
    ],
)
def test_a_job_names_the_shapes_that_follow_a_probe(cases, probed, text):
    heading, *_ = described(job(None, *cases)).sections["nccl.n2x8"]
    assert (heading.values["probed"], heading.text) == (probed, text)


def skips_of(*jobs_and_reasons):
    skips = tuple(Skip(case="x", job=name, reason=reason) for name, reason in jobs_and_reasons)
    return described(job(), skips=skips).sections["skips"][1:]


@pytest.mark.parametrize(
    ("job_of", "slurm", "values"),
    [
        (job(None, NCCL, ONE_NODE, replace(ONE_NODE, bytes=8)), True, {"cases": 2, "nodes": 2}),
        (job(None, NCCL, ONE_NODE), False, None),
        (job(None, NCCL), True, None),
        (job(None, NCCL, replace(ONE_NODE, device="cpu", transport="mpi")), True, None),
    ],
)
def test_a_plan_says_how_to_measure_one_node_of_gpus_if_its_cases_wait_for_several(job_of, slurm, values):
    top = described(job_of, launcher=Launcher(command="srun", slurm=slurm), resources={job_of.name: {}}).top
    assert [line.values for line in top if line.kind == "one_node"] == ([values] if values else [])


def test_equal_reasons_are_added_up_over_jobs_and_variants():
    why = "a reason"
    jobs = ("n2x8.a", f"a: {why}"), ("n2x8.a", f"a: {why}"), ("n2x8.b", f"b: {why}"), ("n2x8.b", "b: it takes 2 nodes")
    assert skips_of(*jobs) == [
        PlanLine("skip", {"reason": why, "cases": 3, "jobs": {"n2x8.a": 2, "n2x8.b": 1}}),
        PlanLine("skip", {"reason": "it takes 2 nodes", "cases": 1, "jobs": {"n2x8.b": 1}}),
    ]


@pytest.mark.parametrize(("number", "named", "more"), [(2, 2, ""), (7, 7, ""), (8, 6, ", 2 more jobs")])
def test_a_reason_names_some_of_its_jobs(number, named, more):
    (line,) = skips_of(*((f"p{p}", "no") for p in range(number)))
    assert line.text == f"no ({', '.join(f'1 of p{p}' for p in range(named))}{more})"


def test_the_setup_and_the_notes_of_a_plan_are_listed():
    plan = described(job(), setup=("module load hpcx", "export A='^lo'"), notes=("A is set",))
    assert [line.values.get("command") for line in plan.sections["launches"][1:3]] == [
        "module load hpcx", "export A='^lo'"
    ]  # fmt: skip
    assert plan.top[1:] == [PlanLine("note", {"text": "A is set"})]


def test_the_request_of_a_job_is_the_options_of_sbatch():
    resources = {
        "nodes": 2, "tasks": 16, "runtime": 5, "mem_mb": 0, "constraint": "[a*1&b*1]",
        "slurm_extra": "--gpus-per-node=h100:8",
    }  # fmt: skip
    heading, request, *_ = described(job(), resources={"nccl.n2x8": resources}).sections["nccl.n2x8"]
    assert (heading.values["nodes"], heading.values["minutes"]) == (2, 5)
    options = ["--nodes=2", "--ntasks=16", "--time=5", "--constraint=[a*1&b*1]", "--gpus-per-node=h100:8"]
    assert request == PlanLine("sbatch", {"options": options})


def test_the_summary_has_the_numbers_and_the_estimated_time():
    summary, *_ = described(job(), estimated_s=2573).top
    assert summary == PlanLine(
        "summary", {"plan": "x", "cases": 1, "jobs": 1, "skips": 0, "rounds": 1, "seconds": 2573}
    )  # fmt: skip


def test_an_algorithm_requested_by_a_variant_of_the_user_must_show_in_the_logs():
    own = job("mine", environment={"NCCL_ALGO": "Tree"})
    assert details("nccl.n2x8.mine", own)["log_evidence"] == {"algorithms": ["tree"]}
    evidence = as_json(own)["evidence"]["nccl.n2x8.mine"]
    assert (evidence["requested"], evidence["logs"], evidence["control"]) == (["tree"], True, None)


def test_a_plan_that_is_printed_as_json_is_a_plan(tmp_path):
    (tmp_path / "plan.json").write_text(plan_text.as_json(plan_of(job())))
    assert Plan.load(tmp_path / "plan.json").jobs[0].shapes == (Shape(2, 16),)


RENDERED = (
    PlanLine("summary", {"plan": "x", "cases": 1, "jobs": 2, "skips": 3, "rounds": 3, "seconds": 20000}),
    PlanLine("summary", {"plan": "x", "cases": 2, "jobs": 1, "skips": 0, "rounds": 1, "seconds": 119}),
    PlanLine("offline"),
    PlanLine("no_gpus_requested"),
    PlanLine("one_node", {"cases": 2, "nodes": 4}),
    PlanLine("note", {"text": "A is set"}),
    PlanLine("launches"),
    PlanLine("setup", {"command": "module load hpcx"}),
    PlanLine("launch", {"shape": "2x8", "launcher": "srun -N 2 hpccoll", "device": " --device cuda"}),
    PlanLine("probe"),
    PlanLine(
        "job",
        {"job": "nccl.n2x8", "cases": 2, "shapes": ["1x8", "2x8"], "probed": ["2x8"], "nodes": 2, "minutes": 5},
    ),
    PlanLine("sbatch", {"options": ["--nodes=2", "--constraint=[a*1&b*1]"]}),
    PlanLine("variant", {"purpose": "reduction in switches"}),
    PlanLine("environment", {"variables": {"NCCL_ALGO": "Tree", "NCCL_IB_HCA": "=mlx5_0:1"}}),
    PlanLine("no_environment"),
    PlanLine("communicator", {"settings": {"buffers": "symmetric", "traffic_class": 106}}),
    PlanLine("requested", {"algorithms": ["ring", "tree"]}),
    PlanLine("variant_evidence", {"description": "channels via SHARP"}),
    PlanLine("log_evidence", {"algorithms": ["ring", "tree"]}),
    PlanLine("nccl_evidence"),
    PlanLine("control", {"job": "nccl.n2x8.nccl-sharp-off"}),
    PlanLine("control_missing", {"control": "nccl-sharp-off"}),
    PlanLine("control_other_shapes", {"control": "nccl-sharp-off"}),
    PlanLine("skips"),
    PlanLine("skip", {"reason": "it takes 2 nodes", "cases": 3, "jobs": {"a": 2, "b": 1}}),
    PlanLine("skip", {"reason": "it takes 4 nodes", "cases": 1, "jobs": {"b": 1}}),
)

GOLDEN = """\
x: 1 case in 2 jobs, 3 rounds of each, 3 cases left out; about 5.6 h, longer if operations are slow
x: 2 cases in 1 job; about 119 s, longer if operations are slow
note: planned offline: no cluster was queried for its partitions and limits; to query it, add --profile slurm
note: no GPUs are requested from Slurm; if your cluster does not allocate GPUs with the nodes, set \
gpus_per_node in the site file
note: 2 cases of one node wait for jobs with up to 4 nodes; to measure one node only, write nodes: [1] in the sweep file
note: A is set

launches, by nodes x ranks per node:
  module load hpcx
  2x8: srun -N 2 hpccoll run --shape 2x8 --device cuda --job JOB.json --out JOB.h5
  a probe is the same launch, run before it, untimed and with the library's logs: --probe LOGS

nccl.n2x8: 2 cases on 1x8 and 2x8, 2x8 after a probe; requests 2 nodes for at most 5 min
  sbatch --nodes=2 '--constraint=[a*1&b*1]'
  variant: reduction in switches
  environment: NCCL_ALGO=Tree NCCL_IB_HCA='=mlx5_0:1'
  environment: no variables of its own
  communicator, by nccl4py: buffers=symmetric traffic_class=106
  requested: ring, tree
  evidence: channels via SHARP
  evidence: lines of the library's logs that show ring or tree
  evidence: NCCL's log lines: algorithm, protocol and channels for each size, and the network
  negative control: nccl.n2x8.nccl-sharp-off, which must not show this evidence
  negative control: nccl-sharp-off is not a variant of this sweep ('nccl-sharp-off:' adds it): \
nothing can show that the evidence disappears without the feature; the report will state this
  negative control: nccl-sharp-off is not launched in all of these shapes: nothing can show that \
the evidence disappears without the feature; the report will state this

left out:
  3 cases: it takes 2 nodes (2 of a, 1 of b)
  1 case: it takes 4 nodes (b)
"""


def test_lines_are_rendered_with_an_empty_line_before_each_section():
    assert {line.kind for line in RENDERED} == plan_text.TEMPLATES.keys()
    assert "".join(f"{line}\n" for line in plan_text.render(RENDERED)) == GOLDEN
