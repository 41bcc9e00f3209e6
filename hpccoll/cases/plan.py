"""A plan: the jobs of a sweep, the cases that it leaves out, and how its ranks are started."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.catalogue import check_job
from hpccoll.common import limits
from hpccoll.common.errors import BadInputError
from hpccoll.common.records import json_text, load_record

PROFILES = ("local", "slurm", "slurm-nodbd", "testbed")
"""The execution profiles."""

DIAGNOSIS_S, DIAGNOSIS_OF_A_NODE_S = 60.0, 0.4
"""Estimated seconds of a diagnosis, and those for each node if single links are asked for: of a long slot."""

CPUS_ON_NODE = "SLURM_CPUS_ON_NODE"
"""The variable of a Slurm job that holds the number of its CPUs on the node; ``sweep.launch`` sets it again."""

PLAN_FILE = "plan.json"
"""The file of the plan below the directory of a sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A case that was left out on purpose when the sweep was planned, with the reason."""

    case: limits.Line
    job: limits.Line
    reason: limits.Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the ranks of a job are started."""

    # the launcher and its options, with ``{nodes}``, ``{ranks}``, ``{ranks_per_node}``, ``{hosts}``
    # and ``{order}`` where a launch puts its shape, its hosts, and how ranks are dealt out to them
    command: limits.LongLine
    # what each rank executes, inside a container where there is one
    program: limits.LongLine = "hpccoll"
    # lines of shell that come first, such as ``module load openmpi``
    setup: tuple[limits.LongLine, ...] = ()
    slurm: bool = False  # whether it runs inside a Slurm job
    # seconds in which two ranks must find each other. If the launcher and the MPI library speak
    # different PMI versions, they never do
    start_timeout_s: Annotated[float, limits.PositiveNumber(limits.START_S.maximum).meta] = 60.0
    # the path of Slurm's configuration if its commands need one; Snakemake hides the variable from
    # jobs
    slurm_conf: limits.Line | None = None
    # the Slurm feature of the hosts of aggregators; None if there are none
    aggregator: limits.Line | None = None
    # how srun distributes the ranks of a node over its sockets, such as ``:block``; empty for
    # Slurm's default
    socket_distribution: limits.Line = ""
    # the network between nodes that the site expects, ``rdma`` or ``tcp``; None if it does not say
    network: limits.Line | None = None

    @property
    def launch_timeout_s(self) -> float:
        """Seconds in which all ranks must find each other: many ranks load their programs from one file system."""
        return 5 * self.start_timeout_s

    def line(self, shape: Shape, hosts: Sequence[str] = ()) -> str:
        """Return the command line that starts ``shape``, up to the arguments of the program.

        Slurm sorts the hosts of a step by name, which may put aggregators anywhere. If they have
        dedicated hosts, ranks are therefore placed on the hosts in the order given, and each host
        is named as often as it has ranks.
        """
        ranks_per_node = shape.ranks_per_node
        block = f"--ntasks-per-node={ranks_per_node} --distribution=block{self.socket_distribution}"
        order = "--distribution=arbitrary" if shape.dedicated_aggregators else block
        if shape.dedicated_aggregators:
            hosts = [
                *(host for host in hosts[: shape.nodes] for _ in range(ranks_per_node)),
                *hosts[shape.nodes :],
            ]
        numbers = {"nodes": shape.hosts, "ranks": shape.processes, "ranks_per_node": ranks_per_node}
        return f"{self.command.format(**numbers, hosts=','.join(hosts) or '...', order=order)} {self.program}"


Resources = Annotated[
    Mapping[limits.Name, Annotated[int, limits.NUMBER.meta] | limits.LongLine],
    Meta(max_length=limits.MAX_NAMES),
]

UNSET_VALUES = (None, 0, -1)
"""Values for which an option of sbatch is left out."""

SBATCH_OPTIONS = {
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "gres": "--gres",
    "runtime": "--time",
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "mem_mb": "--mem",
    "cpus_per_task": "--cpus-per-task",
}
"""The options of sbatch by the resource names of Snakemake's Slurm plugin."""


def sbatch_options(resources: Mapping[str, int | str]) -> list[str]:
    """Return the options of sbatch that request ``resources``."""
    arguments = [
        f"{option}={resources[name]}"
        for name, option in SBATCH_OPTIONS.items()
        if resources.get(name) not in UNSET_VALUES
    ]
    return [*arguments, *shlex.split(str(resources["slurm_extra"]))]


def diagnosis_seconds(job: Job, options: Sequence[str] | None) -> float:
    """Return the estimated seconds of the diagnosis that precedes a job; 0 if none is asked, or there is one node."""
    if options is None or job.nodes == 1:
        return 0.0
    return DIAGNOSIS_S + DIAGNOSIS_OF_A_NODE_S * job.nodes * ("--links" in options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The jobs of a sweep, to run one after the other, and the cases that it leaves out."""

    schema: Literal["hpccoll-plan 2.0"] = "hpccoll-plan 2.0"
    name: limits.Name
    profile: limits.Name
    jobs: Annotated[tuple[Job, ...], Meta(max_length=limits.MAX_JOBS)]
    skips: Annotated[tuple[Skip, ...], Meta(max_length=limits.MAX_CASES)]
    launcher: Launcher
    # of each job, by the names of Snakemake and its Slurm plugin
    resources: Mapping[str, Resources]
    # an estimate, without waiting time in the queue
    estimated_s: Annotated[float, limits.PositiveNumber(1e12).meta]
    # whether it was made without asking a scheduler: such a plan can be read, but not run
    offline: bool = False
    notes: tuple[limits.LongLine, ...] = ()  # sentences to read before anything runs
    # the options of the diagnosis that precedes the launches of every job on several nodes; None
    # without a diagnosis
    diagnose: tuple[limits.LongLine, ...] | None = None

    def to_json(self) -> str:
        return json_text(self)

    @classmethod
    def load(cls, path: Path, only: str | None = None) -> "Plan":
        """Read plan.json.

        Args:
            path: the file.
            only: the name of the one job to read, without the skipped cases: a launch needs no
                other one.

        Raises:
            BadInputError: if it is not a plan, or has no such job.
        """
        meaning = "a plan as 'hpccoll plan' writes it"
        select = dict if only is None else partial(_with_one_job, only)
        # 'hpccoll plan --json' has the evidence as well
        plan = load_record(
            path, "plan", limits.JOB_BYTES, cls, meaning, ignored=("evidence",), select=select
        )
        try:
            plan.check()
        except BadInputError as error:
            raise BadInputError("plan", str(path), f"{meaning} ({error})") from None
        return plan

    def check(self) -> None:
        """Check what no type of a field says.

        Raises:
            BadInputError: names the first wrong value.
        """
        if self.profile not in PROFILES:
            raise BadInputError("profile", self.profile, PROFILES)
        if len({job.name for job in self.jobs}) < len(self.jobs):
            raise BadInputError("jobs", len(self.jobs), "jobs with different names")
        for job in self.jobs:
            check_job(job)


def _with_one_job(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a plan with one job of it, and no skipped cases; all values if they are not those of a plan.

    Raises:
        BadInputError: if the plan has no such job.
    """
    jobs = values.get("jobs")
    if not isinstance(jobs, list):
        return values
    names = list[str]()
    for job in jobs:
        if not isinstance(job, dict):
            return values
        if job.get("name") == name:
            return {**values, "jobs": [job], "skips": []}
        names.append(str(job.get("name")))
    raise BadInputError("job", name, names)
