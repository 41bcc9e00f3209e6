"""The findings of ``hpccoll doctor``: data, and one table of templates that renders them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["ok", "none", "warn", "WRONG"]
"""ok: present and usable; none: absent, cases that need it are skipped or use a substitute; warn: usable with a
restriction; WRONG: a sweep cannot run before it is fixed."""


class FindingText(NamedTuple):
    """The texts of one kind of finding.

    Args:
        component: what was checked.
        state: what was found.
        remedy: what to do; empty if nothing.
    """

    component: str
    state: str
    remedy: str = ""


TEMPLATES: Mapping[str, FindingText] = {
    # MPI
    "mpi_broken": FindingText("MPI library", "{error}", "pip install 'hpccoll[local]', or load your site's MPI module"),
    "mpi": FindingText("MPI library", "{version}"),
    "mpiexec_missing": FindingText("launcher", "{error}", "{remedy}"),
    "mpiexec_timeout": FindingText("launcher", "two ranks did not end within 60 s", "{remedy}"),
    "mpiexec_disconnected": FindingText("launcher", "two ranks are not in one communicator ({error})", "{remedy}"),
    "mpi_without_memory": FindingText("MPI library", "it does not start, and {found} ({error})", "{remedy}"),
    "mpiexec_without_memory": FindingText("launcher", "two ranks do not start, and {found} ({error})", "{remedy}"),
    "mpiexec": FindingText("launcher", "mpiexec starts two ranks in one communicator"),
    "pmi_unknown": FindingText(
        "PMI", "Slurm offers the PMI types {types}",
        "set launcher: srun --mpi=TYPE in the site file, with a type that the MPI library supports",
    ),
    "pmi_mismatch": FindingText(
        "PMI", "Slurm offers the PMI types {types}; the MPI library supports {library}",
        "the administrator adds Slurm's plugin of that type; or use another MPI library",
    ),
    "pmi_default": FindingText(
        "PMI", "Slurm offers the PMI types {types}; the MPI library supports {library}",
        "no setting is needed: {default} is the default of srun",
    ),
    "pmi_option": FindingText(
        "PMI", "Slurm offers the PMI types {types}; the MPI library supports {library}",
        "set launcher: srun --mpi={chosen} in the site file; the default of srun is {default}",
    ),
    "abandoned_memory": FindingText(
        "memory of killed processes", "files in {directory}: {files}, {mib:.1f} MiB",
        "nothing to do: the next launch on this machine removes them",
    ),
    # The machine and Slurm
    "machine": FindingText(
        "machine", "{cores} CPUs of {cpu}, {gib:.1f} GiB of memory free",
        "if more than {cores} ranks run, they share cores, and results are marked",
    ),
    "machine_with_quota": FindingText(
        "machine", "{cores} CPUs of {cpu}, of which a quota grants {quota}, {gib:.1f} GiB of memory free",
        "ranks that wait use up the quota and are then stopped: {remedy}; if more than {quota} ranks run, results are "
        "marked",
    ),
    "executor": FindingText("compiled executor", "{path}"),
    "executor_missing": FindingText(
        "compiled executor", "{error}",
        "until then hpccoll uses the Python executor, which adds microseconds to small messages",
    ),
    "executor_stale": FindingText("compiled executor", "{error}"),
    "snakemake": FindingText("Snakemake", "{version}"),
    "snakemake_missing": FindingText("Snakemake", "not installed", "pip install snakemake"),
    "slurm": FindingText("Slurm", "{version}, cluster {cluster}"),
    "slurm_missing": FindingText(
        "Slurm", "no sbatch on PATH",
        "sweeps run on this machine only; on a cluster, load Slurm's module, or log in to a node that submits jobs",
    ),
    "slurm_unreachable": FindingText(
        "Slurm", "sbatch is on PATH, but no controller answers ({error})", "on a cluster, run 'scontrol ping'"
    ),
    "accounting": FindingText("accounting", "sacct answers"),
    "accounting_unreachable": FindingText(
        "accounting", "slurmdbd is configured, but sacct does not answer",
        "run 'sacct' to see why; until it answers, use profile slurm-nodbd: with slurm, Snakemake would wait for ever",
    ),
    "accounting_missing": FindingText(
        "accounting", "no database ({storage}): Snakemake reads the end of jobs from squeue"
    ),
    "min_job_age": FindingText("MinJobAge", "squeue shows jobs for {seconds} s after their end"),
    "min_job_age_short": FindingText(
        "MinJobAge", "squeue forgets jobs {seconds} s after their end: Snakemake would wait for ever",
        "the administrator sets MinJobAge={least} or more in slurm.conf and runs 'scontrol reconfigure'",
    ),
    "load": FindingText("load", "no other process was busy for {seconds}; load average of the last minute {average}"),
    "load_high": FindingText(
        "load", "{busy}; load average of the last minute {average}",
        "measure on an idle machine, on exclusive nodes (srun --exclusive), or on dedicated CPUs",
    ),
    "partitions_unknown": FindingText("partitions", "{error}"),
    "partitions": FindingText("partitions", "{partitions}"),
    "partitions_unusable": FindingText("partitions", "{partitions}", "run 'sinfo -R' to see why"),
    "profile_local": FindingText("profile", "local, because {reason}"),
    "profile_slurm": FindingText("profile", "{profile}, because {reason}", "to check that ranks connect: {command}"),
    # GPUs
    "gpu_missing": FindingText("GPU", "no CUDA device: GPU cases will be skipped", "{remedy}"),
    "gpu_no_driver": FindingText("GPU", "{gpus}, no driver is loaded", "run nvidia-smi to see why"),
    "gpu": FindingText("GPU", "{gpus}, driver {driver}, for CUDA {cuda} and older"),
    "gpu_old_driver": FindingText("GPU", "{gpus}, driver {driver}", "CuPy needs driver {least} or newer"),
    "cupy_missing": FindingText("CuPy", "not installed: GPU cases will be skipped", "pip install {extra}"),
    "cupy_twice": FindingText(
        "CuPy", "{packages}", "they overwrite each other's files: pip uninstall {names}, then pip install {fitting}"
    ),
    "cupy_untested": FindingText(
        "CuPy", "{packages} is installed; only a machine with a GPU shows whether it computes"
    ),
    "cupy_too_old": FindingText(
        "CuPy", "{packages} is too old: GPU cases will be skipped",
        "CuPy {least} or newer is needed: pip uninstall {names}, then pip install '{fitting}>={least}'",
    ),
    "cupy_too_new": FindingText(
        "CuPy", "{packages}",
        "its CUDA is newer than the driver supports: pip uninstall {names}, then pip install {fitting}",
    ),
    "cupy_broken": FindingText(
        "CuPy", "{packages} does not compute ({error})",
        "run nvidia-smi; if a CUDA library is missing, load its module, or pip install '{fitting}[ctk]'",
    ),
    "cupy": FindingText("CuPy", "{packages} computes, and sees {gpus} of the GPUs"),
    "nvswitch_missing": FindingText(
        "NVLink", "no NVSwitch is visible: NVLS variants fall back, and their rows show it",
        "if the node has NVSwitches, the container may hide them",
    ),
    "nvswitch": FindingText("NVLink", "{switches} NVSwitches, and the fabric manager runs: NVLS works from H100 on"),
    "fabric_manager_missing": FindingText(
        "NVLink", "{switches} NVSwitches, and no fabric manager is visible",
        "the container may hide it; otherwise the administrator starts nvidia-fabricmanager of the driver's version",
    ),
    "gpu_nic_balanced": FindingText("GPUs and adapters", "{balance}"),
    "gpu_nic_unbalanced": FindingText(
        "GPUs and adapters", "{balance}", "a ring is as slow as its slowest GPU: see 'nvidia-smi topo -m'"
    ),
    "cuda_aware_unknown": FindingText("MPI and GPUs", "{error}"),
    "cuda_aware": FindingText("MPI and GPUs", "{support}: each job verifies it"),
    "cuda_unaware": FindingText("MPI and GPUs", "{support}: {consequence}", "{remedy}"),
    "ucx_without_gdr_copy": FindingText(
        "UCX", "UCX_TLS={value} names transports of CUDA but not gdr_copy: small messages on GPUs take longer",
        "write cuda instead of their names: it includes all of them",
    ),
    # NCCL
    "nccl_missing": FindingText(
        "NCCL", "not found: cases over nccl will be skipped",
        "load the site's module, or pip install nvidia-nccl-cu12 (or -cu13, to match CuPy)",
    ),
    "nccl_broken": FindingText("NCCL", "{path} cannot be loaded ({error})"),
    "nccl_hidden": FindingText(
        "NCCL", "{version}, {path}; this wheel hides {hidden}",
        "to measure the site's NCCL, pip uninstall the wheel (nvidia-nccl-cu..), or set LD_PRELOAD={site}",
    ),
    "nccl": FindingText("NCCL", "{version}, {path}"),
    "nccl4py": FindingText("nccl4py", "{version}"),
    "nccl4py_missing": FindingText(
        "nccl4py", "not installed: variants with settings of communicators will be skipped",
        "pip install 'hpccoll[nccl4py]'",
    ),
    "nccl_plugins": FindingText("NCCL plugins", "{plugins}", "{remedy}"),
    "nccl_plugins_missing": FindingText("NCCL plugins", "none where the loader looks", "{remedy}"),
    "nccl_settings": FindingText("NCCL settings", "{settings}"),
    "nccl_settings_chosen": FindingText(
        "NCCL settings", "{settings}", "unset {names}: a sweep sets the variables that it compares, in variants"
    ),
    # RDMA
    "rdma_missing": FindingText(
        "RDMA", "no InfiniBand, RoCE or EFA adapter: nodes communicate over TCP",
        "if the host has one, start the container with its /sys and /dev/infiniband{nodes}",
    ),
    "rdma_inactive": FindingText(
        "RDMA", "{ports}", "for inactive ports see ibstat; without a subnet manager no InfiniBand port becomes active"
    ),
    "rdma": FindingText("RDMA", "{ports}"),
    "rdma_devices_missing": FindingText(
        "RDMA devices", "none in {directory}: no process here can use the adapters",
        "start the container with --device=/dev/infiniband; without a container, the administrator loads ib_uverbs",
    ),
    "locked_memory": FindingText(
        "locked memory", "at most {limit} for a process: RDMA fails if it needs more",
        "the administrator sets memlock to unlimited in limits.conf and for slurmd",
    ),
    "shared_memory": FindingText(
        "shared memory", "{found}",
        "MPICH uses {each} for each rank, transport shm and NCCL more; if ranks die of signal 7 or 11: {remedy}",
    ),
    "gpudirect_module": FindingText("GPUDirect RDMA", "{module} is loaded"),
    "gpudirect_dma_buf": FindingText("GPUDirect RDMA", "by DMA-BUF: open kernel modules of the driver, Linux {kernel}"),
    "gpudirect_missing": FindingText(
        "GPUDirect RDMA", "neither nvidia_peermem nor DMA-BUF: NCCL copies through host memory",
        "the administrator runs 'modprobe nvidia-peermem', or installs the open kernel modules",
    ),
}  # fmt: skip
"""The texts of all kinds."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One finding of a check.

    Args:
        kind: a key of TEMPLATES.
        severity: how serious it is.
        values: the values in the template.
    """

    kind: str
    severity: Severity = "ok"
    values: Mapping[str, object] = field(default_factory=dict)

    @property
    def fatal(self) -> bool:
        """Whether a sweep cannot run before this is fixed."""
        return self.severity == "WRONG"

    @property
    def component(self) -> str:
        return TEMPLATES[self.kind].component

    @property
    def state(self) -> str:
        return TEMPLATES[self.kind].state.format(**self.values)

    @property
    def remedy(self) -> str:
        return TEMPLATES[self.kind].remedy.format(**self.values)

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.severity:>5}  {self.component}: {self.state}{remedy}"


def finding(kind: str, severity: Severity = "ok", **values: object) -> DoctorFinding:
    """Return a finding."""
    return DoctorFinding(kind, severity, values)
