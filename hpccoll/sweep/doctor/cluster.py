"""The machine and its scheduler: cores, Snakemake, Slurm, and which profile fits."""

import os
import shutil
from collections.abc import Iterator

from hpccoll.errors import BadInputError
from hpccoll.host.machine import available_memory, cpu_model, testbed_facts
from hpccoll.sweep.doctor.machine import Finding, Machine
from hpccoll.sweep.slurm import query
from hpccoll.sweep.slurm.partitions import load_partition

LEAST_AGE_S = 300
"""The least MinJobAge with which squeue shows Snakemake the end of every job: it looks every 180 s at the latest."""


def cores(_: Machine) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    gib = available_memory() / 2**30
    yield Finding("machine", f"{cores} CPUs of {cpu_model()}, {gib:.1f} GiB of memory free",
                  f"more than {cores} ranks share cores, and results say so")  # fmt: skip


def snakemake(machine: Machine) -> Iterator[Finding]:
    if told := machine.wheel("snakemake"):
        yield Finding("Snakemake", told)
    else:
        yield Finding("Snakemake", "not installed", "pip install snakemake", "WRONG")


def controller(machine: Machine) -> Iterator[Finding]:
    if shutil.which("sbatch") is None:
        look = (
            "sweeps run on this machine alone; on a cluster, load the module of Slurm, or go where jobs are submitted"
        )
        yield Finding("Slurm", "no sbatch on PATH", look, "none")
    elif isinstance(machine.controller, str):
        said = f"sbatch is on PATH, but no controller answers ({machine.controller})"
        yield Finding("Slurm", said, "if this is a cluster, see 'scontrol ping'", "warn")
    else:
        settings = machine.settings
        yield Finding("Slurm", f"{settings.get('SLURM_VERSION')}, cluster {settings.get('ClusterName')}")


def accounting(machine: Machine) -> Iterator[Finding]:
    """See where the end of jobs can be read: in the database, or for some minutes in squeue."""
    if not machine.settings:
        return
    kind = machine.settings.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    if machine.accounting:
        yield Finding("accounting", "sacct answers")
        return
    if kind == "slurmdbd":
        remedy = "see 'sacct'; until it answers use profile slurm-nodbd, for Snakemake would wait for ever"
        yield Finding("accounting", "there is a database, but sacct does not answer", remedy, "warn")
    else:
        yield Finding("accounting", f"no database ({kind or 'none'}): the end of jobs is read from squeue", "", "none")
    said = machine.settings.get("MinJobAge", "")
    seconds = int(said.split()[0]) if said[:1].isdecimal() else 0
    if seconds < LEAST_AGE_S:
        wanted = f"the admin sets MinJobAge={LEAST_AGE_S} or more in slurm.conf, and says 'scontrol reconfigure'"
        yield Finding("MinJobAge", f"squeue forgets jobs after {seconds} s, and Snakemake would wait for ever",
                      wanted, "WRONG")  # fmt: skip
    else:
        yield Finding("MinJobAge", f"squeue shows jobs for {seconds} s after their end")


def partitions(machine: Machine) -> Iterator[Finding]:
    if not machine.settings:
        return
    try:
        names = dict.fromkeys(query.slurm_output("sinfo", "-h", "-o", "%P").split())
        partitions = {name: load_partition(name.rstrip("*")) for name in names}
    except BadInputError as error:
        yield Finding("partitions", str(error), mark="WRONG")
        return
    told = [
        f"{name} {one.usable} of {one.nodes} nodes usable"
        + (f", at most {one.largest} for a job" if one.largest else "")
        for name, one in partitions.items()
    ]
    default = " (* is the default)" if any(name.endswith("*") for name in names) else ""
    usable = any(one.usable for one in partitions.values())
    yield Finding("partitions", ("; ".join(told) or "none that you may see") + default,
                  "" if usable else "see sinfo -R", "ok" if usable else "WRONG")  # fmt: skip


def profile(machine: Machine) -> Iterator[Finding]:
    """Say which profile fits, and how to see that ranks start: that takes an allocation, so it is left to people."""
    if not machine.settings:
        reason = "there is no Slurm here" if shutil.which("sbatch") is None else "no controller of Slurm answers"
        yield Finding("profile", f"local, for {reason}")
        return
    name, reason = "slurm-nodbd", "Slurm answers, sacct does not"
    if testbed_facts() is not None:
        name, reason = "testbed", "this is a host of slurm/testbed"
    elif machine.accounting:
        name, reason = "slurm", "Slurm answers, and so does sacct"
    how = f"srun -N 2 -n 2 --mpi={machine.mpi_type or 'TYPE'} hpccoll run --check"
    yield Finding("profile", f"{name}, for {reason}", f"to see that ranks find each other: {how}")
