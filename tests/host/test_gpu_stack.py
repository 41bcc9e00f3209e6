"""GPU hardware read from files, and the search order of libraries."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_machine_files import MANAGED, equip

from hpccoll.host import gpu_stack


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    """Unset the variables that locate libraries and settings, and hide wheels."""
    for name in (
        "LD_LIBRARY_PATH",
        "CONDA_PREFIX",
        "NCCL_HOME",
        "CUDA_PATH",
        "CUDA_HOME",
        "NCCL_CONF_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[]))


def test_a_process_is_found_by_its_truncated_name(tmp_path):
    equip(tmp_path, {"proc/77/comm": "nv-hostengine\n", "proc/self/comm": "nv-fabricmanage\n"})
    assert not gpu_stack.is_process_running("nv-fabricmanager", tmp_path)
    assert gpu_stack.is_process_running("nv-fabricmanager", equip(tmp_path, MANAGED))


def test_the_loader_searches_ld_library_path_before_the_system(tmp_path, monkeypatch):
    equip(
        tmp_path,
        {
            "module/libnccl.so.2": "",
            "opt/ofi/lib/libnccl.so.2": "",
            "usr/lib64/libnccl.so.2": "",
            "lone/libnccl.so.2": "",
            "etc/ld.so.conf.d/100_ofinccl.conf": "# the plugin\n/opt/ofi/lib\n",
        },
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path}/module")
    found = gpu_stack.find_libraries("libnccl.so.2", root=tmp_path)
    assert [str(path.relative_to(tmp_path).parent) for path in found] == [
        "module",
        "opt/ofi/lib",
        "usr/lib64",
    ]


def test_duplicate_libraries_and_broken_links_are_left_out(tmp_path, monkeypatch):
    equip(tmp_path, {"a/libnccl.so.2": "", "c/none": ""})
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c/libnccl.so.2").symlink_to("gone")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/c:{tmp_path}/b:{tmp_path}/a")
    assert gpu_stack.find_libraries("libnccl.so.2", root=tmp_path) == [tmp_path / "b/libnccl.so.2"]


def test_a_library_that_is_found_twice_has_the_place_where_it_is_found_first(tmp_path, monkeypatch):
    equip(tmp_path, {"a/libnccl.so.2": "", "b/libnccl.so.2": ""})
    (tmp_path / "again").symlink_to("a")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/again")
    found = gpu_stack.find_libraries("libnccl.so.2", root=tmp_path)
    assert found == [tmp_path / "a/libnccl.so.2", tmp_path / "b/libnccl.so.2"]


def test_nccl_is_searched_in_wheels_then_conda_then_the_loader_then_its_home(tmp_path, monkeypatch):
    equip(
        tmp_path,
        {
            f"{place}/libnccl.so.2": ""
            for place in ("site/nvidia/nccl/lib", "conda/lib", "mod", "home/lib")
        },
    )
    monkeypatch.setenv("NCCL_HOME", f"{tmp_path}/home")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/mod")
    monkeypatch.setenv("CONDA_PREFIX", f"{tmp_path}/conda")
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[str(tmp_path / "site")]))
    found = gpu_stack.nccl_libraries(tmp_path)
    assert [path.relative_to(tmp_path).parts[0] for path in found] == [
        "site",
        "conda",
        "mod",
        "home",
    ]
    assert [gpu_stack.is_from_wheel(path) for path in found] == [True, False, False, False]


def test_nccl_settings_are_listed_by_precedence(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_stack.os, "environ", {"HOME": f"{tmp_path}/me", "NCCL_DEBUG": "WARN"})
    of_host = "# by the admin\nNCCL_IB_HCA = =mlx5_0\nnoise\n"
    equip(
        tmp_path,
        {
            "etc/nccl.conf": of_host,
            "me/.nccl.conf": "NCCL_ALGO=Ring\n",
            "other.conf": "NCCL_PROTO=LL\n",
        },
    )
    mine = f"{tmp_path}/me/.nccl.conf"
    assert gpu_stack.nccl_settings(tmp_path) == [
        ("environment", "NCCL_DEBUG", "WARN"), (mine, "NCCL_ALGO", "Ring"),
        ("/etc/nccl.conf", "NCCL_IB_HCA", "=mlx5_0"),
    ]  # fmt: skip
    monkeypatch.setenv("NCCL_CONF_FILE", f"{tmp_path}/other.conf")
    assert [source for source, *_ in gpu_stack.nccl_settings(tmp_path)][
        2
    ] == f"{tmp_path}/other.conf"


@pytest.fixture
def kernel_cache(monkeypatch, tmp_path):
    """Return the directory of CuPy's kernels with these variables, below a temporary directory of the test."""

    def choose(**variables):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        for name, value in {"CUPY_CACHE_DIR": "", **variables}.items():
            monkeypatch.setenv(name, value)
        gpu_stack.choose_kernel_cache()
        return os.environ.get("CUPY_CACHE_DIR")

    return choose


def test_cupy_keeps_its_kernels_where_it_would_if_it_can_write_there(kernel_cache, tmp_path):
    chosen = str(tmp_path / "chosen")
    assert kernel_cache(CUPY_CACHE_DIR=chosen) == chosen
    assert kernel_cache(HOME=str(tmp_path)) is None
    assert (tmp_path / ".cupy/kernel_cache").is_dir()


@pytest.mark.parametrize("variables", [{"HOME": "/dev/null"}, {"CUPY_CACHE_DIR": "/proc"}])
def test_cupy_keeps_its_kernels_in_a_directory_of_this_user_if_its_own_is_not_writable(
    kernel_cache, variables, tmp_path
):
    shared = tmp_path / f"hpccoll-kernels-{os.getuid()}"
    assert kernel_cache(**variables) == str(shared)
    assert shared.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "spoil", [lambda path: path.chmod(0o777), lambda path: (path.rmdir(), path.touch())]
)
def test_kernels_are_not_kept_where_others_could_exchange_them(kernel_cache, spoil, tmp_path):
    shared = tmp_path / f"hpccoll-kernels-{os.getuid()}"
    shared.mkdir()
    spoil(shared)
    directory = Path(kernel_cache(CUPY_CACHE_DIR="/proc"))
    assert directory != shared
    assert directory.stat().st_mode & 0o077 == 0
