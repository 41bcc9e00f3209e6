"""Plan a sweep: its jobs and cases, frozen before anything runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

from hpccoll.cases.algorithm_files import file_paths, tables_of_cases
from hpccoll.cases.case import PASS_S, SETTLE_S, Case, Job, Parameter, Shape
from hpccoll.cases.catalogue import load_job
from hpccoll.cases.plan import PLAN_FILE, PROFILES, Plan, Skip, diagnosis_seconds
from hpccoll.cases.probe_cases import probe_cases
from hpccoll.cases.product import count_cases, expand_cases
from hpccoll.cases.skip_reason import LaunchFacts, MeasuredPlans, planned_nodes, skip_reason
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.limits import JOB_BYTES, MAX_CASES, MAX_JOBS, MAX_RANK_CASES
from hpccoll.common.units import format_count, format_size
from hpccoll.host.cpu_and_memory import testbed_facts
from hpccoll.schedule import Layout
from hpccoll.store.durable_files import remove_unfinished, replacing_file
from hpccoll.store.job_identity import job_differences
from hpccoll.store.journal import journal_path
from hpccoll.store.result_files import has_results, read_raw
from hpccoll.sweep.execution_site import ExecutionSite, naming_site_file
from hpccoll.sweep.site_file import load_site
from hpccoll.sweep.slurm import query
from hpccoll.sweep.sweep_file import Sweep, load_sweep

LOCAL_ONLY = "profile local uses this machine alone"

LAUNCH_S = 1.5
"""Estimated seconds to start the ranks of one launch on one node."""
NODE_S = 0.03
"""Estimated seconds by which another node delays the start of all ranks, a cautious bound.

The ranks of a node open about 1,000 files of Python and its packages, which its page cache keeps,
and a shared file system that Python ranks overload was seen to answer 30,000 operations a second
(SYMFLUENCE, issue 21, 2026). Who broadcasts the packages first starts in less than 2 minutes on
whole machines: Y. Feng, N. Hand: Launching Python applications on peta-scale massively parallel
systems, SciPy (2016).
"""
RANK_S = 0.001
"""Estimated seconds by which another rank delays the start: rank 0 receives the place and the provenance of each."""
SAMPLE_S = 1.65e-7
"""Estimated seconds in which rank 0 records an iteration of a rank, while the others wait.

A case of 16,384 ranks and 1,000 iterations took 2.7 s (tests/benchmarks/growth.py, stage store).
"""
ROUND_S = 0.01
"""Estimated seconds of one round of a case outside its iterations: compile, fill buffers, check the result."""
SLURM_S = 20.0
"""Estimated seconds of a Slurm job outside its launches: Snakemake starts twice in it."""


def make_plan(
    config: Path, profile: str | None = "local", site: str | None = None, out: Path | None = None
) -> Plan:
    """Return the plan of the sweep file ``config`` under ``profile``.

    Jobs that have results in ``out`` stay as they were planned, even if the cluster now provides
    fewer nodes. Only the other jobs are planned again, and nothing is measured twice.

    Args:
        config: the sweep file.
        profile: a directory of workflows/profiles. With None, a sweep over nodes or for a site is
            planned offline: Slurm is not queried.
        site: a site file or the name of one, for clusters.
        out: the directory of the results, if jobs may have been started there.

    Raises:
        BadInputError: if a file is not valid, names something unknown, or requests more than is
            available; if Slurm is missing, does not answer, or would refuse a job.
    """
    sweep = load_sweep(config)
    execution_site = _execution_site(config, sweep, profile, site)
    sweep = sweep.on_nodes_with(execution_site.site.gpus)
    with naming_site_file(site):
        notes = tuple(execution_site.variable_notes(sweep))
    try:
        _check_count(sweep)
        started = _started_jobs(out) if out else []
        jobs, skips = _plan_jobs(sweep, execution_site, started)
        if out:
            _check_none_lost(jobs, started, out)
    except BadInputError as error:
        if error.key == "--out":
            raise error.with_key(f"--out {out}") from None
        if f"{error.key}s" in Sweep.model_fields:
            plural = f"{error.key}s"
        else:
            plural = error.key
        raise error.with_key(f"{config}: {plural}") from None
    if not jobs:
        raise _nothing_to_measure(config, sweep, execution_site, skips)
    diagnose = None
    if sweep.diagnose:
        diagnose = sweep.diagnose.options
    seconds = {job.name: estimate_seconds(job) + diagnosis_seconds(job, diagnose) for job in jobs}
    requests = {job.name: execution_site.resource_request(job, seconds[job.name]) for job in jobs}
    with naming_site_file(site):
        for job in jobs:
            if job not in started:
                execution_site.check_request(requests[job.name])
    launcher = execution_site.launcher
    return Plan(
        name=config.stem,
        profile=profile or ("slurm" if launcher.slurm else "local"),
        jobs=tuple(jobs),
        skips=tuple(skips),
        launcher=launcher,
        resources=requests,
        estimated_s=sum(seconds.values()) + len(jobs) * SLURM_S * launcher.slurm,
        offline=execution_site.is_offline,
        notes=(*sweep.notes(), *notes, *execution_site.notes(jobs)),
        diagnose=diagnose,
    )


def estimate_seconds(job: Job) -> float:
    """Return the estimated duration of the launches of ``job`` on an idle machine.

    The estimate assumes that each case reaches its least number of iterations within its time
    budget, and that rank 0 records the largest number. Between nodes each case has an extra pass
    that counts bytes.
    """
    measured_s = len(job.cases) * (job.effort.seconds + job.effort.rounds * ROUND_S)
    starts_s = 0.0
    recorded_s = 0.0
    counted_s = 0.0
    for shape in job.shapes:
        starts_s += start_seconds(shape)
        if probe_cases(job, shape):
            starts_s += start_seconds(shape)
    shapes = {(case.nodes, case.ranks): job.shape(case) for case in job.cases}
    for case in job.cases:
        shape = shapes[case.nodes, case.ranks]
        recorded_s += shape.processes * job.effort.max_iterations * SAMPLE_S
        if shape.nodes > 1:
            counted_s += PASS_S + SETTLE_S
    return starts_s + measured_s + recorded_s + counted_s


def start_seconds(shape: Shape) -> float:
    """Return the estimated seconds to start the ranks of a launch."""
    return LAUNCH_S + NODE_S * (shape.nodes - 1) + RANK_S * (shape.processes - 1)


def _check_count(sweep: Sweep) -> None:
    """Check that a sweep is small enough to be planned, before its lists are multiplied out."""
    shapes = sweep.shapes()
    variants = max(1, len(sweep.variants))
    request = sweep.request()
    counts = {shape: variants * count_cases(request, shape.ranks) for shape in shapes}
    if sweep.nested:
        jobs_of_variant = len(sweep.ranks_of_nodes)
    else:
        jobs_of_variant = len(shapes)
    cases_times_ranks = sum(count * shape.processes for shape, count in counts.items())
    totals = {
        "cases": (sum(counts.values()), MAX_CASES),
        "jobs": (variants * jobs_of_variant, MAX_JOBS),
        "cases times ranks": (cases_times_ranks, MAX_RANK_CASES),
    }
    for noun, (number, most) in totals.items():
        if number > most:
            raise UnusableError("lists", f"{number} {noun}; a sweep has at most {most}")


def _execution_site(
    config: Path, sweep: Sweep, profile: str | None, site: str | None
) -> ExecutionSite:
    if profile not in (None, *PROFILES):
        raise BadInputError("--profile", profile, PROFILES)
    if profile == "local" and site is not None:
        raise BadInputError("--site", site, f"left out, or with another profile: {LOCAL_ONLY}")
    if profile == "local" and sweep.nodes is not None:
        clusters = " or ".join(PROFILES[1:])
        raise UnusableError(
            f"{config}: nodes",
            f"{LOCAL_ONLY}; valid: --profile {clusters}, or the key 'ranks' instead",
        )
    if profile == "testbed" and testbed_facts() is None:
        raise UnusableError(
            "--profile testbed",
            "this machine is not a host of a testbed; do: slurm/testbed/testbed up, and then "
            "slurm/testbed/testbed run hpccoll ... (of a testbed with a name: run --name NAME hpccoll ...); "
            "to plan only, leave --profile out",
        )
    if profile is None and (sweep.nodes is not None or site is not None):
        return ExecutionSite.offline(load_site(site, "slurm"), sweep)
    if profile is None or profile == "local":
        return ExecutionSite.local()
    loaded = load_site(site, profile)
    if loaded.kubernetes:
        raise UnusableError(
            "--site",
            f"{site} has the key kubernetes; do: hpccoll plan --format mpijob, without --profile",
        )
    with naming_site_file(site):
        execution_site = ExecutionSite.cluster(loaded, sweep)
    if profile == "slurm" and not query.has_accounting():
        raise UnusableError(
            "--profile slurm",
            "sacct does not answer here, and Snakemake would not see the end of jobs; do: use "
            "--profile slurm-nodbd",
        )
    return execution_site


def _nothing_to_measure(
    config: Path, sweep: Sweep, execution_site: ExecutionSite, skips: Sequence[Skip]
) -> BadInputError:
    """Return the error of a plan without cases; it names ``nodes`` or ``ranks`` if no shape is available."""
    reasons = Counter(skip.reason for skip in skips)
    ((reason, _),) = reasons.most_common(1)
    further = len(reasons) - 1
    if further:
        why = f"{reason} (and {format_count(further, 'more reason')})"
    else:
        why = reason
    if all(execution_site.why_unavailable(shape) for shape in sweep.shapes()):
        key, values = ("nodes", sweep.nodes) if sweep.nodes else ("ranks", sweep.ranks)
        return BadInputError(
            f"{config}: {key}", values, f"at least one that can be measured: {why}"
        )
    return UnusableError(str(config), f"none of its {len(skips)} cases can be measured: {why}")


def _started_jobs(out: Path) -> list[Job]:
    if not (out / PLAN_FILE).is_file() or not any((out / "raw").glob("*")):
        return []  # a plan is large: it is read only if something was measured
    return [job for job in Plan.load(out / PLAN_FILE).jobs if _is_started(job, out)]


def _is_started(job: Job, out: Path) -> bool:
    raw = _raw_file(job, out)
    return raw.exists() or journal_path(raw).exists()


def _raw_file(job: Job, out: Path) -> Path:
    return out / "raw" / f"{job.name}.h5"


def _check_none_lost(jobs: Sequence[Job], started: Sequence[Job], out: Path) -> None:
    for job in started:
        raw_file = _raw_file(job, out)
        if job not in jobs and has_results(raw_file) and read_raw(raw_file).measurements:
            nodes = "nodes, " if job.nodes > 1 else ""
            raise _changed_plan(
                "--out", job, f"its {nodes}ranks or variant are no longer in the sweep file"
            )


def _plan_jobs(
    sweep: Sweep, execution_site: ExecutionSite, started: Sequence[Job]
) -> tuple[list[Job], list[Skip]]:
    """Return the jobs that have cases to measure, including those of ``started``, and the skipped cases."""
    jobs: list[Job] = []
    skips: list[Skip] = []
    for shapes, variant in product(_allocations(sweep), sweep.variants or (None,)):
        allocation = _Allocation(sweep, execution_site, variant)
        left = list(shapes)
        for job in started:
            if job.variant == variant and set(job.shapes) <= set(left):
                again, job_skips = allocation.job(job.shapes)
                if again != job:
                    raise _changed_plan(
                        "--out",
                        job,
                        _differences(job, again) if again.cases else job_skips[0].reason,
                    )
                jobs.append(job)
                skips += job_skips
                left = [shape for shape in left if shape not in job.shapes]
        if not left:
            continue
        reasons = {}
        for shape in left:
            why = execution_site.why_unavailable(shape)
            if why:
                reasons[shape] = why
        job, job_skips = allocation.job([shape for shape in left if shape not in reasons], left)
        skips += job_skips
        for shape, reason in reasons.items():
            skips += [
                Skip(case=case.id, job=job.name, reason=reason) for case in allocation.cases(shape)
            ]
        if job.cases:
            execution_site.check_memory(job)
            jobs.append(job)
    return jobs, skips


@dataclass(frozen=True, slots=True)
class _Allocation:
    """The launches that share one allocation and one environment."""

    sweep: Sweep
    site: ExecutionSite
    variant: str | None

    @property
    def environment(self) -> Mapping[str, str]:
        if not self.variant:
            return {}
        return self.sweep.environments[self.variant]

    @property
    def communicator(self) -> Mapping[str, Parameter]:
        if not self.variant:
            return {}
        return self.sweep.communicators[self.variant]

    def cases(self, shape: Shape) -> Iterator[Case]:
        for case in expand_cases(self.sweep.request(), shape.ranks):
            yield replace(case, ranks=shape.ranks, nodes=shape.nodes) if self.sweep.nested else case

    def job(
        self, shapes: Sequence[Shape], requested: Sequence[Shape] = ()
    ) -> tuple[Job, list[Skip]]:
        """Return the job of ``shapes`` and the cases that it skips.

        The job is as large as its largest launch with a case, and is named after it; without any
        case, after the largest of ``requested``.
        """
        named = self.sweep.request().named_beside_all
        kept: dict[Shape, list[Case]] = {}
        skipped: list[tuple[Case, str]] = []
        for shape in shapes:
            layout = Layout.of(shape.ranks, shape.ranks_per_node, shape.aggregators)
            facts = self._facts(shape)
            plans = MeasuredPlans(layout, shape, named)
            for case in self.cases(shape):
                reason = skip_reason(case, layout, facts) or self._missing(case, shape)
                if reason := reason or (plans.skip_reason(case) if facts.racks_known else None):
                    skipped.append((case, reason))
                else:
                    kept.setdefault(shape, []).append(case)
        largest = max(kept or shapes or requested)
        if self.sweep.nodes is None:
            size = f"p{largest.ranks}"
        else:
            size = f"n{replace(largest, aggregators=0)}"
        name = ".".join(filter(None, ("-".join(self.sweep.transports), size, self.variant)))
        cases = tuple(chain(*kept.values()))
        files = file_paths(cases)
        tables = tables_of_cases(cases)
        return Job(
            name=name,
            ranks=largest.ranks,
            nodes=largest.nodes,
            aggregators=largest.aggregators,
            dedicated_aggregators=largest.dedicated_aggregators,
            variant=self.variant,
            environment=self.environment,
            communicator=self.communicator,
            seed=self.sweep.seed,
            effort=self.sweep.case_effort(),
            table=self.sweep.table,
            executor=self.sweep.executor,
            models=self.sweep.request().models,
            plans=files,
            extensions=tables,
            named=named,
            cases=cases,
        ), [Skip(case=case.id, job=name, reason=reason) for case, reason in skipped]

    def _facts(self, shape: Shape) -> LaunchFacts:
        """Return what is known: between nodes only the job knows the racks, unless Slurm knows no switches."""
        variant = named_variants().get(self.variant or "")
        return LaunchFacts(
            shape=shape,
            variant=self.variant,
            sets={**self.environment, **self.communicator},
            nccl_nodes=planned_nodes(shape, self.site.site.nvlink_nodes),
            mpi=self.site.mpi if variant and variant.algorithms else None,
            racks_known=shape.nodes == 1 or self.site.has_no_topology,
        )

    def _missing(self, case: Case, shape: Shape) -> str | None:
        """Return why the site cannot run a case as its variant means it."""
        gpus = None
        if case.device == "cuda":
            gpus = self.site.why_too_few_gpus(shape, case.transport, self.environment)
        unread = None
        if not self.communicator:
            unread = self.site.why_unread(self.environment)
        return gpus or (f"{self.variant}: {unread}" if unread else None)


def _allocations(sweep: Sweep) -> Iterator[list[Shape]]:
    shapes = sweep.shapes()
    if not sweep.nested:
        yield from ([shape] for shape in shapes)
        return
    for ranks_per_node in sweep.ranks_of_nodes:
        yield [shape for shape in shapes if shape.ranks_per_node == ranks_per_node]


def check_output_directory(plan: Plan, out: Path) -> None:
    """Check that ``out`` holds no results of another plan, and no executable plan if this plan is offline.

    Raises:
        BadInputError: if it does; results of different plans are never mixed.
    """
    if plan.offline and (out / PLAN_FILE).is_file() and not Plan.load(out / PLAN_FILE).offline:
        raise BadInputError(
            "--out",
            str(out),
            "another directory, or a plan with --profile: it holds the plan of a sweep",
        )
    for job in plan.jobs:
        path = out / "jobs" / f"{job.name}.json"
        if _is_started(job, out) and path.exists() and (earlier := load_job(path)) != job:
            raise _changed_plan(f"--out {out}", job, _differences(earlier, job))


def _differences(earlier: Job, job: Job) -> str:
    return "; ".join(job_differences(earlier, job, "{name}: {old} before, {new} now"))


def _changed_plan(key: str, job: Job, changed: str) -> UnusableError:
    """Return the error that an output directory has results of a plan that has changed, for whatever reason."""
    return UnusableError(
        key,
        f"{job.name} was measured there before the plan changed ({changed}), and results are never mixed; "
        "do: choose another --out, or undo the change",
    )


def write_plan(plan: Plan, out: Path) -> None:
    """Write the job files and plan.json below ``out``, each atomically.

    Raises:
        BadInputError: if ``out`` cannot be written, or the plan is larger than readers accept.
    """
    texts = {out / "jobs" / f"{job.name}.json": job.to_json() for job in plan.jobs} | {
        out / PLAN_FILE: plan.to_json()
    }
    if (size := max(map(len, texts.values()))) > JOB_BYTES:
        limit = f"a plan has at most {format_size(JOB_BYTES)}"
        raise UnusableError(
            "sweep", f"its plan has {format_size(size)}; {limit}: reduce the number of cases"
        )
    for path, text in texts.items():
        with writing(out):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_unfinished(path)
            with replacing_file(path) as unfinished:
                unfinished.write_text(text)
