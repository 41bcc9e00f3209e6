"""Where jobs run: this machine or a cluster, the launcher of ranks, the resources and the variables of jobs there.

Jobs inherit variables from the site file and from the submitting shell, before a variant sets its
own. They apply to every job whose variant does not set them, including ``default``; the job's name
does not show them.
"""

import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.communicator_settings import overridden_settings
from hpccoll.cases.memory_estimate import check_memory
from hpccoll.cases.plan import Launcher
from hpccoll.cases.requirements import missing_requirements, mpi_version
from hpccoll.cases.skip_reason import COLLECTIVE_VARIABLES
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.cases.variables import (
    FABRIC_VARIABLES,
    IB_PREFIX,
    NETWORKS_WITHOUT_IB,
    VARIABLES,
    assignment,
    unknown_nccl_variables,
)
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.host.gpu_stack import ROOT
from hpccoll.sweep.paths import mpiexec_command
from hpccoll.sweep.site_file import Site
from hpccoll.sweep.slurm import partitions, query
from hpccoll.sweep.sweep_file import Sweep

SITE, SHELL = "the site file", "this shell"
MAX_LISTED = 4


@dataclass(frozen=True, slots=True)
class ExecutionSite:
    """Where jobs run."""

    launcher: Launcher  # starts the ranks
    site: Site  # the site file; an empty one for the local machine
    # the partition of the jobs; None if Slurm was not queried
    partition: partitions.Partition | None = None
    # the nodes for workers and the hosts for aggregators, if aggregators have hosts of their own
    aggregator_partitions: tuple[partitions.Partition, partitions.Partition] | None = None
    has_no_topology: bool = False  # whether Slurm knows no switches, so that nodes are in no racks

    @classmethod
    def local(cls) -> "ExecutionSite":
        return cls(
            Launcher(command=f"{shlex.join(mpiexec_command())} -n {{ranks}}"),
            Site.model_validate({}),
        )

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
    def is_cluster(self) -> bool:
        """Whether jobs run elsewhere than on this machine."""
        return self.launcher.slurm or self.site.kubernetes is not None

    @property
    def is_offline(self) -> bool:
        """Whether this is a cluster that was not queried."""
        return self.is_cluster and self.partition is None

    @property
    def _inherited(self) -> dict[str, tuple[str, str]]:
        """The origin and value of each inherited variable; an offline plan is for another shell, so without this one's.

        Slurm exports the variables of the shell to jobs; those of the site file override them.
        """
        shell = {} if self.is_offline else os.environ
        return {name: (SHELL, shell[name]) for name in shell} | {
            name: (SITE, value) for name, value in self.site.environment.items()
        }

    @property
    def mpi(self) -> str | None:
        """The version string of the MPI library of this environment; None if jobs may load another one."""
        elsewhere = self.is_offline or self.site.container or self.launcher.setup
        if elsewhere:
            return None
        return mpi_version() or None

    def variable_notes(self, sweep: Sweep) -> Iterator[str]:
        """Yield a note for each inherited variable that affects the jobs of a sweep or looks misspelt.

        Raises:
            BadInputError: if an inherited variable overrides a setting that the variants compare.
        """
        inherited = self._inherited
        variants = sweep.environments
        for variant, settings in sweep.communicators.items():
            for setting, name in overridden_settings(
                inherited.keys() - variants[variant].keys(), settings
            ):
                why = f"it would override {setting} of variant {variant}"
                raise _override_error(*inherited[name], name, why)
        for name, (where, value) in inherited.items():
            if _is_relevant(sweep.transports, name) and (
                note := _leak_note(where, value, name, variants)
            ):
                yield note
        for where, variables in {SITE: self.site.environment, **variants}.items():
            yield from (f"{doubt} ({where})" for doubt in unknown_nccl_variables(variables))

    def why_unread(self, variables: Mapping[str, str]) -> str | None:
        """Return why the network that NCCL_NET selects ignores ``variables`` of a variant; None if it reads them."""
        foreign = [name for name in variables if not name.startswith(IB_PREFIX)]
        if not variables or foreign:  # a plan asks for each of thousands of cases
            return None
        network = variables.get("NCCL_NET", self._inherited.get("NCCL_NET", ("", ""))[1])
        if network.lower() not in NETWORKS_WITHOUT_IB:
            return None
        return f"NCCL reads {' and '.join(variables)} over InfiniBand and RoCE only, and NCCL_NET={network} is neither"

    def why_unavailable(self, shape: Shape) -> str | None:
        """Return why ``shape`` cannot be allocated here; None if it can."""
        if self.site.kubernetes and shape.dedicated_aggregators:
            return f"{shape.text}: pods of Kubernetes are all alike, and aggregators need hosts of their own"
        if self.partition is None:
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
        if not reason:
            return None
        return f"{shape.text}: {reason}"

    def why_too_few_gpus(
        self, shape: Shape, transport: str, environment: Mapping[str, str]
    ) -> str | None:
        """Return why a node has too few GPUs for ``shape``; None if it has enough or the site file gives no number.

        NCCL needs one GPU per rank, unless a variable of the transport allows ranks to share GPUs.
        Over MPI ranks may share GPUs; such results have the kind "measured on a shared GPU".
        """
        variable = TRANSPORTS[transport].gpu_sharing_variable
        if self.site.gpus is None or shape.ranks_per_node <= self.site.gpus or not variable:
            return None
        if {**self.site.environment, **environment}.get(variable) == "1":
            return None
        key = "gres" if self.site.gres else "gpus_per_node"
        gpus = f"{format_count(self.site.gpus, 'GPU')} ({key} of the site file)"
        remedy = f"at most {self.site.gpus} ranks_per_node, or {variable}=1 to share GPUs"
        return (
            f"{shape.text}: more ranks on a node than its {gpus}; valid over {transport}: {remedy}"
        )

    def notes(self, jobs: Sequence[Job], root: Path = ROOT) -> Iterator[str]:
        """Yield a note on cases that will be skipped because something is missing.

        On a cluster the job detects missing hardware; but ranks outside containers have the
        packages of this program.
        """
        count = sum(case.device == "cuda" for job in jobs for case in job.cases)
        if not self.is_cluster and count and (missing := missing_requirements(["cuda"], root)):
            yield f"{format_count(count, 'case')} on GPUs will be skipped on this machine: {missing[0]}"
            return
        configured = [job for job in jobs if job.communicator]
        if self.is_offline or self.site.container or not configured:
            return
        if missing := missing_requirements(["nccl4py"], root):
            names = " and ".join(job.name for job in configured)
            yield f"all cases over nccl of {names} will be skipped: {missing[0]}"

    def resource_request(self, job: Job, seconds: float) -> dict[str, int | str]:
        """Return the Slurm resources of ``job`` by the names of Snakemake's plugin; empty on the local machine."""
        if not self.launcher.slurm:
            return {}
        return self.site.resource_request(job.largest, math.ceil(2 * seconds / 60) + 5)

    def check_request(self, request: Mapping[str, int | str]) -> None:
        """Let Slurm validate a resource request, if this is a cluster.

        Raises:
            BadInputError: if Slurm would refuse it.
        """
        if self.partition is not None:
            partitions.check_request(request, self.site.model_dump())

    def check_memory(self, job: Job) -> None:
        """Check that this machine has memory for the largest case; on a cluster the job checks it.

        Raises:
            BadInputError: if it has not.
        """
        if not self.is_cluster:
            processes = job.ranks + job.aggregators
            check_memory(
                job.cases,
                job.ranks,
                processes,
                available_memory(),
                aggregators=job.aggregators,
                models=job.models,
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
    return (name for variant in sweep.environments.values() for name in variant)


def _is_relevant(transports: Sequence[str], name: str) -> bool:
    """Return whether a library of ``transports`` can read a variable: NCCL_* needs nccl, MPI's need another one."""
    if name.startswith("NCCL_"):
        return "nccl" in transports
    return {*transports} != {"nccl"} or name not in VARIABLES


def _leak_note(
    where: str, value: str, name: str, variants: Mapping[str, Mapping[str, str]]
) -> str | None:
    """Return a note if some variants inherit a variable that others set or that a known variant sets."""
    setting = [variant for variant, variables in variants.items() if name in variables]
    inheriting = [variant for variant in variants if variant not in setting]
    is_known = name in VARIABLES or COLLECTIVE_VARIABLES.fullmatch(name)
    with_algorithms = {name for name, named in named_variants().items() if named.algorithms}
    forcing = [variant for variant in variants if variant in with_algorithms]
    if inheriting and forcing and name.endswith(("_dynamic_rules_filename", "_TUNING_JSON_FILE")):
        raise _override_error(
            where, value, name, f"its table decides in {inheriting[0]}, beside variant {forcing[0]}"
        )
    if (variants and not inheriting) or not (setting or is_known):
        return None
    if setting and is_known and name not in FABRIC_VARIABLES:
        raise _override_error(
            where,
            value,
            name,
            f"variant {setting[0]} sets it, and {inheriting[0]} would inherit it",
        )
    if setting:
        many = f"all other variants than {', '.join(setting)}"
    else:
        many = f"all {len(inheriting)} variants"
    if len(inheriting) > MAX_LISTED:
        listed = many
    else:
        listed = ", ".join(inheriting) or "every job"
    return (
        f"{assignment(name, value)} of {where} also applies to {listed}; their names do not show it"
    )


def _override_error(where: str, value: str, name: str, why: str) -> BadInputError:
    if where == SITE:
        return BadInputError(f"environment.{name}", value, f"left to variants: {why}")
    return BadInputError(f"{name} of {where}", value, f"unset: {why}")
