"""nccl4py next to CuPy: the reasons why a process cannot use it. nccl4py_ranks.py uses it."""

from types import SimpleNamespace

import pytest

from hpccoll.transports.nccl import communicator_config


@pytest.fixture
def missing():
    communicator_config.missing_for_nccl4py.cache_clear()
    yield communicator_config.missing_for_nccl4py
    communicator_config.missing_for_nccl4py.cache_clear()


def test_without_nccl4py_the_reason_names_the_package(missing, monkeypatch):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: None)
    assert missing(22700) == "nccl4py is not installed; do: pip install 'hpccoll[nccl4py]'"


@pytest.mark.parametrize(
    ("there", "of_cupy", "said"),
    [
        (22602, 22602, "NCCL 2.26.2 is too old: this needs 2.27.0 or later"),
        (22700, 22700, None),
        (23203, 23203, None),
        (23203, 22809, "nccl4py loads NCCL 2.32.3, and CuPy 2.28.9: they must be the same"),
    ],
)
def test_old_and_different_nccl_versions_are_reasons(missing, monkeypatch, there, of_cupy, said):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_cupy_nccl_version", lambda: of_cupy)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=lambda: there))
    assert missing(22700) == said


def test_nccl4py_without_a_library_is_a_reason(missing, monkeypatch):
    def none():
        raise RuntimeError('Failure finding "libnccl.so.2":\n no such file')

    monkeypatch.setattr(communicator_config, "find_spec", lambda _: "there")
    monkeypatch.setattr(communicator_config, "_cupy_nccl_version", lambda: 23203)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=none))
    assert missing(22700) == 'nccl4py finds no NCCL: Failure finding "libnccl.so.2": no such file'
