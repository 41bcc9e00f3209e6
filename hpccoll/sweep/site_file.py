"""The site file: how jobs run on a cluster. The sweep file defines what to measure.

Site files that come with hpccoll are in slurm/sites; ``--site testbed`` selects one of them,
``--site my.yaml`` a file.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from string import Formatter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import CPUS_ON_NODE, Launcher
from hpccoll.cases.variables import assignment, check_variables
from hpccoll.common.errors import BadInputError, did_you_mean
from hpccoll.common.limits import (
    CPUS,
    GPUS,
    MAX_LIST_ENTRIES,
    MEMORY_MB,
    MINUTES,
    NVLINK_NODES,
    SIGNAL_S,
    START_S,
)
from hpccoll.common.own_variables import START_TIMEOUT_VARIABLE
from hpccoll.common.yaml_model import (
    Bounded,
    OneOrMore,
    Text,
    Variables,
    VariableValue,
    Word,
    YamlSection,
    load_yaml,
)
from hpccoll.sweep.kubernetes.section import KubernetesSection
from hpccoll.sweep.paths import site_files

GEOMETRY = "-N {nodes} -n {ranks} {order} --nodelist={hosts} --kill-on-bad-exit=1"
"""Options of every srun: Snakemake's job step removes Slurm's variables; without them srun starts a rank per node."""

FILL_SOCKETS = ":block"
"""On nodes of GPUs, ranks fill one socket after the other, as the numbers of GPUs do; srun's
default is round robin, with which half of the ranks are not on the socket of their GPU (man srun,
--distribution)."""

CPU_OPTION = re.compile(r"\s(--cpus-per-|-c)")
"""An option of srun for the CPUs of a rank. Of several such options the last one would win."""

CONTAINER_START_S = 900
"""Seconds in which two ranks in containers must find each other: their image may have to be loaded first."""

_SWEEP_FILE_KEYS = "nodes and ranks_per_node of the sweep file"
_JOB_SEARCH = "nothing: hpccoll finds its jobs by it"
_LOGS = "nothing: logs are kept"
_SUBMIT_DIRECTORY = "nothing: jobs run in the directory and cluster of the submission"
_ONCE = "nothing: a job runs once, and at once"

RESERVED_OPTIONS = {
    "--account": "account",
    "--partition": "partition",
    "--qos": "qos",
    "--constraint": "constraint",
    "--time": "minutes",
    "--mem": "memory_mb",
    "--mem-per-cpu": "memory_mb",
    "--mem-per-gpu": "memory_mb",
    "--cpus-per-task": "cpus_per_task",
    "--cpus-per-gpu": "cpus_per_task",
    "--signal": "signal_s",
    "--exclusive": "exclusive",
    "--export": "environment",
    "--gres": "gres",
    "--gpus": "gpus_per_node",
    "--gpus-per-node": "gpus_per_node",
    "--ntasks-per-gpu": "gpus_per_node",
    "--nodes": _SWEEP_FILE_KEYS,
    "--ntasks": _SWEEP_FILE_KEYS,
    "--ntasks-per-node": _SWEEP_FILE_KEYS,
    "--job-name": _JOB_SEARCH,
    "--comment": _JOB_SEARCH,
    "--parsable": _JOB_SEARCH,
    "--output": _LOGS,
    "--error": _LOGS,
    "--chdir": _SUBMIT_DIRECTORY,
    "--workdir": _SUBMIT_DIRECTORY,
    "--clusters": _SUBMIT_DIRECTORY,
    "--array": _ONCE,
    "--requeue": _ONCE,
    "--no-requeue": _ONCE,
    "--hold": _ONCE,
    "--test-only": _ONCE,
    "--wait": _ONCE,
    "--wrap": _ONCE,
    "--dependency": _ONCE,
    "--begin": _ONCE,
}
"""Options of sbatch that must not be given, and the key to use instead."""

SLURM_KEYS = (
    "partition",
    "account",
    "qos",
    "constraint",
    "exclusive",
    "memory_mb",
    "cpus_per_task",
    "gres",
    "sbatch",
    "signal_s",
    "launcher",
    "modules",
    "container",
    "aggregators",
)
"""Keys of a site file that say nothing about jobs in Kubernetes."""


class ContainerSection(YamlSection):
    """A container image with hpccoll in which ranks run; Snakemake and srun run outside."""

    runtime: Literal["pyxis", "apptainer"] = Field(
        description="pyxis (srun --container-image) or apptainer"
    )
    image: Text = Field(description="image file or reference, as the runtime accepts it")
    mounts: list[Text] = Field(
        [],
        max_length=MAX_LIST_ENTRIES,
        description="mounts SOURCE:TARGET, including the directory of the results",
    )


def _check_gpus(text: str) -> str:
    match = re.fullmatch(r"(?:[a-zA-Z][a-zA-Z0-9_.-]*:)?([1-9][0-9]{0,3})", text)
    if not match or int(match[1]) > GPUS.maximum:
        raise BadInputError(
            "gpus_per_node", text, f"GPUs on each node, such as 8 or h100:8, at most {GPUS.maximum}"
        )
    return text


def _check_gres(text: str) -> str:
    # what Snakemake's plugin passes on
    match = re.fullmatch(r"gpu:(?:[a-zA-Z0-9_.]+:)?([1-9][0-9]{0,3})", text)
    if not match or int(match[1]) > GPUS.maximum:
        expected = f"GPUs on each node, such as gpu:8 or gpu:h100:8, at most {GPUS.maximum}"
        raise BadInputError("gres", text, expected)
    return text


Gpus = Annotated[VariableValue, AfterValidator(_check_gpus)]
Gres = Annotated[Word, AfterValidator(_check_gres)]
Feature = Annotated[Text, Field(pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_.-]*$")]


class AggregatorSection(YamlSection):
    """How to request hosts for aggregators in addition to nodes for workers; each kind has its own Slurm feature."""

    partition: Word = Field(
        description="partition with nodes for workers and hosts for aggregators"
    )
    worker: Feature = Field("worker", description="feature of the nodes for workers")
    aggregator: Feature = Field("aggregator", description="feature of the hosts for aggregators")

    def constraint(self, shape: Shape) -> str:
        """Return the features that the nodes of a job must have, and how many of each."""
        return f"[{self.worker}*{shape.nodes}&{self.aggregator}*{shape.aggregators}]"


class Site(YamlSection):
    """How to request Slurm jobs and start ranks."""

    partition: Word | None = Field(None, description="partition [the cluster's default]")
    account: Word | None = Field(None, description="account to charge [your default]")
    qos: Word | None = Field(None, description="quality of service")
    constraint: Word | None = Field(None, description="features that nodes must have")
    minutes: Annotated[int, Bounded(MINUTES)] | None = Field(
        None, description="time limit of a job in minutes [from the number of its cases]"
    )
    exclusive: bool = Field(True, description="whether a job has its nodes exclusively")
    memory_mb: Annotated[int, Bounded(MEMORY_MB)] | None = Field(
        None, description="memory of each node in MB [the partition's default]"
    )
    cpus_per_task: Annotated[int, Bounded(CPUS)] | None = Field(
        None,
        description="CPUs for each rank [Slurm's default; with gpus_per_node all of the job, divided among ranks]",
    )
    gpus_per_node: Gpus | None = Field(
        None,
        description="GPUs on each node, such as 8 or h100:8; every rank sees all, and runs on the socket of its GPU",
    )
    gres: Gres | None = Field(
        None,
        description="GPUs on each node where Slurm takes --gres only, such as gpu:8; in place of gpus_per_node",
    )
    nvlink_nodes: Annotated[int, Bounded(NVLINK_NODES)] = Field(
        1, description="nodes of one NVLink domain, such as 18; NCCL counts them as one [1]"
    )
    sbatch: OneOrMore[Text] | None = Field(
        None, description="further options of sbatch, such as --switches=1"
    )
    signal_s: Annotated[int, Bounded(SIGNAL_S)] = Field(
        60, description="seconds before the time limit at which Slurm signals the ranks to end"
    )
    start_s: Annotated[int, Bounded(START_S)] | None = Field(
        None,
        description="limit in seconds for the start of two ranks; five times that for all [60, or 900 in a container]",
    )
    launcher: Text = Field(
        "srun",
        description="command that starts ranks, such as srun --mpi=pmix; if it has {ranks}, "
        "only container options are added",
    )
    modules: OneOrMore[Text] | None = Field(
        None, description="environment modules to load before the ranks start"
    )
    environment: Variables = Field({}, description="variables for the ranks")
    network: Literal["rdma", "tcp"] | None = Field(
        None,
        description="expected network between nodes, rdma or tcp; another one is a critical finding in the report",
    )
    container: ContainerSection | None = Field(None, description="container in which the ranks run")
    aggregators: AggregatorSection | None = Field(
        None,
        description="hosts for aggregators; jobs with aggregators take partition and features from here",
    )
    kubernetes: KubernetesSection | None = Field(
        None, description="pods of Kubernetes in place of Slurm jobs, for hpccoll plan --format"
    )

    @field_validator("launcher")
    @classmethod
    def _only_known_placeholders(cls, text: str) -> str:
        placeholders = ("nodes", "ranks", "ranks_per_node", "hosts")
        try:
            unknown = [
                name
                for _, name, _, _ in Formatter().parse(text)
                if name is not None and name not in placeholders
            ]
        except ValueError:
            unknown = [text]
        if unknown or not text.strip():
            raise BadInputError(
                "launcher",
                text,
                "a command line, with no braces but " + "{" + "}, {".join(placeholders) + "}",
            )
        return text

    @field_validator("environment")
    @classmethod
    def _can_be_set(cls, variables: dict[str, str]) -> dict[str, str]:
        check_variables("environment", variables)
        return variables

    @field_validator("sbatch")
    @classmethod
    def _not_managed(cls, options: list[str] | None) -> list[str] | None:
        for option in options or ():
            if not re.fullmatch(r"--[a-z][a-z-]+(=\S*)?", option):
                raise BadInputError(
                    "sbatch", option, "a long option of sbatch in one word, such as --switches=1"
                )
            name = option.partition("=")[0]
            # sbatch completes abbreviated options.
            reserved = [full for full in RESERVED_OPTIONS if full.startswith(name)]
            if reserved:
                raise BadInputError(
                    "sbatch",
                    option,
                    f"another option; instead of this one use {RESERVED_OPTIONS[reserved[0]]}",
                )
        return options

    @model_validator(mode="after")
    def _signalled_in_time(self) -> "Site":
        if self.minutes is not None and self.signal_s >= 60 * self.minutes:
            raise BadInputError(
                "signal_s", self.signal_s, f"less than the time limit, {60 * self.minutes} s"
            )
        return self

    @model_validator(mode="after")
    def _pyxis_needs_srun(self) -> "Site":
        if (
            self.container
            and self.container.runtime == "pyxis"
            and not self.launcher.startswith("srun")
        ):
            raise BadInputError("launcher", self.launcher, "srun: pyxis is a plugin of it")
        return self

    @model_validator(mode="after")
    def _one_request_of_gpus(self) -> "Site":
        if self.gres and self.gpus_per_node:
            raise BadInputError(
                "gres", self.gres, f"either gres or gpus_per_node, which is {self.gpus_per_node}"
            )
        return self

    @model_validator(mode="after")
    def _one_scheduler(self) -> "Site":
        if self.kubernetes is None:
            return self
        for key in SLURM_KEYS:
            if key in self.model_fields_set:
                raise BadInputError(
                    key, getattr(self, key), "left out beside kubernetes: only Slurm jobs need it"
                )
        return self

    @property
    def gpus(self) -> int | None:
        """The number of GPUs of a node; None if the site file does not give it."""
        request = self.gres or self.gpus_per_node
        if not request:
            return None
        return int(request.rpartition(":")[2])

    @property
    def _cpus(self) -> str | None:
        """The CPUs of a rank, as a word for the shell of a launch; None for what the launcher or Slurm gives it.

        Slurm gives a rank one CPU. On nodes of GPUs, ranks share the CPUs of the job, whether Slurm
        counts cores or hardware threads: NCCL has threads of its own, and ranks that leave no CPU
        out are on the socket of their GPU. Hosts of aggregators may have fewer CPUs.
        """
        if CPU_OPTION.search(self.launcher):
            return None
        if self.cpus_per_task or not self.gpus or self.aggregators:
            if not self.cpus_per_task:
                return None
            return str(self.cpus_per_task)
        return f"$(({CPUS_ON_NODE} / {{ranks_per_node}}))"

    def rank_launcher(self, variables: Iterable[str] = ()) -> Launcher:
        """Return the launcher of ranks in a job; a container inherits ``variables`` besides those of the site."""
        if self.kubernetes:
            passed = [START_TIMEOUT_VARIABLE, *self.environment, *variables]
            return Launcher(
                command=self.kubernetes.launch_command(passed),
                start_timeout_s=self.start_s or CONTAINER_START_S,
                network=self.network,
            )
        arguments = [self.launcher]
        if "{ranks}" not in self.launcher:
            arguments += [GEOMETRY]
            if self._cpus:
                arguments.append(f"--cpus-per-task={self._cpus}")
            if self.gpus:
                arguments.append("--gpu-bind=none")
        program = "hpccoll"
        if self.container and self.container.runtime == "pyxis":
            arguments += [
                f"--container-image={_quote_braces(self.container.image)}",
                '--container-workdir="$PWD"',
            ]
            mounts = ",".join(self.container.mounts)
            names = ",".join(dict.fromkeys([*self.environment, *variables]))
            if mounts:
                arguments.append(f"--container-mounts={_quote_braces(mounts)}")
            arguments += [f"--container-env={names}"] if names else []  # the image's own would win
        elif self.container:
            binds = "".join(f" --bind {shlex.quote(mount)}" for mount in self.container.mounts)
            gpus = " --nv" if self.gpus else ""
            program = f"apptainer exec{gpus}{binds} {shlex.quote(self.container.image)} hpccoll"
        setup = [f"module load {shlex.join(self.modules)}"] if self.modules else []
        setup += [f"export {assignment(name, value)}" for name, value in self.environment.items()]
        return Launcher(
            command=" ".join(arguments),
            program=program,
            setup=tuple(setup),
            slurm=True,
            start_timeout_s=self.start_s or (CONTAINER_START_S if self.container else 60),
            slurm_conf=os.environ.get("SLURM_CONF"),
            aggregator=self.aggregators.aggregator if self.aggregators else None,
            network=self.network,
            socket_distribution=FILL_SOCKETS if self.gpus else "",
        )

    def resource_request(self, shape: Shape, minutes: int) -> dict[str, int | str]:
        """Return the resources of a job of ``shape``, by the names of Snakemake's Slurm plugin.

        The plugin needs ``mpi`` to run the rule once, outside srun, and refuses it for a single
        task. It takes no GPUs but by ``gres`` or ``gpu``, with which it requests as many tasks for
        each GPU as the job has, unless it is told 0 (get_submit_command of 2.8);
        ``--gpus-per-node`` among the further options is all that Slurm needs.
        """
        partition = self.partition
        constraint = self.constraint
        if shape.dedicated_aggregators and self.aggregators:
            partition = self.aggregators.partition
            constraint = self.aggregators.constraint(shape)
        extra = [f"--ntasks-per-node={shape.ranks_per_node}", f"--signal=USR1@{self.signal_s}"]
        if self.exclusive:
            extra.append("--exclusive")
        if self.gpus_per_node:
            extra.append(f"--gpus-per-node={self.gpus_per_node}")
        account = self.account
        # a list to the plugin, which would use the first word
        if re.search(r"[\s,]", account or ""):
            extra.append(f"-A{account}")
            account = None
        resources: dict[str, int | str | None] = {
            "mpi": "srun" if shape.processes > 1 else "",
            "nodes": shape.hosts,
            "tasks": shape.processes,
            "runtime": self.minutes or minutes,
            "cpus_per_task": self.cpus_per_task or -1,  # which says nothing to sbatch
            "mem_mb": self.memory_mb or 0,
            "slurm_partition": partition,
            "slurm_account": account,
            "qos": self.qos,
            "constraint": constraint,
            "gres": self.gres,
            "tasks_per_gpu": 0 if self.gres else None,
            "slurm_extra": shlex.join([*extra, *(self.sbatch or ())]),
        }
        return {name: value for name, value in resources.items() if value is not None}


def _quote_braces(text: str) -> str:
    return shlex.quote(text).replace("{", "{{").replace("}", "}}")


def load_site(name: str | None, profile: str) -> Site:
    """Return a site by its name or file; without a name, that of the profile or an empty one.

    Raises:
        BadInputError: if the site is unknown or its file is invalid.
    """
    paths_by_name = {path.stem: path for path in site_files()}
    if name is None:
        if profile in paths_by_name:
            return load_yaml(paths_by_name[profile], Site, "--site")
        return Site.model_validate({})
    if name in paths_by_name:
        return load_yaml(paths_by_name[name], Site, "--site")
    if not Path(name).is_file():
        raise BadInputError(
            "--site",
            name,
            f"{did_you_mean(name, paths_by_name)}a file, or one of {', '.join(sorted(paths_by_name))}",
        )
    return load_yaml(Path(name), Site, "--site")
