"""Where jobs run: this machine or a cluster, the launcher of ranks there, and the resources that a job can get."""

import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.memory_estimate import check_memory
from hpccoll.cases.plan import Launcher
from hpccoll.cases.requirements import missing_requirements
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.host.gpu_stack import ROOT
from hpccoll.sweep.inherited_env import InheritedEnv
from hpccoll.sweep.paths import mpiexec_command
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.slurm import partitions, query
from hpccoll.sweep.sweep_file import Sweep
from hpccoll.training.model_file import models_from_json


@dataclass(frozen=True, slots=True)
class ExecutionSite:
    """Where jobs run."""

    launcher: Launcher  # starts the ranks
    site: Site | None = None  # the site file; None for the local machine
    partition: partitions.Partition | None = None  # the partition of the jobs; None if Slurm was not queried
    # the nodes for workers and the hosts for aggregators, if aggregators have hosts of their own
    aggregator_partitions: tuple[partitions.Partition, partitions.Partition] | None = None
    has_no_topology: bool = False  # whether Slurm knows no switches, so that nodes are in no racks

    @classmethod
    def local(cls) -> "ExecutionSite":
        return cls(Launcher(command=f"{shlex.join(mpiexec_command())} -n {{ranks}}"))

    @classmethod
    def cluster(cls, site: Site, sweep: Sweep) -> "ExecutionSite":
        """Return a cluster with what Slurm reports about its partition.

        Raises:
            BadInputError: if Slurm does not answer, or does not know the partition or the account.
        """
        partition = partitions.load_partition(site.partition)
        partitions.check_account(site.account, partition)
        query.check_launcher(site.launcher, may_be_elsewhere=bool(site.modules))
        aggregator_partitions = None
        if sweep.dedicated_aggregators and (section := site.aggregators):
            try:
                aggregator_partitions = (
                    partitions.load_partition(section.partition, section.worker),
                    partitions.load_partition(section.partition, section.aggregator),
                )
            except BadInputError as error:
                raise error.with_key(f"aggregators.{error.key}") from None
        launcher = site.rank_launcher(_variant_variables(sweep))
        has_no_topology = sweep.mapping is not None and query.has_no_topology()
        return cls(launcher, site, partition, aggregator_partitions, has_no_topology)

    @classmethod
    def offline(cls, site: Site, sweep: Sweep) -> "ExecutionSite":
        """Return a cluster without querying Slurm."""
        return cls(site.rank_launcher(_variant_variables(sweep)), site)

    @property
    def is_offline(self) -> bool:
        """Whether this is a cluster that was not queried."""
        return self.site is not None and self.partition is None

    @property
    def nvlink_nodes(self) -> int:
        """The hosts of an NVLink domain, which NCCL counts as one node."""
        return self.site.nvlink_nodes if self.site else 1

    @property
    def inherited_env(self) -> InheritedEnv:
        """The variables that jobs inherit; an offline plan is meant for another shell, so this shell's are left out."""
        of_site = self.site.environment if self.site else {}
        return InheritedEnv(of_site, {} if self.is_offline else os.environ)

    def why_unavailable(self, shape: Shape) -> str | None:
        """Return why ``shape`` cannot be allocated here; None if it can."""
        if self.site is None or self.partition is None:
            return None
        cpus_per_task = self.site.cpus_per_task or 1
        cpus = shape.ranks_per_node * cpus_per_task
        if not shape.dedicated_aggregators:
            reason = self.partition.why_unavailable(shape.nodes, cpus)
        elif self.aggregator_partitions is None:
            reason = "the site file names no hosts for aggregators: key aggregators"
        else:
            workers, aggregators = self.aggregator_partitions
            reason = workers.why_unavailable(shape.nodes, cpus, shape.aggregators)
            reason = reason or aggregators.why_unavailable(shape.aggregators, cpus_per_task)
        return f"{shape.text}: {reason}" if reason else None

    def why_too_few_gpus(self, shape: Shape, transport: str, environment: Mapping[str, str]) -> str | None:
        """Return why a node has too few GPUs for ``shape``; None if it has enough or the site file gives no number.

        NCCL needs one GPU per rank, unless a variable of the transport allows ranks to share GPUs. Over MPI ranks may
        share GPUs; such results have the kind "measured on a shared GPU".
        """
        variable = TRANSPORTS[transport].gpu_sharing_variable
        if self.site is None or self.site.gpus is None or shape.ranks_per_node <= self.site.gpus or not variable:
            return None
        if {**self.site.environment, **environment}.get(variable) == "1":
            return None
        gpus = f"{format_count(self.site.gpus, 'GPU')} (gpus_per_node of the site file)"
        remedy = f"at most {self.site.gpus} ranks_per_node, or {variable}=1 to share GPUs"
        return f"{shape.text}: more ranks on a node than its {gpus}; valid over {transport}: {remedy}"

    def notes(self, jobs: Sequence[Job], root: Path = ROOT) -> Iterator[str]:
        """Yield a note on cases that will be skipped because something is missing.

        On a cluster the job detects missing hardware; but ranks outside containers have the packages of this program.
        """
        count = sum(case.device == "cuda" for job in jobs for case in job.cases)
        if self.site is None and count and (missing := missing_requirements(["cuda"], root)):
            yield f"{format_count(count, 'case')} on GPUs will be skipped on this machine: {missing[0]}"
            return
        configured = [job for job in jobs if job.communicator]
        has_other_packages = self.is_offline or (self.site is not None and self.site.container is not None)
        if configured and not has_other_packages and (missing := missing_requirements(["nccl4py"], root)):
            names = " and ".join(job.name for job in configured)
            yield f"all cases over nccl of {names} will be skipped: {missing[0]}"

    def resource_request(self, job: Job, seconds: float) -> dict[str, int | str]:
        """Return the Slurm resources of ``job`` by the names of Snakemake's plugin; empty on the local machine."""
        if self.site is None:
            return {}
        return self.site.resource_request(job.largest, math.ceil(2 * seconds / 60) + 5)

    def check_request(self, request: Mapping[str, int | str]) -> None:
        """Let Slurm validate a resource request, if this is a cluster.

        Raises:
            BadInputError: if Slurm would refuse it.
        """
        if self.site is not None and self.partition is not None:
            partitions.check_request(request, self.site.model_dump())

    def check_memory(self, job: Job) -> None:
        """Check that this machine has memory for the largest case; on a cluster the job checks it.

        Raises:
            BadInputError: if it has not.
        """
        if self.site is None:
            processes = job.ranks + job.aggregators
            models = models_from_json(job.models)
            check_memory(
                job.cases, job.ranks, processes, available_memory(), aggregators=job.aggregators, models=models
            )


@contextmanager
def naming_site_file(site: str | None) -> Iterator[None]:
    """Prefix errors about keys of the site file with ``--site``."""
    try:
        yield
    except BadInputError as error:
        if site is None or error.key.partition(".")[0] not in Site.model_fields:
            raise
        raise error.with_key(f"--site {site}: {error.key}") from None


def _variant_variables(sweep: Sweep) -> Iterator[str]:
    """Yield the names of the variables that the variants set."""
    return (name for variant in sweep.environments.values() for name in variant)
