"""Doctor, on machines with GPUs of all kinds: trees of files, and children that answer as a test wants."""

import json
import subprocess
from types import SimpleNamespace

import pytest
from fake_machine_files import CLOSED, EFA, GPUS, LINUX, MANAGED, OPEN, RAILS, SWITCHES, equip

from hpccoll.host import gpu_stack
from hpccoll.sweep import doctor
from hpccoll.sweep.doctor import gpu, mpi, nccl, rdma
from hpccoll.sweep.doctor.machine import LIBRARY, MachineFacts

ABOUT_GPUS = {"NVLink", "GPUDirect RDMA", "NCCL plugins", "NCCL settings", "MPI and GPUs"}
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

    def here(*parts, wheels=(), library=MPICH, aware=False, computes=(0, "8\n")):
        root = equip(tmp_path, LINUX, *parts)

        def python(_, code, *__):
            if code.startswith(nccl.VERSION.partition("{")[0]):
                return subprocess.CompletedProcess([], 0, "2.27.3\n", "")
            code_and_text = {
                LIBRARY: (0, json.dumps(library)), mpi.HELLO: (0, "ranks 2\nranks 2\n"),
                gpu.AWARE: (0, json.dumps([aware, "the query says so"])), gpu.COMPUTES: computes,
            }[code]  # fmt: skip
            return subprocess.CompletedProcess([], code_and_text[0], code_and_text[1], code_and_text[1])

        monkeypatch.setattr(MachineFacts, "python", python)
        there = {"snakemake": "9.27.1", **dict(wheels)}
        monkeypatch.setattr(MachineFacts, "wheel", lambda _, name: there.get(name))
        return {finding.component: finding for finding in doctor.examine(root)}

    return here


def test_without_a_gpu_the_packages_to_install_are_named_and_gpu_checks_are_left_out(here):
    findings = here(RAILS)
    assert findings["GPU"].state == "no CUDA device: GPU cases will be skipped"
    assert [findings[what].severity for what in ("GPU", "CuPy", "NCCL", "nccl4py")] == ["none"] * 4
    assert "pip install 'hpccoll[cuda12]' or 'hpccoll[cuda13]'" in findings["CuPy"].remedy
    assert "pip install nvidia-nccl-cu12" in findings["NCCL"].remedy
    assert not ABOUT_GPUS & set(findings)


def test_packages_installed_without_a_gpu_are_reported(here, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mod")
    findings = here({"mod/libnccl.so.2": ""}, wheels={"cupy-cuda13x": "14.2.0", "nccl4py": "0.6.0"})
    assert (findings["nccl4py"].severity, findings["nccl4py"].state) == ("ok", "0.6.0")
    assert (findings["NCCL"].severity, findings["NCCL"].state) == ("ok", f"2.27.3, {tmp_path}/mod/libnccl.so.2")
    assert findings["CuPy"].severity == "ok"
    assert findings["CuPy"].state.startswith("cupy-cuda13x 14.2.0 is installed; ")


@pytest.mark.parametrize(
    "parts", [(), (RAILS,), (EFA,), (GPUS,), (GPUS, OPEN), (GPUS, CLOSED, RAILS), (SWITCHES, OPEN)]
)
def test_only_what_is_there_is_ok_and_what_is_not_says_what_to_do(here, parts):
    for finding in here(*parts).values():
        absent = finding.state.split()[0] in ("no", "none", "not", "neither")
        assert not (absent and finding.severity == "ok"), finding
        assert finding.remedy or finding.severity == "ok", finding


@pytest.mark.parametrize(
    ("port", "state"),
    [
        ("15", "balanced: each GPU has a NIC at PIX"),
        ("3a", "not balanced: most GPUs have a NIC at PIX, but GPU 1: PHB"),
    ],
)
def test_gpus_that_are_further_from_an_adapter_than_others_are_named(here, port, state):
    bridge = "sys/devices/pci0000:15"
    findings = here(
        GPUS,
        {
            "sys/bus/pci/devices/0000:19:00.0": f"{bridge}/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:19:00.0/",
            "sys/bus/pci/devices/0000:3b:00.0": f"{bridge}/0000:{port}:01.0/0000:16:00.0/0000:17:01.0/0000:3b:00.0/",
            "sys/class/infiniband/mlx5_0/device": f"{bridge}/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/",
        },
    )
    assert findings["GPUs and adapters"].state.startswith(state)


def test_devices_are_reported_with_their_driver_and_its_cuda(here):
    findings = here(GPUS, OPEN)
    assert findings["GPU"].state == "8 x NVIDIA H100 80GB HBM3, driver 580.65.06, for CUDA 13 and older"
    assert set(findings) >= ABOUT_GPUS - {"GPUDirect RDMA"}, "there is no adapter that could reach them"


@pytest.mark.parametrize(("version", "kind"), [(None, "gpu_no_driver"), ("470.57.02", "gpu_old_driver")])
def test_a_missing_or_too_old_driver_is_reported(here, version, kind):
    driver = {"proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Mon\n"}
    findings = here(GPUS, driver if version else {})
    assert (findings["GPU"].kind, findings["GPU"].severity) == (kind, "warn")
    assert "to match the driver of the GPUs" in findings["CuPy"].remedy


@pytest.mark.parametrize(("driver", "extra"), [(OPEN, "cuda13"), (CLOSED, "cuda12")])
def test_the_wheel_of_cupy_that_fits_the_driver_is_named(here, driver, extra):
    finding = here(GPUS, driver)["CuPy"]
    assert (finding.state, finding.fatal) == ("not installed: GPU cases will be skipped", False)
    assert f"pip install 'hpccoll[{extra}]' (cupy-{extra}x)" in finding.remedy


def test_a_cupy_for_a_newer_cuda_than_the_drivers_is_wrong_and_one_for_an_older_is_not(here):
    finding = here(GPUS, CLOSED, wheels={"cupy-cuda13x": "14.2.0"})["CuPy"]
    assert finding.fatal
    assert finding.remedy.endswith("pip uninstall cupy-cuda13x, then pip install cupy-cuda12x")
    finding = here(OPEN, wheels={"cupy-cuda12x": "14.2.0"})["CuPy"]
    assert (finding.state, finding.fatal) == ("cupy-cuda12x 14.2.0 computes, and sees 8 of the GPUs", False)


def test_two_wheels_of_cupy_are_wrong(here):
    finding = here(GPUS, OPEN, wheels={"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"})["CuPy"]
    assert finding.fatal
    assert finding.remedy.endswith("pip uninstall cupy-cuda12x cupy-cuda13x, then pip install cupy-cuda13x")


@pytest.mark.parametrize("parts", [(), (GPUS, OPEN)])
@pytest.mark.parametrize(("version", "too_old"), [("13.6.0", True), ("9.0", True), ("14.0.0", False), ("15.1", False)])
def test_a_cupy_that_is_too_old_is_wrong_with_and_without_a_gpu(here, parts, version, too_old):
    finding = here(*parts, wheels={"cupy-cuda12x": version})["CuPy"]
    assert (finding.kind == "cupy_too_old", finding.fatal) == (too_old, too_old)
    if too_old:
        assert version in finding.state
        assert "pip uninstall cupy-cuda12x, then pip install 'cupy-cuda" in finding.remedy
        assert finding.remedy.endswith(">=14'")


@pytest.mark.parametrize(
    ("transports", "warns"),
    [
        (None, False), ("rc,sm,self", False), ("rc,sm,self,cuda", False), ("all", False), ("^cuda_ipc", False),
        ("rc,cuda_copy,gdr_copy", False), ("rc,sm,self,cuda_copy,cuda_ipc", True), ("rc, cuda_ipc", True),
    ],
)  # fmt: skip
def test_transports_of_cuda_without_gdr_copy_are_reported(here, monkeypatch, transports, warns):
    monkeypatch.delenv("UCX_TLS", raising=False)
    if transports is not None:
        monkeypatch.setenv("UCX_TLS", transports)
    findings = here(GPUS, OPEN)
    assert ("UCX" in findings) == warns
    if warns:
        assert (findings["UCX"].severity, findings["UCX"].values) == ("warn", {"value": transports})


def test_a_cupy_that_does_not_compute_says_why(here):
    failure = (1, "Traceback\nRuntimeError: failed to load libnvrtc.so.13\n")
    finding = here(GPUS, OPEN, wheels={"cupy-cuda13x": "14.2.0"}, computes=failure)["CuPy"]
    assert finding.fatal
    assert "(RuntimeError: failed to load libnvrtc.so.13)" in finding.state
    assert "'cupy-cuda13x[ctk]'" in finding.remedy


def test_switches_between_gpus_need_their_manager(here):
    assert "no NVSwitch" in here(GPUS, OPEN)["NVLink"].state
    finding = here(SWITCHES)["NVLink"]
    assert (finding.kind, finding.values) == ("fabric_manager_missing", {"switches": 4})
    assert "nvidia-fabricmanager" in finding.remedy
    assert here(MANAGED)["NVLink"].remedy == ""


def test_ports_are_reported_with_their_kind(here):
    assert here()["RDMA"].state.startswith("no InfiniBand, RoCE or EFA adapter")
    assert here(RAILS)["RDMA"].state == (
        "mlx5_0:1, mlx5_1:1: InfiniBand, 400 Gb/sec (4X NDR), active; mlx5_2:1: RoCE, 100 Gb/sec (4X EDR), down"
    )
    assert "rdmap79s0:1: EFA, 100 Gb/sec (4X EDR), active" in here(EFA)["RDMA"].state


def test_adapters_that_cannot_be_opened_are_reported(here, tmp_path):
    assert "RDMA devices" not in here()
    assert here(RAILS)["RDMA devices"].state.startswith(f"none in {tmp_path}/dev/infiniband")
    assert "RDMA devices" not in here({"dev/infiniband/uverbs0": ""})


def test_limits_that_stop_rdma_are_reported_if_there_are_adapters(here, monkeypatch):
    monkeypatch.setattr(rdma.resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    assert "locked memory" not in here({"dev/shm/nccl": ""})
    findings = here(RAILS)
    assert findings["locked memory"].state.startswith("at most 8 MiB for a process")
    monkeypatch.setattr(rdma.resource, "getrlimit", lambda _: (rdma.resource.RLIM_INFINITY,) * 2)
    assert "locked memory" not in here(GPUS, OPEN)


@pytest.mark.parametrize(
    ("parts", "state", "needs_the_admin"),
    [([OPEN], "by DMA-BUF", False), ([CLOSED], "neither nvidia_peermem nor DMA-BUF", True),
     ([CLOSED, {"sys/module/nvidia_peermem/version": ""}], "nvidia_peermem is loaded", False),
     ([OPEN, {"proc/sys/kernel/osrelease": "5.10.0-9\n"}], "neither nvidia_peermem nor DMA-BUF", True)],
)  # fmt: skip
def test_ways_of_adapters_to_the_memory_of_gpus(here, parts, state, needs_the_admin):
    finding = here(GPUS, RAILS, *parts)["GPUDirect RDMA"]
    assert finding.state.startswith(state)
    assert ("modprobe nvidia-peermem" in finding.remedy) == needs_the_admin


def test_a_missing_nccl_is_reported_with_its_remedy(here):
    finding = here(GPUS, OPEN)["NCCL"]
    assert finding.state == "not found: cases over nccl will be skipped"
    assert "pip install nvidia-nccl-cu12" in finding.remedy


def test_a_wheel_of_nccl_that_hides_the_sites_is_reported_with_both_paths(here, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mod")
    finding = here(GPUS, OPEN, {"mod/libnccl.so.2": ""})["NCCL"]
    assert (finding.state, finding.remedy) == (f"2.27.3, {tmp_path}/mod/libnccl.so.2", "")
    wheel = f"{tmp_path}/site/nvidia/nccl/lib/libnccl.so.2"
    finding = here({"site/nvidia/nccl/lib/libnccl.so.2": ""})["NCCL"]
    assert finding.state == f"2.27.3, {wheel}; this wheel hides {tmp_path}/mod/libnccl.so.2"
    assert finding.remedy.endswith(f"or set LD_PRELOAD={tmp_path}/mod/libnccl.so.2")


def test_a_plugin_that_the_network_needs_is_named(here, tmp_path, monkeypatch):
    finding = here(GPUS, OPEN, EFA)["NCCL plugins"]
    assert finding.state == "none where the loader looks"
    assert "uses TCP" in finding.remedy
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/ofi")
    finding = here({"ofi/libnccl-net.so": "NET/OFI Initializing aws-ofi-nccl 1.17.1"})["NCCL plugins"]
    assert (finding.state, finding.remedy) == (f"aws-ofi-nccl: {tmp_path}/ofi/libnccl-net.so", "")


def test_infiniband_without_the_plugin_of_sharp_works_and_says_what_sharp_needs(here):
    assert "nccl-rdma-sharp-plugins" in here(GPUS, OPEN, RAILS)["NCCL plugins"].remedy
    assert here({"usr/lib64/libnccl-net.so": "SHARP rank"})["NCCL plugins"].remedy == ""


def test_settings_of_nccl_are_reported_and_selecting_ones_are_to_be_unset(here, monkeypatch):
    assert here(GPUS, OPEN)["NCCL settings"].state.endswith("set nothing")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    finding = here({"etc/nccl.conf": "NCCL_IB_HCA=mlx5\nNCCL_ALGO=Ring\n"})["NCCL settings"]
    assert finding.state == "environment sets NCCL_DEBUG=WARN; /etc/nccl.conf sets NCCL_IB_HCA=mlx5, NCCL_ALGO=Ring"
    assert (finding.kind, finding.values["names"]) == ("nccl_settings_chosen", "NCCL_ALGO")


@pytest.mark.parametrize(
    ("aware", "library", "remedy"),
    [(True, OPEN_MPI, ""), (False, OPEN_MPI, "load the site's module"), (False, MPICH, "MPIR_CVAR_ENABLE_GPU=1"),
     (None, MPICH, "MPIR_CVAR_ENABLE_GPU=1")],
)  # fmt: skip
def test_support_of_device_buffers_is_reported_with_the_switch_that_enables_it(here, aware, library, remedy):
    finding = here(GPUS, OPEN, aware=aware, library=library)["MPI and GPUs"]
    assert remedy in finding.remedy
    assert finding.state.startswith("the query says so: ")
    assert bool(finding.remedy) == (aware is not True)
    assert ("staged" in finding.state) == (aware is False)


@pytest.mark.mpi
def test_the_query_of_device_buffers_has_an_answer_of_a_real_library(mpiexec):
    result = mpiexec(1, "-c", gpu.AWARE)
    assert result.returncode == 0, result.stderr
    aware, words = json.loads(result.stdout)
    assert aware in (True, False, None)
    assert words


def test_a_version_of_nccl_is_asked_of_the_library_that_was_found():
    code = nccl.VERSION.format(path="/nowhere/libnccl.so.2")
    child = MachineFacts().python(code)
    assert child.returncode
    assert "/nowhere/libnccl.so.2" in child.stderr
