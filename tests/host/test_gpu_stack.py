"""GPU hardware read from files, and the search order of libraries."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_machine_files import MANAGED, equip

from hpccoll.host import gpu_stack


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """Unset the variables that locate libraries and settings, and hide wheels."""
    for name in ("LD_LIBRARY_PATH", "CONDA_PREFIX", "NCCL_HOME", "CUDA_PATH", "CUDA_HOME", "NCCL_CONF_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[]))


def test_a_process_is_found_by_its_truncated_name(tmp_path):
    equip(tmp_path, {"proc/77/comm": "nv-hostengine\n", "proc/self/comm": "nv-fabricmanage\n"})
    assert not gpu_stack.is_process_running("nv-fabricmanager", tmp_path)
    assert gpu_stack.is_process_running("nv-fabricmanager", equip(tmp_path, MANAGED))


def test_the_loader_searches_ld_library_path_before_the_system(tmp_path, monkeypatch):
    equip(tmp_path, {
        "module/libnccl.so.2": "", "opt/ofi/lib/libnccl.so.2": "", "usr/lib64/libnccl.so.2": "",
        "lone/libnccl.so.2": "",
        "etc/ld.so.conf.d/100_ofinccl.conf": "# the plugin\n/opt/ofi/lib\n",
    })  # fmt: skip
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path}/module")
    found = gpu_stack.find_libraries("libnccl.so.2", root=tmp_path)
    assert [str(path.relative_to(tmp_path).parent) for path in found] == ["module", "opt/ofi/lib", "usr/lib64"]


def test_duplicate_libraries_and_broken_links_are_left_out(tmp_path, monkeypatch):
    equip(tmp_path, {"a/libnccl.so.2.27.3": ""})
    (tmp_path / "a/libnccl.so.2").symlink_to("libnccl.so.2.27.3")
    (tmp_path / "b").symlink_to("a")
    equip(tmp_path, {"c/none": ""})
    (tmp_path / "c/libnccl.so.2").symlink_to("gone")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/c:{tmp_path}/b:{tmp_path}/a")
    assert gpu_stack.find_libraries("libnccl.so.2", root=tmp_path) == [tmp_path / "b/libnccl.so.2"]


def test_nccl_is_searched_in_wheels_then_conda_then_the_loader_then_its_home(tmp_path, monkeypatch):
    equip(tmp_path, {f"{place}/libnccl.so.2": "" for place in ("site/nvidia/nccl/lib", "conda/lib", "mod", "home/lib")})
    monkeypatch.setenv("NCCL_HOME", f"{tmp_path}/home")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mod")
    monkeypatch.setenv("CONDA_PREFIX", f"{tmp_path}/conda")
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[str(tmp_path / "site")]))
    found = gpu_stack.nccl_libraries(tmp_path)
    assert [path.relative_to(tmp_path).parts[0] for path in found] == ["site", "conda", "mod", "home"]
    assert [gpu_stack.is_from_wheel(path) for path in found] == [True, False, False, False]


def test_nccl_settings_are_listed_by_precedence(tmp_path, monkeypatch):
    for name in [name for name in gpu_stack.os.environ if name.startswith("NCCL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    equip(
        tmp_path,
        {"etc/nccl.conf": "# by the admin\nNCCL_IB_HCA = =mlx5_0\nnoise\n", "me/.nccl.conf": "NCCL_ALGO=Ring\n"},
    )
    mine = f"{tmp_path}/me/.nccl.conf"
    assert gpu_stack.nccl_settings(tmp_path) == [
        ("environment", "NCCL_DEBUG", "WARN"), (mine, "NCCL_ALGO", "Ring"),
        ("/etc/nccl.conf", "NCCL_IB_HCA", "=mlx5_0"),
    ]  # fmt: skip
    equip(tmp_path, {"other.conf": "NCCL_PROTO=LL\n"})
    monkeypatch.setenv("NCCL_CONF_FILE", f"{tmp_path}/other.conf")
    assert (f"{tmp_path}/other.conf", "NCCL_PROTO", "LL") in gpu_stack.nccl_settings(tmp_path)
    assert not [one for one in gpu_stack.nccl_settings(tmp_path) if one[0] == mine]


IMPORT_AS_RANKS = """
from hpccoll.transports import gpu
gpu.device_count = lambda: 1
gpu.missing_for_gpu("staged")
from cupy.cuda.compiler import _kernel_cache_backend as cache
cache.save("kernel.cubin", b"binary", "source")
print(cache._cache_dir)
"""
"""As on ranks: CuPy is imported after the question whether it can be used; then a kernel is kept."""


def kernel_cache(environment, temporary):
    """Return where CuPy keeps a kernel."""
    pytest.importorskip("cupy")
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_AS_RANKS], env={**os.environ, "TMPDIR": str(temporary), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    directory = Path(ran.stdout.strip())
    assert (directory / "kernel.cubin").is_file()
    return directory


def test_cupy_keeps_its_kernels_where_it_would_if_it_can_write_there(tmp_path):
    home, chosen = tmp_path / "home", tmp_path / "chosen"
    home.mkdir()
    assert kernel_cache({"HOME": str(home), "CUPY_CACHE_DIR": ""}, tmp_path) == home / ".cupy/kernel_cache"
    assert kernel_cache({"HOME": str(home), "CUPY_CACHE_DIR": str(chosen)}, tmp_path) == chosen
    assert not [*tmp_path.glob("hpccoll-kernels-*")]


@pytest.mark.parametrize("environment", [{"HOME": "/dev/null"}, {"CUPY_CACHE_DIR": "/proc"}])
def test_cupy_can_be_imported_and_keeps_its_kernels_if_its_directory_is_not_writable(environment, tmp_path):
    directory = kernel_cache({"CUPY_CACHE_DIR": "", **environment}, tmp_path)
    assert directory == tmp_path / f"hpccoll-kernels-{os.getuid()}"
    assert directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o777), lambda path: (path.rmdir(), path.touch())])
def test_kernels_are_not_kept_where_others_could_exchange_them(spoil, tmp_path):
    shared = tmp_path / f"hpccoll-kernels-{os.getuid()}"
    shared.mkdir()
    spoil(shared)
    directory = kernel_cache({"CUPY_CACHE_DIR": "/proc"}, tmp_path)
    assert directory != shared
    assert directory.stat().st_mode & 0o077 == 0
