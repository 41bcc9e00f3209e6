"""Checks of RDMA: adapters and their ports, memory limits, and GPUDirect RDMA."""

import re
import resource
from collections.abc import Iterator
from itertools import groupby

from hpccoll.common.text import Finding, absent, info, warning
from hpccoll.common.units import format_size
from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.machine import MachineFacts


def adapters(machine: MachineFacts) -> Iterator[Finding]:
    """Check the ports of the adapters: their kind, rate and state."""
    ports = gpu_stack.rdma_ports(machine.root)
    if not ports:
        nodes = "; if compute nodes have some, run srun hpccoll doctor" if machine.settings else ""
        yield absent(
            "rdma_missing", "no InfiniBand, RoCE or EFA adapter: nodes communicate over TCP", "RDMA",
            f"if the host has one, start the container with its /sys and /dev/infiniband{nodes}",
        )  # fmt: skip
        return
    groups = groupby(sorted(ports, key=_describe), key=_describe)
    text = "; ".join(f"{', '.join(port.name for port in group)}: {description}" for description, group in groups)
    unused = any(not port.active and port.layer == "InfiniBand" for port in ports)
    if unused:
        remedy = "for inactive ports see ibstat; without a subnet manager no InfiniBand port becomes active"
        yield warning("rdma_inactive", text, "RDMA", remedy)
    else:
        yield info("rdma", text, "RDMA")


def _describe(port: RdmaPort) -> str:
    """Return ``InfiniBand, 400 Gb/sec (4X NDR), active``."""
    kind = "EFA" if port.driver == "efa" else "RoCE" if port.layer == "Ethernet" else port.layer
    return ", ".join(filter(None, (kind, port.rate, port.state.lower())))


def verbs(machine: MachineFacts) -> Iterator[Finding]:
    """Check that adapters can be opened: a container may see them in sysfs but lack their devices."""
    directory = machine.root / "dev/infiniband"
    if gpu_stack.rdma_ports(machine.root) and not any(directory.glob("uverbs*")):
        yield warning(
            "rdma_devices_missing", f"none in {directory}: no process here can use the adapters", "RDMA devices",
            "start the container with --device=/dev/infiniband; without a container, the administrator loads ib_uverbs",
        )  # fmt: skip


MIN_LOCKED_BYTES = 1 << 30
"""Minimum limit of locked memory: adapters and GPUs read buffers that must not be paged out."""


def limits(machine: MachineFacts) -> Iterator[Finding]:
    """Check the limit of locked memory if the machine has adapters or GPUs."""
    if not (gpu_stack.rdma_ports(machine.root) or machine.gpus):
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and locked < MIN_LOCKED_BYTES:
        text = f"at most {format_size(locked)} for a process: RDMA fails if it needs more"
        remedy = "the administrator sets memlock to unlimited in limits.conf and for slurmd"
        yield warning("locked_memory", text, "locked memory", remedy)


PEER = ("nvidia_peermem", "nv_peer_mem")
"""Kernel modules for GPUDirect RDMA."""

DMA_BUF = (5, 12)
"""The first version of Linux with DMA-BUF for RDMA, which NCCL uses with the open kernel modules of the driver."""


def direct(machine: MachineFacts) -> Iterator[Finding]:
    """Check that adapters can access the memory of GPUs (GPUDirect RDMA); EFA's driver needs no module for it."""
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.driver != "efa"]
    driver = gpu_stack.gpu_driver(machine.root)
    if not (ports and driver and machine.gpus):
        return
    kernel = tuple(map(int, re.findall(r"\d+", gpu_stack.kernel_release(machine.root))[:2]))
    if loaded := next((name for name in PEER if gpu_stack.is_module_loaded(name, machine.root)), None):
        yield info("gpudirect_module", f"{loaded} is loaded", "GPUDirect RDMA")
    elif driver.open_modules and kernel >= DMA_BUF:
        release = gpu_stack.kernel_release(machine.root)
        text = f"by DMA-BUF: open kernel modules of the driver, Linux {release}"
        yield info("gpudirect_dma_buf", text, "GPUDirect RDMA")
    else:
        text = "neither nvidia_peermem nor DMA-BUF: NCCL copies through host memory"
        remedy = "the administrator runs 'modprobe nvidia-peermem', or installs the open kernel modules"
        yield absent("gpudirect_missing", text, "GPUDirect RDMA", remedy)
