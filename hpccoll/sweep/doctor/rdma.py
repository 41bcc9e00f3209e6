"""Checks of RDMA: adapters and their ports, memory limits, and GPUDirect RDMA."""

import re
import resource
from itertools import groupby

from hpccoll.common.files import read_fact
from hpccoll.common.text import Finding, absent, info, warning
from hpccoll.common.units import format_size
from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.machine import MachineFacts


def adapters(machine: MachineFacts) -> Finding:
    """Check the ports of the adapters: their kind, rate and state."""
    ports = machine.rdma_ports
    if not ports:
        nodes = ""
        if machine.settings:
            nodes = "; if compute nodes have some, run srun hpccoll doctor"
        remedy = (
            f"if the host has one, start the container with its /sys and /dev/infiniband{nodes}"
        )
        return absent(
            "rdma_missing",
            "no InfiniBand, RoCE or EFA adapter: nodes communicate over TCP",
            remedy=remedy,
        )
    groups = groupby(sorted(ports, key=_describe), key=_describe)
    text = "; ".join(
        f"{', '.join(port.name for port in group)}: {description}" for description, group in groups
    )
    if any(not port.active and port.layer == "InfiniBand" for port in ports):
        remedy = "for inactive ports see ibstat; without a subnet manager no InfiniBand port becomes active"
        return warning("rdma_inactive", text, remedy=remedy)
    return info("rdma", text)


def _describe(port: RdmaPort) -> str:
    """Return ``InfiniBand, 400 Gb/sec (4X NDR), active``."""
    kind = "RoCE" if port.layer == "Ethernet" else port.layer
    if port.driver == "efa":
        kind = "EFA"
    return ", ".join(filter(None, (kind, port.rate, port.state.lower())))


def verbs(machine: MachineFacts) -> Finding | None:
    """Check that adapters can be opened: a container may see them in sysfs but lack their devices."""
    directory = machine.root / "dev/infiniband"
    if not machine.rdma_ports or any(directory.glob("uverbs*")):
        return None
    text = f"none in {directory}: no process here can use the adapters"
    remedy = "start the container with --device=/dev/infiniband; without a container, the administrator loads ib_uverbs"
    return warning("rdma_devices_missing", text, remedy=remedy)


MIN_LOCKED_BYTES = 1 << 30
"""Minimum limit of locked memory: adapters and GPUs read buffers that must not be paged out."""


def limits(machine: MachineFacts) -> Finding | None:
    """Check the limit of locked memory if the machine has adapters or GPUs."""
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_high = locked == resource.RLIM_INFINITY or locked >= MIN_LOCKED_BYTES
    if is_high or not (machine.rdma_ports or machine.gpus):
        return None
    text = f"at most {format_size(locked)} for a process: RDMA fails if it needs more"
    remedy = "the administrator sets memlock to unlimited in limits.conf and for slurmd"
    return warning("locked_memory", text, remedy=remedy)


PEER = ("nvidia_peermem", "nv_peer_mem")
"""Kernel modules for GPUDirect RDMA."""

DMA_BUF = (5, 12)
"""The first version of Linux with DMA-BUF for RDMA, which NCCL uses with the open kernel modules of the driver."""


def direct(machine: MachineFacts) -> Finding | None:
    """Check that adapters can access the memory of GPUs (GPUDirect RDMA); EFA's driver needs no module for it."""
    ports = [port for port in machine.rdma_ports if port.driver != "efa"]
    driver = gpu_stack.gpu_driver(machine.root)
    release = read_fact(machine.root / "proc/sys/kernel/osrelease")
    if not (ports and driver and machine.gpus):
        return None
    if loaded := next(
        (name for name in PEER if (machine.root / "sys/module" / name).exists()), None
    ):
        return info("gpudirect_module", f"{loaded} is loaded")
    if driver.open_modules and tuple(map(int, re.findall(r"\d+", release)[:2])) >= DMA_BUF:
        return info(
            "gpudirect_dma_buf", f"by DMA-BUF: open kernel modules of the driver, Linux {release}"
        )
    text = "neither nvidia_peermem nor DMA-BUF: NCCL copies through host memory"
    remedy = "the administrator runs 'modprobe nvidia-peermem', or installs the open kernel modules"
    return absent("gpudirect_missing", text, remedy=remedy)
