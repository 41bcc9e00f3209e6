"""RDMA: adapters and their ports, and whether they reach the memory of GPUs."""

import re
import resource
import shutil
from collections.abc import Iterator
from itertools import groupby

from hpccoll.host import hardware
from hpccoll.host.hardware import RdmaPort
from hpccoll.sweep.doctor.machine import Finding, Machine
from hpccoll.units import format_size


def adapters(machine: Machine) -> Iterator[Finding]:
    """See which ports of adapters are in use, and how fast they are."""
    ports = hardware.rdma_ports(machine.root)
    if not ports:
        look = "; nodes may have some: srun hpccoll doctor looks there" if machine.settings else ""
        remedy = f"where there is one, a container is started with /sys and /dev/infiniband of its host{look}"
        yield Finding("RDMA", "no InfiniBand, RoCE or EFA adapter: between nodes TCP would be used", remedy, "none")
        return
    alike = groupby(sorted(ports, key=_words), key=_words)
    told = "; ".join(f"{', '.join(port.name for port in group)}: {words}" for words, group in alike)
    unused = any(not port.active and port.layer == "InfiniBand" for port in ports)
    if unused:
        remedy = "ports that are not active: see ibstat; a fabric without subnet manager has none"
        yield Finding("RDMA", told, remedy, "warn")
    else:
        yield Finding("RDMA", told)


def _words(port: RdmaPort) -> str:
    kind = "EFA" if port.driver == "efa" else "RoCE" if port.layer == "Ethernet" else port.layer
    return ", ".join(filter(None, (kind, port.rate, port.state.lower())))


def verbs(machine: Machine) -> Iterator[Finding]:
    """See that adapters can be opened: sysfs shows them in a container, too, that was started without their devices."""
    place = machine.root / "dev/infiniband"
    if hardware.rdma_ports(machine.root) and not any(place.glob("uverbs*")):
        remedy = "a container starts with --device=/dev/infiniband; else the admin loads ib_uverbs"
        yield Finding("RDMA devices", f"none in {place}: nothing can use the adapters from here", remedy, "warn")


LEAST_LOCKED = 1 << 30
"""Bytes that a process should be allowed to lock: adapters and GPUs read buffers that must not be paged out."""

LEAST_SHARED = 1 << 30
"""Bytes of /dev/shm, through which NCCL and MPI talk inside a node; containers begin with 64 MiB."""


def limits(machine: Machine) -> Iterator[Finding]:
    """See that buffers can be locked, and that there is shared memory, where RDMA or GPUs want them."""
    if not (hardware.rdma_ports(machine.root) or hardware.gpu_count(machine.root)):
        return
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and locked < LEAST_LOCKED:
        yield Finding("locked memory", f"at most {format_size(locked)} for a process: RDMA fails where it takes more",
                      "the admin sets memlock to unlimited, in limits.conf and for slurmd", "warn")  # fmt: skip
    place = machine.root / "dev/shm"
    shared = shutil.disk_usage(place).total if place.is_dir() else 0
    if shared < LEAST_SHARED:
        yield Finding("shared memory", f"{format_size(shared)} at {place}",
                      "a container is started with more (--shm-size), or with that of the host", "warn")  # fmt: skip


PEER = ("nvidia_peermem", "nv_peer_mem")
"""Modules of the kernel by which adapters reach the memory of GPUs."""

DMA_BUF = (5, 12)
"""The first kernel with DMA-BUF for RDMA, which NCCL takes where the driver's modules are the open ones."""


def direct(machine: Machine) -> Iterator[Finding]:
    """See that adapters can reach the memory of GPUs by themselves: GPUDirect RDMA. EFA's driver sees to it alone."""
    ports = [port for port in hardware.rdma_ports(machine.root) if port.driver != "efa"]
    driver = hardware.gpu_driver(machine.root)
    if not (ports and driver and hardware.gpu_count(machine.root)):
        return
    kernel = tuple(map(int, re.findall(r"\d+", hardware.kernel_release(machine.root))[:2]))
    if loaded := next((name for name in PEER if hardware.is_module_loaded(name, machine.root)), None):
        yield Finding("GPUDirect RDMA", f"{loaded} is loaded")
    elif driver.open_modules and kernel >= DMA_BUF:
        yield Finding(
            "GPUDirect RDMA",
            f"by DMA-BUF: open kernel modules of the driver, Linux {hardware.kernel_release(machine.root)}",
        )
    else:
        remedy = "the admin says 'modprobe nvidia-peermem', or installs the open kernel modules"
        said = "neither nvidia_peermem nor DMA-BUF: NCCL goes through host memory"
        yield Finding("GPUDirect RDMA", said, remedy, "none")
