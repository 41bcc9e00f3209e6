"""Named variants: the table, their limits and controls, and what a sweep may add to them."""

from functools import partial

import pytest

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.library_request import NCCL_ALGORITHMS
from hpccoll.cases.variables import CHOICE_VARIABLES, LIST_VARIABLES, SITE_VARIABLES
from hpccoll.cases.variants import (
    NodeView,
    known_variant,
    named_variants,
    variant_communicator,
    variant_environment,
)
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS


def test_exactly_the_variants_with_communicator_settings_require_nccl4py():
    assert {name for name, variant in named_variants().items() if variant.communicator} == {
        name for name, variant in named_variants().items() if {"nccl4py", "nccl-2.27"} <= {*variant.requirements}
    }


def test_every_algorithm_of_nccl_has_a_variant_that_requests_it():
    assert {variant.requested for variant in named_variants().values()} >= {*NCCL_ALGORITHMS.values(), "sharp"}


@pytest.mark.parametrize(
    "name",
    [name for name, variant in named_variants().items() if variant.requested in ("sharp", "collnet_direct", "nvls")],
)
def test_variants_with_offload_have_a_negative_control_that_requests_nothing(name):
    control = named_variants()[named_variants()[name].control]
    assert control.requested is None
    assert control.control is None


def test_sharp_by_mpi_and_its_controls_request_streaming_aggregation():
    """NCCL's plugin does it by itself (ncclSharpInit in src/sharp_plugin.c)."""
    by_mpi = {
        name: one for name, one in named_variants().items() if one.transport == "mpi" and one.requested == "sharp"
    }
    assert {"ucc-sharp", "ucc-sharp-hier", "hcoll-sharp", "mvapich-sharp"} == by_mpi.keys()
    for variant in (*by_mpi.values(), *(named_variants()[one.control] for one in by_mpi.values())):
        assert variant.environment["SHARP_COLL_ENABLE_SAT"] == "1"


def test_a_variant_stays_known_with_added_variables_and_site_values_but_not_with_overridden_ones():
    assert known_variant("nccl-ring", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}) is named_variants()["nccl-ring"]
    assert known_variant("nccl-one-rail", {"NCCL_IB_HCA": "=mlx5_7:1"}) is named_variants()["nccl-one-rail"]
    assert known_variant("nccl-ring", {"NCCL_ALGO": "Tree"}) is None
    assert known_variant("mine", {}) is known_variant(None, {}) is None


NVLS, SYMMETRIC, SHARP = "nccl-nvls", "nccl-symmetric", "nccl-sharp"


@pytest.mark.parametrize(
    ("name", "call", "shape", "nccl", "excess"),
    [
        (SHARP, "all_reduce float32 sum", (2, 8), None, None),
        (SHARP, "all_reduce float32 prod", (2, 8), None, "op sum, min, max, avg, not prod"),
        (SHARP, "all_reduce float32 sum", (1, 8), None, "at least 2 nodes"),
        (SHARP, "all_reduce float32 sum", (2, 9), None, "at most 8 ranks per node"),
        (SHARP, "broadcast float32", (2, 8), None, "collective all_reduce,"),
        ("ucc-sharp", "all_reduce float32 sum", (2, 2), None, "at most 1 rank per node"),
        (NVLS, "all_reduce float32 sum", (2, 8), None, "at most 1 node"),
        (NVLS, "all_reduce float32 sum", (1, 8), None, None), (NVLS, "all_reduce float32 avg", (1, 8), None, None),
        (NVLS, "all_reduce float32 min", (1, 8), None, "op"), (NVLS, "all_reduce bfloat16 max", (1, 8), None, None),
        (NVLS, "reduce_scatter float64 max", (1, 8), None, "op"), (NVLS, "all_reduce int32 min", (1, 8), None, None),
        (NVLS, "all_reduce uint8 sum", (1, 8), None, "dtype"), (NVLS, "all_gather uint8", (1, 8), None, None),
        (NVLS, "all_gather int32", (1, 33), None, "at most 32"), (NVLS, "all_reduce int32 sum", (1, 33), None, None),
        (NVLS, "all_reduce float32 sum", (1, 1), (2, 30, 7), "at least 2 ranks"),
        (NVLS, "all_reduce float32 sum", (1, 2), (2, 28, 3), "at least"),
        (NVLS, "all_reduce float32 sum", (1, 2), (2, 28, 7), None),
        (NVLS, "all_reduce float32 sum", (1, 2), None, None),
        (SYMMETRIC, "all_reduce float64 sum", (1, 8), None, "dtype"),
        (SYMMETRIC, "all_gather float64", (1, 8), None, None),
        (SYMMETRIC, "all_reduce float32 sum", (2, 8), None, "at most 1 node"),
        (SYMMETRIC, "all_reduce float32 sum", (2, 8), (2, 30, 7), "at most 1 node"),
        (SYMMETRIC, "all_gather float32", (2, 8), None, None),
        (SYMMETRIC, "all_gather float32", (2, 8), (2, 27, 7), "at most 1 node"),
        (SYMMETRIC, "all_gather float32", (2, 8), (2, 29, 2), None),
        (SYMMETRIC, "reduce_scatter float32 sum", (2, 8), (2, 28, 9), "at most 1 node"),
        (SYMMETRIC, "reduce_scatter float32 sum", (2, 8), (2, 29, 2), "at most 1 node"),
        (SYMMETRIC, "reduce_scatter float32 sum", (2, 8), (2, 29, 7), None),
    ],
)  # fmt: skip
def test_the_limits_of_a_variant_depend_on_call_nodes_and_version(name, call, shape, nccl, excess):
    collective, dtype, *op = call.split()
    unmet = named_variants()[name].violation((collective, dtype, *(op or [None])), NodeView.of(*shape, nccl))
    assert unmet is None if excess is None else f"the variant takes {excess}" in unmet


def test_of_unknown_nodes_only_what_exceeds_a_limit_in_any_case_is_reported():
    of_case = "all_reduce", "float32", "sum"
    unknown = NodeView((1, 4), (2, 8))
    for name in ("nccl-nvls", "nccl-nvls-tree", "nccl-sharp"):
        assert named_variants()[name].violation(tuple(of_case), unknown) is None
        assert named_variants()[name].violation(tuple(of_case), NodeView((1, 1), (1, 1)))


def test_every_limit_has_keys_of_the_project():
    limits = [limit for variant in named_variants().values() for limit in variant.limits]
    assert {one for limit in limits for one in (limit.collectives or ())} <= {*COLLECTIVES, *WORKLOADS}
    assert {one for limit in limits for one in (limit.for_collectives or ())} <= COLLECTIVES.keys()
    dtypes = {one for limit in limits for one in (*(limit.dtypes or ()), *(limit.for_dtypes or ()))}
    assert dtypes <= {*DTYPES, BFLOAT16}
    assert {one for limit in limits for one in (limit.ops or ())} <= {*REDUCTIONS, "avg"}


@pytest.mark.parametrize(
    ("name", "added", "environment"),
    [
        ("nccl-ring", None, {"NCCL_ALGO": "Ring"}), ("nccl-ring", {"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"}),
        ("nccl-ring", {"NCCL_PROTO": "LL"}, {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}), ("mine", {"A": 1}, {"A": 1}),
    ],
)  # fmt: skip
def test_a_known_name_sets_its_environment_and_variables_are_added(name, added, environment):
    assert variant_environment(name, added) == environment


@pytest.mark.parametrize("name", named_variants())
def test_values_of_a_known_variant_cannot_be_overridden_except_examples(name):
    for key, own in named_variants()[name].environment.items():
        other = next(
            (value for value in CHOICE_VARIABLES.get(key, LIST_VARIABLES.get(key, ("7",))) if value != own), "7"
        )
        if key in SITE_VARIABLES:
            assert variant_environment(name, {key: "7"})[key] == "7"
        else:
            with pytest.raises(
                BadInputError, match=rf"variants\.{name}\.{key}: '{other}' .* {own}, the value of {name}"
            ):
                variant_environment(name, {key: other})
        assert variant_environment(name, {key: own}) == named_variants()[name].environment


def test_an_unknown_name_without_variables_is_refused_with_the_known_names():
    with pytest.raises(BadInputError, match=r"'nccl-rnig' .* variables to set, or a named variant: nccl-ring") as error:
        variant_environment("nccl-rnig", None)
    assert "is not valid: did you mean nccl-ring? variables to set, or" in str(error.value)


def test_communicator_settings_are_those_of_the_table_with_additions():
    made_with = partial(variant_communicator, key="--communicator")
    assert made_with("nccl-symmetric", {"max_ctas": 4}) == {"buffers": "symmetric", "max_ctas": 4}
    assert made_with("nccl-traffic-class-comm", {"traffic_class": 26}) == {"traffic_class": 26}
    assert made_with("nccl-ring", {}) == {}
    assert made_with(None, {"max_ctas": 4}) == {"max_ctas": 4}
    with pytest.raises(BadInputError, match=r"--communicator.buffers: 'allocated' .* the value of nccl-symmetric"):
        made_with("nccl-symmetric", {"buffers": "allocated"})
