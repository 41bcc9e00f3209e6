"""Where this process runs: its CPUs, node, clock and rack."""

import os
import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path

from hpccoll.common.own_variables import NODE_NAME_VARIABLE


def is_oversubscribed(
    masks: Collection[frozenset[int]], quotas: Iterable[Mapping[str, float]] = ()
) -> bool:
    """Return whether the ranks of a node outnumber the CPUs that they may use.

    ``masks`` are the CPU affinity masks of the ranks, ``quotas`` the CPUs that the control groups
    of each grant.
    """
    for cpus in {*masks, frozenset[int]().union(*masks)}:
        ranks = sum(mask <= cpus for mask in masks)
        if ranks > len(cpus):
            return True
    ranks_of_quotas = Counter(
        chain.from_iterable(quotas_of_rank.items() for quotas_of_rank in quotas)
    )
    return any(ranks > granted for (_, granted), ranks in ranks_of_quotas.items())


def boot_id() -> str:
    """Return the boot ID of the running kernel, which identifies the clock domain."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def node_name() -> str:
    """Return the name of this host.

    A name that the user gives comes first. If srun started the ranks, it is Slurm's node name.
    Other launchers pass the first node's SLURMD_NODENAME to all ranks, so that MPI's processor name
    is used; a process without MPI uses the kernel's.
    """
    given_name = os.environ.get(NODE_NAME_VARIABLE)
    if given_name:
        return given_name
    try:
        from mpi4py import MPI  # its import starts MPI
    except (ImportError, RuntimeError):  # mpi4py is missing, or finds no MPI library
        return platform.node()
    by_srun = os.environ.get("SLURM_STEP_NUM_TASKS") == str(MPI.COMM_WORLD.size)
    slurm_name = os.environ.get("SLURMD_NODENAME")
    if by_srun and slurm_name:
        return slurm_name
    return MPI.Get_processor_name()


def rack_name() -> str:
    """Return what is above this node in Slurm's topology: switches, a block, a ring or a torus; empty without any.

    SLURM_TOPOLOGY_ADDR holds the path from the top to the node: spine.rack1.n1 of topology/tree
    (``man srun``), from Slurm 24.05 on block1.n1 of topology/block, or n1 alone.
    SLURM_TOPOLOGY_ADDR_PATTERN has the kinds of its parts: switch.switch.node, block.node, node.
    Rings and tori (26.05) add the place of the node, which no other node has: ring0:3.n1, a
    ring:position.node. Source: topology_p_get_node_addr in src/plugins/topology/. If topology.yaml
    has several topologies, it is the first one with ``cluster_default``, in all partitions
    (topology_g_get_node_addr in src/interfaces/topology.c of 25.05).
    """
    address = os.environ.get("SLURM_TOPOLOGY_ADDR", "")
    *kinds, last = os.environ.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").split(".")
    above = address.rpartition(".")[0]
    if last != "node":  # no pattern, or an unknown one
        return above
    *units, _ = address.split(".", len(kinds))  # the name of a node may have a domain
    if len(units) != len(kinds):
        return above
    names = [unit.rsplit(":", kind.count(":"))[0] for unit, kind in zip(units, kinds, strict=True)]
    return ".".join(names)
