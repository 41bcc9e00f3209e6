"""The plan: the jobs and cases that a sweep comes to, frozen before anything runs."""

import shlex
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from hpccoll.case import Case, Job, Plan, Skip
from hpccoll.errors import BadInputError
from hpccoll.measure.catalogue import check_case, check_memory, unmet
from hpccoll.measure.machine import available_memory
from hpccoll.schedule import Layout, collective
from hpccoll.store.results import PLAN
from hpccoll.sweep.config import Sweep, load_sweep
from hpccoll.sweep.locate import mpiexec

PROFILES = ("local",)
LAUNCH_S = 1.5
"""What starting a job costs, for the estimate."""


def make_plan(config: Path, profile: str = "local") -> Plan:
    """Return what the sweep file ``config`` comes to under ``profile``.

    Raises:
        BadInputError: where the file is not valid, names what there is not, or asks for more than this machine has.
    """
    if profile not in PROFILES:
        raise BadInputError("--profile", profile, PROFILES)
    sweep = load_sweep(config)
    launcher = mpiexec()
    try:
        jobs, skips = _jobs(sweep)
    except BadInputError as error:
        raise BadInputError(f"{config}: {error.key}", error.value, error.expected) from None
    return Plan(
        name=config.stem,
        profile=profile,
        jobs=tuple(jobs),
        skips=tuple(skips),
        launch={job.name: shlex.join([*launcher, "-n", str(job.ranks)]) for job in jobs},
        estimated_s=sum(LAUNCH_S + len(job.cases) * job.effort.seconds for job in jobs),
    )


def _jobs(sweep: Sweep) -> tuple[list[Job], list[Skip]]:
    """Return the jobs that have something to measure, and the cases that no job can."""
    jobs, skips = [], []
    for transport, ranks in product(sweep.transports, sweep.ranks):
        name = f"{transport}.p{ranks}"
        cases = []
        for case in _cases(sweep, transport):
            if reason := unmet(case, Layout.of(ranks)):
                skips.append(Skip(case=case.id, job=name, reason=reason))
            else:
                check_memory(case, ranks, available_memory())
                cases.append(case)
        if cases:
            jobs.append(Job(name=name, ranks=ranks, seed=sweep.seed, effort=sweep.effort.effort(), cases=tuple(cases)))
    return jobs, skips


def _cases(sweep: Sweep, transport: str) -> Iterator[Case]:
    """Yield the cases of one transport, each with words that are known."""
    for name, algorithm in product(sweep.collectives, sweep.algorithms):
        family = collective(name)
        ops = sweep.ops if family.reduces else [None]
        sizes = sweep.sizes()[:1] if family.token else sweep.sizes()  # a barrier's size is its own
        floor = algorithm in family.algorithms and family.algorithms[algorithm].floor
        placements = sweep.in_place[:1] if floor else sweep.in_place
        for dtype, op, size, in_place in product(sweep.dtypes, ops, sizes, placements):
            for params in _params(sweep, algorithm):
                case = Case(
                    collective=name, algorithm=algorithm, transport=transport, dtype=dtype, op=op, bytes=size,
                    in_place=in_place, params=params,
                )  # fmt: skip
                check_case(case)
                yield case


def _params(sweep: Sweep, algorithm: str) -> Iterator[dict[str, int | str]]:
    choices = sweep.params.get(algorithm, {})
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def check_out(plan: Plan, out: Path) -> None:
    """See that ``out`` holds no results of another plan.

    Raises:
        BadInputError: where it does; nothing that was measured is mixed with anything else.
    """
    for job in plan.jobs:
        path = out / "jobs" / f"{job.name}.json"
        if path.exists() and path.read_text() != job.to_json():
            was = f"{job.name} was measured there for a sweep file that said something else"
            raise BadInputError("--out", str(out), f"another directory: {was}, and results are never mixed")


def write_plan(plan: Plan, out: Path) -> None:
    """Write the job files and plan.json below ``out``, each at once: whole or not at all.

    Raises:
        BadInputError: where ``out`` cannot be written.
    """
    texts = {out / "jobs" / f"{job.name}.json": job.to_json() for job in plan.jobs} | {out / PLAN: plan.to_json()}
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.tmp")
            unfinished.write_text(text)
            unfinished.replace(path)
        except OSError as error:
            raise BadInputError("--out", str(out), f"a directory that can be written ({error.strerror})") from None
