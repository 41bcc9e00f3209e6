"""Places: where jobs run, how their ranks are started there, and what they can have."""

import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpccoll.errors import BadInputError
from hpccoll.host.hardware import ROOT
from hpccoll.host.machine import available_memory
from hpccoll.spec.case import Job, Shape
from hpccoll.spec.memory import check_memory
from hpccoll.spec.plan import Launcher
from hpccoll.spec.requirements import missing_requirements
from hpccoll.spec.transport_table import TRANSPORTS
from hpccoll.sweep.inherited_env import Surroundings
from hpccoll.sweep.paths import mpiexec
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.slurm import partitions, query
from hpccoll.sweep.sweep_file import Sweep


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs run: how their ranks are started, and what they can have."""

    launcher: Launcher
    site: Site | None = None  # none where that is this machine
    partition: partitions.Partition | None = None  # none where nobody has been asked
    beside: tuple[partitions.Partition, partitions.Partition] | None = (
        None  # where aggregators are apart: of workers, and theirs
    )
    flat: bool = False  # whether it is known that nodes are in no racks

    @classmethod
    def local(cls) -> "Place":
        return cls(Launcher(command=f"{shlex.join(mpiexec())} -n {{ranks}}"))

    @classmethod
    def cluster(cls, site: Site, sweep: Sweep) -> "Place":
        partition = partitions.partition(site.partition)
        partitions.check_account(site.account, partition)
        beside = None
        if sweep.dedicated_aggregators and (asked := site.aggregators):
            beside = (
                partitions.partition(asked.partition, asked.worker),
                partitions.partition(asked.partition, asked.aggregator),
            )
        flat = sweep.mapping is not None and query.flat()
        return cls(site.launcher_of_ranks(_variables(sweep)), site, partition, beside, flat)

    @classmethod
    def planned(cls, site: Site, sweep: Sweep) -> "Place":
        """Return a cluster of which nobody is asked anything."""
        return cls(site.launcher_of_ranks(_variables(sweep)), site)

    @property
    def offline(self) -> bool:
        """Whether it is such a cluster."""
        return self.site is not None and self.partition is None

    @property
    def surroundings(self) -> Surroundings:
        """What is set around jobs; a plan on paper is for another shell than this one."""
        of_site = self.site.environment if self.site else {}
        return Surroundings(of_site, {} if self.offline else os.environ)

    def lack(self, shape: Shape) -> str | None:
        """Return why ``shape`` cannot be had here, None where it can."""
        if self.site is None or self.partition is None:
            return None
        each = self.site.cpus_per_task or 1
        cpus = shape.ranks_per_node * each
        if not shape.dedicated_aggregators:
            reason = self.partition.lack(shape.nodes, cpus)
        elif self.beside is None:
            reason = "the site file does not say where aggregators go: key aggregators"
        else:
            workers, helpers = self.beside
            reason = workers.lack(shape.nodes, cpus, shape.aggregators) or helpers.lack(shape.aggregators, each)
        return f"{shape.words}: {reason}" if reason else None

    def lack_of_gpus(self, shape: Shape, transport: str, environment: Mapping[str, str]) -> str | None:
        """Return that a node has too few GPUs, where the site file says how many it has; None where it has enough.

        NCCL wants one for each rank, unless a variable tells it that they share some. Over MPI they may: what they
        measure says of itself that it was on a shared GPU.

        Args:
            shape: of a launch.
            transport: over which ranks exchange what lies on GPUs.
            environment: of its variant.
        """
        variable = TRANSPORTS[transport].gpu_sharing_variable
        if self.site is None or self.site.gpus is None or shape.ranks_per_node <= self.site.gpus or not variable:
            return None
        if {**self.site.environment, **environment}.get(variable) == "1":
            return None
        gpus = f"{self.site.gpus} GPU{'s' * (self.site.gpus > 1)} (gpus_per_node of the site file)"
        fit = f"with at most {self.site.gpus} (ranks_per_node) each has its own, and by {variable}=1 they share them"
        return f"{shape.words}: more ranks on a node than its {gpus}; {fit} over {transport}"

    def notes(self, jobs: Sequence[Job], root: Path = ROOT) -> Iterator[str]:
        """Yield what this machine lacks for cases on GPUs; on a cluster that is found in the job.

        Args:
            jobs: that are to run here.
            root: the directory below which dev, etc, proc and sys of the machine are.
        """
        count = sum(case.device == "cuda" for job in jobs for case in job.cases)
        if self.site is None and count and (lacks := missing_requirements(["cuda"], root)):
            yield f"{count} case{'s' * (count > 1)} on GPUs will be skipped on this machine: {lacks[0]}"

    def request(self, job: Job, seconds: float) -> dict[str, int | str]:
        """Return what ``job`` asks of Slurm, by the names of Snakemake's plugin; nothing on this machine.

        Args:
            job: to be asked for.
            seconds: that it takes, about.
        """
        if self.site is None:
            return {}
        return self.site.request(job.largest, math.ceil(2 * seconds / 60) + 5)

    def check_request(self, request: Mapping[str, int | str]) -> None:
        """Have Slurm look at what a job asks for, where there is one.

        Raises:
            BadInputError: where it would refuse.
        """
        if self.partition is not None:
            partitions.check_request(request)

    def check(self, job: Job) -> None:
        """See that this machine has room for the largest case; on a cluster that is found in the job.

        Raises:
            BadInputError: where it has not.
        """
        if self.site is None:
            everyone = job.ranks + job.aggregators
            check_memory(job.cases, job.ranks, everyone, available_memory(), aggregators=job.aggregators)


@contextmanager
def named(site: str | None) -> Iterator[None]:
    """Have complaints of what a site file says, where it is held against the cluster or the sweep, name the file.

    Args:
        site: what is given by --site, None where nothing is.
    """
    try:
        yield
    except BadInputError as error:
        if site is None or error.key.partition(".")[0] not in Site.model_fields:
            raise
        raise error.at(f"--site {site}: {error.key}") from None


def _variables(sweep: Sweep) -> Iterator[str]:
    """Yield the variables that a job may set."""
    return (name for variant in sweep.environments.values() for name in variant)
