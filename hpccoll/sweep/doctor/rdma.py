"""Checks of RDMA: adapters and their ports, memory limits, and GPUDirect RDMA."""

import re
import resource
from collections.abc import Iterator
from itertools import groupby

from hpccoll.common.units import format_size
from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.findings import DoctorFinding, finding
from hpccoll.sweep.doctor.machine import MachineFacts


def adapters(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check the ports of the adapters: their kind, rate and state."""
    ports = gpu_stack.rdma_ports(machine.root)
    if not ports:
        remedy = "; if compute nodes have some, run srun hpccoll doctor" if machine.settings else ""
        yield finding("rdma_missing", "none", nodes=remedy)
        return
    groups = groupby(sorted(ports, key=_describe), key=_describe)
    text = "; ".join(f"{', '.join(port.name for port in group)}: {description}" for description, group in groups)
    unused = any(not port.active and port.layer == "InfiniBand" for port in ports)
    if unused:
        yield finding("rdma_inactive", "warn", ports=text)
    else:
        yield finding("rdma", ports=text)


def _describe(port: RdmaPort) -> str:
    """Return ``InfiniBand, 400 Gb/sec (4X NDR), active``."""
    kind = "EFA" if port.driver == "efa" else "RoCE" if port.layer == "Ethernet" else port.layer
    return ", ".join(filter(None, (kind, port.rate, port.state.lower())))


def verbs(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check that adapters can be opened: a container may see them in sysfs but lack their devices."""
    directory = machine.root / "dev/infiniband"
    if gpu_stack.rdma_ports(machine.root) and not any(directory.glob("uverbs*")):
        yield finding("rdma_devices_missing", "warn", directory=directory)


MIN_LOCKED_BYTES = 1 << 30
"""Minimum limit of locked memory: adapters and GPUs read buffers that must not be paged out."""


def limits(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check the limit of locked memory if the machine has adapters or GPUs."""
    if not (gpu_stack.rdma_ports(machine.root) or gpu_stack.gpu_count(machine.root)):
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and locked < MIN_LOCKED_BYTES:
        yield finding("locked_memory", "warn", limit=format_size(locked))


PEER = ("nvidia_peermem", "nv_peer_mem")
"""Kernel modules for GPUDirect RDMA."""

DMA_BUF = (5, 12)
"""The first version of Linux with DMA-BUF for RDMA, which NCCL uses with the open kernel modules of the driver."""


def direct(machine: MachineFacts) -> Iterator[DoctorFinding]:
    """Check that adapters can access the memory of GPUs (GPUDirect RDMA); EFA's driver needs no module for it."""
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.driver != "efa"]
    driver = gpu_stack.gpu_driver(machine.root)
    if not (ports and driver and gpu_stack.gpu_count(machine.root)):
        return
    kernel = tuple(map(int, re.findall(r"\d+", gpu_stack.kernel_release(machine.root))[:2]))
    if loaded := next((name for name in PEER if gpu_stack.is_module_loaded(name, machine.root)), None):
        yield finding("gpudirect_module", module=loaded)
    elif driver.open_modules and kernel >= DMA_BUF:
        yield finding("gpudirect_dma_buf", kernel=gpu_stack.kernel_release(machine.root))
    else:
        yield finding("gpudirect_missing", "none")
