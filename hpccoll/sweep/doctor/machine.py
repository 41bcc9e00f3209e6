"""The machine that the checks of ``hpccoll doctor`` examine; each fact is determined once."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hpccoll.common.errors import BadInputError
from hpccoll.host.adapter_links import AdapterPort, adapter_ports, infiniband_mtus
from hpccoll.host.cpu_and_memory import SharedMemorySpace
from hpccoll.host.gpu_stack import ROOT, RdmaPort, gpu_count, rdma_ports
from hpccoll.host.machine_load import read_load
from hpccoll.host.network_ports import EthernetInterface, ethernet_interfaces
from hpccoll.host.program_facts import installed_version
from hpccoll.sweep.slurm import query

LIBRARY = "import json; from mpi4py import MPI; print(json.dumps([MPI.get_vendor()[0], MPI.Get_library_version()]))"

NVLINK = """
import json
from hpccoll.host.cuda_driver import supports_multicast
from hpccoll.host.gpu_facts import gpu_facts
from hpccoll.host.gpu_stack import gpu_addresses
domains = {gpu_facts(bus)["nvlink_domain"] for bus in gpu_addresses()}
print(json.dumps({"multicast": supports_multicast(), "domains": sorted(domains - {None})}))
"""

SPEAKS = {
    "CRAY MPICH": ("cray_shasta", "pmi2"),
    "Open MPI": ("pmix",),
    "Intel MPI": ("pmi2",),
    "MVAPICH": ("pmi2",),
    "MPICH": ("pmi2",),
}
"""The types of ``srun --mpi`` that a library supports, by a part of its version text; the first match counts."""


def error_line(child: subprocess.CompletedProcess[str]) -> str:
    """Return the last line on stderr of a child that failed."""
    return (child.stderr.strip().splitlines() or ["it died"])[-1]


class MachineFacts:
    """Facts of this machine that several checks use."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.load_before = read_load(root)

    @cached_property
    def library(self) -> subprocess.CompletedProcess[str]:
        """The version text of the MPI library, from a child process: MPI starts only once per process and may abort."""
        return self.python(LIBRARY)

    @cached_property
    def pmi_types(self) -> tuple[str, ...]:
        """The types of ``srun --mpi`` that the MPI library supports, the best first; empty if unknown."""
        try:
            vendor, version_text = json.loads(self.library.stdout)
        # it hangs, aborts or prints more: PMI may be what is broken
        except (subprocess.TimeoutExpired, ValueError):
            return ()
        types = next(
            (types for name, types in SPEAKS.items() if name in f"{vendor} {version_text}"), ()
        )
        # the text of MPICH contains its configure options
        built_for_pmix = "pmix" in version_text.lower()
        if built_for_pmix and "pmix" not in types:
            return ("pmix", *types)
        return types

    @cached_property
    def controller(self) -> dict[str, str] | str:
        """The settings of Slurm's controller, or why they cannot be read."""
        try:
            return query.configuration()
        except BadInputError as error:
            # scontrol may print more than one message
            message = error.expected.rpartition("scontrol: ")[2]
            return re.sub(f"^(a request that Slurm grants|{query.NO_ANSWER}):? ", "", message)

    @cached_property
    def rdma_ports(self) -> list[RdmaPort]:
        return rdma_ports(self.root)

    @cached_property
    def adapter_ports(self) -> list[AdapterPort]:
        return adapter_ports(self.root)

    @cached_property
    def infiniband_mtus(self) -> Mapping[str, int]:
        """The sizes of packets in bytes by active port of InfiniBand; empty without ibv_devinfo."""
        is_active = any(port.active and port.layer == "InfiniBand" for port in self.rdma_ports)
        if not is_active or shutil.which("ibv_devinfo") is None:
            return {}
        try:
            child = subprocess.run(
                ["ibv_devinfo"], capture_output=True, text=True, check=False, timeout=10
            )
        except subprocess.TimeoutExpired:
            return {}
        return infiniband_mtus(child.stdout)

    @cached_property
    def ethernet(self) -> list[EthernetInterface]:
        return ethernet_interfaces(self.root / "sys")

    @cached_property
    def shared_memory(self) -> SharedMemorySpace:
        return SharedMemorySpace.read(self.root)

    @cached_property
    def gpus(self) -> int:
        return gpu_count(self.root)

    @cached_property
    def nvlink(self) -> Mapping[str, Any]:
        """What the driver says of NVLink: ``multicast``, None if unknown, and ``domains``, each with its clique.

        A child asks, because the driver may hang.
        """
        try:
            answer: Mapping[str, Any] = json.loads(self.python(NVLINK).stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return {"multicast": None, "domains": ()}
        return answer

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Slurm's controller; empty if it does not answer."""
        if not isinstance(self.controller, dict):
            return {}
        return self.controller

    @cached_property
    def accounting(self) -> bool:
        return query.has_accounting()

    @cached_property
    def mpi_types(self) -> list[str]:
        return query.mpi_types()

    @property
    def mpi_type(self) -> str | None:
        """The type of ``srun --mpi`` that Slurm and the MPI library support; None if there is none."""
        return next((name for name in self.pmi_types if name in self.mpi_types), None)

    wheel = staticmethod(installed_version)

    def python(self, code: str, *launcher: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in a child process, by a launcher such as ``mpiexec -n 2`` or without, and return its result.

        Raises:
            TimeoutExpired: after 60 s.
        """
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return subprocess.run(
            [*launcher, sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PATH": path},
        )
