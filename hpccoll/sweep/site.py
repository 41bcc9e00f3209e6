"""The site file: how jobs run on a cluster, as its users know it. What to measure is the business of the sweep file.

Site files that come with hpccoll lie in slurm/sites; ``--site testbed`` names one of them, ``--site my.yaml`` another.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from string import Formatter
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpccoll.case import Launcher
from hpccoll.errors import BadInputError
from hpccoll.sweep.document import OneOrMore, Section, Variables, load
from hpccoll.sweep.locate import site_files

GEOMETRY = (
    "-N {nodes} -n {ranks} --ntasks-per-node={ranks_per_node} --nodelist={hosts} --distribution=block "
    "--kill-on-bad-exit=1"
)
"""Repeated on every srun: Snakemake's job step removes Slurm's variables; a bare srun would start a rank per node."""

MANAGED = {
    "-A": "account", "--account": "account", "-p": "partition", "--partition": "partition", "--qos": "qos",
    "-q": "qos", "-C": "constraint", "--constraint": "constraint", "-t": "minutes", "--time": "minutes",
    "--mem": "memory_mb", "--mem-per-cpu": "memory_mb", "-c": "cpus_per_task", "--cpus-per-task": "cpus_per_task",
    "--signal": "signal_s", "--exclusive": "exclusive",
    "-N": "nodes of the sweep file", "--nodes": "nodes of the sweep file",
    "-n": "ranks_per_node of the sweep file", "--ntasks": "ranks_per_node of the sweep file",
    "--ntasks-per-node": "ranks_per_node of the sweep file", "-J": "nothing: it is how jobs are found",
    "--job-name": "nothing: it is how jobs are found", "--comment": "nothing: it is how jobs are found",
    "-o": "nothing: logs are kept", "--output": "nothing: logs are kept", "-e": "nothing: logs are kept",
    "--error": "nothing: logs are kept", "-D": "nothing: jobs run where they are submitted",
    "--chdir": "nothing: jobs run where they are submitted", "--export": "environment",
    "--gres": "gpus_per_node", "--gpus": "gpus_per_node", "--gpus-per-node": "gpus_per_node",
    "--ntasks-per-gpu": "gpus_per_node", "--cpus-per-gpu": "cpus_per_task",
    "--clusters": "nothing: jobs run where they are submitted", "-M": "nothing: jobs run where they are submitted",
    "--workdir": "nothing: jobs run where they are submitted", "--parsable": "nothing: Snakemake says it itself",
    "-a": "nothing: an array starts a job several times", "--array": "nothing: an array starts it several times",
}  # fmt: skip
"""Options of sbatch that are written in another way, and the key to write instead."""


class Container(Section):
    """An image that ranks run in, with hpccoll installed; Snakemake and srun stay outside."""

    runtime: Literal["pyxis", "apptainer"] = Field(description="pyxis (srun --container-image) or apptainer")
    image: str = Field(description="a file or a reference, as the runtime takes it")
    mounts: list[str] = Field([], description="SOURCE:TARGET, also where results go")


class Site(Section):
    """How Slurm jobs are asked for and ranks are started."""

    partition: str | None = Field(None, description="the partition [the cluster's default]")
    account: str | None = Field(None, description="whom the time is charged to [your default]")
    qos: str | None = Field(None, description="the quality of service")
    constraint: str | None = Field(None, description="features that nodes must have")
    minutes: int | None = Field(None, ge=1, description="the time limit of a job [from the number of its cases]")
    exclusive: bool = Field(True, description="whether nobody else may use the nodes of a job")
    memory_mb: int | None = Field(None, ge=1, description="memory on each node [the partition's default]")
    cpus_per_task: int | None = Field(None, ge=1, description="CPUs for each rank [Slurm's default]")
    gpus_per_node: int | None = Field(None, ge=1, description="GPUs on each node; every rank sees all of them")
    sbatch: OneOrMore[str] | None = Field(None, description="other options of sbatch, such as --switches=1")
    signal_s: int = Field(60, ge=1, description="seconds before the time limit at which ranks are told to end")
    launcher: str = Field(
        "srun", description="starts ranks, such as srun --mpi=pmix; with {ranks} in it, it is taken as it is"
    )
    modules: OneOrMore[str] | None = Field(None, description="environment modules to load before ranks start")
    environment: Variables = Field({}, description="variables for the ranks")
    container: Container | None = Field(None, description="an image that ranks run in")

    @field_validator("launcher")
    @classmethod
    def _only_known_places(cls, text: str) -> str:
        known = ("nodes", "ranks", "ranks_per_node", "hosts")
        try:
            strange = [name for _, name, _, _ in Formatter().parse(text) if name is not None and name not in known]
        except ValueError:
            strange = [text]
        if strange or not text.strip():
            raise BadInputError(
                "launcher", text, "a command line, with no braces but " + "{" + "}, {".join(known) + "}"
            )
        return text

    @field_validator("sbatch")
    @classmethod
    def _not_managed(cls, options: list[str] | None) -> list[str] | None:
        for option in options or ():
            name = re.split(r"[=\s]", option, maxsplit=1)[0]
            if name in MANAGED:
                raise BadInputError("sbatch", option, f"another option: for this one there is {MANAGED[name]}")
            if not name.startswith("-") or re.search(r"\s", option):
                raise BadInputError("sbatch", option, "an option of sbatch in one word, such as --switches=1")
        return options

    @model_validator(mode="after")
    def _pyxis_needs_srun(self) -> "Site":
        if self.container and self.container.runtime == "pyxis" and not self.launcher.startswith("srun"):
            raise BadInputError("launcher", self.launcher, "srun: pyxis is a plugin of it")
        return self

    def launcher_of_ranks(self, variables: Iterable[str] = ()) -> Launcher:
        """Return how the ranks are started inside a Slurm job.

        Args:
            variables: beside those of the site, that a container must take from outside.
        """
        words = [self.launcher]
        if "{ranks}" not in self.launcher:
            words += [GEOMETRY]
            words += [f"--cpus-per-task={self.cpus_per_task}"] if self.cpus_per_task else []
            words += ["--gpu-bind=none"] if self.gpus_per_node else []
        program = "hpccoll"
        if self.container and self.container.runtime == "pyxis":
            words += [f"--container-image={_verbatim(self.container.image)}", '--container-workdir="$PWD"']
            mounts, names = ",".join(self.container.mounts), ",".join(dict.fromkeys([*self.environment, *variables]))
            words += [f"--container-mounts={_verbatim(mounts)}"] if mounts else []
            words += [f"--container-env={names}"] if names else []  # the image's own would win
        elif self.container:
            binds = "".join(f" --bind {shlex.quote(mount)}" for mount in self.container.mounts)
            gpus = " --nv" if self.gpus_per_node else ""
            program = f"apptainer exec{gpus}{binds} {shlex.quote(self.container.image)} hpccoll"
        setup = [f"module load {shlex.join(self.modules)}"] if self.modules else []
        setup += [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return Launcher(
            command=" ".join(words), program=program, setup=tuple(setup), slurm=True,
            slurm_conf=os.environ.get("SLURM_CONF"),
        )  # fmt: skip

    def request(self, nodes: int, ranks_per_node: int, minutes: int) -> dict[str, int | str]:
        """Return what a job asks for, by the names of Snakemake's Slurm plugin.

        The plugin wants ``mpi`` for the rule to run once, outside of srun, and refuses it for one task; its own words
        for GPUs would ask for a task each.
        """
        tasks = nodes * ranks_per_node
        extra = [f"--ntasks-per-node={ranks_per_node}", f"--signal=USR1@{self.signal_s}"]
        extra += ["--exclusive"] if self.exclusive else []
        extra += [f"--gpus-per-node={self.gpus_per_node}"] if self.gpus_per_node else []
        asked: dict[str, int | str | None] = {
            "mpi": "srun" if tasks > 1 else "",
            "nodes": nodes,
            "tasks": tasks,
            "runtime": self.minutes or minutes,
            "cpus_per_task": self.cpus_per_task or -1,  # which says nothing to sbatch
            "mem_mb": self.memory_mb or 0,
            "slurm_partition": self.partition,
            "slurm_account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "slurm_extra": shlex.join([*extra, *(self.sbatch or ())]),
        }
        return {name: value for name, value in asked.items() if value is not None}


def _verbatim(text: str) -> str:
    """Return a word for the launcher's command line, in which braces mean nothing."""
    return shlex.quote(text).replace("{", "{{").replace("}", "}}")


def load_site(name: str | None, profile: str) -> Site:
    """Return the site of that name or file; by default that of the profile, or one that leaves all to Slurm.

    Raises:
        BadInputError: for a site that there is not, or a file that is not valid.
    """
    known = {path.stem: path for path in site_files()}
    if name is None:
        return load(known[profile], Site, "--site") if profile in known else Site.model_validate({})
    if name in known:
        return load(known[name], Site, "--site")
    if not Path(name).is_file():
        raise BadInputError("--site", name, f"a file, or one of {', '.join(sorted(known))}")
    return load(Path(name), Site, "--site")
