"""The table of transports: the devices of each, and the checks of requested ones."""

import pytest
from catalogue_cases import ALL, case

from hpccoll.cases.catalogue import AUTO, NATIVE, check_case, distinct_transports
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.cases.transport_table import DEVICES, transports_by_device, transports_of_device
from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.schedule import BFLOAT16, Layout


def test_native_has_one_transport_on_the_host_and_each_on_a_gpu_and_floors_and_auto_have_one():
    assert distinct_transports("all_reduce", NATIVE, ("shm",)) == ("mpi",)
    assert distinct_transports("all_reduce", NATIVE, ("nccl", "staged"), "cuda") == (
        "nccl",
        "staged",
    )
    for algorithm in ("null", AUTO):
        assert distinct_transports("all_reduce", algorithm, ("shm", "tiered")) == ("mpi",)
        assert distinct_transports("all_reduce", algorithm, ("nccl", "mpi"), "cuda") == ("nccl",)


def test_every_algorithm_is_valid_over_every_transport_of_a_gpu():
    for name, algorithm in ALL:
        for transport in transports_of_device("cuda"):
            if distinct_transports(name, algorithm, (transport,), "cuda") != (transport,):
                continue  # a floor, which is measured where the library's own calls are
            requested = case(name, algorithm, transport=transport, device="cuda")
            check_case(requested)
            assert unmet_needs(requested, Layout.of(4)) == unmet_needs(
                case(name, algorithm), Layout.of(4)
            )


@pytest.mark.parametrize(
    ("devices", "asked", "words"),
    [
        (
            ("cpu",),
            ("tierd",),
            "transport: 'tierd' is not valid: did you mean tiered. choose from ",
        ),
        (("gpu",), ("mpi",), "device: 'gpu' is not valid: choose from cpu, cuda"),
        (
            ("cpu",),
            ("mpi", "nccl"),
            r"transport: 'nccl' .* mpi, shm, tiered \(nccl needs device cuda\)",
        ),
        (
            ("cpu", "cuda"),
            ("shm",),
            "device: 'cuda' is not valid: left out, or give it a transport: mpi, staged, nccl",
        ),
    ],
)
def test_a_transport_that_no_device_has_is_bad_input(devices, asked, words):
    with pytest.raises(BadInputError, match=words):
        transports_by_device(devices, asked)


@pytest.mark.parametrize(
    ("algorithm", "supported"),
    [
        (
            "ring",
            {("cpu", "mpi"), ("cpu", "shm"), ("cpu", "tiered"), ("cuda", "nccl"), ("cuda", "peer")},
        ),
        (NATIVE, {("cuda", "nccl")}),
    ],
)
def test_bfloat16_is_skipped_where_the_transport_or_the_library_lacks_it(algorithm, supported):
    for device in DEVICES:
        for transport in distinct_transports(
            "all_reduce", algorithm, transports_of_device(device), device
        ):
            requested = case(
                algorithm=algorithm, dtype=BFLOAT16, device=device, transport=transport
            )
            check_case(requested)
            unmet = (
                unmet_needs(requested, Layout.of(1, 4) if transport == "shm" else Layout.of(4, 2))
                or ""
            )
            assert ("no dtype bfloat16" in unmet) == ((device, transport) not in supported), unmet
            assert ("; use nccl" in unmet) == ("no dtype" in unmet and device == "cuda")


@pytest.mark.parametrize(("sharding", "moves"), [("none", False), ("zero1", True)])
def test_a_step_needs_the_types_that_it_moves_and_no_others(sharding, moves):
    params = {"model": "gpt2", "sharding": sharding, "parameter_dtype": BFLOAT16}
    step = case(TRAINING_STEP, NATIVE, bytes=4 * 124_439_808, in_place=True, params=params)
    assert ("no dtype bfloat16" in (unmet_needs(step, Layout.of(4)) or "")) == moves
