"""Checks of the machine and its scheduler: cores, the compiled executor, Snakemake, Slurm, and the profile to use."""

import math
import os
import shutil
import time

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.slurm_topology import BLOCK, FLAT, RACK_NOUNS, SlurmTopology
from hpccoll.common.text import Finding, absent, critical, info, join_ends, join_words, warning
from hpccoll.common.units import format_count, format_seconds
from hpccoll.executor.build import LIBRARY
from hpccoll.executor.library import ExecutorUnavailableError, load_library
from hpccoll.host import cpu_and_memory
from hpccoll.host.machine_load import load_between, read_load
from hpccoll.store.host_load import busy_hosts, describe_busy
from hpccoll.store.schema import HOST_LOAD
from hpccoll.sweep.doctor.machine import MachineFacts
from hpccoll.sweep.slurm import query
from hpccoll.sweep.slurm.partitions import load_partition

LOAD_S = 1.0
"""The least time in seconds in which doctor watches the load."""

MIN_JOB_AGE_S = 300
"""Minimum MinJobAge in seconds: Snakemake polls squeue at least every 180 s and must see the end of every job."""


def cores(machine: MachineFacts) -> Finding:
    """Check the CPUs and the memory of this process; a quota below its CPUs stops ranks that wait for messages."""
    cores = len(os.sched_getaffinity(0))
    cpus = f"{cores} CPUs of {cpu_and_memory.cpu_model()}"
    memory = f"{cpu_and_memory.available_memory() / 2**30:.1f} GiB of memory free"
    quota = min(cpu_and_memory.cpu_quotas(machine.root).values(), default=math.inf)
    if quota >= cores:
        remedy = f"if more than {cores} ranks run, they share cores, and results are marked"
        return info("machine", f"{cpus}, {memory}", remedy=remedy)
    remedy = f"ranks that wait use up the quota and are then stopped: {cpu_and_memory.CPU_QUOTA_REMEDY}; "
    remedy += f"if more than {quota:g} ranks run, results are marked"
    text = f"{cpus}, {quota:g} by a quota, {memory}"
    return warning("machine_with_quota", text, remedy=remedy, quota=quota)


def shared_memory(machine: MachineFacts) -> Finding | None:
    if machine.shared_memory.free >= cpu_and_memory.MIN_SHARED_BYTES:
        return None
    bytes_of_rank = f"{cpu_and_memory.MPICH_BYTES_PER_RANK / 2**20:.1f} MiB"
    remedy = f"MPICH uses {bytes_of_rank} for each rank, transport shm and NCCL more; if ranks die of signal 7 or 11: "
    return warning(
        "shared_memory",
        str(machine.shared_memory),
        remedy=remedy + cpu_and_memory.SHARED_MEMORY_REMEDY,
    )


def executor(_: MachineFacts) -> Finding:
    try:
        load_library()
    except ExecutorUnavailableError as error:
        remedy = (
            "until then hpccoll uses the Python executor, which adds microseconds to small messages"
        )
        return absent("executor_missing", error.expected, remedy=remedy)
    except UnusableError as error:
        return critical("executor_stale", error.expected)
    return info("executor", str(LIBRARY))


def snakemake(machine: MachineFacts) -> Finding:
    if version := machine.wheel("snakemake"):
        return info("snakemake", version)
    return critical("snakemake_missing", "not installed", remedy="pip install snakemake")


def controller(machine: MachineFacts) -> Finding:
    if shutil.which("sbatch") is None:
        remedy = "sweeps run on this machine only; on a cluster, load Slurm's module, or log in to a node that submits"
        return absent("slurm_missing", "no sbatch on PATH", remedy=f"{remedy} jobs")
    if isinstance(machine.controller, str):
        text = f"sbatch is on PATH, but no controller answers ({machine.controller})"
        return warning("slurm_unreachable", text, remedy="on a cluster, run 'scontrol ping'")
    version = machine.settings.get("SLURM_VERSION")
    name = machine.settings.get("ClusterName")
    return info("slurm", f"{version}, cluster {name}")


def accounting(machine: MachineFacts) -> Finding | None:
    """Check whether Snakemake can read the end of jobs in the database."""
    if not machine.settings:
        return None
    if machine.accounting:
        return info("accounting", "sacct answers")
    kind = machine.settings.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    if kind != "slurmdbd":
        text = f"no database ({kind or 'none'}): Snakemake reads the end of jobs from squeue"
        return absent("accounting_missing", text)
    remedy = "run 'sacct' to see why; until it answers, use profile slurm-nodbd: with slurm, Snakemake would wait"
    text = "slurmdbd is configured, but sacct does not answer"
    return warning("accounting_unreachable", text, remedy=f"{remedy} for ever")


def min_job_age(machine: MachineFacts) -> Finding | None:
    """Check whether squeue shows jobs for long enough after their end, if there is no database."""
    if not machine.settings or machine.accounting:
        return None
    age = machine.settings.get("MinJobAge", "")
    seconds = int(age.split()[0]) if age[:1].isdecimal() else 0
    if seconds >= MIN_JOB_AGE_S:
        return info(
            "min_job_age", f"squeue shows jobs for {seconds} s after their end", seconds=seconds
        )
    remedy = f"the administrator sets MinJobAge={MIN_JOB_AGE_S} or more in slurm.conf and runs 'scontrol reconfigure'"
    text = f"squeue forgets jobs {seconds} s after their end: Snakemake would wait for ever"
    return critical("min_job_age_short", text, remedy=remedy)


def partitions(machine: MachineFacts) -> Finding | None:
    if not machine.settings:
        return None
    try:
        names = dict.fromkeys(query.slurm_output("sinfo", "-h", "-o", "%P").splitlines())
        partitions = {name: load_partition(name.rstrip("*")) for name in names}
    except BadInputError as error:
        return critical("partitions_unknown", str(error))
    counts = [
        f"{name} {partition.usable} of {partition.nodes} nodes usable"
        + (f", at most {partition.largest} for a job" if partition.largest else "")
        for name, partition in partitions.items()
    ]
    default = ""
    if any(name.endswith("*") for name in names):
        default = " (* is the default)"
    text = ("; ".join(counts) or "none that you may see") + default
    if any(partition.usable for partition in partitions.values()):
        return info("partitions", text)
    return critical("partitions_unusable", text, remedy="run 'sinfo -R' to see why")


def topology(machine: MachineFacts) -> Finding | None:
    """Report the racks that Slurm's default topology gives to ranks, and the partitions that have another topology."""
    if not machine.settings:
        return None
    try:
        default = query.load_topology()
        elsewhere = _partitions_elsewhere(default)
    except BadInputError:  # the check of partitions says why
        return None
    except ValueError as error:
        remedy = "racks are those of SLURM_TOPOLOGY_ADDR; see 'scontrol show topology', or give diagnose --racks FILE"
        return warning("topology_unknown", str(error), remedy=remedy)
    text = _racks_text(default)
    if elsewhere:
        text += f"; {join_words(elsewhere)}, and Slurm gives ranks the default one"
        remedy = "do: scontrol show topology NAME > FILE; hpccoll diagnose --racks FILE"
        return warning("topology_of_partition", text, remedy=remedy)
    if default.plugin == FLAT:
        return None
    return info("topology", text, remedy=_BLOCK_REMEDY if default.plugin == BLOCK else "")


_BLOCK_REMEDY = (
    "if each block is one NVLink domain, which Slurm does not say, give "
    "its nodes as nvlink_nodes: in the site file"
)


def _racks_text(topology: SlurmTopology) -> str:
    if topology.plugin == FLAT:
        return "no racks by default"
    sizes = sorted({len(hosts) for hosts in topology.racks.values()})
    racks = format_count(len(topology.racks), RACK_NOUNS[topology.plugin])
    return f"{topology.plugin}, {racks} of {join_ends(sizes)} nodes"


def _partitions_elsewhere(default: SlurmTopology) -> list[str]:
    """Return the partitions with a topology of topology.yaml that has other racks than the default one."""
    records = query.parse_records(query.slurm_output("scontrol", "-a", "-o", "show", "partition"))
    lines: list[str] = []
    for record in records:
        name = record.get("Topology")
        if name and query.load_topology(name) != default:
            lines.append(f"partition {record['PartitionName']} has topology {name}")
    return lines


def load(machine: MachineFacts) -> Finding | None:
    """Check what else uses this machine, from the beginning of the checks until now."""
    before = machine.load_before
    if before is None:
        return None
    time.sleep(max(0.0, LOAD_S - (time.monotonic() - before.seconds)))
    if not (after := read_load(machine.root)):
        return None
    average = f"load average of the last minute {after.load_average:g}"
    if busy := busy_hosts({HOST_LOAD: [load_between(before, after, {os.getpid()})]}):
        remedy = "measure on an idle machine, on exclusive nodes (srun --exclusive), or on dedicated CPUs"
        return warning("load_high", f"{describe_busy(busy)}; {average}", remedy=remedy)
    seconds = format_seconds(after.seconds - before.seconds)
    return info("load", f"no other process was busy for {seconds}; {average}")


def profile(machine: MachineFacts) -> Finding:
    """Report the profile to use, and the command that checks that ranks start; it needs an allocation."""
    if not machine.settings:
        reason = "Slurm's controller does not answer"
        if shutil.which("sbatch") is None:
            reason = "Slurm is not installed"
        return info("profile_local", f"local, because {reason}")
    name = "slurm-nodbd"
    reason = "Slurm answers, but sacct does not"
    if cpu_and_memory.testbed_facts() is not None:
        name = "testbed"
        reason = "this is a host of slurm/testbed"
    elif machine.accounting:
        name = "slurm"
        reason = "Slurm and sacct answer"
    command = f"srun -N 2 -n 2 --mpi={machine.mpi_type or 'TYPE'} hpccoll run --check"
    remedy = f"to check that ranks connect: {command}"
    return info("profile_slurm", f"{name}, because {reason}", remedy=remedy, profile=name)
