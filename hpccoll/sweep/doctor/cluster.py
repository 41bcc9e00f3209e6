"""Checks of the machine and its scheduler: cores, the compiled executor, Snakemake, Slurm, and the profile to use."""

import math
import os
import shutil
import time
from collections.abc import Iterator

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.units import format_seconds
from hpccoll.executor.build import LIBRARY
from hpccoll.executor.library import NativeUnavailableError, load_library
from hpccoll.host.cpu_and_memory import (
    CPU_QUOTA_REMEDY,
    MIN_SHARED_BYTES,
    MPICH_BYTES_PER_RANK,
    SHARED_MEMORY_REMEDY,
    available_memory,
    cpu_model,
    cpu_quotas,
    testbed_facts,
)
from hpccoll.host.machine_load import load_between, read_load
from hpccoll.store.host_load import KEY as LOAD
from hpccoll.store.host_load import busy_hosts, describe_busy
from hpccoll.sweep.doctor.findings import DoctorFinding, finding
from hpccoll.sweep.doctor.machine import MachineFacts
from hpccoll.sweep.slurm import query
from hpccoll.sweep.slurm.partitions import load_partition

LOAD_S = 1.0
"""The least time in seconds in which doctor watches the load."""

MIN_JOB_AGE_S = 300
"""Minimum MinJobAge in seconds: Snakemake polls squeue at least every 180 s and must see the end of every job."""


def cores(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check the CPUs and the memory of this process; a quota below its CPUs stops ranks that wait for messages."""
    cores = len(os.sched_getaffinity(0))
    cpu, gib = cpu_model(), available_memory() / 2**30
    quota = min(cpu_quotas(machine.root).values(), default=math.inf)
    if quota < cores:
        text = f"{quota:g}"
        yield finding("machine_with_quota", "warn", cores=cores, cpu=cpu, gib=gib, quota=text, remedy=CPU_QUOTA_REMEDY)
    else:
        yield finding("machine", cores=cores, cpu=cpu, gib=gib)


def shared_memory(machine: MachineFacts) -> Iterator[DoctorFinding]:
    if machine.shared_memory.free < MIN_SHARED_BYTES:
        each = f"{MPICH_BYTES_PER_RANK / 2**20:.1f} MiB"
        found = machine.shared_memory
        yield finding("shared_memory", "warn", found=found, each=each, remedy=SHARED_MEMORY_REMEDY)


def executor(_: MachineFacts) -> Iterator[DoctorFinding]:
    try:
        load_library()
        yield finding("executor", path=LIBRARY)
    except NativeUnavailableError as error:
        yield finding("executor_missing", "none", error=error.expected)
    except UnusableError as error:
        yield finding("executor_stale", "WRONG", error=error.expected)


def snakemake(machine: MachineFacts) -> Iterator[DoctorFinding]:
    if version := machine.wheel("snakemake"):
        yield finding("snakemake", version=version)
    else:
        yield finding("snakemake_missing", "WRONG")


def controller(machine: MachineFacts) -> Iterator[DoctorFinding]:
    if shutil.which("sbatch") is None:
        yield finding("slurm_missing", "none")
    elif isinstance(machine.controller, str):
        yield finding("slurm_unreachable", "warn", error=machine.controller)
    else:
        settings = machine.settings
        yield finding("slurm", version=settings.get("SLURM_VERSION"), cluster=settings.get("ClusterName"))


def accounting(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check where Snakemake can read the end of jobs: in the database, or for some minutes in squeue."""
    if not machine.settings:
        return
    kind = machine.settings.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    if machine.accounting:
        yield finding("accounting")
        return
    if kind == "slurmdbd":
        yield finding("accounting_unreachable", "warn")
    else:
        yield finding("accounting_missing", "none", storage=kind or "none")
    age = machine.settings.get("MinJobAge", "")
    seconds = int(age.split()[0]) if age[:1].isdecimal() else 0
    if seconds < MIN_JOB_AGE_S:
        yield finding("min_job_age_short", "WRONG", seconds=seconds, least=MIN_JOB_AGE_S)
    else:
        yield finding("min_job_age", seconds=seconds)


def partitions(machine: MachineFacts) -> Iterator[DoctorFinding]:
    if not machine.settings:
        return
    try:
        names = dict.fromkeys(query.slurm_output("sinfo", "-h", "-o", "%P").splitlines())
        partitions = {name: load_partition(name.rstrip("*")) for name in names}
    except BadInputError as error:
        yield finding("partitions_unknown", "WRONG", error=error)
        return
    counts = [
        f"{name} {partition.usable} of {partition.nodes} nodes usable"
        + (f", at most {partition.largest} for a job" if partition.largest else "")
        for name, partition in partitions.items()
    ]
    default = " (* is the default)" if any(name.endswith("*") for name in names) else ""
    usable = any(partition.usable for partition in partitions.values())
    text = ("; ".join(counts) or "none that you may see") + default
    yield finding("partitions", partitions=text) if usable else finding("partitions_unusable", "WRONG", partitions=text)


def load(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check what else uses this machine, from the beginning of the checks until now."""
    before = machine.load_before
    if before is None:
        return
    time.sleep(max(0.0, LOAD_S - (time.monotonic() - before.seconds)))
    if after := read_load(machine.root):
        found = load_between(before, after, {os.getpid()})
        average = f"{after.load_average:g}"
        if busy := busy_hosts({LOAD: [found]}):
            yield finding("load_high", "warn", busy=describe_busy(busy), average=average)
        else:
            seconds = format_seconds(after.seconds - before.seconds)
            yield finding("load", average=average, seconds=seconds)


def profile(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Report the profile to use, and the command that checks that ranks start; it needs an allocation."""
    if not machine.settings:
        reason = "Slurm is not installed" if shutil.which("sbatch") is None else "Slurm's controller does not answer"
        yield finding("profile_local", reason=reason)
        return
    name, reason = "slurm-nodbd", "Slurm answers, but sacct does not"
    if testbed_facts() is not None:
        name, reason = "testbed", "this is a host of slurm/testbed"
    elif machine.accounting:
        name, reason = "slurm", "Slurm and sacct answer"
    command = f"srun -N 2 -n 2 --mpi={machine.mpi_type or 'TYPE'} hpccoll run --check"
    yield finding("profile_slurm", profile=name, reason=reason, command=command)
