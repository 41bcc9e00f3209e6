"""A plan in words: its jobs, what is in their environment, the evidence that they will demand, and what is left out."""

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from hpccoll.case import Job, Plan
from hpccoll.evidence.variants import as_known
from hpccoll.measure.logged import logged, requested
from hpccoll.sweep import probe
from hpccoll.sweep.surroundings import assignment

BY_NCCL = "NCCL's own lines: algorithm, protocol and channels for each size, and the network that it uses"
ON_PAPER = "planned by the files alone: no cluster was asked what it can give; with --profile slurm it is"
NO_GPUS = "no GPUs are asked of Slurm: where nodes do not come with them, the site file needs the key gpus_per_node"
BY_LOGS = "lines of the library's logs that show {}"


def summary(plan: Plan) -> str:
    """Return how much there is to measure, in a line."""
    jobs = "1 job" if len(plan.jobs) == 1 else f"{len(plan.jobs)} jobs"
    skips = f", {len(plan.skips)} cases skipped" if plan.skips else ""
    cases, rounds = sum(len(job.cases) for job in plan.jobs), plan.jobs[0].effort.rounds
    times = f", {rounds} rounds of each" if rounds > 1 else ""
    return f"{plan.name}: {cases} cases in {jobs}{times}{skips}, about {plan.estimated_s:.0f} s"


def head(plan: Plan) -> Iterator[str]:
    """Yield how much there is to measure, and what is worth knowing before anything runs."""
    yield summary(plan)
    yield from (f"note: {note}" for note in plan.notes)


def lines(plan: Plan) -> Iterator[str]:
    """Yield every job with its environment, its evidence and its launches, and what is skipped."""
    yield from head(plan)
    if plan.on_paper:
        yield ON_PAPER
    if plan.launcher.slurm and any(_lacks_gpus(plan, job) for job in plan.jobs):
        yield NO_GPUS
    yield from (f"before every launch: {line}" for line in plan.launcher.setup)
    for job in plan.jobs:
        yield f"{job.name}: {len(job.cases)} cases on {job.largest.words}"
        yield from (f"  {line}" for line in _about(plan, job))
        for shape in job.shapes:
            line = plan.launcher.line(shape)
            if probe.wanted(job, shape):
                yield f"  {line} run --probe ..."
            yield f"  {line} run --job ..."
    for (name, reason), skips in groupby(plan.skips, key=lambda skip: (skip.job, skip.reason)):
        cases = [skip.case for skip in skips]
        yield f"skipped in {name}: {cases[0] if len(cases) == 1 else f'{len(cases)} cases'}: {reason}"


def _lacks_gpus(plan: Plan, job: Job) -> bool:
    """Return whether a job with cases on GPUs asks Slurm for none."""
    asked = str(plan.resources[job.name].get("slurm_extra"))
    return "--gpus-per-node" not in asked and any(case.device == "cuda" for case in job.cases)


def _about(plan: Plan, job: Job) -> Iterator[str]:
    known = as_known(job.variant, job.environment)
    if known:
        yield f"variant {job.variant}: {known.what}"
    if job.environment:
        yield f"environment: {' '.join(assignment(*one) for one in job.environment.items())}"
    told = evidence(plan, job)
    if told["requested"]:
        yield f"requested: {', '.join(told['requested'])}"
    if told["demanded"]:
        yield f"evidence: {told['demanded']}"
    if told["control"]:
        yield f"negative control: {told['control']}, {told['control_job'] or 'which is no variant of this sweep'}"


def evidence(plan: Plan, job: Job) -> dict[str, Any]:
    """Return what a job will be asked to show.

    Returns:
        requested: of the library, in words; demanded: what must be seen, None where no log can say; logs: whether
        there is an untimed launch with logs; control: the variant that must lose the evidence, and control_job, the
        job of this plan that has it, None where there is none.
    """
    known = as_known(job.variant, job.environment)
    asked = sorted({word for case in job.cases if (word := requested(job, case))})
    logs = any(logged(job, case) for case in job.cases)
    by_library = (BY_LOGS.format(" or ".join(asked)) if asked else BY_NCCL) if logs else None
    control = known.control if known else None
    controls = (
        other.name
        for other in plan.jobs
        if other.variant == control and {*other.shapes} >= {*job.shapes} and other.name != job.name
    )
    return {
        "requested": asked,
        "demanded": known.demands.words if known else by_library,
        "logs": logs,
        "control": control,
        "control_job": next(controls, None) if control else None,
    }


def as_json(plan: Plan) -> str:
    """Return the plan as JSON, with the evidence of each job beside it."""
    told = {job.name: evidence(plan, job) for job in plan.jobs}
    return json.dumps({**json.loads(plan.to_json()), "evidence": told}, indent=1)
