"""Doctor, on machines with GPUs of all kinds: trees of files, and children that answer as a test wants."""

import json
import subprocess
from types import SimpleNamespace

import pytest
from fake_machine_files import CLOSED, EFA, GPUS, LINUX, MANAGED, OPEN, RAILS, SWITCHES, equip
from golden_page import assert_golden

from hpccoll.common.text import finding_line
from hpccoll.host import gpu_stack
from hpccoll.sweep import doctor
from hpccoll.sweep.doctor import gpu, mpi, nccl, rdma
from hpccoll.sweep.doctor.machine import LIBRARY, NVLINK, MachineFacts

MPICH = ("MPICH", "MPICH Version:      5.0.2\n")
OPEN_MPI = ("Open MPI", "Open MPI v5.0.3, package: Open MPI, ident: 5.0.3\n")


@pytest.fixture
def here(tmp_path, monkeypatch, programs):  # noqa: ARG001 - there is no other program
    """Have a machine of such parts, with these wheels; ``aware`` is what its MPI says of device buffers."""
    names = ("LD_LIBRARY_PATH", "CONDA_PREFIX", "NCCL_HOME", "CUDA_PATH", "CUDA_HOME")
    for name in (*names, *(name for name in gpu_stack.os.environ if name.startswith("NCCL_"))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[str(tmp_path / "site")]))
    monkeypatch.setattr(mpi, "mpiexec_command", lambda: ["mpiexec"])

    def here(
        *parts,
        wheels=(),
        library=MPICH,
        aware=False,
        computes=(0, "8\n"),
        multicast=None,
        domains=(),
    ):
        root = equip(tmp_path, LINUX, *parts)

        def python(_, code, *__):
            if code.startswith(nccl.VERSION.partition("{")[0]):
                return subprocess.CompletedProcess([], 0, "2.27.3\n", "")
            code_and_text = {
                LIBRARY: (0, json.dumps(library)), mpi.HELLO: (0, "ranks 2\nranks 2\n"),
                gpu.AWARE: (0, json.dumps([aware, "the query says so"])), gpu.COMPUTES: computes,
                NVLINK: (0, json.dumps({"multicast": multicast, "domains": domains})),
            }[code]  # fmt: skip
            return subprocess.CompletedProcess(
                [], code_and_text[0], code_and_text[1], code_and_text[1]
            )

        monkeypatch.setattr(MachineFacts, "python", python)
        there = {"snakemake": "9.27.1", **dict(wheels)}
        monkeypatch.setattr(MachineFacts, "wheel", lambda _, name: there.get(name))
        return {finding.title: finding for finding in doctor.examine(root)}

    return here


def line_of(finding, root):
    return finding_line(finding).replace(str(root), "/ROOT")


def test_the_lines_of_a_machine_with_everything_and_of_one_with_nothing(
    here, tmp_path, monkeypatch
):
    monkeypatch.setenv("UCX_TLS", "rc,cuda_copy")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    pages = (
        here(RAILS),
        here(GPUS, SWITCHES, CLOSED, wheels={"cupy-cuda13x": "14.2.0"}),
        here(OPEN, EFA),
    )
    of_this_machine = {
        "machine",
        "load",
        "memory of killed processes",
        "shared memory",
        "compiled executor",
        "locked memory",
    }
    lines = (
        line_of(each, tmp_path)
        for page in pages
        for title, each in page.items()
        if title not in of_this_machine
    )
    assert_golden("doctor_gpu", dict.fromkeys(lines))


DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Mon\n"
PEERMEM = {"sys/module/nvidia_peermem/version": ""}
OLD_LINUX = {"proc/sys/kernel/osrelease": "5.10.0-9\n"}
NICS = {
    "sys/bus/pci/devices/0000:19:00.0": "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:19:00.0/",
    "sys/class/infiniband/mlx5_0/device": "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/",
}


def second_gpu(port):
    path = f"sys/devices/pci0000:15/0000:{port}:01.0/0000:16:00.0/0000:17:01.0/0000:3b:00.0/"
    return {**NICS, "sys/bus/pci/devices/0000:3b:00.0": path}


@pytest.mark.parametrize(
    ("parts", "title", "kind"),
    [
        ((), "RDMA", "rdma_missing"),
        ((RAILS, {"dev/infiniband/uverbs0": ""}), "RDMA devices", None),
        ((GPUS, OPEN), "GPU", "gpu"),
        ((GPUS,), "GPU", "gpu_no_driver"),
        (
            (GPUS, {"proc/driver/nvidia/version": DRIVER.format("470.57.02")}),
            "GPU",
            "gpu_old_driver",
        ),
        ((GPUS, second_gpu("15")), "GPUs and adapters", "gpu_nic_balanced"),
        ((GPUS, second_gpu("3a")), "GPUs and adapters", "gpu_nic_unbalanced"),
        ((GPUS, RAILS, OPEN), "GPUDirect RDMA", "gpudirect_dma_buf"),
        ((GPUS, RAILS, OPEN, OLD_LINUX), "GPUDirect RDMA", "gpudirect_missing"),
        ((GPUS, RAILS, CLOSED, PEERMEM), "GPUDirect RDMA", "gpudirect_module"),
        ((GPUS, OPEN), "GPUDirect RDMA", None),
        ((GPUS, OPEN), "NCCL settings", "nccl_settings"),
        ((GPUS, OPEN), "NCCL plugins", "nccl_plugins_missing"),
        ((GPUS, OPEN, {"usr/lib64/libnccl-net.so": "SHARP rank"}), "NCCL plugins", "nccl_plugins"),
    ],
)
def test_a_machine_of_such_parts_has_a_finding_of_this_kind(here, parts, title, kind):
    found = here(*parts).get(title)
    assert (found and found.kind) == kind


@pytest.mark.parametrize(
    ("parts", "multicast", "kind"),
    [
        ((), True, None),
        ((GPUS, OPEN), True, "nvswitch"),
        ((GPUS, OPEN), False, "nvswitch_missing"),
        ((GPUS, OPEN), None, "nvswitch_unknown"),
        ((GPUS, SWITCHES), True, "nvswitch"),
        ((GPUS, SWITCHES), None, "fabric_manager_missing"),
        ((GPUS, SWITCHES, MANAGED), False, "nvswitch_missing"),
    ],
)
def test_nvswitches_are_known_by_the_drivers_multicast_and_not_by_files_that_a_container_hides(
    here, parts, multicast, kind
):
    found = here(*parts, multicast=multicast).get("NVLink")
    assert (found and found.kind) == kind


def test_the_program_that_asks_the_driver_answers_on_any_machine():
    found = MachineFacts().nvlink
    assert found["multicast"] in (True, False, None)
    assert isinstance(found["domains"], list)


CHANNEL, IMEX = {"dev/nvidia-caps-imex-channels/channel0": ""}, {"proc/88/comm": "nvidia-imex\n"}


@pytest.mark.parametrize(
    ("parts", "domains", "kind"),
    [
        ((), ["d.1"], None),
        ((GPUS,), [], None),
        ((GPUS,), ["d.1"], "imex_channel_missing"),
        ((GPUS, CHANNEL), ["d.1"], "imex_service_missing"),
        ((GPUS, CHANNEL, IMEX), ["d.1"], "nvlink_domain"),
        ((GPUS, CHANNEL), [], "nvlink_domain_missing"),
    ],
)
def test_an_nvlink_domain_needs_imex_channels_and_their_service(here, parts, domains, kind):
    found = here(*parts, domains=domains).get("NVLink domain")
    assert (found and found.kind) == kind
    assert found is None or not domains or "d.1" in found.text


def test_the_nccl_of_the_site_is_reported_and_a_wheel_that_hides_it(here, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mod")
    site = here({"mod/libnccl.so.2": ""}, wheels={"nccl4py": "0.6.0"})
    assert (site["NCCL"].kind, site["nccl4py"].kind) == ("nccl", "nccl4py")
    assert site["NCCL"].text == f"2.27.3, {tmp_path}/mod/libnccl.so.2"
    finding = here(GPUS, {"site/nvidia/nccl/lib/libnccl.so.2": ""})["NCCL"]
    assert finding.kind == "nccl_hidden"
    assert finding.remedy.endswith(f"or set LD_PRELOAD={tmp_path}/mod/libnccl.so.2")


@pytest.mark.parametrize(
    ("parts", "wheels", "kind", "fitting"),
    [
        ((GPUS, CLOSED), {}, "cupy_missing", "cupy-cuda12x"),
        ((), {"cupy-cuda13x": "14.2.0"}, "cupy_untested", None),
        ((GPUS, CLOSED), {"cupy-cuda13x": "14.2.0"}, "cupy_too_new", "cupy-cuda12x"),
        ((GPUS, OPEN), {"cupy-cuda12x": "14.2.0"}, "cupy", None),
        (
            (GPUS, OPEN),
            {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"},
            "cupy_twice",
            "cupy-cuda13x",
        ),
        ((GPUS, OPEN), {"cupy-cuda12x": "13.6.0"}, "cupy_too_old", "cupy-cuda13x"),
        ((), {"cupy-cuda12x": "9.0"}, "cupy_too_old", "cupy-cudaNx"),
    ],
)
def test_the_one_cupy_that_fits_the_driver_is_named(here, parts, wheels, kind, fitting):
    finding = here(*parts, wheels=wheels)["CuPy"]
    assert finding.kind == kind
    assert (finding.severity == "critical") == (
        kind in ("cupy_too_new", "cupy_twice", "cupy_too_old")
    )
    assert fitting is None or fitting in finding.remedy


def test_a_cupy_that_does_not_compute_says_why(here):
    failure = (1, "Traceback\nRuntimeError: failed to load libnvrtc.so.13\n")
    finding = here(GPUS, OPEN, wheels={"cupy-cuda13x": "14.2.0"}, computes=failure)["CuPy"]
    assert (finding.kind, finding.severity) == ("cupy_broken", "critical")
    assert "(RuntimeError: failed to load libnvrtc.so.13)" in finding.text


@pytest.mark.parametrize(
    ("transports", "warns"),
    [
        (None, False),
        ("rc,sm,self,cuda", False),
        ("^cuda_ipc", False),
        ("rc,cuda_copy,gdr_copy", False),
        ("rc, cuda_ipc", True),
    ],
)
def test_transports_of_cuda_without_gdr_copy_are_reported(here, monkeypatch, transports, warns):
    monkeypatch.delenv("UCX_TLS", raising=False)
    if transports is not None:
        monkeypatch.setenv("UCX_TLS", transports)
    assert ("UCX" in here(GPUS, OPEN)) == warns


def test_limits_that_stop_rdma_are_reported_if_there_are_adapters(here, monkeypatch):
    monkeypatch.setattr(rdma.resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    assert "locked memory" not in here({"dev/shm/nccl": ""})
    assert "8 MiB" in here(RAILS)["locked memory"].text
    monkeypatch.setattr(rdma.resource, "getrlimit", lambda _: (rdma.resource.RLIM_INFINITY,) * 2)
    assert "locked memory" not in here(GPUS, OPEN)


def test_a_plugin_that_the_network_needs_is_named(here, tmp_path, monkeypatch):
    assert "aws-ofi-nccl" in here(GPUS, OPEN, EFA)["NCCL plugins"].remedy
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/ofi")
    finding = here({"ofi/libnccl-net.so": "NET/OFI Initializing aws-ofi-nccl 1.17.1"})[
        "NCCL plugins"
    ]
    assert (finding.kind, finding.remedy) == ("nccl_plugins", "")
    assert "nccl-rdma-sharp-plugins" in here(GPUS, OPEN, RAILS)["NCCL plugins"].remedy


@pytest.mark.parametrize(
    ("aware", "library", "remedy"),
    [
        (True, OPEN_MPI, ""),
        (False, OPEN_MPI, "load the site's module"),
        (False, MPICH, "MPIR_CVAR_ENABLE_GPU=1"),
        (None, MPICH, "MPIR_CVAR_ENABLE_GPU=1"),
    ],
)
def test_support_of_device_buffers_is_reported_with_the_switch_that_enables_it(
    here, aware, library, remedy
):
    finding = here(GPUS, OPEN, aware=aware, library=library)["MPI and GPUs"]
    assert finding.kind == ("cuda_aware" if aware else "cuda_unaware")
    assert remedy in finding.remedy
    assert bool(finding.remedy) == (aware is not True)
    assert ("staged" in finding.text) == (aware is False)


@pytest.mark.mpi
def test_the_query_of_device_buffers_has_an_answer_of_a_real_library(mpiexec):
    result = mpiexec(1, "-c", gpu.AWARE)
    assert result.returncode == 0, result.stderr
    aware, words = json.loads(result.stdout)
    assert aware in (True, False, None)
    assert words


GH200 = {
    "dev/nvidia0": "",
    "dev/nvidiactl": "",
    "proc/driver/nvidia/gpus/0009:01:00.0/information": "Model: \t\t NVIDIA GH200 480GB\n",
}


@pytest.mark.parametrize(
    ("gpus", "version", "known"),
    [(GH200, "2.29.2", True), (GH200, "2.29.3", False), (GPUS, "2.29.2", False)],
)
def test_severe_defects_of_the_installed_nccl_on_this_hardware_are_information(
    here, tmp_path, gpus, version, known
):
    folder = tmp_path / "site" / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").write_text("")
    (tmp_path / "site" / f"nvidia_nccl_cu13-{version}.dist-info").mkdir()
    finding = here(gpus, OPEN).get("known defects")
    names = finding.values["names"] if finding else []
    assert ("nccl-arm-weak-cas-hang" in names) == known
    if finding:
        assert finding.severity == "info"
        assert f"hpccoll list defects NCCL {version}" in finding.remedy
