"""nccl4py has the fields of every setting; this needs neither a GPU nor NCCL. nccl4py_ranks.py calls its functions."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest
from mpi4py import MPI

from hpccoll.cases.communicator_settings import BUFFERS, COMMUNICATOR_SETTINGS, nccl_config
from hpccoll.transports.nccl import communicator_config
from hpccoll.transports.nccl.communicator_config import ConfiguredNccl, NcclBuffers


@pytest.fixture(scope="module")
def bindings(require):
    there = find_spec("nccl") and find_spec("nccl.bindings")
    require(there or sys.platform != "linux", "nccl4py is not installed: pip install 'hpccoll[nccl4py]'")
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
    assert all(untouched[name] != value for name, value in asked.items()), "what is not set is left to NCCL"


def test_nccl_without_a_gpu_raises_its_error(bindings):
    from hpccoll.transports.gpu import device_count

    try:
        bindings.get_version()
    except RuntimeError as error:
        pytest.skip(f"nccl4py finds no NCCL: {str(error).splitlines()[0]}")
    if device_count():
        pytest.skip("here is a GPU: tests/gpu has this one's place")
    library = ConfiguredNccl({"traffic_class": 106, "cta_policy": 1})
    unique = library.get_unique_id()
    assert len(unique) == 128
    if unique.startswith(b"/nccl-test-"):  # as tests/gpu/libnccl/nccl.c makes them
        pytest.skip("an earlier test of this process has loaded the test library, which needs no GPU")
    with pytest.raises(communicator_config.NcclError, match=r"UnhandledCudaError"):
        library.NcclCommunicator(1, unique, 0)
    with pytest.raises(MemoryError, match=r"UnhandledCudaError"):
        NcclBuffers(MPI.COMM_SELF, None, "symmetric").empty(4, np.dtype("float32"))
