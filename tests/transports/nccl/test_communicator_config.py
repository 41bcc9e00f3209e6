"""nccl4py next to CuPy: its fields, and the reasons why a process cannot use it. nccl4py_ranks.py uses it."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from hpccoll.cases.communicator_settings import BUFFERS, COMMUNICATOR_SETTINGS, nccl_config
from hpccoll.transports.nccl import communicator_config


def none():
    raise RuntimeError('Failure finding "libnccl.so.2":\n no such file')


@pytest.mark.parametrize(
    ("version", "of_cupy", "said"),
    [
        (None, 0, "nccl4py is not installed; do: pip install 'hpccoll[nccl4py]'"),
        (none, 23203, 'nccl4py finds no NCCL: Failure finding "libnccl.so.2": no such file'),
        (lambda: 22602, 22602, "NCCL 2.26.2 is too old: this needs 2.27.0 or later"),
        (lambda: 22700, 22700, None),
        (lambda: 23203, 22809, "nccl4py loads NCCL 2.32.3, and CuPy 2.28.9: they must be the same"),
    ],
)
def test_a_process_without_nccl4py_or_with_another_nccl_has_a_reason(
    monkeypatch, version, of_cupy, said
):
    monkeypatch.setattr(communicator_config, "find_spec", lambda _: version)
    monkeypatch.setattr(communicator_config, "_cupy_nccl_version", lambda: of_cupy)
    monkeypatch.setattr(communicator_config, "_nccl", lambda: SimpleNamespace(get_version=version))
    assert communicator_config.missing_for_nccl4py.__wrapped__(22700) == said


@pytest.fixture(scope="module")
def bindings(require):
    there = find_spec("nccl") and find_spec("nccl.bindings")
    require(
        there or sys.platform != "linux", "nccl4py is not installed: pip install 'hpccoll[nccl4py]'"
    )
    if not there:
        pytest.skip("nccl4py is for Linux")
    from nccl.bindings import nccl

    return nccl


def test_nccl4pys_configuration_accepts_every_setting(bindings):
    config = bindings.Config()
    untouched = {name: getattr(config, name) for name in COMMUNICATOR_SETTINGS if name != BUFFERS}
    words = {"cta_policy": "efficiency", "net_name": "IB"}
    asked = nccl_config({name: words.get(name, 1) for name in untouched})
    for name, value in asked.items():
        setattr(config, name, value)
    assert {name: getattr(config, name) for name in untouched} == asked
    assert all(untouched[name] != value for name, value in asked.items()), (
        "what is not set is left to NCCL"
    )
