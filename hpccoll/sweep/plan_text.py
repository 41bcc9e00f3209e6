"""The text of a plan: its jobs with environment and required evidence, and the skipped cases with their reasons."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from hpccoll.evidence.variables import assignment
from hpccoll.evidence.variants import known_variant
from hpccoll.spec.case import Job, Shape
from hpccoll.spec.plan import Plan, Skip
from hpccoll.spec.probe_cases import has_library_logs, requested_algorithm
from hpccoll.sweep import probe_launch
from hpccoll.sweep.slurm.partitions import sbatch_options
from hpccoll.units import format_wait

BY_NCCL = "NCCL's own lines: algorithm, protocol and channels for each size, and the network that it uses"
ON_PAPER = "planned by the files alone: no cluster was asked what it can give; with --profile slurm it is"
NO_GPUS = "no GPUs are asked of Slurm: where nodes do not come with them, the site file needs the key gpus_per_node"
BY_LOGS = "lines of the library's logs that show {}"
PROBE = "a probe is the same launch before it, untimed, with the library's logs on, which say what it ran: --probe LOGS"
MOST_NAMED = 6
"""Number of jobs to list with a reason; --json has all."""
UNCONTROLLED = "nothing will show that the evidence goes where it is off, and the report will say so"


def summary(plan: Plan) -> str:
    """Return the numbers of cases and jobs and the estimated time, in one line."""
    cases, rounds = sum(len(job.cases) for job in plan.jobs), plan.jobs[0].effort.rounds
    times = f", {rounds} rounds of each" if rounds > 1 else ""
    skips = f", {_many(len(plan.skips), 'case')} left out" if plan.skips else ""
    jobs = _many(len(plan.jobs), "job")
    wait = f"about {format_wait(plan.estimated_s)}, longer where operations are slow"
    return f"{plan.name}: {_many(cases, 'case')} in {jobs}{times}{skips}; {wait}"


def head(plan: Plan) -> Iterator[str]:
    """Yield the summary and the notes."""
    yield summary(plan)
    yield from (f"note: {note}" for note in _notes(plan))


def lines(plan: Plan) -> Iterator[str]:
    """Yield the launches, every job with its environment and its evidence, and the skipped cases."""
    yield from head(plan)
    yield ""
    yield from _launches(plan)
    for job in plan.jobs:
        yield ""
        yield f"{job.name}: {_many(len(job.cases), 'case')} on {_places(job)}{_asked(plan, job)}"
        yield from (f"  {line}" for line in _about(plan, job))
    if plan.skips:
        yield ""
        yield "left out:"
        yield from (f"  {line}" for line in _left_out(plan.skips))


def _notes(plan: Plan) -> Iterator[str]:
    if plan.offline:
        yield ON_PAPER
    if plan.launcher.slurm and any(_has_no_gpus(plan, job) for job in plan.jobs):
        yield NO_GPUS
    yield from plan.notes


def _has_no_gpus(plan: Plan, job: Job) -> bool:
    """Return whether a job with cases on GPUs requests none from Slurm."""
    requested_names = str(plan.resources[job.name].get("slurm_extra"))
    return "--gpus-per-node" not in requested_names and any(case.device == "cuda" for case in job.cases)


def _launches(plan: Plan) -> Iterator[str]:
    """Yield the shell setup and the command of every launch; they are the same in all jobs."""
    yield "launches, by nodes x ranks on each:"
    yield from (f"  {line}" for line in plan.launcher.setup)
    devices = {(job.shape(case), case.device) for job in plan.jobs for case in job.cases}
    for shape in sorted({shape for shape, _ in devices}):
        on_gpus = " --device cuda" if (shape, "cuda") in devices else ""
        yield f"  {shape}: {plan.launcher.line(shape)} run --shape {shape}{on_gpus} --job JOB.json --out JOB.h5"
    if any(probe_launch.needs_probe(job, shape) for job in plan.jobs for shape in job.shapes):
        yield f"  {PROBE}"


def _places(job: Job) -> str:
    """Return the shapes of a job's launches, and which of them follow a probe."""
    probed = [shape for shape in job.shapes if probe_launch.needs_probe(job, shape)]
    if not probed:
        return _listed(job.shapes)
    if len(probed) == len(job.shapes):
        return f"{_listed(probed)}, {'each ' * (len(probed) > 1)}after a probe"
    return f"{_listed(job.shapes)}, {_listed(probed)} after a probe"


def _asked(plan: Plan, job: Job) -> str:
    """Return the nodes and the time that a job requests from Slurm."""
    requested_names = plan.resources.get(job.name) or {}
    if "runtime" not in requested_names:
        return ""
    return f"; asks for {_many(job.largest.hosts, 'node')} for at most {requested_names['runtime']} min"


def _about(plan: Plan, job: Job) -> Iterator[str]:
    if requested_names := plan.resources.get(job.name):
        yield f"sbatch {shlex.join(sbatch_options(requested_names))}"
    known = known_variant(job.variant, job.sets)
    if known:
        yield f"variant: {known.purpose}"
    if job.variant:
        yield f"environment: {' '.join(assignment(*one) for one in job.environment.items()) or 'nothing of its own'}"
    if job.communicator:
        yield f"communicator, by nccl4py: {' '.join(f'{name}={value}' for name, value in job.communicator.items())}"
    shown = evidence(plan, job)
    if shown["requested"]:
        yield f"requested: {', '.join(shown['requested'])}"
    if shown["demanded"]:
        yield f"evidence: {shown['demanded']}"
    if shown["control"]:
        yield f"negative control: {_control(plan, shown['control'], shown['control_job'])}"


def _control(plan: Plan, control: str, of_job: str | None) -> str:
    """Return the job that is the negative control, or why there is none."""
    if of_job:
        return f"{of_job}, which has to lose this evidence"
    measured = any(job.variant == control for job in plan.jobs)
    missing = "not launched in all of these shapes" if measured else f"no variant of this sweep ('{control}:' adds it)"
    return f"{control} is {missing}: {UNCONTROLLED}"


def _left_out(skips: Iterable[Skip]) -> Iterator[str]:
    """Yield each skip reason once, with its number of cases in each job."""
    counts: dict[str, Counter[str]] = {}
    for skip in skips:
        variant, _, reason = skip.reason.partition(": ")
        shown = reason if skip.job.endswith(f".{variant}") else skip.reason  # the job's name says the variant
        counts.setdefault(shown, Counter())[skip.job] += 1
    for shown, jobs in counts.items():
        every = [f"{count} of {name}" for name, count in jobs.items()]
        named = every[: MOST_NAMED if len(every) > MOST_NAMED + 1 else None]  # "1 more job" is as long as its name
        more = [_many(len(jobs) - len(named), "more job")] if len(jobs) > len(named) else []
        whose = ", ".join([*named, *more]) if len(jobs) > 1 else next(iter(jobs))
        yield f"{_many(jobs.total(), 'case')}: {shown} ({whose})"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _listed(shapes: Iterable[Shape]) -> str:
    *first, last = map(str, shapes)
    return f"{', '.join(first)} and {last}" if first else last


def evidence(plan: Plan, job: Job) -> dict[str, Any]:
    """Return the evidence that a job requires.

    Returns:
        requested: the algorithms requested from the library; demanded: the expected evidence, None if no log can show
        it; logs: whether a probe with logs precedes the launch; control: the variant that must not show the evidence;
        control_job: the job of this plan with that variant, None without one.
    """
    known = known_variant(job.variant, job.sets)
    requested_names = sorted({word for case in job.cases if (word := requested_algorithm(job, case))})
    logs = any(has_library_logs(job, case) for case in job.cases)
    by_library = (BY_LOGS.format(" or ".join(requested_names)) if requested_names else BY_NCCL) if logs else None
    control = known.control if known else None
    controls = (
        other.name
        for other in plan.jobs
        if other.variant == control and {*other.shapes} >= {*job.shapes} and other.name != job.name
    )
    return {
        "requested": requested_names,
        "demanded": known.expected_evidence.description if known else by_library,
        "logs": logs,
        "control": control,
        "control_job": next(controls, None) if control else None,
    }


def as_json(plan: Plan) -> str:
    """Return the plan as JSON, with the evidence of each job."""
    by_job = {job.name: evidence(plan, job) for job in plan.jobs}
    return json.dumps({**json.loads(plan.to_json()), "evidence": by_job}, indent=1)
