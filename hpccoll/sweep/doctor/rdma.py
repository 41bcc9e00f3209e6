"""RDMA: adapters and their ports, and whether they reach the memory of GPUs."""

import re
import resource
import shutil
from collections.abc import Iterator
from itertools import groupby

from hpccoll.host import gpu_stack
from hpccoll.host.gpu_stack import RdmaPort
from hpccoll.sweep.doctor.findings import DoctorFinding, found
from hpccoll.sweep.doctor.machine import Machine
from hpccoll.units import format_size


def adapters(machine: Machine) -> Iterator[DoctorFinding]:
    """See which ports of adapters are in use, and how fast they are."""
    ports = gpu_stack.rdma_ports(machine.root)
    if not ports:
        look = "; nodes may have some: srun hpccoll doctor looks there" if machine.settings else ""
        yield found("rdma_missing", "none", nodes=look)
        return
    alike = groupby(sorted(ports, key=_words), key=_words)
    text = "; ".join(f"{', '.join(port.name for port in group)}: {words}" for words, group in alike)
    unused = any(not port.active and port.layer == "InfiniBand" for port in ports)
    if unused:
        yield found("rdma_inactive", "warn", ports=text)
    else:
        yield found("rdma", ports=text)


def _words(port: RdmaPort) -> str:
    kind = "EFA" if port.driver == "efa" else "RoCE" if port.layer == "Ethernet" else port.layer
    return ", ".join(filter(None, (kind, port.rate, port.state.lower())))


def verbs(machine: Machine) -> Iterator[DoctorFinding]:
    """See that adapters can be opened: sysfs shows them in a container, too, that was started without their devices."""
    place = machine.root / "dev/infiniband"
    if gpu_stack.rdma_ports(machine.root) and not any(place.glob("uverbs*")):
        yield found("rdma_devices_missing", "warn", directory=place)


LEAST_LOCKED = 1 << 30
"""Bytes that a process should be allowed to lock: adapters and GPUs read buffers that must not be paged out."""

LEAST_SHARED = 1 << 30
"""Bytes of /dev/shm, through which NCCL and MPI talk inside a node; containers begin with 64 MiB."""


def limits(machine: Machine) -> Iterator[DoctorFinding]:
    """See that buffers can be locked, and that there is shared memory, where RDMA or GPUs want them."""
    if not (gpu_stack.rdma_ports(machine.root) or gpu_stack.gpu_count(machine.root)):
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and locked < LEAST_LOCKED:
        yield found("locked_memory", "warn", limit=format_size(locked))
    place = machine.root / "dev/shm"
    shared = shutil.disk_usage(place).total if place.is_dir() else 0
    if shared < LEAST_SHARED:
        yield found("shared_memory", "warn", size=format_size(shared), directory=place)


PEER = ("nvidia_peermem", "nv_peer_mem")
"""Modules of the kernel by which adapters reach the memory of GPUs."""

DMA_BUF = (5, 12)
"""The first kernel with DMA-BUF for RDMA, which NCCL takes where the driver's modules are the open ones."""


def direct(machine: Machine) -> Iterator[DoctorFinding]:
    """See that adapters can reach the memory of GPUs by themselves: GPUDirect RDMA. EFA's driver sees to it alone."""
    ports = [port for port in gpu_stack.rdma_ports(machine.root) if port.driver != "efa"]
    driver = gpu_stack.gpu_driver(machine.root)
    if not (ports and driver and gpu_stack.gpu_count(machine.root)):
        return
    kernel = tuple(map(int, re.findall(r"\d+", gpu_stack.kernel_release(machine.root))[:2]))
    if loaded := next((name for name in PEER if gpu_stack.is_module_loaded(name, machine.root)), None):
        yield found("gpudirect_module", module=loaded)
    elif driver.open_modules and kernel >= DMA_BUF:
        yield found("gpudirect_dma_buf", kernel=gpu_stack.kernel_release(machine.root))
    else:
        yield found("gpudirect_missing", "none")
