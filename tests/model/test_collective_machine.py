"""Machines fitted to collectives: they predict more nodes, and say what the measurements do not tell."""

from dataclasses import replace

import numpy as np
import pytest
from model_observations import observation, observed

from hpccoll.model.collective_fit import KNOTS, CollectiveModel, FittedRow
from hpccoll.model.collective_machine import (
    OUTLIER_WEIGHT,
    _Operations,
    _unmodelled_reason,
    fit_machine_to_collectives,
)
from hpccoll.model.critical_path import PathMessage
from hpccoll.model.machine import Machine, MessageCosts, OwnMemory, Tier
from hpccoll.model.machine_file import read_machine, write_machine
from hpccoll.model.memory_work import MemoryWork
from hpccoll.model.torus_links import Torus
from hpccoll.model.validation import Errors, validate
from hpccoll.schedule import Layout
from hpccoll.store.schema import IN_TURN, PORT_USE

SIZES = tuple(8 << (3 * k) for k in range(1, 9))
TRUE = Machine(
    tiers={
        "rack": Tier(
            (
                MessageCosts(latency_s=2e-6, byte_s=5e-10),
                MessageCosts(1 << 15, latency_s=1e-5, byte_s=1e-10, synchronous=True),
            )
        )
    },
    fold_s={"float32": 2e-10},
    start_skew_s=4e-7,
    own_memory=OwnMemory(1e-10, 5e-10, 0.0, 32 << 20),
)
SLOWER = replace(
    TRUE,
    tiers={
        "rack": Tier(
            (
                MessageCosts(latency_s=6e-6, byte_s=5e-10),
                MessageCosts(1 << 15, latency_s=2e-5, byte_s=5e-11, synchronous=True),
            )
        )
    },
)
CASES = (
    ("all_reduce", "ring"),
    ("all_reduce", "recursive_doubling"),
    ("reduce_scatter", "recursive_halving"),
    ("all_gather", "ring"),
    ("all_gather", "bruck"),
)


def measured(machine, *nodes, noise=0.02, cases=CASES):
    """Return what collectives take on a machine, on several numbers of nodes of a rank each."""
    found = []
    for number in nodes:
        for collective, algorithm in cases:
            layout = Layout.of(number, 1)
            about = {"key": ("job", f"run on {number}", "")}
            found += observed(collective, algorithm, layout, machine, SIZES, noise, about=about)
    return found


def validated(fit, cases):
    """Return the cases with the predictions of the machine that was fitted to some of them."""
    return validate(cases, fit.machine.machine(), fit.used)


def errors_held_out(fit, cases):
    """Return the errors of predictions of the cases that the machine was not fitted to."""
    return Errors.of([case for case in validated(fit, cases) if case.held_out])


def errors_of(machine_file, observed_cases):
    """Return the errors of predictions of a machine file."""
    return Errors.of(validate(observed_cases, machine_file.machine()))


@pytest.fixture(scope="module")
def cases():
    """Return what collectives take on a known machine."""
    return measured(TRUE, 4, 8, 16, 32)


@pytest.fixture(scope="module")
def fitted(cases):
    """Return the fit to 4, 8 and 16 nodes, with 32 nodes held out."""
    return fit_machine_to_collectives(cases, "known", 16)


def test_a_known_machine_is_recovered_and_more_nodes_are_predicted(fitted, cases):
    held_out = [case for case in validated(fitted, cases) if case.held_out]
    assert {case.observation.layout.nodes for case in held_out} == {32}
    errors = Errors.of(held_out)
    assert (errors.error_median, errors.within_close) == (pytest.approx(0, abs=0.08), 1.0)
    costs = fitted.machine.machine().tiers["rack"]
    for nbytes in (64, 1 << 21):
        true = TRUE.tiers["rack"].of(nbytes)
        found = costs.of(nbytes)
        true_s = true.latency_s + nbytes * true.byte_s
        found_s = found.latency_s + 2 * found.overhead_s + nbytes * found.byte_s
        assert found_s == pytest.approx(true_s, rel=0.25)


def test_sums_along_paths_and_simulations_of_the_same_costs_agree(fitted, cases):
    simulated = replace(fitted.machine.machine(), path=None)
    for summed, other in zip(validated(fitted, cases), validate(cases, simulated), strict=True):
        assert other.seconds == pytest.approx(summed.seconds, rel=0.05)


def test_larger_jobs_that_behave_differently_have_curves_of_their_own(tmp_path):
    few, many = measured(TRUE, 4, 8, 16), measured(SLOWER, 32, 64)
    fit = fit_machine_to_collectives([*few, *many], "two kinds of jobs", 32)
    assert fit.machine.larger_jobs.from_nodes == 32
    assert errors_held_out(fit, [*few, *many]).error_median < 0.1
    path = tmp_path / "machine.json"
    write_machine(fit.machine, path)
    assert read_machine(path, "--machine") == fit.machine
    costs = fit.machine.machine()
    assert costs.in_job(16) != costs.in_job(32) == costs.in_job(1000)


def test_alike_jobs_share_their_curves(fitted):
    assert fitted.machine.larger_jobs is None


def test_curves_rise_with_the_size_and_less_than_in_proportion():
    model = CollectiveModel()
    numbers = [model.number("curve", "rack all", knot) for knot in range(len(KNOTS))]
    values = np.random.default_rng(1).normal(0, 3, len(numbers))
    seconds, derivatives = model.quantities(values)
    assert (np.diff(seconds) > 0).all()
    assert (np.diff(seconds / np.array(KNOTS)) < 0).all()
    for place in numbers:
        moved = values.copy()
        moved[place] += 1e-6
        slope = (model.quantities(moved)[0] - seconds) / 1e-6
        assert derivatives[:, place] == pytest.approx(slope, rel=1e-3, abs=1e-12)


def test_what_the_measurements_do_not_determine_is_said(fitted):
    undetermined = fitted.machine.measured.undetermined
    assert any("overhead" in words for words in undetermined), "no rank sends twice in a step"
    assert not any("inside a node" in words for words in undetermined), "no message is inside one"
    gathers = tuple(case for case in CASES if case[0] == "all_gather")
    fit = fit_machine_to_collectives(measured(TRUE, 4, 8, 16, cases=gathers), "gathers", 16)
    assert "float32" not in fit.machine.reduction


def test_disturbed_measurements_do_not_bend_the_curves():
    good = measured(TRUE, 4, 8, 16)
    bad = [replace(case, seconds=9 * case.seconds) for case in good[::10]]
    kept = [case for place, case in enumerate(good) if place % 10]
    fit = fit_machine_to_collectives([*kept, *bad], "disturbed", 16)
    assert errors_of(fit.machine, good).error_median < 0.1
    assert sum(fit.left_out.values()) >= len(bad) / 2


def test_rows_that_count_little_are_not_outliers_for_that():
    message = PathMessage("rack", 1024, 0, 1024, 0, received=True)
    rows = [FittedRow(3e-6, {message: 1}, MemoryWork(0, 0), 2, 2, "run")] * 20
    model = CollectiveModel()
    model.fit(rows, [0.05] * len(rows))
    assert (model.weights > OUTLIER_WEIGHT).all()


def test_a_machine_fitted_to_one_node_has_messages_inside_nodes_only():
    one_node = replace(TRUE, tiers={"node": TRUE.tiers["rack"]})
    inside = []
    for ranks in (4, 8):
        for collective, algorithm in CASES:
            inside += observed(collective, algorithm, Layout.of(ranks, ranks), one_node, SIZES)
    fit = fit_machine_to_collectives(inside, "one node")
    assert fit.machine.tiers.keys() == {"node"}
    assert not any("between" in words for words in fit.machine.measured.undetermined)
    assert errors_of(fit.machine, inside).error_median < 0.1


def test_few_measurements_are_not_fitted():
    assert fit_machine_to_collectives(measured(TRUE, 4)[:9], "few", 16) is None


def on_ports(ports, *nodes):
    """Return what gathers take if ranks send a part of the vector over each of their ports at once."""
    gathers = (("all_gather", "ring"), ("all_gather", "recursive_doubling"))
    cases = []
    for case in measured(TRUE, *nodes, cases=gathers):
        if case.nbytes < 8 * case.layout.workers:
            continue
        params = {**case.params, "ports": ports}
        cases.append(replace(case, nbytes=ports * case.nbytes, params=params))
    return cases


@pytest.mark.parametrize(
    ("algorithm", "ranks", "params", "reason"),
    [
        ("native", 8, {}, "the algorithm of the library is unknown"),
        ("ring", 2048, {}, "more than 1024 ranks"),
        ("ring", 1, {}, "one rank sends no messages"),
        ("ring", 8, {"channels": 4}, "several channels"),
        ("double_binary_tree", 8, {}, "several schedules"),
        ("bucket", 8, {"planes": 3}, "planes"),
        ("ring", 8, {"copies": 1}, "copies"),
    ],
)
def test_what_is_unknown_of_a_measurement_is_the_reason_to_leave_it_out(
    algorithm, ranks, params, reason
):
    case = observation("all_reduce", algorithm, 1 << 20, 1.0, Layout.of(ranks, 1), **params)
    assert reason in _unmodelled_reason(case)
    assert _unmodelled_reason(replace(case, algorithm=None)) != ""


def test_operations_that_differ_in_their_torus_alone_are_found_apart():
    layout = Layout.of(8, 1)
    operations = _Operations()
    shared = []
    for torus in ("2x2x2", "8"):
        params = {"torus": torus, "ports": 6, "peers": "torus"}
        case = observation("all_reduce", "ring", 6 << 20, 1.0, layout, **params)
        operations.add(case)
        shared.append(
            max(
                kind.link_bytes / kind.nbytes
                for kind in operations.row(case).work
                if isinstance(kind, PathMessage)
            )
        )
    assert shared == [2, 3]


def test_several_ports_of_a_rank_send_parts_of_the_vector_at_once():
    cases = [case for ports in (1, 3) for case in on_ports(ports, 4, 8, 16, 32)]
    fit = fit_machine_to_collectives(cases, "ports", 16)
    errors = errors_held_out(fit, cases)
    assert (errors.error_median, errors.within_close) == (pytest.approx(0, abs=0.08), 1.0)


def test_several_ports_are_predicted_only_if_the_machine_was_fitted_to_some(fitted):
    on_one = fitted.machine.machine()
    reasons = [
        {case.reason for case in validate(on_ports(3, 4), machine)}
        for machine in (on_one, replace(on_one, path=None))
    ]
    assert reasons == [
        {"the machine was not fitted to several ports of a rank"},
        {"several ports of a rank are not simulated"},
    ]


def test_ports_share_a_link_where_a_torus_has_fewer_links_than_ports():
    shared = {}
    for length in (2, 4):
        layout = Layout.of(length**3, 1)
        params = {"ports": 6, "torus": f"{length}x{length}x{length}", "planes": length}
        case = observation("all_gather", "bucket", 6 << 20, 1.0, layout, **params)
        operations = _Operations()
        operations.add(case)
        messages = operations.row(case).work
        shared[length] = {message.link_bytes // message.rank_bytes for message in messages}
    assert shared == {2: {2}, 4: {1}}


def test_folds_of_segments_are_hidden_behind_messages():
    layout = Layout.of(8, 1)
    operations = _Operations()
    rows = []
    for params in ({}, {"segment": 4096}):
        case = observation("reduce_scatter", "recursive_halving", 8 << 20, 1.0, layout, **params)
        operations.add(case)
        rows.append(operations.row(case))
    model = CollectiveModel()
    whole_s, segmented_s = model.predict(rows)
    folds_s = model.quantities(model.values)[0][model.numbers["fold", "float32", 0]] * (7 << 20)
    assert folds_s / 2 < whole_s - segmented_s < folds_s


def test_ports_that_a_rank_uses_in_turn_send_their_parts_one_after_the_other():
    use = {PORT_USE: IN_TURN}
    cases = [case for ports in (1, 3) for case in on_ports(ports, 4, 8, 16, 32)]
    slower = []
    for case in on_ports(3, 4, 8, 16, 32):
        slower.append(replace(case, seconds=3 * case.seconds, params={**case.params, **use}))
    fit = fit_machine_to_collectives([*cases, *slower], "ports in turn", 16)
    assert errors_held_out(fit, [*cases, *slower]).error_median < 0.08


def test_the_buffers_of_a_rank_hold_what_all_of_its_ports_receive_at_once():
    layout = Layout.of(8, 1)
    buffers = []
    for ports in (1, 4):
        case = observation("all_reduce", "ring", ports << 20, 1e-3, layout, ports=ports)
        operations = _Operations()
        operations.add(case)
        buffers.append(operations.row(case).memory.buffer_bytes)
    assert buffers == [(1 << 20) // 8, 4 * (1 << 20) // 8]


def to_other_peers(layout):
    """Return what collectives take on a machine with both tiers, if messages may go to other ranks than ours."""
    both = replace(TRUE, tiers={**TRUE.tiers, "node": TRUE.tiers["rack"]})
    cases = []
    for collective, algorithm in CASES:
        cases += observed(collective, algorithm, layout, both, SIZES, peers="torus")
    return cases


def test_messages_to_other_ranks_are_modelled_only_if_it_is_known_which_stay_inside_nodes():
    reason = "its messages go to other ranks, some on the same node"
    on_nodes = to_other_peers(Layout.of(8, 1))
    on_shared_nodes = to_other_peers(Layout.of(8, 2))
    fit = fit_machine_to_collectives([*on_nodes, *on_shared_nodes], "other peers", 8)
    assert fit.left_out[reason] == len(on_shared_nodes)
    both = replace(TRUE, tiers={**TRUE.tiers, "node": TRUE.tiers["rack"]})
    assert {case.reason for case in validate(on_shared_nodes, both)} == {reason}
    one_node = to_other_peers(Layout.of(8, 8))
    assert {case.reason for case in validate([*on_nodes, *one_node], both)} == {""}


def on_torus(length):
    """Return what gathers between powers of two take on a torus whose links are slower than its ranks."""
    torus = Torus((length,) * 3)
    me = np.arange(torus.nodes)
    cases = []
    for nbytes in SIZES:
        block = nbytes // torus.nodes
        seconds = 0.0
        distance = 1
        while distance < torus.nodes:
            sent = np.full(torus.nodes, block * distance)
            fullest = torus.link_bytes(me, me ^ distance, sent).max()
            seconds += 2e-6 + fullest / 5e9
            distance *= 2
        about = {"key": ("job", f"run on {length}", "")}
        params = {"torus": "x".join([str(length)] * 3)}
        layout = Layout.of(torus.nodes, 1)
        case = observation(
            "all_gather", "recursive_doubling", nbytes, seconds, layout, about, **params
        )
        cases.append(case)
    return cases


def test_messages_that_share_the_links_of_a_torus_are_slower_on_more_nodes():
    cases = [case for length in (2, 4, 8) for case in on_torus(length) * 2]
    fit = fit_machine_to_collectives(cases, "torus", 64)
    errors = errors_held_out(fit, cases)
    assert errors.error_median < 0.1
    unlinked = [replace(case, params={}, requested={}) for case in cases]
    without = fit_machine_to_collectives(unlinked, "no torus", 64)
    blind = errors_held_out(without, unlinked)
    assert blind.error_median > 1.5 * errors.error_median
