"""A plan: the jobs that a sweep comes to, what was left out, and how ranks are started."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.files import parse_json, read_text
from hpccoll.limits import (
    JOB_BYTES,
    MAX_CASES,
    MAX_JOBS,
    MAX_NAMES,
    NAME,
    NUMBER,
    START_S,
    AnyOf,
    Boolean,
    PositiveNumber,
    PrintableText,
    ValueKind,
    check_fields,
    check_mapping,
)
from hpccoll.spec.case import Job, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A case that was left out on purpose when the sweep was planned, and why."""

    case: str
    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the ranks of a job are started.

    Args:
        command: the launcher and its options, with ``{nodes}``, ``{ranks}``, ``{ranks_per_node}``, ``{hosts}`` and
            ``{order}`` where a launch puts its shape, its hosts, and how ranks are dealt out to them.
        program: what each rank executes, inside a container where there is one.
        setup: lines of shell that come first, such as ``module load openmpi``.
        slurm: whether it runs inside a Slurm job.
        patience_s: seconds that two ranks have to find each other; those of an MPI that speaks another PMI may never.
        slurm_conf: where Slurm's configuration is, if its commands have to be told; Snakemake keeps it from jobs.
        aggregator: the feature by which Slurm knows the hosts of aggregators, where there are some.
        within: how srun deals the ranks of a node out to its sockets, such as ``:block``; empty for Slurm's own way.
        network: by what nodes should talk, ``rdma`` or ``tcp``; None where nobody has said.
    """

    command: str
    program: str = "hpccoll"
    setup: tuple[str, ...] = ()
    slurm: bool = False
    patience_s: float = 60.0
    slurm_conf: str | None = None
    aggregator: str | None = None
    within: str = ""
    network: str | None = None

    @property
    def all_s(self) -> float:
        """Seconds that all ranks have to find each other: many load their programs from one file system."""
        return 5 * self.patience_s

    def line(self, shape: Shape, hosts: Sequence[str] = ()) -> str:
        """Return the command line that starts ``shape``, up to the arguments of the program.

        Slurm sorts the hosts of a step by name, wherever aggregators come in that. Where those are apart, the ranks
        go to the hosts in the order given, and each host is named as often as it has ranks.
        """
        each = shape.ranks_per_node
        block = f"--ntasks-per-node={each} --distribution=block{self.within}"
        order = "--distribution=arbitrary" if shape.apart else block
        if shape.apart:
            hosts = [*(host for host in hosts[: shape.nodes] for _ in range(each)), *hosts[shape.nodes :]]
        numbers = {"nodes": shape.hosts, "ranks": shape.processes, "ranks_per_node": each}
        return f"{self.command.format(**numbers, hosts=','.join(hosts) or '...', order=order)} {self.program}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sweep comes to: jobs to run one after the other, and cases left out."""

    name: str
    profile: str
    jobs: tuple[Job, ...]
    skips: tuple[Skip, ...]
    launcher: Launcher
    resources: Mapping[str, Mapping[str, int | str]]  # of each job, by the names of Snakemake and its Slurm plugin
    estimated_s: float  # about, once the machine is free
    on_paper: bool = False  # whether nobody was asked what can be had: it is for reading, and not for running
    notes: tuple[str, ...] = ()  # sentences on what is worth knowing before anything runs

    def job(self, name: str) -> Job:
        """Return the job of that name.

        Raises:
            BadInputError: where there is none.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise BadInputError("job", name, [job.name for job in self.jobs])

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read plan.json.

        Raises:
            BadInputError: where it is no plan.
        """
        text = read_text(path, "plan", JOB_BYTES)
        try:
            read = parse_json(text)
            read.pop("evidence", None)  # follows from the jobs: 'hpccoll plan --json' says it
            jobs = tuple(Job.from_json(json.dumps(job)) for job in read.pop("jobs"))
            skips = tuple(Skip(**skip) for skip in read.pop("skips"))
            launcher = read.pop("launcher")
            launcher["setup"] = tuple(launcher["setup"])
            notes = tuple(read.pop("notes", ()))
            plan = cls(**read, jobs=jobs, skips=skips, launcher=Launcher(**launcher), notes=notes)
            plan.check()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInputError("plan", str(path), f"a plan as 'hpccoll plan' writes it ({error})") from None
        return plan

    def check(self) -> None:
        """See that every value is of its kind and within bounds, as it is in what 'hpccoll plan' writes.

        Raises:
            BadInputError: names the first that is not.
        """
        check_fields("", self, _OF_A_PLAN)
        check_fields("launcher.", self.launcher, _OF_A_LAUNCHER)
        for key, texts in (("launcher.setup", self.launcher.setup), ("notes", self.notes)):
            for text in texts:
                PrintableText(1 << 16).check(key, text)
        if len(self.jobs) > MAX_JOBS or len({job.name for job in self.jobs}) < len(self.jobs):
            raise BadInputError("jobs", len(self.jobs), f"at most {MAX_JOBS}, each with a name of its own")
        if len(self.skips) > MAX_CASES:
            raise BadInputError("skips", len(self.skips), f"at most {MAX_CASES}")
        for job in self.jobs:
            job.check()
        for skip in self.skips:
            check_fields("skips.", skip, dict.fromkeys(("case", "job", "reason"), PrintableText()))
        for name, asked in self.resources.items():
            check_mapping(f"resources.{name}", asked, MAX_NAMES, NAME, AnyOf((NUMBER, PrintableText(1 << 16))))


_OF_A_PLAN: Mapping[str, ValueKind] = {
    "name": NAME,
    "profile": NAME,
    "estimated_s": PositiveNumber(1e12),
    "on_paper": Boolean(),
}
_OF_A_LAUNCHER: Mapping[str, ValueKind] = {
    "command": PrintableText(1 << 16),
    "program": PrintableText(1 << 16),
    "slurm": Boolean(),
    "patience_s": PositiveNumber(float(START_S.most)),
    **dict.fromkeys(("slurm_conf", "aggregator", "network"), AnyOf((PrintableText(), None))),
    "within": PrintableText(),
}
"""The kinds of the values of a plan and its launcher; of what is no single value, ``Plan.check`` says more."""
