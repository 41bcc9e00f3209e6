"""GPU hardware and NCCL libraries of a machine, read from files alone, so that login nodes can inspect them too.

Every function takes the root directory that contains dev, etc, proc, sys and usr. Libraries are
listed in search order: that of the dynamic loader (ld.so(8)), and for NCCL that of cuda-pathfinder,
which CuPy uses: wheels of this environment, conda, the loader, and then NCCL_HOME and CUDA_PATH.
"""

import os
import platform
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpccoll.common.files import read_fact
from hpccoll.host.program_facts import installed_version

ROOT = Path("/")


def gpu_count(root: Path = ROOT) -> int:
    """Return the number of NVIDIA GPUs that this host exposes."""
    return _count_devices("nvidia", root)


def _count_devices(prefix: str, root: Path) -> int:
    """Return the number of files in /dev whose name is a prefix and a number."""
    names = [path.name for path in (root / "dev").glob(f"{prefix}*")]
    return sum(name.removeprefix(prefix).isdecimal() for name in names)


def gpu_addresses(root: Path = ROOT) -> list[str]:
    """Return the PCI bus addresses of the GPUs known to the driver, such as ``0000:19:00.0``."""
    return sorted(path.name for path in (root / "proc/driver/nvidia/gpus").glob("*:*"))


def gpu_models(root: Path = ROOT) -> list[str]:
    """Return the models of the GPUs known to the driver, each once."""
    texts = map(read_fact, sorted((root / "proc/driver/nvidia/gpus").glob("*/information")))
    matches = (re.search(r"Model:\s*(.+)", text) for text in texts)
    return list(dict.fromkeys(match[1] for match in matches if match))


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """The NVIDIA driver, such as ``580.65.06``, and whether its open modules are loaded, which support DMA-BUF."""

    version: str
    open_modules: bool

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def gpu_driver(root: Path = ROOT) -> GpuDriver | None:
    """Return the loaded driver, None without a driver."""
    text = read_fact(root / "proc/driver/nvidia/version")
    match = re.search(r"Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return GpuDriver(match[1], "Open Kernel Module" in text) if match else None


def nvswitch_count(root: Path = ROOT) -> int:
    """Return the number of NVSwitches that this host exposes."""
    return _count_devices("nvidia-nvswitch", root)


def imex_channels(root: Path = ROOT) -> int:
    """Return the number of IMEX channels here, without which NVLink reaches no memory of other hosts."""
    return len(list((root / "dev/nvidia-caps-imex-channels").glob("channel*")))


def is_process_running(program: str, root: Path = ROOT) -> bool:
    """Return whether a process of that name runs; Linux keeps the first 15 characters of the name."""
    names = map(read_fact, (root / "proc").glob("[0-9]*/comm"))
    return program[:15] in names


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA adapter, in the kernel's terms.

    The name is that in NCCL_IB_HCA and UCX_NET_DEVICES, such as ``mlx5_0:1``; the driver such as
    ``mlx5_core`` or ``efa``, empty if unknown; the link layer ``InfiniBand`` or ``Ethernet``; the
    rate such as ``400 Gb/sec (4X NDR)``.
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
    """Return the ports of all InfiniBand, RoCE and EFA adapters, including unused ones."""
    ports = []
    for path in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        adapter = path.parent.parent
        driver = adapter / "device/driver"
        port = RdmaPort(
            name=f"{adapter.name}:{path.name}",
            driver=driver.resolve().name if driver.exists() else "",
            layer=read_fact(path / "link_layer"),
            rate=read_fact(path / "rate"),
            state=read_fact(path / "state").rpartition(" ")[2],  # "4: ACTIVE"
        )
        ports.append(port)
    return ports


def _loader_directories(root: Path) -> Iterator[Path]:
    """Yield the directories that the dynamic loader searches, in its order."""
    for path in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if path:
            yield Path(path)
    for file in (root / "etc/ld.so.conf", *sorted((root / "etc/ld.so.conf.d").glob("*.conf"))):
        for line in read_fact(file).splitlines():
            if line.startswith("/"):
                yield root / line.lstrip("/")
    for multiarch in (f"{platform.machine()}-linux-gnu", ""):
        yield root / "lib" / multiarch
        yield root / "usr/lib" / multiarch
    yield root / "lib64"
    yield root / "usr/lib64"


def find_libraries(*patterns: str, root: Path = ROOT) -> list[Path]:
    """Return the libraries that match the patterns, such as ``libnccl-net*.so``, in the loader's search order."""
    paths: list[Path] = []
    for directory in _loader_directories(root):
        for pattern in patterns:
            paths += sorted(directory.glob(pattern))
    return _unique_files(paths)


def _unique_files(paths: Iterable[Path]) -> list[Path]:
    """Return the existing files in the order of their first paths, each by that path."""
    first_paths: dict[Path, Path] = {}
    for path in paths:
        if path.is_file():
            first_paths.setdefault(path.resolve(), path)
    return list(first_paths.values())


MIN_CUPY = 14
"""The major version of the oldest usable CuPy. Up to 13.6 its binding of NCCL has no commSplit and
hands out unique ids of another type (cupy_backends/cuda/libs/nccl.pyx), and its streams lack
__cuda_stream__, which nccl4py needs."""

CUPY_PACKAGES = ("cupy", *(f"cupy-cuda{major}x" for major in (11, 12, 13)))
"""The packages that contain CuPy."""


KERNEL_CACHE_VARIABLE = "CUPY_CACHE_DIR"


def choose_kernel_cache() -> None:
    """Have CuPy keep compiled kernels in a temporary directory if it cannot write to its own, as in some containers.

    Importing CuPy creates that directory (CUPY_CACHE_DIR, or ~/.cupy/kernel_cache), and compiling a
    kernel writes to it; both raise OSError if they fail (cupy/cuda/_compiler_cache.py of 14.2). To
    be called before CuPy is imported. The processes of a user on a node share the temporary
    directory: CuPy replaces its files atomically.
    """
    import tempfile  # only ranks with GPUs need it

    if not os.environ.get(KERNEL_CACHE_VARIABLE):
        os.environ.pop(KERNEL_CACHE_VARIABLE, None)  # CuPy would create a directory without a name
    try:
        directory = Path(
            os.environ.get(KERNEL_CACHE_VARIABLE) or Path("~/.cupy/kernel_cache").expanduser()
        )
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return
    except (OSError, RuntimeError):  # RuntimeError: the user has no home directory
        os.environ[KERNEL_CACHE_VARIABLE] = _own_temporary_directory()


def _own_temporary_directory() -> str:
    """Return a directory that only this user can write to; others could exchange the kernels in it."""
    import tempfile

    shared = Path(tempfile.gettempdir()) / f"hpccoll-kernels-{os.getuid()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        status = shared.lstat()
        if (
            stat.S_ISDIR(status.st_mode)
            and status.st_uid == os.getuid()
            and not status.st_mode & 0o022
        ):
            return str(shared)
    return tempfile.mkdtemp(prefix=f"{shared.name}-")


def is_old_cupy(version: str) -> bool:
    """Return whether a version of CuPy is too old; one that is not a number counts as new."""
    major = re.match(r"\d+", version)
    return major is not None and int(major[0]) < MIN_CUPY


def old_cupy_reason() -> str | None:
    """Return the reason why the installed CuPy is too old; None if it is not, or if none is installed."""
    versions = (installed_version(package) for package in CUPY_PACKAGES)
    old = next((version for version in versions if version and is_old_cupy(version)), None)
    remedy = "pip install 'hpccoll[cuda12]', or hpccoll[cuda13] where the driver is newer"
    return old and f"CuPy {old} is too old; valid: {MIN_CUPY} or newer; do: {remedy}"


NCCL_LIBRARY = "libnccl.so.2"
NCCL_IN_WHEEL = Path("nvidia/nccl/lib") / NCCL_LIBRARY
"""The path of the library in site-packages, from the wheels nvidia-nccl-cu12 and nvidia-nccl-cu13."""


def nccl_libraries(root: Path = ROOT) -> list[Path]:
    """Return the installed NCCL libraries; CuPy loads the first."""
    candidates = [Path(path) / NCCL_IN_WHEEL for path in sys.path]
    conda = os.environ.get("CONDA_PREFIX")
    if conda:
        candidates.append(Path(conda) / "lib" / NCCL_LIBRARY)
    candidates += find_libraries(NCCL_LIBRARY, root=root)
    for name in ("NCCL_HOME", "CUDA_PATH", "CUDA_HOME"):
        home = os.environ.get(name)
        if home:
            candidates += [Path(home) / lib / NCCL_LIBRARY for lib in ("lib64", "lib")]
    return _unique_files(candidates)


def is_from_wheel(library: Path) -> bool:
    return library.as_posix().endswith(NCCL_IN_WHEEL.as_posix())


def nccl_version(library: Path) -> tuple[int, ...] | None:
    """Return the version of an NCCL library, from the name of its file or its wheel; None if neither contains it."""
    wheels = library.parents[3].glob("nvidia_nccl_cu*.dist-info") if is_from_wheel(library) else ()
    names = " ".join(path.name for path in (library.resolve(), *wheels))
    match = re.search(r"(?:\.so\.|_cu\d+-)(2(?:\.\d+)+)", names)
    if not match:
        return None
    return tuple(map(int, match[1].split(".")))


PLUGIN_PATTERNS = (
    "libnccl-net*.so",
    "libnccl-tuner*.so",
    "libnccl-profiler*.so",
    "libnccl-ofi-tuner.so",
)
"""File names of plugins that NCCL loads if the loader finds them, or if a variable such as NCCL_NET_PLUGIN is set."""

PLUGIN_SIGNATURES = {b"NET/OFI": "aws-ofi-nccl", b"SHARP": "SHARP"}
"""The kind of a plugin by a byte string that its file contains."""


def plugin_kind(path: Path) -> str | None:
    """Return the kind of an NCCL plugin: ``aws-ofi-nccl``, ``SHARP`` (nccl-rdma-sharp-plugins), or None if unknown."""
    try:
        content = path.read_bytes()  # a few MB at most
    except OSError:
        return None
    return next(
        (kind for signature, kind in PLUGIN_SIGNATURES.items() if signature in content), None
    )


def nccl_plugins(root: Path = ROOT) -> list[tuple[Path, str | None]]:
    """Return the NCCL plugins that the loader finds, each with its kind."""
    return [(path, plugin_kind(path)) for path in find_libraries(*PLUGIN_PATTERNS, root=root)]


def nccl_configuration_files(root: Path = ROOT) -> tuple[Path, Path]:
    """Return the user's file and that of the host; NCCL takes from the second what the first lacks.

    The user's is NCCL_CONF_FILE, or .nccl.conf in the home directory (NCCL's user guide,
    Environment Variables).
    """
    named = os.environ.get("NCCL_CONF_FILE")
    own = Path(named) if named else Path(os.environ.get("HOME", "/")) / ".nccl.conf"
    return own, root / "etc/nccl.conf"


def nccl_settings(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """Return the settings of NCCL as (source, variable, value), highest precedence first.

    The environment takes precedence over the files.
    """
    settings = [
        ("environment", name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith("NCCL_")
    ]
    users_file, hosts_file = nccl_configuration_files(root)
    for source, path in ((str(users_file), users_file), ("/etc/nccl.conf", hosts_file)):
        for line in read_fact(path).splitlines():
            name, sign, value = line.strip().partition("=")
            if sign and not line.startswith("#"):
                settings.append((source, name.strip(), value.strip()))
    return settings
