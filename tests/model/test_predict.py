"""Predictions: their times, intervals and distances, what is chosen as in a run, and what is left out."""

import pytest
from predicted_machines import (
    EXACT,
    LATENCIES,
    LATENCY,
    NCCL,
    RATE,
    RATES,
    cluster,
    fitted,
    in_racks,
)

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.cases.planned_schedule import default_channels
from hpccoll.common.errors import BadInputError
from hpccoll.model import simulation
from hpccoll.model.nccl_model import nccl_estimates
from hpccoll.model.predict import PredictionPlan, Request, predict

SIZE = 1 << 16
RATIOS = "ratio_p5", "ratio_p95"


def one(machine, nodes=2, size=SIZE, algorithm="recursive_doubling", **more):
    """Return the prediction of one algorithm."""
    request = Request(nodes=[nodes], sizes=[size], algorithms=[algorithm], **more)
    (found,) = (
        each for each in predict(machine, request).predictions if each.algorithm == algorithm
    )
    return found


@pytest.mark.parametrize(("nodes", "rounds"), [(2, 1), (32, 5)])
def test_a_time_is_that_of_the_rounds_and_its_interval_that_of_the_machines_numbers(nodes, rounds):
    found = one(cluster(), nodes, parameters={"channels": 1})
    assert found.value_s == pytest.approx(rounds * (LATENCY + SIZE / RATE))
    assert found.low_s == pytest.approx(rounds * (LATENCIES[0] + SIZE / RATES[1]))
    assert found.high_s == pytest.approx(rounds * (LATENCIES[1] + SIZE / RATES[0]))
    assert (found.kind, found.exact) == ("simulated", True)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_intervals_contain_their_times(collective):
    found = predict(
        in_racks(), Request(nodes=[3, 4], sizes=[1 << 10, 1 << 20], collective=collective)
    ).predictions
    assert found
    assert [each for each in found if not each.low_s <= each.value_s <= each.high_s] == []


@pytest.mark.parametrize("ratios", [(0.8, 1.5), (1.2, 1.5), (0.5, 0.8)])
def test_the_interval_of_a_fitted_machine_is_as_wide_as_held_out_measurements_and_contains_the_time(
    ratios,
):
    bare, wide = (
        one(fitted(tiers={"rack": EXACT}, layout=None, validation=of))
        for of in ({}, dict(zip(RATIOS, ratios, strict=True)))
    )
    low, high = min(1, ratios[0]), max(1, ratios[1])
    assert (wide.low_s, wide.value_s, wide.high_s) == pytest.approx(
        (low * bare.low_s, bare.value_s, high * bare.high_s)
    )
    assert wide.ranks_per_node == 1  # as many as were measured


@pytest.mark.parametrize(
    ("machine", "rule"), [(cluster(), "messages"), (cluster(nccl=NCCL), "groups")]
)
def test_channels_are_those_of_a_run(machine, rule):
    size = 1 << 24
    expected = default_channels(size, machine.layout(4), rule=rule)
    found = one(machine, 4, size, "ring")
    assert (found.params["channels"], found.params["window"]) == (expected, min(4, expected))
    assert one(machine, 4, size, "ring", parameters={"channels": 3}).params["channels"] == 3


def test_bytes_are_those_that_are_moved():
    found = one(cluster(), 3, 1024, "ring", collective="all_gather")
    assert (found.requested_bytes, found.nbytes) == (1024, 1020)


@pytest.mark.parametrize(("nodes", "switches"), [(2, 1), (3, 3), (16, 8 + 2 + 1)])
def test_a_tree_of_switches_has_one_in_every_rack_and_others_above(nodes, switches):
    found = one(
        in_racks(aggregators={"kind": "switches", "source": "assumed: ideal"}),
        nodes,
        1024,
        "sharp_emulated",
    )
    assert (found.aggregators, found.params["radix"]) == (switches, 4)
    assert (found.assumed, found.eligible) == ("assumed: ideal", False)
    of_ranks = one(cluster(), 4, 1024, "sharp_emulated", aggregators=1)
    assert (of_ranks.aggregators, of_ranks.assumed, of_ranks.eligible) == (1, None, True)


@pytest.mark.parametrize(("radix", "depth", "switches"), [(2, 1, 7), (8, 1, 1), (8, 3, 3)])
def test_a_tree_takes_as_few_switches_as_it_needs(radix, depth, switches):
    machine, parameters = (
        in_racks(aggregators={"kind": "switches"}),
        {"radix": radix, "depth": depth},
    )
    assert one(machine, 4, 1024, "sharp_emulated", parameters=parameters).aggregators == switches
    with pytest.raises(BadInputError, match="needs an aggregator"):
        one(machine, 4, 1024, "sharp_emulated", parameters=parameters, aggregators=switches - 1)


def test_what_cannot_run_and_sizes_below_one_element_for_each_rank_are_left_out_with_the_reason():
    request = Request(
        nodes=[4, 6],
        sizes=[16, 4096],
        collective="reduce_scatter",
        algorithms=["ring", "recursive_halving"],
    )
    found = predict(cluster(), request)
    assert [(each.algorithm, each.nodes, each.requested_bytes) for each in found.predictions] == [
        ("ring", 4, 16), ("ring", 4, 4096), ("recursive_halving", 4, 16), ("recursive_halving", 4, 4096),
        ("ring", 6, 4096),
    ]  # fmt: skip
    reasons = dict(found.left_out)
    assert reasons.pop("ring: 16 B is less than one float32 for each of 6 ranks") == (6,)
    assert {
        "power-of-two" in reason or "less than" in reason: nodes
        for reason, nodes in reasons.items()
    } == {True: (6,)}


def names(machine, **request):
    """Return the algorithms of the predictions for one size on a number of nodes."""
    return [
        each.algorithm for each in predict(machine, Request(sizes=[SIZE], **request)).predictions
    ]


def test_nccls_own_ring_and_tree_take_what_nccl_expects_with_the_protocol_that_it_takes_and_have_no_interval():
    machine = in_racks(nccl=NCCL)
    found = [
        each
        for each in predict(machine, Request(nodes=[4], sizes=[SIZE])).predictions
        if each.of_library
    ]
    estimates = nccl_estimates(machine.nccl, "all_reduce", 4, 2, SIZE)
    for each in found:
        own = min(
            (one for one in estimates if f"nccl_{one.algorithm}" == each.algorithm),
            key=lambda one: one.seconds,
        )
        assert (each.value_s, each.params) == (own.seconds, {"protocol": own.protocol})
        assert (each.low_s, each.high_s, each.kind, each.eligible) == (None, None, "modelled", True)
    assert [each.algorithm for each in found] == ["nccl_ring", "nccl_tree"]


@pytest.mark.parametrize(
    ("collective", "algorithms", "expected"),
    [
        # ours beside NCCL's own
        ("all_reduce", ["hierarchical"], ["hierarchical", "nccl_ring", "nccl_tree"]),
        ("all_reduce", ["nccl_tree"], ["nccl_tree"]),
        ("all_reduce", ["ring", "nccl_ring"], ["ring", "nccl_ring"]),
        ("all_reduce", ["nccl_ring", "ring"], ["nccl_ring", "ring"]),
        ("all_gather", ["ring"], ["ring", "nccl_ring"]),  # of which NCCL has no tree
        ("broadcast", ["chain"], ["chain"]),  # without a formula
    ],
)
def test_nccls_own_are_candidates_like_others_and_follow_ours_unless_some_are_named(
    collective, algorithms, expected
):
    assert (
        names(in_racks(nccl=NCCL), nodes=[2], collective=collective, algorithms=algorithms)
        == expected
    )


def test_on_one_node_and_without_a_section_nccls_own_are_left_out_with_the_reason():
    found = predict(in_racks(nccl=NCCL), Request(nodes=[1], sizes=[SIZE], algorithms=["ring"]))
    assert [each.algorithm for each in found.predictions] == ["ring"]
    assert [
        reason.startswith(("nccl_ring: on one node", "nccl_tree: on one node"))
        for reason in found.left_out
    ]
    with pytest.raises(BadInputError, match="nccl_ring"):
        predict(in_racks(), Request(nodes=[2], sizes=[SIZE], algorithms=["nccl_ring"]))


def test_bus_bandwidth_is_that_of_nccl_tests():
    of_ring = one(in_racks(nccl=NCCL), 4, 1 << 30, "nccl_ring")  # 8 ranks
    assert of_ring.to_json()["algbw_Bps"] == pytest.approx((1 << 30) / of_ring.value_s)
    assert of_ring.to_json()["busbw_Bps"] == pytest.approx(2 * 7 / 8 * (1 << 30) / of_ring.value_s)
    assert (
        one(cluster(), 2, 1024, "dissemination", collective="barrier").to_json()["busbw_Bps"]
        is None
    )


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ((3, 1, 4096), "within what was measured"),
        ((4, 8, 1024), "8 times the measured ranks on a node"),
        ((16, 1, 1 << 22), "4 times the measured nodes and 4 times the measured size"),
        ((1, 1, 512), "0.5 of the least measured nodes and 0.5 of the least measured size"),
    ],
)
def test_a_prediction_says_how_far_the_nearest_measurement_is(case, words):
    assert fitted().distance(*case) == words


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"collective": "all_reduced"}, ["collective", "all_reduce"]),
        ({"dtype": "float31"}, ["dtype", "float32"]),
        ({"parameters": {"radius": 2}}, ["parameter", "channels, "]),
        ({"nodes": [1]}, ["ring", "one rank sends no messages"]),
        ({"parameters": {"window": "wide"}}, ["window", "from 1"]),
        ({"collective": "send_recv", "parameters": {"peer": 2}}, ["peer", "another rank of 2"]),
        ({"sizes": [2]}, ["bytes", "at least one float32"]),
        (
            {"collective": "send_recv", "algorithms": ["train"], "parameters": {"copies": 1}},
            ["copies"],
        ),
        ({"algorithms": ["sharp_emulated"]}, ["sharp_emulated", "aggregator"]),
    ],
)
def test_what_cannot_be_predicted_is_bad_input(request_, words):
    with pytest.raises(BadInputError) as refused:
        predict(cluster(), Request(**({"nodes": [2], "sizes": [1024]} | request_)))
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_cluster_without_a_tier_is_refused_before_the_first_simulation():
    done: list[tuple[int, int]] = []
    machine = in_racks(tiers=dict.fromkeys(("node", "rack"), EXACT))
    with pytest.raises(BadInputError, match="fabric"):
        predict(machine, Request(nodes=[2, 8], sizes=[1024]), lambda *counts: done.append(counts))
    assert done == []


def interrupt_at(doing):
    """Return a display of progress that interrupts what is shown with this word."""

    def show(_done, _of, shown="", _left_s=None):
        if doing in shown:
            raise KeyboardInterrupt

    return show


def test_what_takes_longer_is_simulated_later_and_rows_have_the_order_of_the_request():
    request = Request(
        nodes=[16, 2], sizes=[1 << 10, 1 << 20], algorithms=["ring", "recursive_doubling"]
    )
    simulated = {}
    plan = PredictionPlan.of(cluster(), request)
    predicted = plan.predict(
        lambda _done, _of, doing="", _left_s=None: simulated.setdefault(doing.split(": ")[0])
    )
    assert list(simulated) == [
        f"{algorithm} on {nodes} ranks, {size}"
        for nodes, algorithm in (
            (2, "recursive_doubling"),
            (2, "ring"),
            (16, "recursive_doubling"),
            (16, "ring"),
        )
        for size in ("1 KiB", "1 MiB")
    ]
    assert [
        (each.nodes, each.algorithm, each.requested_bytes) for each in predicted.predictions
    ] == [
        (nodes, algorithm, size)
        for nodes in (16, 2)
        for algorithm in request.algorithms
        for size in request.sizes
    ]
    assert not predicted.interrupted


def test_an_interrupt_keeps_what_is_complete_and_names_the_rest():
    machine = cluster(nccl=NCCL)
    request = Request(nodes=[2, 16], sizes=[1 << 20], algorithms=["ring", "recursive_doubling"])
    predicted = PredictionPlan.of(machine, request).predict(
        interrupt_at("recursive_doubling on 16")
    )
    assert [
        (each.nodes, each.algorithm) for each in predicted.predictions if each.kind == "simulated"
    ] == [
        (2, "ring"),
        (2, "recursive_doubling"),
    ]
    assert predicted.left_out == {
        "interrupted before 2 predictions of recursive_doubling, ring": (16,)
    }
    assert predicted.interrupted
    # formulas take no time
    assert {each.nodes for each in predicted.predictions if each.kind == "modelled"} == {2, 16}


def test_shares_of_a_simulation_grow_up_to_all_of_it():
    seen, request = (
        [],
        Request(nodes=[64], sizes=[1 << 20], algorithms=["ring"], parameters={"channels": 4}),
    )
    PredictionPlan.of(cluster(), request).predict(lambda *state: seen.append(state[2:]))
    shares = [int(doing.split(": ")[1][:-1]) for doing, _ in seen[1:]]
    assert seen[0][0].endswith("reading steps")
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 10
    assert 90 < shares[-1] <= 100
    assert all(left_s >= 0 for _, left_s in seen)


def test_what_needs_more_memory_than_is_free_is_left_out(monkeypatch):
    monkeypatch.setattr(simulation, "available_memory", lambda: 1 << 20)
    monkeypatch.setattr(simulation, "MUCH_MEMORY", 0)
    request = Request(nodes=[256], sizes=[1 << 20], algorithms=["direct", "recursive_doubling"])
    predicted = predict(cluster(), request)
    assert [each.algorithm for each in predicted.predictions] == ["recursive_doubling"]
    ((reason, nodes),) = predicted.left_out.items()
    assert reason.startswith("direct: it needs about 34.5 MB of memory")
    assert nodes == (256,)
