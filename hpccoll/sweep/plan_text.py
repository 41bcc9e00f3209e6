"""The text of a plan: its jobs with environment and required evidence, and the skipped cases with their reasons.

A line of the text is data (kind and values), rendered by one table of templates.
"""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal, NamedTuple, TypeAlias

from hpccoll.cases.case import Job
from hpccoll.cases.plan import Plan, Skip
from hpccoll.cases.probe_cases import has_library_logs, requested_algorithm
from hpccoll.cases.variables import assignment
from hpccoll.cases.variants import known_variant
from hpccoll.common.units import format_wait
from hpccoll.sweep import probe_launch
from hpccoll.sweep.slurm.partitions import sbatch_options

MAX_SKIP_JOBS = 6
"""Maximum number of jobs that the line of a skip reason names; --json has all."""

Values: TypeAlias = Mapping[str, Any]
LineText: TypeAlias = str | Callable[[Values], str]
"""A format string of values, or a function of them."""
Level: TypeAlias = Literal["top", "heading", "detail"]
"""top: a line before the first section; heading: the first line of a section; detail: an indented line below it."""


class LineTemplate(NamedTuple):
    """How a kind of line is written.

    Args:
        level: the level of the line.
        text: the text.
        label: what the text is about, written before it with a colon; empty for none.
    """

    level: Level
    text: LineText
    label: LineText = ""


class _PlanFormatter(Formatter):
    """Format strings with units: ``{n:count job}``, ``{s:wait}``, ``{names:list}``, ``{names:or}``, ``{names:and}``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("count "):
            return f"{value} {format_spec.removeprefix('count ')}{'s' * (value != 1)}"
        forms: Mapping[str, Callable[[Any], str]] = {
            "wait": format_wait,
            "list": ", ".join,
            "or": " or ".join,
            "and": _enumerate,
            "shell": shlex.join,
            "variables": lambda variables: " ".join(assignment(*variable) for variable in variables.items()),
            "settings": lambda settings: " ".join(f"{name}={setting}" for name, setting in settings.items()),
        }
        return forms[format_spec](value) if format_spec in forms else str(format(value, format_spec))


def _enumerate(items: Iterable[object]) -> str:
    """Return ``a, b and c``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def _write(text: LineText, values: Values) -> str:
    return _PlanFormatter().vformat(text, (), values) if isinstance(text, str) else text(values)


def _summary(values: Values) -> str:
    text = "{cases:count case} in {jobs:count job}"
    text += ", {rounds} rounds of each" if values["rounds"] > 1 else ""
    text += ", {skips:count case} left out" if values["skips"] else ""
    return _write(text + "; about {seconds:wait}, longer if operations are slow", values)


def _job(values: Values) -> str:
    text = "{cases:count case} on {shapes:and}"
    if probed := values["probed"]:
        some = "{probed:and} after a probe"
        every = "each after a probe" if len(probed) > 1 else "after a probe"
        text += f", {every if len(probed) == len(values['shapes']) else some}"
    if values["minutes"] is not None:
        text += "; requests {nodes:count node} for at most {minutes} min"
    return _write(text, values)


def _skip(values: Values) -> str:
    jobs: Mapping[str, int] = values["jobs"]
    if len(jobs) == 1:
        return _write("{reason} ({jobs:list})", values)
    every = [f"{count} of {name}" for name, count in jobs.items()]
    named = every[: MAX_SKIP_JOBS if len(every) > MAX_SKIP_JOBS + 1 else None]  # "1 more job" is as long as its name
    if more := len(every) - len(named):
        named.append(_write("{more:count more job}", {"more": more}))
    return _write("{reason} ({named:list})", {**values, "named": named})


_UNCONTROLLED = "nothing can show that the evidence disappears without the feature; the report will state this"

TEMPLATES: Mapping[str, LineTemplate] = {
    "summary": LineTemplate("top", _summary, "{plan}"),
    # Notes
    "offline": LineTemplate(
        "top",
        "planned offline: no cluster was queried for its partitions and limits; to query it, add --profile slurm",
        "note",
    ),
    "no_gpus_requested": LineTemplate(
        "top",
        "no GPUs are requested from Slurm; if your cluster does not allocate GPUs with the nodes, set gpus_per_node in "
        "the site file",
        "note",
    ),
    "one_node": LineTemplate(
        "top",
        "{cases:count case} of one node wait for jobs with up to {nodes} nodes; to measure one node only, write "
        "nodes: [1] in the sweep file",
        "note",
    ),
    "note": LineTemplate("top", "{text}", "note"),
    # Launches
    "launches": LineTemplate("heading", "launches, by nodes x ranks per node:"),
    "setup": LineTemplate("detail", "{command}"),
    "launch": LineTemplate("detail", "{launcher} run --shape {shape}{device} --job JOB.json --out JOB.h5", "{shape}"),
    "probe": LineTemplate(
        "detail",
        "a probe is the same launch, run before it, untimed and with the library's logs: --probe LOGS",
    ),
    # A job
    "job": LineTemplate("heading", _job, "{job}"),
    "sbatch": LineTemplate("detail", "sbatch {options:shell}"),
    "variant": LineTemplate("detail", "{purpose}", "variant"),
    "environment": LineTemplate("detail", "{variables:variables}", "environment"),
    "no_environment": LineTemplate("detail", "no variables of its own", "environment"),
    "communicator": LineTemplate("detail", "{settings:settings}", "communicator, by nccl4py"),
    "requested": LineTemplate("detail", "{algorithms:list}", "requested"),
    "variant_evidence": LineTemplate("detail", "{description}", "evidence"),
    "log_evidence": LineTemplate("detail", "lines of the library's logs that show {algorithms:or}", "evidence"),
    "nccl_evidence": LineTemplate(
        "detail", "NCCL's log lines: algorithm, protocol and channels for each size, and the network", "evidence"
    ),
    "control": LineTemplate("detail", "{job}, which must not show this evidence", "negative control"),
    "control_missing": LineTemplate(
        "detail",
        f"{{control}} is not a variant of this sweep ('{{control}}:' adds it): {_UNCONTROLLED}",
        "negative control",
    ),
    "control_other_shapes": LineTemplate(
        "detail", f"{{control}} is not launched in all of these shapes: {_UNCONTROLLED}", "negative control"
    ),
    # Skipped cases
    "skips": LineTemplate("heading", "left out:"),
    "skip": LineTemplate("detail", _skip, "{cases:count case}"),
}
"""The texts of all kinds of lines."""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of the text of a plan.

    Args:
        kind: a key of TEMPLATES.
        values: the values in the template.
    """

    kind: str
    values: Values = field(default_factory=dict)

    @property
    def level(self) -> Level:
        return TEMPLATES[self.kind].level

    @property
    def text(self) -> str:
        """The text without its label."""
        return _write(TEMPLATES[self.kind].text, self.values)

    def __str__(self) -> str:
        indent = "  " if self.level == "detail" else ""
        label = _write(TEMPLATES[self.kind].label, self.values)
        return f"{indent}{label}: {self.text}" if label else f"{indent}{self.text}"


def render(plan_lines: Iterable[PlanLine]) -> Iterator[str]:
    """Yield the lines as text, with an empty line before each heading."""
    for line in plan_lines:
        if line.level == "heading":
            yield ""
        yield str(line)


def head(plan: Plan) -> Iterator[str]:
    """Yield the text of the summary and the notes."""
    yield from render(_head(plan))


def lines(plan: Plan) -> Iterator[str]:
    """Yield the text of a plan."""
    yield from render(plan_lines(plan))


def plan_lines(plan: Plan) -> Iterator[PlanLine]:
    """Yield the summary, the notes, the launches, every job with its details, and the skipped cases."""
    yield from _head(plan)
    yield from _launches(plan)
    for job in plan.jobs:
        yield _job_heading(plan, job)
        yield from _job_details(plan, job)
    if plan.skips:
        yield PlanLine("skips")
        yield from _skips(plan.skips)


def _head(plan: Plan) -> Iterator[PlanLine]:
    counts = {"cases": sum(len(job.cases) for job in plan.jobs), "jobs": len(plan.jobs), "skips": len(plan.skips)}
    times = {"rounds": plan.jobs[0].effort.rounds, "seconds": plan.estimated_s}
    yield PlanLine("summary", {"plan": plan.name, **counts, **times})
    if plan.offline:
        yield PlanLine("offline")
    if plan.launcher.slurm and any(_has_no_gpus(plan, job) for job in plan.jobs):
        yield PlanLine("no_gpus_requested")
    if plan.launcher.slurm and (waiting := _waits_for_nodes(plan.jobs)):
        yield PlanLine("one_node", waiting)
    yield from (PlanLine("note", {"text": note}) for note in plan.notes)


def _waits_for_nodes(jobs: Sequence[Job]) -> Mapping[str, int]:
    """Return the cases on the GPUs of one node in jobs that request several nodes, and these; empty without any.

    A job requests as many nodes as its largest launch needs, so that all launches have the same nodes.
    """
    several = [job for job in jobs if job.nodes > 1]
    cases = sum(case.device == "cuda" and job.shape(case).nodes == 1 for job in several for case in job.cases)
    return {"cases": cases, "nodes": max(job.nodes for job in several)} if cases else {}


def _has_no_gpus(plan: Plan, job: Job) -> bool:
    """Return whether a job with cases on GPUs requests none from Slurm."""
    options = str(plan.resources[job.name].get("slurm_extra"))
    return "--gpus-per-node" not in options and any(case.device == "cuda" for case in job.cases)


def _launches(plan: Plan) -> Iterator[PlanLine]:
    """Yield the shell setup and the command of every launch; they are the same in all jobs."""
    yield PlanLine("launches")
    yield from (PlanLine("setup", {"command": command}) for command in plan.launcher.setup)
    devices = {(job.shape(case), case.device) for job in plan.jobs for case in job.cases}
    for shape in sorted({shape for shape, _ in devices}):
        device = " --device cuda" if (shape, "cuda") in devices else ""
        yield PlanLine("launch", {"shape": str(shape), "launcher": plan.launcher.line(shape), "device": device})
    if any(probe_launch.needs_probe(job, shape) for job in plan.jobs for shape in job.shapes):
        yield PlanLine("probe")


def _job_heading(plan: Plan, job: Job) -> PlanLine:
    resources = plan.resources.get(job.name) or {}
    values = {
        "job": job.name,
        "cases": len(job.cases),
        "shapes": [str(shape) for shape in job.shapes],
        "probed": [str(shape) for shape in job.shapes if probe_launch.needs_probe(job, shape)],
        "nodes": job.largest.hosts,
        "minutes": resources.get("runtime"),
    }
    return PlanLine("job", values)


def _job_details(plan: Plan, job: Job) -> Iterator[PlanLine]:
    if resources := plan.resources.get(job.name):
        yield PlanLine("sbatch", {"options": sbatch_options(resources)})
    known = known_variant(job.variant, job.sets)
    if known:
        yield PlanLine("variant", {"purpose": known.purpose})
    if job.variant and job.environment:
        yield PlanLine("environment", {"variables": job.environment})
    elif job.variant:
        yield PlanLine("no_environment")
    if job.communicator:
        yield PlanLine("communicator", {"settings": job.communicator})
    if requested := _requested_algorithms(job):
        yield PlanLine("requested", {"algorithms": requested})
    if required := _required_evidence(job):
        yield required
    if known and known.control:
        yield _control_line(plan, job, known.control)


def _control_line(plan: Plan, job: Job, control: str) -> PlanLine:
    """Return the line of the job that is the negative control, or the reason why there is none."""
    if control_job := _control_job(plan, job, control):
        return PlanLine("control", {"job": control_job})
    is_in_sweep = any(other.variant == control for other in plan.jobs)
    return PlanLine("control_other_shapes" if is_in_sweep else "control_missing", {"control": control})


def _control_job(plan: Plan, job: Job, control: str) -> str | None:
    """Return the name of the job with the variant ``control`` and all shapes of ``job``; None if there is none."""
    others = (other for other in plan.jobs if other.variant == control and other.name != job.name)
    return next((other.name for other in others if {*other.shapes} >= {*job.shapes}), None)


def _requested_algorithms(job: Job) -> Sequence[str]:
    """Return the algorithms that a job requests from the library, sorted."""
    return sorted({algorithm for case in job.cases if (algorithm := requested_algorithm(job, case))})


def _required_evidence(job: Job) -> PlanLine | None:
    """Return the line of the evidence that a job requires; None if no log can show it."""
    if known := known_variant(job.variant, job.sets):
        return PlanLine("variant_evidence", {"description": known.evidence_text})
    if not _has_logs(job):
        return None
    requested = _requested_algorithms(job)
    return PlanLine("log_evidence", {"algorithms": requested}) if requested else PlanLine("nccl_evidence")


def _has_logs(job: Job) -> bool:
    return any(has_library_logs(job, case) for case in job.cases)


def _skips(skips: Iterable[Skip]) -> Iterator[PlanLine]:
    """Yield each skip reason once, with its number of cases in each job."""
    counts: dict[str, Counter[str]] = {}
    for skip in skips:
        variant, _, own_reason = skip.reason.partition(": ")
        reason = own_reason if skip.job.endswith(f".{variant}") else skip.reason  # the job's name has the variant
        counts.setdefault(reason, Counter())[skip.job] += 1
    for reason, jobs in counts.items():
        yield PlanLine("skip", {"reason": reason, "cases": jobs.total(), "jobs": dict(jobs)})


def evidence(plan: Plan, job: Job) -> dict[str, Any]:
    """Return the evidence that a job requires.

    Returns:
        requested: the algorithms requested from the library; demanded: the expected evidence, None if no log can show
        it; logs: whether a probe with logs precedes the launch; control: the variant that must not show the evidence;
        control_job: the job of this plan with that variant, None without one.
    """
    known = known_variant(job.variant, job.sets)
    required = _required_evidence(job)
    control = known.control if known else None
    return {
        "requested": _requested_algorithms(job),
        "demanded": required.text if required else None,
        "logs": _has_logs(job),
        "control": control,
        "control_job": _control_job(plan, job, control) if control else None,
    }


def as_json(plan: Plan) -> str:
    """Return the plan as JSON, with the evidence of each job."""
    by_job = {job.name: evidence(plan, job) for job in plan.jobs}
    return json.dumps({**json.loads(plan.to_json()), "evidence": by_job}, indent=1)
