"""What the driver reports of the first GPU."""

from types import SimpleNamespace

import pytest

from hpccoll.host import cuda_driver
from hpccoll.host.cuda_driver import supports_multicast

NO_DEVICE, INVALID_VALUE = 100, 1
"""CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_VALUE."""


def driver(multicast=0, init=0, device=0, attribute=0):
    """Return a library of the driver whose functions return these codes."""

    def get_attribute(value, number, _device):
        assert number == 132
        value._obj.value = multicast
        return attribute

    return SimpleNamespace(
        cuInit=lambda _flags: init,
        cuDeviceGet=lambda _device, _number: device,
        cuDeviceGetAttribute=get_attribute,
    )


@pytest.mark.parametrize(
    ("library", "answer"),
    [
        (driver(multicast=1), True),
        (driver(multicast=0), False),
        (driver(init=NO_DEVICE), None),
        (driver(device=NO_DEVICE), None),
        (driver(attribute=INVALID_VALUE), None),
    ],
    ids=["switches", "none", "no driver module", "no GPU", "older than CUDA 12.1"],
)
def test_the_driver_says_whether_gpus_multicast_or_nothing_is_known(library, answer):
    assert supports_multicast(library) is answer


def test_without_a_library_of_the_driver_nothing_is_known(monkeypatch):
    def missing(_name):
        raise OSError

    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", missing)
    assert supports_multicast() is None
