"""The findings of ``hpccoll doctor``: data, and one table of templates that renders them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["ok", "none", "warn", "WRONG"]
"""ok: present and usable; none: absent, what needs it is skipped or replaced; warn: usable with a restriction; WRONG: a
sweep cannot run before it is fixed."""


class DoctorTemplate(NamedTuple):
    """The texts of one kind of finding.

    Args:
        subject: what was checked.
        state: what was found.
        remedy: what to do; empty if nothing.
    """

    subject: str
    state: str
    remedy: str = ""


TEMPLATES: Mapping[str, DoctorTemplate] = {
    # MPI
    "mpi_broken": DoctorTemplate("MPI library", "{error}", "pip install 'hpccoll[local]', or load your site's MPI module"),
    "mpi": DoctorTemplate("MPI library", "{version}"),
    "mpiexec_missing": DoctorTemplate("launcher", "{error}", "{remedy}"),
    "mpiexec_timeout": DoctorTemplate("launcher", "two ranks did not end within 60 s", "{remedy}"),
    "mpiexec_disconnected": DoctorTemplate("launcher", "two ranks do not know of each other ({error})", "{remedy}"),
    "mpiexec": DoctorTemplate("launcher", "mpiexec starts two ranks that know of each other"),
    "pmi_unknown": DoctorTemplate(
        "PMI", "srun --mpi can be {types}", "in the site file, launcher: srun --mpi=TYPE, as the MPI library has it"
    ),
    "pmi_mismatch": DoctorTemplate(
        "PMI", "srun --mpi can be {types}; the MPI library speaks {library}",
        "the admin adds that plugin of Slurm's, or use another MPI",
    ),
    "pmi_default": DoctorTemplate(
        "PMI", "srun --mpi can be {types}; the MPI library speaks {library}", "srun takes {default} by itself"
    ),
    "pmi_option": DoctorTemplate(
        "PMI", "srun --mpi can be {types}; the MPI library speaks {library}",
        "in the site file, launcher: srun --mpi={chosen}; by itself srun takes {default}",
    ),
    # The machine and Slurm
    "machine": DoctorTemplate(
        "machine", "{cores} CPUs of {cpu}, {gib:.1f} GiB of memory free",
        "more than {cores} ranks share cores, and results say so",
    ),
    "snakemake": DoctorTemplate("Snakemake", "{version}"),
    "snakemake_missing": DoctorTemplate("Snakemake", "not installed", "pip install snakemake"),
    "slurm": DoctorTemplate("Slurm", "{version}, cluster {cluster}"),
    "slurm_missing": DoctorTemplate(
        "Slurm", "no sbatch on PATH",
        "sweeps run on this machine alone; on a cluster, load the module of Slurm, or go where jobs are submitted",
    ),
    "slurm_unreachable": DoctorTemplate(
        "Slurm", "sbatch is on PATH, but no controller answers ({error})", "if this is a cluster, see 'scontrol ping'"
    ),
    "accounting": DoctorTemplate("accounting", "sacct answers"),
    "accounting_unreachable": DoctorTemplate(
        "accounting", "there is a database, but sacct does not answer",
        "see 'sacct'; until it answers use profile slurm-nodbd, for Snakemake would wait for ever",
    ),
    "accounting_missing": DoctorTemplate("accounting", "no database ({storage}): the end of jobs is read from squeue"),
    "min_job_age": DoctorTemplate("MinJobAge", "squeue shows jobs for {seconds} s after their end"),
    "min_job_age_short": DoctorTemplate(
        "MinJobAge", "squeue forgets jobs after {seconds} s, and Snakemake would wait for ever",
        "the admin sets MinJobAge={least} or more in slurm.conf, and says 'scontrol reconfigure'",
    ),
    "partitions_unknown": DoctorTemplate("partitions", "{error}"),
    "partitions": DoctorTemplate("partitions", "{partitions}"),
    "partitions_unusable": DoctorTemplate("partitions", "{partitions}", "see sinfo -R"),
    "profile_local": DoctorTemplate("profile", "local, for {reason}"),
    "profile_slurm": DoctorTemplate("profile", "{profile}, for {reason}", "to see that ranks find each other: {command}"),
    # GPUs
    "gpu_missing": DoctorTemplate("GPU", "no CUDA device: GPU cases will be skipped", "{remedy}"),
    "gpu_no_driver": DoctorTemplate("GPU", "{gpus}, no driver is loaded", "see what nvidia-smi says"),
    "gpu": DoctorTemplate("GPU", "{gpus}, driver {driver}, for CUDA {cuda} and older"),
    "gpu_old_driver": DoctorTemplate("GPU", "{gpus}, driver {driver}", "CuPy needs driver {least} or newer"),
    "cupy_missing": DoctorTemplate("CuPy", "not installed: GPU cases will be skipped", "pip install {extra}"),
    "cupy_twice": DoctorTemplate(
        "CuPy", "{packages}", "they overwrite each other: pip uninstall {names}, then pip install {fitting}"
    ),
    "cupy_untested": DoctorTemplate("CuPy", "{packages} is installed; whether it computes shows where there is a GPU"),
    "cupy_too_new": DoctorTemplate(
        "CuPy", "{packages}",
        "its CUDA is newer than the driver's: pip uninstall {names}, then pip install {fitting}",
    ),
    "cupy_broken": DoctorTemplate(
        "CuPy", "{packages} does not compute ({error})",
        "see nvidia-smi; where a library of CUDA is missing, load its module, or pip install '{fitting}[ctk]'",
    ),
    "cupy": DoctorTemplate("CuPy", "{packages} computes, and sees {gpus} of the GPUs"),
    "nvswitch_missing": DoctorTemplate(
        "NVLink", "no NVSwitch is seen: variants of NVLS fall back, and say so",
        "where there are some, a container may hide them",
    ),
    "nvswitch": DoctorTemplate("NVLink", "{switches} NVSwitches, and the fabric manager runs: NVLS from H100 on"),
    "fabric_manager_missing": DoctorTemplate(
        "NVLink", "{switches} NVSwitches, and no fabric manager is seen",
        "a container may hide it; else the admin starts nvidia-fabricmanager, of the driver's version",
    ),
    "gpu_nic_balanced": DoctorTemplate("GPUs and adapters", "{balance}"),
    "gpu_nic_unbalanced": DoctorTemplate(
        "GPUs and adapters", "{balance}", "rings go at the pace of the worst: see nvidia-smi topo -m"
    ),
    "cuda_aware_unknown": DoctorTemplate("MPI and GPUs", "{error}"),
    "cuda_aware": DoctorTemplate("MPI and GPUs", "{support}: a job tries it"),
    "cuda_unaware": DoctorTemplate("MPI and GPUs", "{support}: {consequence}", "{remedy}"),
    # NCCL
    "nccl_missing": DoctorTemplate(
        "NCCL", "not found: cases over nccl will be skipped",
        "load the site's module, or pip install nvidia-nccl-cu12 (or -cu13, as CuPy is)",
    ),
    "nccl_broken": DoctorTemplate("NCCL", "{path} cannot be loaded ({error})"),
    "nccl_hidden": DoctorTemplate(
        "NCCL", "{version}, {path}; this wheel hides {hidden}",
        "to measure the site's, pip uninstall the wheel (nvidia-nccl-cu..), or set LD_PRELOAD={site}",
    ),
    "nccl": DoctorTemplate("NCCL", "{version}, {path}"),
    "nccl4py": DoctorTemplate("nccl4py", "{version}"),
    "nccl4py_missing": DoctorTemplate(
        "nccl4py", "not installed: variants that set what communicators are made with will be skipped",
        "pip install 'hpccoll[nccl4py]'",
    ),
    "nccl_plugins": DoctorTemplate("NCCL plugins", "{plugins}", "{remedy}"),
    "nccl_plugins_missing": DoctorTemplate("NCCL plugins", "none where the loader looks", "{remedy}"),
    "nccl_settings": DoctorTemplate("NCCL settings", "{settings}"),
    "nccl_settings_chosen": DoctorTemplate(
        "NCCL settings", "{settings}", "take out {names}: what a sweep compares it sets itself, as variants"
    ),
    # RDMA
    "rdma_missing": DoctorTemplate(
        "RDMA", "no InfiniBand, RoCE or EFA adapter: between nodes TCP would be used",
        "where there is one, a container is started with /sys and /dev/infiniband of its host{nodes}",
    ),
    "rdma_inactive": DoctorTemplate(
        "RDMA", "{ports}", "ports that are not active: see ibstat; a fabric without subnet manager has none"
    ),
    "rdma": DoctorTemplate("RDMA", "{ports}"),
    "rdma_devices_missing": DoctorTemplate(
        "RDMA devices", "none in {directory}: nothing can use the adapters from here",
        "a container starts with --device=/dev/infiniband; else the admin loads ib_uverbs",
    ),
    "locked_memory": DoctorTemplate(
        "locked memory", "at most {limit} for a process: RDMA fails where it takes more",
        "the admin sets memlock to unlimited, in limits.conf and for slurmd",
    ),
    "shared_memory": DoctorTemplate(
        "shared memory", "{size} at {directory}",
        "a container is started with more (--shm-size), or with that of the host",
    ),
    "gpudirect_module": DoctorTemplate("GPUDirect RDMA", "{module} is loaded"),
    "gpudirect_dma_buf": DoctorTemplate("GPUDirect RDMA", "by DMA-BUF: open kernel modules of the driver, Linux {kernel}"),
    "gpudirect_missing": DoctorTemplate(
        "GPUDirect RDMA", "neither nvidia_peermem nor DMA-BUF: NCCL goes through host memory",
        "the admin says 'modprobe nvidia-peermem', or installs the open kernel modules",
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
    def subject(self) -> str:
        return TEMPLATES[self.kind].subject

    @property
    def state(self) -> str:
        return TEMPLATES[self.kind].state.format(**self.values)

    @property
    def remedy(self) -> str:
        return TEMPLATES[self.kind].remedy.format(**self.values)

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.severity:>5}  {self.subject}: {self.state}{remedy}"


def found(kind: str, severity: Severity = "ok", **values: object) -> DoctorFinding:
    """Return a finding."""
    return DoctorFinding(kind, severity, values)
