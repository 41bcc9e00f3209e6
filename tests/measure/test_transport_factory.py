"""Every row of the table of transports names classes that exist, and NCCL's get the settings of the job."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import raw_examples

from hpccoll.cases.transport_table import TRANSPORTS

pytestmark = pytest.mark.mpi


@pytest.fixture
def factory(mpiexec):  # noqa: ARG001  skips without an MPI
    from hpccoll.measure import transport_factory

    return transport_factory


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_row_names_classes_that_allocate_buffers_and_compile_plans(factory, name):
    spec = TRANSPORTS[name]
    for path in (*spec.schedules.values(), *spec.native.values()):
        implementation = factory.load_class(path)
        assert {"empty", "plan", "close"} <= {*dir(implementation)}
    assert {*spec.native} <= {*spec.schedules}


@pytest.mark.parametrize(
    ("communicator", "settings", "buffers"),
    [
        ({}, None, None),
        ({"cta_policy": "zero", "max_ctas": 4}, {"cta_policy": 2, "max_ctas": 4}, None),
        ({"buffers": "symmetric"}, None, "symmetric"),  # CuPy's own communicator is enough
        ({"buffers": "registered", "nvls_ctas": 2}, {"nvls_ctas": 2}, "registered"),
    ],
)
def test_schedules_and_native_collectives_get_communicator_settings_and_buffers(
    factory, communicator, settings, buffers
):
    from mpi4py import MPI

    from hpccoll.transports.nccl.transport import NcclTransport
    from hpccoll.transports.nccl.vendor import NcclVendorTransport

    gpu = SimpleNamespace(release=lambda: None, empty=None)
    case = raw_examples.case(transport="nccl", device="cuda")
    native, schedules = (
        factory.make_transport(replace(case, algorithm=name), MPI.COMM_SELF, gpu, communicator)
        for name in ("native", "ring")
    )
    assert (type(native), type(schedules)) == (NcclVendorTransport, NcclTransport)
    for transport in (native, schedules):
        assert (transport.library and transport.library._settings) == settings
        assert (transport.buffers and transport.buffers.registration) == buffers
