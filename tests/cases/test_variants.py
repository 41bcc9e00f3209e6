"""Named variants: the table, their limits and controls, and what a sweep may add to them."""

import re
import sys
from functools import partial
from pathlib import Path

import pytest

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.case import Case, Shape
from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS, check_settings
from hpccoll.cases.library_algorithms import algorithms_by_word, library_table
from hpccoll.cases.library_request import NCCL_ALGORITHMS, forced_by_mpi
from hpccoll.cases.skip_reason import HOLDS, LaunchFacts, skip_reason
from hpccoll.cases.variables import CHOICE_VARIABLES, LIST_VARIABLES, SITE_VARIABLES
from hpccoll.cases.variants import (
    NodeView,
    known_variant,
    named_variants,
    variant_communicator,
    variant_environment,
)
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS, Layout


def test_settings_of_variants_require_nccl4py_and_have_values_of_the_version_that_their_explanation_names():
    for variant in named_variants().values():
        check_settings("here", variant.communicator)
        assert bool(variant.communicator) == ({"nccl4py", "nccl-2.27"} <= {*variant.requirements})
    for setting in COMMUNICATOR_SETTINGS.values():
        assert len(setting.effect) <= 120
        for value, since in setting.value_since.items():
            assert since > setting.since
            assert f"{value} ({since // 10000}.{since // 100 % 100})" in setting.effect


def test_a_communicator_on_which_graphs_would_hang_is_refused():
    with pytest.raises(
        BadInputError, match="graph_usage_mode: 0 is not valid: a whole number from 1 to 2"
    ):
        check_settings("communicator", {"graph_usage_mode": 0})


def test_every_algorithm_of_nccl_has_a_variant_and_those_with_offload_a_negative_control_that_requests_nothing():
    by_request = {variant.requested: variant for variant in named_variants().values()}
    assert by_request.keys() >= {*NCCL_ALGORITHMS.values(), "sharp"}
    for requested in ("sharp", "collnet_direct", "nvls"):
        control = named_variants()[by_request[requested].control]
        assert (control.requested, control.control) == (None, None)


@pytest.mark.parametrize("library", library_table()["variants"])
def test_every_algorithm_of_an_mpi_library_has_a_variant_that_requests_it_where_the_library_has_it(
    library,
):
    words = algorithms_by_word(library)
    assert {name for name in named_variants() if name.startswith(f"{library}-")} == {
        f"{library}-{w}" for w in words
    }
    for word in words:
        variant = named_variants()[f"{library}-{word}"]
        assert (variant.requested, variant.requirements, variant.shows_in_logs) == (
            word,
            (library,),
            False,
        )
        # our calls have one communicator
        assert not any(algorithm.inter for algorithm in variant.algorithms.values())
        requested = {name: forced_by_mpi(variant.environment, name) for name in COLLECTIVES}
        assert {name for name in requested if requested[name]} == variant.algorithms.keys()


OPEN_MPI, OLDER, MPICH = (
    "Open MPI v5.0.11, package",
    "Open MPI v4.1.6, package",
    "MPICH Version:      5.0.2\nMPICH",
)


@pytest.mark.parametrize(
    ("variant", "call", "layout", "mpi", "reason"),
    [
        ("openmpi-ring", "all_reduce 16", (4, 4), OPEN_MPI, None),
        (
            "openmpi-ring",
            "all_reduce 8",
            (4, 4),
            OPEN_MPI,
            "for all_reduce it needs at least as many elements as r",
        ),
        ("openmpi-ring", "all_reduce 16", (4, 4), MPICH, "the MPI library is not Open MPI"),
        (
            "openmpi-ring",
            "all_reduce 16",
            (4, 4),
            "CRAY MPICH version 8",
            "the MPI library is not Open MPI",
        ),
        ("openmpi-ring", "all_reduce 16", (4, 4), None, None),  # the job finds out
        (
            "openmpi-ring",
            "broadcast 16",
            (4, 4),
            OPEN_MPI,
            "Open MPI has no such algorithm of broadcast",
        ),
        ("openmpi-sparbit", "all_gather 16", (4, 4), OPEN_MPI, None),
        ("openmpi-sparbit", "all_gather 16", (4, 4), OLDER, "Open MPI 4.1 is older than 5.0"),
        ("openmpi-two_proc", "barrier 0", (4, 4), OPEN_MPI, "for barrier it needs exactly 2 ranks"),
        ("openmpi-two_proc", "barrier 0", (2, 2), OPEN_MPI, None),
        (
            "openmpi-recursive_doubling",
            "all_gather 48",
            (6, 6),
            OPEN_MPI,
            "for all_gather it needs a power of two of",
        ),
        ("openmpi-recursive_doubling", "all_reduce 48", (6, 6), OPEN_MPI, None),
        ("mpich-ring", "all_reduce 16", (4, 4), MPICH, None),
        (
            "mpich-ring",
            "all_reduce 16",
            (4, 4),
            "MPICH Version: 4.0.2",
            "MPICH 4.0 is older than 4.1",
        ),
        (
            "mpich-ring",
            "all_reduce 16",
            (4, 4),
            "CRAY MPICH version 8",
            "the MPI library is not MPICH",
        ),
        (
            "mpich-smp",
            "all_reduce 16",
            (4, 4),
            MPICH,
            "for all_reduce it needs a communicator that has sub-comm",
        ),
        ("mpich-smp", "all_reduce 16", (4, 2), MPICH, None),
        (
            "mpich-pairwise",
            "all_to_all 16 in_place",
            (4, 4),
            MPICH,
            "for all_to_all it needs separate buffers",
        ),
        ("mpich-pairwise_sendrecv_replace", "all_to_all 16 in_place", (4, 4), MPICH, None),
        ("mpich-reduce_scatter_allgather", "all_reduce 16", (6, 6), MPICH, None),
        (
            "mpich-reduce_scatter_allgather",
            "all_reduce 12",
            (6, 6),
            MPICH,
            "for all_reduce it needs at least as many",
        ),
    ],
)
def test_a_case_whose_algorithm_would_not_run_is_skipped(variant, call, layout, mpi, reason):
    (name, nbytes, *in_place), (ranks, nodes) = call.split(), layout
    family = COLLECTIVES[name]
    case = Case(
        collective=name,
        algorithm="native",
        transport="mpi",
        device="cpu",
        dtype="float32",
        bytes=int(nbytes),
        op="sum" if family.reduces else None,
        in_place=bool(in_place),
        root=0 if family.rooted else None,
    )
    facts = LaunchFacts(
        shape=Shape(nodes, ranks),
        variant=variant,
        sets=named_variants()[variant].environment,
        mpi=mpi,
    )
    found = skip_reason(case, Layout.of(ranks, ranks // nodes), facts)
    assert found is None if reason is None else found.startswith(f"{variant}: {reason}")


def test_mpich_has_the_variables_of_its_variants_their_words_and_calls_that_it_does_not_divide(
    require,
):
    library = Path(sys.prefix) / "lib" / "libmpi.so.12"
    require(library.exists(), "no MPICH of PyPI")
    text = library.read_bytes().decode("latin-1")
    whole = dict(re.findall(r"Select composition [^\0]* for (\w+) 0 Auto[^\0]* (\d) NM only", text))
    for name, value in {pair for v in named_variants().values() for pair in v.environment.items()}:
        call, _, kind = (
            name.removeprefix("MPIR_CVAR_")
            .lower()
            .partition("_composition" if "COMP" in name else "_intra_")
        )
        if name.startswith("MPIR_CVAR_"):
            assert name in text
            words = re.findall(rf"Variable to select {call} algorithm([^\0]*)", text)
            assert (
                any(f"\n{value} " in each for each in words)
                if kind
                else whole[call.capitalize()] == value
            )


def test_an_algorithm_of_two_ranks_would_end_a_program_of_more():
    fatal = {name for name, variant in named_variants().items() if variant.fails_everywhere(3)}
    assert fatal == {"openmpi-two_proc"}
    assert not named_variants()["openmpi-two_proc"].fails_everywhere(2)


def test_the_needs_of_algorithms_are_those_of_operations_or_hold_for_a_case():
    needs = {
        n
        for v in named_variants().values()
        for algorithm in v.algorithms.values()
        for n in algorithm.needs
    }
    assert needs - HOLDS.keys() == {"commutative", "builtin"}


def test_a_variant_stays_known_with_added_variables_and_site_values_but_not_with_overridden_ones():
    assert (
        known_variant("nccl-ring", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"})
        is named_variants()["nccl-ring"]
    )
    assert (
        known_variant("nccl-one-rail", {"NCCL_IB_HCA": "=mlx5_7:1"})
        is named_variants()["nccl-one-rail"]
    )
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
        (NVLS, "all_reduce float32 sum", (2, 8), None, "at most 1 node"),
        (NVLS, "all_reduce float32 min", (1, 8), None, "op"),
        (NVLS, "all_reduce bfloat16 max", (1, 8), None, None),
        (NVLS, "all_reduce uint8 sum", (1, 8), None, "dtype"),
        (NVLS, "all_gather uint8", (1, 8), None, None),
        (NVLS, "all_gather int32", (1, 33), None, "at most 32"),
        (NVLS, "all_reduce int32 sum", (1, 33), None, None),
        (NVLS, "all_reduce float32 sum", (1, 2), (2, 28, 3), "at least"),
        (NVLS, "all_reduce float32 sum", (1, 2), (2, 28, 7), None),
        (SYMMETRIC, "all_reduce float64 sum", (1, 8), None, "dtype"),
        (SYMMETRIC, "all_gather float32", (2, 8), (2, 27, 7), "at most 1 node"),
        (SYMMETRIC, "all_gather float32", (2, 8), (2, 29, 2), None),
    ],
)
def test_the_limits_of_a_variant_depend_on_call_nodes_and_version(name, call, shape, nccl, excess):
    collective, dtype, *op = call.split()
    unmet = named_variants()[name].violation(
        (collective, dtype, *(op or [None])), NodeView.of(*shape, nccl)
    )
    assert unmet is None if excess is None else f"the variant takes {excess}" in unmet


def test_of_unknown_nodes_only_what_exceeds_a_limit_in_any_case_is_reported():
    of_case = "all_reduce", "float32", "sum"
    for name in ("nccl-nvls", "nccl-nvls-tree", "nccl-sharp"):
        assert named_variants()[name].violation(of_case, NodeView((1, 4), (2, 8))) is None
        assert named_variants()[name].violation(of_case, NodeView((1, 1), (1, 1)))


def test_every_limit_has_keys_of_the_project():
    limits = [limit for variant in named_variants().values() for limit in variant.limits]
    assert {one for limit in limits for one in (limit.collectives or ())} <= {
        *COLLECTIVES,
        *WORKLOADS,
    }
    assert {one for limit in limits for one in (limit.for_collectives or ())} <= COLLECTIVES.keys()
    dtypes = {one for limit in limits for one in (*(limit.dtypes or ()), *(limit.for_dtypes or ()))}
    assert dtypes <= {*DTYPES, BFLOAT16}
    assert {one for limit in limits for one in (limit.ops or ())} <= {*REDUCTIONS, "avg"}


@pytest.mark.parametrize("name", named_variants())
def test_a_known_name_sets_its_environment_to_which_variables_are_added_and_of_which_only_examples_change(
    name,
):
    own = named_variants()[name].environment
    assert variant_environment(name, {**own, "A": 1}) == {**own, "A": 1}
    for key, value in own.items():
        other = next(
            (
                one
                for one in CHOICE_VARIABLES.get(key, LIST_VARIABLES.get(key, ("7", "9")))
                if one != value
            ),
            "7",
        )
        if key in SITE_VARIABLES:
            assert variant_environment(name, {key: "7"})[key] == "7"
        else:
            words = rf"variants\.{name}\.{key}: '{other}' .* {value}, the value of {name}"
            with pytest.raises(BadInputError, match=words):
                variant_environment(name, {key: other})


def test_an_unknown_name_needs_variables():
    assert variant_environment("mine", {"A": 1}) == {"A": 1}
    words = r"'nccl-rnig' is not valid: did you mean nccl-ring\? variables to set, or a named variant: nccl-ring"
    with pytest.raises(BadInputError, match=words):
        variant_environment("nccl-rnig", None)


def test_communicator_settings_are_those_of_the_table_with_additions():
    made_with = partial(variant_communicator, key="--communicator")
    assert made_with("nccl-symmetric", {"max_ctas": 4}) == {"buffers": "symmetric", "max_ctas": 4}
    assert made_with("nccl-traffic-class-comm", {"traffic_class": 26}) == {"traffic_class": 26}
    assert made_with(None, {"max_ctas": 4}) == {"max_ctas": 4}
    with pytest.raises(
        BadInputError, match=r"--communicator.buffers: 'allocated' .* the value of nccl-symmetric"
    ):
        made_with("nccl-symmetric", {"buffers": "allocated"})


@pytest.mark.parametrize(("variant", "over"), [("nccl-ring", "nccl"), ("ucx-one-rail", "mpi")])
def test_settings_of_no_library_affect_the_peer_kernel(variant, over):
    case = Case(
        collective="all_reduce", algorithm="ring", transport="peer", device="cuda", bytes=1024
    )
    reason = skip_reason(case, Layout.of(4), LaunchFacts(shape=Shape(1, 4), variant=variant))
    assert reason == f"{variant}: its settings affect cases over {over}, not over peer"
