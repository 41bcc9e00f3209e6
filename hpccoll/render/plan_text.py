"""The text of a plan: its jobs with environment and required evidence, and the skipped cases with their reasons."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypedDict

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.plan import Plan, Skip, sbatch_options
from hpccoll.cases.probe_cases import has_library_logs, probe_cases, requested_algorithm
from hpccoll.cases.variables import assignment
from hpccoll.cases.variants import known_variant
from hpccoll.common.json_schema import record_of_fields
from hpccoll.common.text import first_few, join_words
from hpccoll.common.units import format_count, format_wait

MAX_SKIP_JOBS = 6
"""Maximum number of jobs that the line of a skip reason names; --json has all."""

_UNCONTROLLED = (
    "nothing can show that the evidence disappears without the feature; the report will state this"
)


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the summary, the notes, the launches, every job with its details, and the skipped cases."""
    yield from plan_summary(plan)
    yield from ("", *_launches(plan))
    for job in plan.jobs:
        yield from ("", _job_heading(plan, job), *(f"  {line}" for line in _job_details(plan, job)))
    if plan.skips:
        yield from ("", "left out:", *_skips(plan.skips))


def plan_summary(plan: Plan) -> Iterator[str]:
    """Yield the summary and the notes."""
    cases = sum(len(job.cases) for job in plan.jobs)
    rounds = plan.jobs[0].effort.rounds
    counts = [f"{format_count(cases, 'case')} in {format_count(len(plan.jobs), 'job')}"]
    if rounds > 1:
        counts.append(f"{rounds} rounds of each")
    if plan.skips:
        counts.append(f"{format_count(len(plan.skips), 'case')} left out")
    expected = f"about {format_wait(plan.estimated_s)}, longer if operations are slow"
    yield f"{plan.name}: {', '.join(counts)}; {expected}{_limits_text(plan)}"
    for note in _notes(plan):
        yield f"note: {note}"


def _notes(plan: Plan) -> Iterator[str]:
    if plan.offline and not plan.launcher.slurm:
        yield "planned for Kubernetes: --format mpijob or --format trainjob prints the manifests"
    elif plan.offline:
        yield "planned offline: no cluster was queried for its partitions and limits; to query it, add --profile slurm"
    if plan.launcher.slurm and any(_has_no_gpus(plan, job) for job in plan.jobs):
        yield (
            "no GPUs are requested from Slurm; if your cluster does not allocate GPUs with the nodes, set "
            "gpus_per_node or gres in the site file"
        )
    waiting = _waiting_cases(plan)
    if plan.launcher.slurm and waiting:
        most = max(job.nodes for job in plan.jobs)
        yield (
            f"{format_count(waiting, 'case')} of one node wait for jobs with up to {most} "
            "nodes; to measure one node only, write nodes: [1] in the sweep file"
        )
    yield from plan.notes


def _limits_text(plan: Plan) -> str:
    """Return what the time limits of all jobs add up to; empty if a job has none."""
    minutes = node_minutes = 0
    for job in plan.jobs:
        limit = (plan.resources.get(job.name) or {}).get("runtime")
        if limit is None:
            return ""
        minutes += int(limit)
        node_minutes += int(limit) * job.largest.hosts
    node_hours = f"{node_minutes / 60:.3g} node-hours"
    return f"; at most {format_wait(60 * minutes)} and {node_hours} by the time limits of its jobs"


def _waiting_cases(plan: Plan) -> int:
    """Return how many cases on the GPUs of one node wait for a job of more than one node.

    A job requests as many nodes as its largest launch needs, so that all launches have the same
    nodes.
    """
    waiting = 0
    for job in plan.jobs:
        if job.nodes > 1:
            waiting += sum(
                case.device == "cuda" and job.shape(case).nodes == 1 for case in job.cases
            )
    return waiting


def _has_no_gpus(plan: Plan, job: Job) -> bool:
    resources = plan.resources[job.name]
    options = str(resources.get("slurm_extra"))
    requested = "gres" in resources or "--gpus-per-node" in options
    return not requested and any(case.device == "cuda" for case in job.cases)


def _launches(plan: Plan) -> Iterator[str]:
    yield "launches, by nodes x ranks per node:"
    for command in plan.launcher.setup:
        yield f"  {command}"
    if plan.diagnose is not None:
        options = shlex.join([*plan.diagnose, "--out"])
        for nodes in sorted({job.nodes for job in plan.jobs if job.nodes > 1}):
            line = plan.launcher.line(Shape(nodes, nodes))
            yield f"  first: {line} diagnose {options} JOB.diagnosis-ALLOCATION.h5"
    devices = {(job.shape(case), case.device) for job in plan.jobs for case in job.cases}
    for shape in sorted({shape for shape, _ in devices}):
        device = " --device cuda" if (shape, "cuda") in devices else ""
        yield f"  {shape}: {plan.launcher.line(shape)} run --shape {shape}{device} --job JOB.json --out JOB.h5"
    if any(_probed_shapes(job) for job in plan.jobs):
        yield "  a probe is the same launch, run before it, untimed and with the library's logs: --probe LOGS"


def _probed_shapes(job: Job) -> list[Shape]:
    return [shape for shape in job.shapes if probe_cases(job, shape)]


def _job_heading(plan: Plan, job: Job) -> str:
    heading = f"{job.name}: {format_count(len(job.cases), 'case')} on {join_words(job.shapes)}"
    probed = _probed_shapes(job)
    if probed and len(probed) < len(job.shapes):
        heading += f", {join_words(probed)} after a probe"
    elif probed:
        heading += ", each after a probe" if len(probed) > 1 else ", after a probe"
    resources = plan.resources.get(job.name) or {}
    minutes = resources.get("runtime")
    if minutes is not None:
        heading += f"; requests {format_count(job.largest.hosts, 'node')} for at most {minutes} min"
    return heading


def _job_details(plan: Plan, job: Job) -> Iterator[str]:
    resources = plan.resources.get(job.name)
    if resources:
        yield f"sbatch {shlex.join(sbatch_options(resources))}"
    variant = known_variant(job.variant, job.sets)
    if variant:
        yield f"variant: {variant.purpose}"
    if job.variant:
        variables = " ".join(assignment(*variable) for variable in job.environment.items())
        yield f"environment: {variables or 'no variables of its own'}"
    if job.communicator:
        settings = " ".join(f"{name}={setting}" for name, setting in job.communicator.items())
        yield f"communicator, by nccl4py: {settings}"
    evidence = _evidence(plan, job)
    if evidence["requested"]:
        yield f"requested: {', '.join(evidence['requested'])}"
    if evidence["demanded"]:
        yield f"evidence: {evidence['demanded']}"
    if evidence["control"]:
        yield f"negative control: {_control_text(plan, evidence['control'], evidence['control_job'])}"


def _control_text(plan: Plan, control: str, control_job: str | None) -> str:
    """Return which job is the control, or why there is none."""
    if control_job:
        return f"{control_job}, which must not show this evidence"
    if any(job.variant == control for job in plan.jobs):
        return f"{control} is not launched in all shapes of this job: {_UNCONTROLLED}"
    return f"{control} is not a variant of this sweep ('{control}:' adds it): {_UNCONTROLLED}"


class RequiredEvidenceJson(TypedDict):
    """The evidence that a job requires, as JSON has it."""

    requested: list[str]
    demanded: str | None
    logs: bool
    control: str | None
    control_job: str | None


class _EvidenceKeys(TypedDict):
    evidence: dict[str, RequiredEvidenceJson]


def plan_record() -> Any:
    """Return the type of the JSON of a plan with the evidence that its jobs require."""
    return record_of_fields("PlanJson", Plan, changed=_EvidenceKeys)


def _evidence(plan: Plan, job: Job) -> RequiredEvidenceJson:
    variant = known_variant(job.variant, job.sets)
    control = variant.control if variant else None
    requested = sorted(set(filter(None, (requested_algorithm(job, case) for case in job.cases))))
    logs = any(has_library_logs(job, case) for case in job.cases)
    demanded = None
    if variant:
        demanded = variant.evidence_text
    elif logs and requested:
        demanded = f"lines of the library's logs that show {join_words(requested, 'or')}"
    elif logs:
        demanded = (
            "NCCL's log lines: algorithm, protocol and channels for each size, and the network"
        )
    return {
        "requested": requested,  # of the library
        "demanded": demanded,  # None if no log can show it
        "logs": logs,  # whether a probe with logs precedes the launch
        "control": control,  # the variant that must not show the evidence
        "control_job": _control_job(plan, job, control),  # the job with that variant and all shapes
    }


def _control_job(plan: Plan, job: Job, control: str | None) -> str | None:
    if not control:
        return None
    for candidate in plan.jobs:
        if (
            candidate.variant == control
            and candidate.name != job.name
            and set(job.shapes) <= set(candidate.shapes)
        ):
            return candidate.name
    return None


def _skips(skips: Iterable[Skip]) -> Iterator[str]:
    counts: dict[str, Counter[str]] = {}
    for skip in skips:
        variant, _, own_reason = skip.reason.partition(": ")
        # the job's name has the variant
        reason = own_reason if skip.job.endswith(f".{variant}") else skip.reason
        counts.setdefault(reason, Counter())[skip.job] += 1
    for reason, jobs in counts.items():
        named = list(jobs)
        if len(jobs) > 1:
            named = first_few(
                (f"{count} of {name}" for name, count in jobs.items()), MAX_SKIP_JOBS, "job"
            )
        yield f"  {format_count(jobs.total(), 'case')}: {reason} ({', '.join(named)})"


def plan_json(plan: Plan) -> dict[str, Any]:
    """Return the plan with the evidence that each of its jobs requires."""
    record: dict[str, Any] = json.loads(plan.to_json())
    record["evidence"] = {job.name: _evidence(plan, job) for job in plan.jobs}
    return record
