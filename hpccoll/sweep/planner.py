"""The plan: the jobs and cases that a sweep comes to, frozen before anything runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

from hpccoll.errors import BadInputError, UnusableError, no_file
from hpccoll.host.machine import testbed_facts
from hpccoll.limits import JOB_BYTES, MAX_CASES, MAX_JOBS, MAX_RANK_CASES
from hpccoll.schedule import Layout
from hpccoll.spec.case import Case, Job, Parameter, Shape
from hpccoll.spec.catalogue import redundant_mapping, unmet_needs
from hpccoll.spec.plan import Plan, Skip
from hpccoll.spec.variant_skips import variant_skip_reason
from hpccoll.store.durable_files import remove_unfinished, replacing_file
from hpccoll.store.journal import journal_path
from hpccoll.store.result_files import PLAN
from hpccoll.sweep.case_product import cases, count
from hpccoll.sweep.estimate import SLURM_S, seconds
from hpccoll.sweep.execution_site import Place, named
from hpccoll.sweep.site_file import load_site
from hpccoll.sweep.sweep_file import Sweep, load_sweep
from hpccoll.units import format_size

PROFILES = ("local", "slurm", "slurm-nodbd", "testbed")
HERE = "profile local is this machine alone"


def make_plan(config: Path, profile: str | None = "local", site: str | None = None, out: Path | None = None) -> Plan:
    """Return what the sweep file ``config`` comes to under ``profile``.

    A job that has been begun stays as it was planned, whatever nodes a cluster can give today: only the rest is planned
    anew, and nothing is measured twice.

    Args:
        config: the sweep file.
        profile: the name of a directory of workflows/profiles. None: nobody has said; what is for a cluster, for it has
            nodes or a site, is planned on paper, for which nobody is asked what can be had.
        site: a site file or the name of one, for clusters.
        out: where results go, if jobs may have been begun there.

    Raises:
        BadInputError: where a file is not valid, names what there is not, or asks for more than there is; or where
            Slurm is not there, does not answer, or would refuse a job.
    """
    sweep = load_sweep(config)
    place = _place(config, sweep, profile, site)
    with named(site):
        notes = tuple(place.surroundings.notes(sweep.environments, sweep.communicators, sweep.transports))
    try:
        _check_count(sweep)
        kept = _begun(out) if out else []
        jobs, skips = _jobs(sweep, place, kept)
    except BadInputError as error:
        if error.key == "--out":
            raise BadInputError(error.key, str(out), error.expected) from None
        of_file = f"{error.key}s" if f"{error.key}s" in Sweep.model_fields else error.key
        raise error.at(f"{config}: {of_file}") from None
    if not jobs:
        raise _nothing_left(config, sweep, place, skips)
    requests = {job.name: place.request(job, seconds(job)) for job in jobs}
    for job in jobs:
        if job not in kept:
            place.check_request(requests[job.name])
    return Plan(
        name=config.stem,
        profile=profile or ("slurm" if place.offline else "local"),
        jobs=tuple(jobs),
        skips=tuple(skips),
        launcher=place.launcher,
        resources=requests,
        estimated_s=sum(seconds(job) + (SLURM_S if place.launcher.slurm else 0.0) for job in jobs),
        offline=place.offline,
        notes=(*sweep.notes(), *notes, *place.notes(jobs)),
    )


def _check_count(sweep: Sweep) -> None:
    """See that a sweep is not more than can be planned, before it is expanded.

    Raises:
        BadInputError: if its lists name too many cases, jobs, or cases for so many ranks.
    """
    shapes, variants = sweep.shapes(), max(1, len(sweep.variants))
    counts = {shape: variants * count(sweep, shape.ranks) for shape in shapes}
    named = {
        "cases": (sum(counts.values()), MAX_CASES),
        "jobs": (variants * (len(sweep.ranks_per_node) if sweep.nested else len(shapes)), MAX_JOBS),
        "cases times ranks": (sum(n * shape.processes for shape, n in counts.items()), MAX_RANK_CASES),
    }
    for what, (number, most) in named.items():
        if number > most:
            raise UnusableError("lists", f"they name {number} {what}: a sweep has at most {most}")


def _place(config: Path, sweep: Sweep, profile: str | None, site: str | None) -> Place:
    if profile not in (None, *PROFILES):
        raise BadInputError("--profile", profile, PROFILES)
    if profile == "local" and site is not None:
        raise BadInputError("--site", site, f"left out, or with another profile: {HERE}")
    if profile == "local" and sweep.nodes is not None:
        clusters = " or ".join(PROFILES[1:])
        raise UnusableError(f"{config}: nodes", f"they take --profile {clusters}, or 'ranks' in their place: {HERE}")
    if profile == "testbed" and testbed_facts() is None:
        raise UnusableError("--profile testbed", "this is no host of a testbed: slurm/testbed/testbed run hpccoll ...")
    if profile is None and (sweep.nodes is not None or site is not None):
        return Place.planned(load_site(site, "slurm"), sweep)
    if profile is None or profile == "local":
        return Place.local()
    of_file = load_site(site, profile)
    with named(site):
        return Place.cluster(of_file, sweep)


def _nothing_left(config: Path, sweep: Sweep, place: Place, skips: Sequence[Skip]) -> BadInputError:
    """Return the complaint that nothing can be measured, of the key that is to blame where one is."""
    reasons = Counter(skip.reason for skip in skips)
    ((reason, _),) = reasons.most_common(1)
    more = len(reasons) - 1
    told = f"{reason} (and {more} more reason{'s' * (more > 1)})" if more else reason
    if all(place.lack(shape) for shape in sweep.shapes()):
        key, asked = ("nodes", sweep.nodes) if sweep.nodes else ("ranks", sweep.ranks)
        return BadInputError(f"{config}: {key}", asked, f"something that can be measured: {told}")
    return UnusableError(str(config), f"none of its {len(skips)} cases can be measured: {told}")


def _begun(out: Path) -> list[Job]:
    """Return the jobs of the plan in ``out`` of which something is there."""
    if not (out / PLAN).is_file():
        return []
    planned = ((job, out / "raw" / f"{job.name}.h5") for job in Plan.load(out / PLAN).jobs)
    return [job for job, raw in planned if raw.exists() or journal_path(raw).exists()]


def _jobs(sweep: Sweep, place: Place, kept: Sequence[Job]) -> tuple[list[Job], list[Skip]]:
    """Return the jobs that have something to measure, those of ``kept`` among them, and the cases that no job can."""
    jobs: list[Job] = []
    skips: list[Skip] = []
    for shapes, variant in product(_allocations(sweep), sweep.variants or (None,)):
        allocation = _Allocation(sweep, place, variant)
        left = list(shapes)
        for job in kept:
            if allocation.made(job) and set(job.shapes) <= set(left):
                again, of_job = allocation.job(job.shapes)
                if again != job:
                    was = f"{job.name} was measured there for a sweep file that said something else"
                    raise BadInputError("--out", job.name, f"another directory: {was}, and results are never mixed")
                jobs.append(job)
                skips += of_job
                left = [shape for shape in left if shape not in job.shapes]
        possible = [shape for shape in left if not place.lack(shape)]
        if not left:
            continue
        job, of_job = allocation.job(possible, left)
        skips += of_job
        for shape in left:
            if reason := place.lack(shape):
                skips += [Skip(case=case.id, job=job.name, reason=reason) for case in allocation.cases(shape)]
        if job.cases:
            place.check(job)
            jobs.append(job)
    return jobs, skips


@dataclass(frozen=True, slots=True)
class _Allocation:
    """What shares an allocation and an environment."""

    sweep: Sweep
    place: Place
    variant: str | None

    @property
    def environment(self) -> Mapping[str, str]:
        return self.sweep.environments[self.variant] if self.variant else {}

    @property
    def communicator(self) -> Mapping[str, Parameter]:
        return self.sweep.variants[self.variant].communicator if self.variant else {}

    def made(self, job: Job) -> bool:
        """Return whether ``job`` is one of these."""
        return job.variant == self.variant

    def cases(self, shape: Shape) -> Iterator[Case]:
        for case in cases(self.sweep, shape.ranks):
            yield replace(case, ranks=shape.ranks, nodes=shape.nodes) if self.sweep.nested else case

    def job(self, shapes: Sequence[Shape], asked: Sequence[Shape] = ()) -> tuple[Job, list[Skip]]:
        """Return the job of ``shapes``, and the cases that it leaves out.

        It has room for the largest launch that is left, and is named by that; where none is, by the largest ``asked``.
        """
        kept: dict[Shape, list[Case]] = {}
        left_out: list[tuple[Case, str]] = []
        for shape in shapes:
            layout = Layout.of(shape.ranks, shape.ranks_per_node, shape.aggregators)
            for case in self.cases(shape):
                if reason := self._out_of_reach(case, shape, layout):
                    left_out.append((case, reason))
                else:
                    kept.setdefault(shape, []).append(case)
        largest = max(kept or shapes or asked)
        size = f"p{largest.ranks}" if self.sweep.nodes is None else f"n{replace(largest, aggregators=0)}"
        name = ".".join(filter(None, ("-".join(self.sweep.transports), size, self.variant)))
        return Job(
            name=name, ranks=largest.ranks, nodes=largest.nodes, aggregators=largest.aggregators,
            dedicated_aggregators=largest.dedicated_aggregators,
            variant=self.variant, environment=self.environment,
            communicator=self.communicator, seed=self.sweep.seed,
            effort=self.sweep.effort_of_a_case(), table=self.sweep.table, cases=tuple(chain(*kept.values())),
        ), [Skip(case=case.id, job=name, reason=reason) for case, reason in left_out]  # fmt: skip

    def _out_of_reach(self, case: Case, shape: Shape, layout: Layout) -> str | None:
        """Return why ``case`` is left out, or None where it is measured."""
        sets = {**self.environment, **self.communicator}
        lack = self.place.lack_of_gpus(shape, case.transport, self.environment) if case.device == "cuda" else None
        reason = lack or unmet_needs(case, layout) or variant_skip_reason(self.variant, sets, case, shape)
        if not reason and not self.communicator and (unread := self.place.surroundings.unread(self.environment)):
            reason = f"{self.variant}: {unread}"
        # Which nodes share a rack is known in the job, but where there are none.
        return reason or (redundant_mapping(case, layout) if shape.nodes == 1 or self.place.flat else None)


def _allocations(sweep: Sweep) -> Iterator[list[Shape]]:
    """Yield the shapes that share an allocation, those that cannot be had among them."""
    shapes = sweep.shapes()
    if not sweep.nested:
        yield from ([shape] for shape in shapes)
        return
    for each in sweep.ranks_per_node:
        yield [shape for shape in shapes if shape.ranks_per_node == each]


def check_out(plan: Plan, out: Path) -> None:
    """See that ``out`` holds no results of another plan, and no plan that is run where this one is for reading.

    Raises:
        BadInputError: where it does; nothing that was measured is mixed with anything else.
    """
    if plan.offline and (out / PLAN).is_file() and not Plan.load(out / PLAN).offline:
        raise BadInputError("--out", str(out), "another directory, or with --profile: the plan of a sweep is there")
    for job in plan.jobs:
        path = out / "jobs" / f"{job.name}.json"
        if path.exists() and Job.load(path) != job:
            was = f"{job.name} was measured there for a sweep file that said something else, or by an earlier version"
            raise BadInputError("--out", str(out), f"another directory: {was}, and results are never mixed")


def write_plan(plan: Plan, out: Path) -> None:
    """Write the job files and plan.json below ``out``, each at once: whole or not at all.

    Raises:
        BadInputError: where ``out`` cannot be written, or nobody could read a plan that is so large.
    """
    texts = {out / "jobs" / f"{job.name}.json": job.to_json() for job in plan.jobs} | {out / PLAN: plan.to_json()}
    if (size := max(map(len, texts.values()))) > JOB_BYTES:
        most = f"a plan has {format_size(JOB_BYTES)} at most"
        raise UnusableError("sweep", f"its plan has {format_size(size)}, and {most}: ask for fewer cases")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_unfinished(path)
            with replacing_file(path) as unfinished:
                unfinished.write_text(text)
        except OSError as error:
            raise no_file("--out", out, error, "written") from None
