"""A plan: the jobs of a sweep, the cases that it leaves out, and how its ranks are started."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpccoll.cases.case import Job, Shape
from hpccoll.common.errors import BadInputError
from hpccoll.common.files import parse_json, read_text
from hpccoll.common.limits import (
    JOB_BYTES,
    MAX_CASES,
    MAX_JOBS,
    MAX_NAMES,
    NAME,
    NUMBER,
    START_S,
    AnyOf,
    Boolean,
    OneOfWords,
    PositiveNumber,
    PrintableText,
    ValueKind,
    check_fields,
    check_mapping,
)

PROFILES = ("local", "slurm", "slurm-nodbd", "testbed")
"""The execution profiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A case that was left out on purpose when the sweep was planned, with the reason."""

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
        start_timeout_s: seconds in which two ranks must find each other. If the launcher and the MPI library speak
            different PMI versions, they never do.
        slurm_conf: the path of Slurm's configuration if its commands need one; Snakemake hides the variable from jobs.
        aggregator: the Slurm feature of the hosts of aggregators; None if there are none.
        socket_distribution: how srun distributes the ranks of a node over its sockets, such as ``:block``; empty for
            Slurm's default.
        network: the network between nodes that the site expects, ``rdma`` or ``tcp``; None if it does not say.
    """

    command: str
    program: str = "hpccoll"
    setup: tuple[str, ...] = ()
    slurm: bool = False
    start_timeout_s: float = 60.0
    slurm_conf: str | None = None
    aggregator: str | None = None
    socket_distribution: str = ""
    network: str | None = None

    @property
    def launch_timeout_s(self) -> float:
        """Seconds in which all ranks must find each other: many ranks load their programs from one file system."""
        return 5 * self.start_timeout_s

    def line(self, shape: Shape, hosts: Sequence[str] = ()) -> str:
        """Return the command line that starts ``shape``, up to the arguments of the program.

        Slurm sorts the hosts of a step by name, which may put aggregators anywhere. If they have dedicated hosts, ranks
        are therefore placed on the hosts in the order given, and each host is named as often as it has ranks.
        """
        each = shape.ranks_per_node
        block = f"--ntasks-per-node={each} --distribution=block{self.socket_distribution}"
        order = "--distribution=arbitrary" if shape.dedicated_aggregators else block
        if shape.dedicated_aggregators:
            hosts = [*(host for host in hosts[: shape.nodes] for _ in range(each)), *hosts[shape.nodes :]]
        numbers = {"nodes": shape.hosts, "ranks": shape.processes, "ranks_per_node": each}
        return f"{self.command.format(**numbers, hosts=','.join(hosts) or '...', order=order)} {self.program}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The jobs of a sweep, to run one after the other, and the cases that it leaves out."""

    name: str
    profile: str
    jobs: tuple[Job, ...]
    skips: tuple[Skip, ...]
    launcher: Launcher
    resources: Mapping[str, Mapping[str, int | str]]  # of each job, by the names of Snakemake and its Slurm plugin
    estimated_s: float  # an estimate, without waiting time in the queue
    offline: bool = False  # whether it was made without asking a scheduler: such a plan can be read, but not run
    notes: tuple[str, ...] = ()  # sentences to read before anything runs

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
        fields = {_JSON_NAMES.get(name, name): value for name, value in asdict(replace(self, jobs=())).items()}
        fields["launcher"] = {_JSON_NAMES.get(name, name): value for name, value in fields["launcher"].items()}
        fields["jobs"] = [json.loads(job.to_json()) for job in self.jobs]
        return json.dumps(fields, indent=1, sort_keys=True)

    @classmethod
    def load(cls, path: Path) -> "Plan":
        """Read plan.json.

        Raises:
            BadInputError: where it is no plan.
        """
        text = read_text(path, "plan", JOB_BYTES)
        try:
            stored = {_FIELD_NAMES.get(name, name): value for name, value in parse_json(text).items()}
            stored.pop("evidence", None)  # follows from the jobs: 'hpccoll plan --json' prints it
            jobs = tuple(Job.from_json(json.dumps(job)) for job in stored.pop("jobs"))
            skips = tuple(Skip(**skip) for skip in stored.pop("skips"))
            launcher = {_FIELD_NAMES.get(name, name): value for name, value in stored.pop("launcher").items()}
            launcher["setup"] = tuple(launcher["setup"])
            notes = tuple(stored.pop("notes", ()))
            plan = cls(**stored, jobs=jobs, skips=skips, launcher=Launcher(**launcher), notes=notes)
            plan.check()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInputError("plan", str(path), f"a plan as 'hpccoll plan' writes it ({error})") from None
        return plan

    def check(self) -> None:
        """Check that every value is of its kind and within its bounds.

        Raises:
            BadInputError: names the first value that is not.
        """
        check_fields("", self, _PLAN_KINDS)
        check_fields("launcher.", self.launcher, _LAUNCHER_KINDS)
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
        for name, requested in self.resources.items():
            check_mapping(f"resources.{name}", requested, MAX_NAMES, NAME, AnyOf((NUMBER, PrintableText(1 << 16))))


_JSON_NAMES = {"start_timeout_s": "patience_s", "socket_distribution": "within", "offline": "on_paper"}
"""Fields whose keys in plan.json are older than their names."""
_FIELD_NAMES = {key: name for name, key in _JSON_NAMES.items()}

_PLAN_KINDS: Mapping[str, ValueKind] = {
    "name": NAME,
    "profile": OneOfWords(PROFILES),
    "estimated_s": PositiveNumber(1e12),
    "offline": Boolean(),
}
_LAUNCHER_KINDS: Mapping[str, ValueKind] = {
    "command": PrintableText(1 << 16),
    "program": PrintableText(1 << 16),
    "slurm": Boolean(),
    "start_timeout_s": PositiveNumber(float(START_S.maximum)),
    **dict.fromkeys(("slurm_conf", "aggregator", "network"), AnyOf((PrintableText(), None))),
    "socket_distribution": PrintableText(),
}
"""The kinds of the values of a plan and its launcher; ``Plan.check`` also checks those with several values."""
