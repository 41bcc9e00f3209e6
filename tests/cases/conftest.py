"""A machine without libraries of GPUs, which tests then equip."""

from types import SimpleNamespace

import pytest

from hpccoll.host import gpu_stack


@pytest.fixture
def bare_machine(monkeypatch):
    monkeypatch.setattr(gpu_stack, "sys", SimpleNamespace(path=[]))
    for name in ("LD_LIBRARY_PATH", "CONDA_PREFIX", "NCCL_HOME", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
