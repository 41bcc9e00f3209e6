"""Machine files of fits to collectives: their times are those of the regression, in memory and as predictions."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cli_runner import invoke
from model_observations import observation, observed

from hpccoll.model.collective_fit import fit_collectives
from hpccoll.model.collective_machine import _file, _Operations, _unmodelled_reason
from hpccoll.model.machine import Cpus, Machine, MessageCosts, Tier
from hpccoll.model.machine_file import read_machine, write_machine
from hpccoll.model.observations import observations
from hpccoll.model.path_times import sums_paths
from hpccoll.model.predict import Request, predict
from hpccoll.model.unknown_messages import schedules_of
from hpccoll.model.validation import predicted_seconds, validate
from hpccoll.schedule import Cut, Layout
from hpccoll.store.result_files import read_all

SIZES = (256, 1 << 14, 1 << 20, 1 << 26)
NEAR = Tier((MessageCosts(latency_s=5e-7, overhead_s=1e-7, byte_s=2e-10),))
FAR = Tier(
    (
        MessageCosts(latency_s=2e-6, overhead_s=2e-7, byte_s=5e-10),
        MessageCosts(1 << 15, 1e-5, 2e-7, byte_s=1e-10, synchronous=True),
    )
)
TRUE = Machine(
    tiers={"node": NEAR, "rack": FAR, "fabric": replace(FAR)},
    fold_s={"float32": 2e-10},
    start_skew_s=4e-7,
    port_byte_s=8e-11,
)
SLOW = replace(
    TRUE, tiers={"node": NEAR, "rack": Tier((MessageCosts(latency_s=2e-5, byte_s=1e-9),))}
)
ALGORITHMS = (
    ("all_reduce", "ring"),
    ("all_reduce", "recursive_doubling"),
    ("reduce_scatter", "recursive_halving"),
    ("all_gather", "bruck"),
    ("all_to_all", "direct"),
    ("reduce", "binomial"),
    ("broadcast", "binomial"),
)


def on(layout, machine=TRUE, **params):
    """Return what collectives take on a layout, with the parameters of a run of another program."""
    about = {"key": ("job", f"run of {layout.ranks} on {layout.nodes}", "")}
    cases = []
    for collective, algorithm in ALGORITHMS:
        for case in observed(collective, algorithm, layout, machine, SIZES, about=about):
            cases.append(replace(case, params={**case.params, **params}))
    return cases


def in_racks(nodes):
    """Return the layout of nodes of a rank, four in a rack."""
    return Layout(tuple(range(nodes)), tuple(node // 4 for node in range(nodes)))


JOBS = {
    "one rank on each node": [partial(on, Layout.of(nodes, 1)) for nodes in (4, 8, 16)],
    "ranks that share ports": [partial(on, Layout.of(nodes * 4, 4)) for nodes in (2, 4, 8)],
    "several racks": [partial(on, in_racks(nodes)) for nodes in (4, 8, 16)],
    "a torus": [
        partial(on, Layout.of(8, 1), torus="2x2x2"),
        partial(on, Layout.of(16, 1), torus="4x4"),
        partial(on, Layout.of(32, 1), torus="2x4x4"),
    ],
    "several ports": [partial(on, Layout.of(8, 1), ports=ports) for ports in (1, 2, 3)],
    "programs that do more than their schedules": [
        partial(on, Layout.of(8, 1), torus="2x2x2", ports=6, addresses="all"),
        partial(
            on, Layout.of(16, 1), torus="2x2x4", ports=3, addresses="peers", port_use="in turn"
        ),
        partial(on, Layout.of(8, 1), torus="2x2x2", segment=4096, copied="nothing"),
        partial(on, Layout.of(16, 1), torus="2x2x4", ports=2, segment=65536, copied="parts"),
    ],
    "larger jobs that are slower": [
        partial(on, Layout.of(4, 1)),
        partial(on, Layout.of(16, 1), SLOW),
        partial(on, Layout.of(32, 1), SLOW),
    ],
}
"""Functions of the cases of each job: they are simulated by the test that needs them."""


def machine_of(*jobs):
    """Return the machine that is fitted to jobs, without intervals, which take most of the time."""
    cases = [case for job in jobs for case in job]
    operations = _Operations()
    for case in cases:
        operations.add(case)
    model = fit_collectives([operations.row(case) for case in cases])
    return _file("fitted", model, [], cases)


def compared(cases, path, most_nodes=None):
    """Return the seconds of the regression, and those of the machine file that is written and read."""
    operations = _Operations()
    for case in cases:
        assert operations.add(case) == ""
    rows = [operations.row(case) for case in cases]
    used = [
        place for place, case in enumerate(cases) if case.layout.nodes <= (most_nodes or 1 << 30)
    ]
    model = fit_collectives([rows[place] for place in used])
    write_machine(_file("fitted", model, [], [cases[place] for place in used]), path)
    machine = read_machine(path, "--machine").machine()
    of_file = [predicted_seconds(case, machine) for case in cases]
    return list(model.predict(rows)), of_file


@pytest.mark.parametrize("jobs", JOBS)
def test_a_machine_file_has_the_times_of_the_regression(jobs, tmp_path):
    cases = [case for cases_of_job in JOBS[jobs] for case in cases_of_job()]
    in_memory, of_file = compared(cases, tmp_path / "machine.json")
    assert of_file == pytest.approx(in_memory, rel=1e-9)


def test_a_machine_file_has_the_times_of_jobs_that_were_held_out(tmp_path):
    cases = [*on(Layout.of(4, 1)), *on(Layout.of(8, 1)), *on(Layout.of(32, 1))]
    in_memory, of_file = compared(cases, tmp_path / "machine.json", most_nodes=8)
    assert of_file == pytest.approx(in_memory, rel=1e-9)


@pytest.fixture(scope="module")
def on_tori():
    """Return the machine that is fitted to jobs on tori, over several ports."""
    return machine_of(
        on(Layout.of(8, 1), torus="2x2x2"),
        on(Layout.of(16, 1), torus="2x2x4"),
        on(Layout.of(8, 1), torus="2x2x2", ports=3),
    )


@pytest.mark.parametrize("ports", [1, 2])
@pytest.mark.parametrize("shape", ["2x4x4", "2x16"])
def test_a_prediction_is_the_time_of_a_measurement_of_the_same_case(shape, ports, on_tori):
    for collective, algorithm in ALGORITHMS:
        request = Request(
            nodes=[32],
            sizes=[1 << 20, 1 << 27],
            collective=collective,
            algorithms=[algorithm],
            torus=shape,
            ports=ports,
        )
        for prediction in predict(on_tori, request).predictions:
            same = observation(
                collective,
                algorithm,
                prediction.nbytes,
                1.0,
                Layout.of(32, 1),
                torus=shape,
                ports=ports,
            )
            assert prediction.value_s == pytest.approx(predicted_seconds(same, on_tori.machine()))
            assert prediction.params["torus"] == shape
            assert prediction.low_s <= prediction.value_s <= prediction.high_s


def of_torus(machine, nodes, **more):
    """Return the prediction of a ring on a number of nodes."""
    request = Request(nodes=[nodes], sizes=[1 << 20], algorithms=["ring"], **more)
    (prediction,) = predict(machine, request).predictions
    return prediction


def test_an_unknown_shape_of_a_larger_torus_is_assumed_and_said(on_tori):
    assumed = of_torus(on_tori, 32)
    assert assumed.params["torus"] == "2x4x4"
    assert "assumed: a torus of 2x4x4 nodes" in assumed.distance
    measured = of_torus(on_tori, 16)
    assert (measured.params["torus"], "assumed" in measured.distance) == ("2x2x4", False)
    asked = of_torus(on_tori, 32, torus="2x16")
    assert (asked.params["torus"], "assumed" in asked.distance) == ("2x16", False)
    assert asked.value_s != assumed.value_s


@pytest.mark.parametrize("shape", ["4x4", "4xx4", "128x2"])
def test_a_torus_of_other_nodes_is_refused(shape, on_tori, tmp_path):
    write_machine(on_tori, tmp_path / "machine.json")
    result = invoke(
        "predict", "--machine", tmp_path / "machine.json", "--nodes", "128", "--torus", shape
    )
    assert result.is_bad_input("torus", shape)


def test_the_racks_of_a_larger_job_are_as_measured_unless_the_user_says_it():
    machine = machine_of(*(on(in_racks(nodes)) for nodes in (4, 8, 16)))
    assert machine.layout(64).racks == 16
    assert "assumed: 4 nodes in a rack" in of_torus(machine, 64).distance
    assert machine.layout(64, nodes_per_rack=32).racks == 2
    said = of_torus(machine, 64, nodes_per_rack=32)
    assert (said.racks, "assumed" in said.distance) == (2, False)


def test_channels_are_those_of_the_fit_unless_the_user_asks_for_some():
    machine = machine_of(on(Layout.of(4, 1)), on(Layout.of(8, 1)))
    channels = {
        (collective, algorithm, asked): predict(
            machine,
            Request(
                nodes=[8],
                sizes=[64 << 20],
                collective=collective,
                algorithms=[algorithm],
                parameters={"channels": asked} if asked else {},
            ),
        )
        .predictions[0]
        .params["channels"]
        for collective, algorithm, asked in (
            ("all_reduce", "ring", 0),
            ("all_reduce", "ring", 4),
            ("broadcast", "chain", 0),
        )
    }
    assert channels["all_reduce", "ring", 0] == 1
    assert channels["all_reduce", "ring", 4] == 4
    assert channels["broadcast", "chain", 0] > 1, "segments of a pipeline"


def test_resources_and_aggregators_that_were_not_fitted_are_simulated(on_tori):
    machine = on_tori.machine()
    one = observation("all_reduce", "ring", 1 << 20, 1.0, Layout.of(8, 1))
    (schedule,) = schedules_of(one)
    cut = Cut(one.call, 1 << 18, schedule.units, 1, 4)
    assert sums_paths(machine, [schedule], cut)
    assert not sums_paths(machine, [schedule], replace(cut, lanes=2))
    for declared in ({"uplink_byte_s": 1e-9}, {"memory_byte_s": 1e-9}, {"cpus": Cpus(4)}):
        assert not sums_paths(replace(machine, **declared), [schedule], cut)
    with_aggregator = replace(schedule, layout=schedule.layout.with_aggregators(1))
    assert not sums_paths(machine, [with_aggregator], cut)


def test_several_schedules_at_once_are_not_predicted_on_a_torus_or_several_ports(on_tori):
    for job in ({"torus": "2x2x2"}, {"torus": "2x2x2", "ports": 2}):
        request = Request(
            nodes=[8], sizes=[1 << 20], algorithms=["ring", "double_binary_tree"], **job
        )
        predicted = predict(on_tori, request)
        assert [prediction.algorithm for prediction in predicted.predictions] == ["ring"]
        (reason,) = predicted.left_out
        assert "schedules at once" in reason
        measured = observation(
            "all_reduce", "double_binary_tree", 1 << 20, 1.0, Layout.of(8, 1), **job
        )
        (case,) = validate([measured], on_tori.machine())
        assert (case.seconds, "several schedules at once" in case.reason) == (None, True)


def test_segments_of_our_own_programs_are_channels():
    machine = machine_of(on(Layout.of(4, 1)), on(Layout.of(8, 1))).machine()
    layout = Layout.of(8, 1)
    for algorithm in ("ring", "double_binary_tree"):
        with_segments, with_channels = (
            observation("all_reduce", algorithm, 1 << 20, 1.0, layout, channels=4, **params)
            for params in ({"segment": 1 << 16}, {})
        )
        expected = predicted_seconds(with_channels, machine)
        assert predicted_seconds(with_segments, machine) == expected


def test_jobs_on_a_torus_of_one_node_tell_nothing_of_its_links(tmp_path):
    machine = machine_of(*(on(Layout.of(ranks, ranks), torus="1x1x1") for ranks in (4, 8)))
    write_machine(machine, tmp_path / "machine.json")
    assert read_machine(tmp_path / "machine.json", "--machine").torus is None


def test_a_torus_of_a_machine_without_one_is_refused():
    machine = machine_of(on(Layout.of(4, 1)), on(Layout.of(8, 1)))
    with pytest.raises(ValueError, match="has no torus"):
        of_torus(machine, 8, torus="2x2x2")


DATA = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "pico"


@pytest.mark.slow
@pytest.mark.skipif("HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory")
@pytest.mark.parametrize(
    ("machine", "transport", "most_nodes"),
    [("leonardo", "mpi", 128), ("lumi", "mpi", 16), ("fugaku", "mpi", 64), ("fugaku", "utofu", 64)],
)
def test_the_file_of_a_supercomputer_has_the_times_of_its_regression(
    machine, transport, most_nodes, tmp_path
):
    assert invoke("import", DATA / machine, "--out", tmp_path / "results.h5").code == 0
    raw_results = read_all([tmp_path / "results.h5"]).raw_results
    cases = []
    for raw in raw_results:
        cases += [case for case in observations(raw, imported=True) if case.transport == transport]
    cases = [case for case in cases if not _unmodelled_reason(case)]
    operations = _Operations()
    cases = [case for case in cases if not operations.add(case)]
    in_memory, of_file = compared(cases, tmp_path / "machine.json", most_nodes)
    assert of_file == pytest.approx(in_memory, rel=1e-9)
