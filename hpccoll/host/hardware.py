"""Equipment: what a machine has for GPUs, as its files tell, so that a login node can ask too; no library is loaded.

Every function takes the directory below which dev, etc, proc, sys and usr are. Places of libraries are in the order in
which they are found: that of the dynamic loader (ld.so(8)), and for NCCL that of cuda-pathfinder, by which CuPy loads
it: wheels of this environment, conda, the loader, and then NCCL_HOME and CUDA_PATH.
"""

import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")


def _text(path: Path) -> str:
    """Return what is in a file, nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def gpu_count(root: Path = ROOT) -> int:
    """Return the number of NVIDIA devices that this host shows."""
    return len([path for path in (root / "dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()])


def gpu_addresses(root: Path = ROOT) -> list[str]:
    """Return where on the PCI bus the devices are that the driver knows, such as ``0000:19:00.0``."""
    return sorted(path.name for path in (root / "proc/driver/nvidia/gpus").glob("*:*"))


def gpu_models(root: Path = ROOT) -> list[str]:
    """Return what the devices are, each model once."""
    told = map(_text, sorted((root / "proc/driver/nvidia/gpus").glob("*/information")))
    return list(dict.fromkeys(found[1] for text in told if (found := re.search(r"Model:\s*(.+)", text))))


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """The NVIDIA driver: its version in words, and whether its kernel modules are the open ones, which know DMA-BUF."""

    version: str
    open_modules: bool

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def gpu_driver(root: Path = ROOT) -> GpuDriver | None:
    """Return the driver that is loaded, None where there is none."""
    told = _text(root / "proc/driver/nvidia/version")
    found = re.search(r"Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", told)
    return GpuDriver(found[1], "Open Kernel Module" in told) if found else None


def nvswitch_count(root: Path = ROOT) -> int:
    """Return the number of NVSwitches that this host shows."""
    return len([p for p in (root / "dev").glob("nvidia-nvswitch*") if p.name[len("nvidia-nvswitch") :].isdecimal()])


def is_process_running(program: str, root: Path = ROOT) -> bool:
    """Return whether a process of that name is there; Linux keeps its first 15 letters."""
    return any(_text(path) == program[:15] for path in (root / "proc").glob("[0-9]*/comm"))


def kernel_release(root: Path = ROOT) -> str:
    """Return the release of the kernel, such as 6.8.0-40-generic."""
    return _text(root / "proc/sys/kernel/osrelease")


def is_module_loaded(name: str, root: Path = ROOT) -> bool:
    """Return whether the kernel has a module."""
    return (root / "sys/module" / name).exists()


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA adapter, in the kernel's words.

    Args:
        name: such as ``mlx5_0:1``, as NCCL_IB_HCA and UCX_NET_DEVICES have it.
        driver: of the adapter, such as ``mlx5_core`` or ``efa``; empty where it is not known.
        layer: ``InfiniBand`` or ``Ethernet``.
        rate: such as ``400 Gb/sec (4X NDR)``.
        state: such as ``ACTIVE``.
    """

    name: str
    driver: str
    layer: str
    rate: str
    state: str

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"


def rdma_ports(root: Path = ROOT) -> list[RdmaPort]:
    """Return the ports of all InfiniBand, RoCE and EFA adapters, the unused ones among them."""
    return [
        RdmaPort(
            name=f"{path.parent.parent.name}:{path.name}",
            driver=(path.parent.parent / "device/driver").resolve().name
            if (path.parent.parent / "device/driver").exists()
            else "",
            layer=_text(path / "link_layer"),
            rate=_text(path / "rate"),
            state=_text(path / "state").rpartition(" ")[2],  # "4: ACTIVE"
        )
        for path in sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    ]


def _loader_directories(root: Path) -> Iterator[Path]:
    """Yield the directories in which the dynamic loader looks, the first one first."""
    yield from (Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place)
    for file in (root / "etc/ld.so.conf", *sorted((root / "etc/ld.so.conf.d").glob("*.conf"))):
        yield from (root / line.lstrip("/") for line in _text(file).splitlines() if line.startswith("/"))
    for place in (f"{platform.machine()}-linux-gnu", ""):
        yield from (root / lib / place for lib in ("lib", "usr/lib"))
    yield from (root / lib for lib in ("lib64", "usr/lib64"))


def find_libraries(*patterns: str, root: Path = ROOT) -> list[Path]:
    """Return the libraries of these names, such as ``libnccl-net*.so``, as the loader finds them, each file once."""
    return _unique_files(
        path for place in _loader_directories(root) for name in patterns for path in sorted(place.glob(name))
    )


def _unique_files(paths: Iterable[Path]) -> list[Path]:
    there = (path for path in paths if path.is_file())
    return list({path.resolve(): path for path in reversed([*there])}.values())[::-1]


NCCL_LIBRARY = "libnccl.so.2"
NCCL_IN_WHEEL = Path("nvidia/nccl/lib") / NCCL_LIBRARY
"""Where wheels nvidia-nccl-cu12 and nvidia-nccl-cu13 put it, in site-packages."""


def nccl_libraries(root: Path = ROOT) -> list[Path]:
    """Return the libraries of NCCL that there are: the first is the one that CuPy takes."""
    homes = {name: Path(place) for name in ("CONDA_PREFIX", "NCCL_HOME", "CUDA_PATH", "CUDA_HOME")
             if (place := os.environ.get(name))}  # fmt: skip
    conda = homes.pop("CONDA_PREFIX", None)
    return _unique_files([
        *(Path(place) / NCCL_IN_WHEEL for place in sys.path),
        *([conda / "lib" / NCCL_LIBRARY] if conda else []),
        *find_libraries(NCCL_LIBRARY, root=root),
        *(home / lib / NCCL_LIBRARY for home in homes.values() for lib in ("lib64", "lib")),
    ])  # fmt: skip


def is_from_wheel(library: Path) -> bool:
    """Return whether a library of NCCL came by pip."""
    return library.as_posix().endswith(NCCL_IN_WHEEL.as_posix())


def nccl_version(library: Path) -> tuple[int, ...] | None:
    """Return the version of a library of NCCL where the name of its file, or the wheel that it came by, tells it."""
    wheels = library.parents[3].glob("nvidia_nccl_cu*.dist-info") if is_from_wheel(library) else ()
    told = " ".join(path.name for path in (library.resolve(), *wheels))
    found = re.search(r"(?:\.so\.|_cu\d+-)(2(?:\.\d+)+)", told)
    return tuple(map(int, found[1].split("."))) if found else None


PLUGIN_PATTERNS = ("libnccl-net*.so", "libnccl-tuner*.so", "libnccl-profiler*.so", "libnccl-ofi-tuner.so")
"""What NCCL loads by itself where the loader finds it, or where a variable such as NCCL_NET_PLUGIN names it."""

PLUGIN_SIGNATURES = {b"NET/OFI": "aws-ofi-nccl", b"SHARP": "SHARP"}
"""Plugins by what stands in them."""


def plugin_kind(path: Path) -> str | None:
    """Return what a plugin of NCCL is: ``aws-ofi-nccl``, ``SHARP`` (nccl-rdma-sharp-plugins), or None."""
    try:
        content = path.read_bytes()  # less than a few MB
    except OSError:
        return None
    return next((kind for words, kind in PLUGIN_SIGNATURES.items() if words in content), None)


def nccl_plugins(root: Path = ROOT) -> list[tuple[Path, str | None]]:
    """Return the plugins of NCCL that the loader finds, each with its kind."""
    return [(path, plugin_kind(path)) for path in find_libraries(*PLUGIN_PATTERNS, root=root)]


def nccl_settings(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """Return what NCCL is told: where, the variable and its value, the place that wins first.

    The environment wins, then the user's file (NCCL_CONF_FILE, or .nccl.conf at home), then /etc/nccl.conf (NCCL's
    user guide, Environment Variables). What is set in a file, no environment shows.
    """
    own = os.environ.get("NCCL_CONF_FILE")
    mine = Path(own) if own else Path(os.environ.get("HOME", "/")) / ".nccl.conf"
    found = [("environment", name, value) for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    for shown, path in ((str(mine), mine), ("/etc/nccl.conf", root / "etc/nccl.conf")):
        lines = (line.strip().partition("=") for line in _text(path).splitlines() if not line.startswith("#"))
        found += [(shown, name.strip(), value.strip()) for name, sign, value in lines if sign]
    return found
