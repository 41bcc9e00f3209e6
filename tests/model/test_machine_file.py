"""The file of a machine: what it holds, what simulations take of it, and the errors of an invalid one."""

import json
from dataclasses import replace

import pytest
from predicted_machines import MEASURED

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import BadInputError
from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Cpus, MessageCosts, PathCosts
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import MachineFile, read_machine, write_machine
from hpccoll.model.machine_sections import SCHEMA, VERSION, AggregatorKind, DeclaredSections
from hpccoll.model.simulation import BOUNDS
from hpccoll.schedule import Cut

HEADER = f"schema: {SCHEMA}\nschema_version: {VERSION}\n"
CLUSTER = (
    HEADER
    + """\
name: mine
kind: described
layout: {ranks_per_node: 8, rails: 4, nodes_per_rack: 2}
tiers:
  node: {latency_s: {value: 3e-6, low: 2e-6, high: 5e-6, source: guessed}, bytes_per_s: 4e11}
  rack:
    - {latency_s: 5e-6, bytes_per_s: {value: 4e10, low: 2e10, high: 5e10}}
    - {from_bytes: 4096, latency_s: 6e-6, overhead_s: 1e-6, gap_s: 2e-6, bytes_per_s: 5e10, synchronous: true}
  fabric: {latency_s: 7e-6, bytes_per_s: 5e10}
port: {bytes_per_s: {value: 5e10, low: 4e10, high: 6e10}, burst_bytes: {value: 10, low: 0, high: 20}}
uplink: {oversubscription: {value: 2, low: 1, high: 4}}
memory: {bytes_per_s: 2e12}
reduction: {float32: {bytes_per_s: 1e12}, bfloat16: {bytes_per_s: 1e12}}
cpus: {cores: 4, bytes_per_s: 1e10, of: machine, contention: {value: 1.5, low: 1, high: 2}}
aggregators: {kind: switches, source: assumed}
"""
)


BARE = {"name": "a", "kind": "fitted", "tiers": {"rack": {"latency_s": 1, "bytes_per_s": 1}}}


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(CLUSTER)
    return read_machine(path, "--cluster")


def test_a_machine_has_the_costs_of_its_file_in_seconds_and_costs_nothing_without_a_limit(mine):
    machine, bare = mine.machine(), MachineFile.of(**BARE).machine()
    assert machine.tiers["node"].costs == (MessageCosts(0, 3e-6, 0, 0, 1 / 4e11),)
    assert machine.tiers["rack"].costs[1] == MessageCosts(
        4096, 6e-6, 1e-6, 2e-6, 1 / 5e10, synchronous=True
    )
    assert machine.fold_s == {"float32": 1e-12, "bfloat16": 1e-12}
    assert (machine.port_byte_s, machine.burst_bytes, machine.memory_byte_s) == (
        1 / 5e10,
        10,
        1 / 2e12,
    )
    assert machine.cpus == Cpus(4, 1e-10, "machine", 1.5)
    assert (machine.switches, machine.unmetered_aggregators) == (True, False)
    assert (bare.port_byte_s, bare.uplink_byte_s, bare.memory_byte_s, bare.cpus) == (0, 0, 0, None)


def test_a_faster_network_has_faster_tiers_ports_and_uplinks_and_the_same_nodes(mine):
    for bound in BOUNDS:
        usual, faster = mine.machine(bound), mine.with_network(4).machine(bound)
        for name, times in (("node", 1), ("rack", 4), ("fabric", 4)):
            for before, after in zip(
                usual.tiers[name].costs, faster.tiers[name].costs, strict=True
            ):
                assert after == replace(before, byte_s=pytest.approx(before.byte_s / times))
        assert faster.port_byte_s == pytest.approx(usual.port_byte_s / 4)
        assert faster.uplink_byte_s == pytest.approx(usual.uplink_byte_s / 4)
        same = "fold_s", "burst_bytes", "memory_byte_s", "cpus"
        assert [getattr(faster, name) for name in same] == [getattr(usual, name) for name in same]
    assert mine.with_network(4).name == "mine with a network x4"
    measured = MachineFile.of(**BARE, measured=MEASURED)
    distances = [each.distance(2, 1, 1 << 20) for each in (measured, measured.with_network(2))]
    assert distances == ["within what was measured", "a network x2"]
    assert mine.with_network(None) is mine.with_network(1) is mine
    assert mine.with_network(4).with_network(0.25) is mine


ALONG_PATHS = BARE | {
    "critical_path": {
        "following_s": {"value": 2e-7, "low": 1e-7, "high": 4e-7},
        "further_port_s": {"value": 3e-7, "low": 2e-7, "high": 5e-7},
        "ports_bytes_per_s": {"value": 4e10, "low": 2e10, "high": 8e10},
        "segment_s": {"value": 1e-7, "high": 2e-7},
        "address_s": {"value": 1e-6, "low": 5e-7},
    },
    "torus": {
        "dimensions": 3,
        "hop_s": {"value": 1e-7, "low": 5e-8},
        "link_bytes_per_s": {"value": 5e9, "low": 4e9, "high": 1e10},
    },
    "larger_jobs": {
        "from_nodes": 64,
        "tiers": {
            "node": {"latency_s": 1e-6, "bytes_per_s": 2e10},
            "rack": {"latency_s": 2, "bytes_per_s": 2},
        },
        "port": {"bytes_per_s": 1e10},
        "start_skew_s": 3e-7,
    },
}


def test_the_costs_of_critical_paths_are_low_or_high_together():
    machine = MachineFile.of(**ALONG_PATHS)
    costs = [machine.machine(bound).path for bound in BOUNDS]
    assert costs == [
        PathCosts(2e-7, 3e-7, 1 / 4e10, 1e-7, 1e-6, 1e-7, 1 / 5e9),
        PathCosts(1e-7, 2e-7, 1 / 8e10, 1e-7, 5e-7, 5e-8, 1 / 1e10),
        PathCosts(4e-7, 5e-7, 1 / 2e10, 2e-7, 1e-6, 1e-7, 1 / 4e9),
    ]


def test_a_faster_network_has_faster_links_and_is_as_much_faster_for_larger_jobs():
    machine = MachineFile.of(**ALONG_PATHS)
    usual, faster = (each.machine().in_job(64) for each in (machine, machine.with_network(4)))
    assert faster.path == replace(
        usual.path,
        ports_byte_s=pytest.approx(usual.path.ports_byte_s / 4),
        link_byte_s=pytest.approx(usual.path.link_byte_s / 4),
    )
    assert (usual.port_byte_s, usual.start_skew_s) == (1e-10, 3e-7)
    assert faster.port_byte_s == pytest.approx(usual.port_byte_s / 4)
    assert faster.tiers["node"] == usual.tiers["node"]
    assert faster.tiers["rack"].of(8).byte_s == pytest.approx(usual.tiers["rack"].of(8).byte_s / 4)


def test_the_torus_of_a_job_is_the_only_measured_one_of_as_many_nodes_or_an_even_one():
    measured = MEASURED | {"tori": ["2x2x16", "1x8x8", "1x1x32"]}
    machine = MachineFile.of(**ALONG_PATHS, measured=measured)
    assert machine.torus_of(32).text == "1x1x32"
    assert machine.torus_of(64).text == "4x4x4", "two were measured"
    assert machine.torus_of(64, "2x4x8").text == "2x4x8"
    with pytest.raises(BadInputError, match="a torus of 64 nodes"):
        machine.torus_of(64, "4x4")


def test_a_rack_has_a_node_or_more(mine):
    assert mine.layout(4, nodes_per_rack=1).racks == 4
    with pytest.raises(BadInputError, match="--nodes-per-rack"):
        mine.layout(4, nodes_per_rack=0)


def test_channels_of_nccl_are_as_fast_as_the_network_and_no_faster_than_nodes():
    machine = read_machine("8xh100-400g-tcp", "--cluster")
    inside = machine.tiers["node"][-1].bytes_per_s.value
    for factor, rate in ((0.5, 2.5e9), (4, 20e9), (100, inside / 8)):
        scaled = machine.with_network(factor)
        rates = [scaled.nccl.intra_bytes_per_s.value, scaled.nccl.inter_bytes_per_s.value]
        assert rates == pytest.approx([rate, rate])
        assert scaled.published == []


def test_the_ends_of_intervals_are_fast_or_slow_together(mine):
    fast, slow = mine.machine("low_cost"), mine.machine("high_cost")
    assert [each.tiers["node"].costs[0].latency_s for each in (fast, slow)] == [2e-6, 5e-6]
    assert [each.tiers["rack"].costs[0].byte_s for each in (fast, slow)] == [1 / 5e10, 1 / 2e10]
    assert [(each.port_byte_s, each.burst_bytes) for each in (fast, slow)] == [
        (1 / 6e10, 20),
        (1 / 4e10, 0),
    ]
    assert [each.tiers["fabric"] for each in (fast, slow)] == [mine.machine().tiers["fabric"]] * 2
    assert [each.cpus.contention for each in (fast, slow)] == [1, 2]
    uplinks = [1 / each.uplink_byte_s for each in (fast, mine.machine(), slow)]
    assert uplinks == pytest.approx([2 * 6e10, 2 * 5e10 / 2, 2 * 4e10 / 4]), (
        "a share of the ports of its rack"
    )


def test_declared_sections_replace_those_of_a_fit_but_cpus_keep_the_keys_that_are_not_declared(
    mine,
):
    declared = DeclaredSections.model_validate(
        {"cpus": {"cores": 2, "bytes_per_s": 3e8}, "memory": {"bytes_per_s": 5}}
    )
    machine = mine.declaring(declared).machine()
    assert machine.cpus == Cpus(2, 1 / 3e8, "machine", 1.5)
    assert (machine.memory_byte_s, machine.port_byte_s) == (1 / 5, mine.machine().port_byte_s)


def test_ranks_fill_nodes_rails_and_racks_and_aggregators_have_nodes_of_their_own(mine):
    layout = mine.layout(3)
    assert layout.node == (0,) * 8 + (1,) * 8 + (2,) * 8
    assert layout.rack == (0,) * 16 + (1,) * 8
    assert layout.rail == (0, 0, 1, 1, 2, 2, 3, 3) * 3
    assert mine.layout(3, 2).rail == (0, 1) * 3
    aggregated = mine.layout(4, 1, aggregators=3)  # one in each rack, and the rest above
    assert (aggregated.node[4:], aggregated.rack) == ((4, 5, 6), (0, 0, 1, 1, 0, 1, 4))
    assert mine.layout(4, 2, mapping="block") == mine.layout(4, 2)
    assert mine.layout(4, 2, aggregators=1, mapping="cyclic").node == (0, 2, 1, 3, 0, 2, 1, 3, 4)
    assert MachineFile.of(**BARE).layout(3, 1).node == (0, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"nodes": 0}, "--nodes"),
        ({"nodes": 1, "ranks_per_node": 9}, "--ranks-per-node: 9"),
        ({"nodes": 1, "ranks_per_node": 0}, "--ranks-per-node: 0"),
        ({"nodes": 1, "ranks_per_node": 6}, "--ranks-per-node: 6"),
        ({"nodes": 1, "aggregators": -1}, "--aggregators: -1"),
        ({"nodes": 1, "mapping": "random"}, "--mapping: 'ran"),
    ],
)
def test_a_layout_that_the_machine_does_not_have_is_refused(mine, arguments, named):
    with pytest.raises(BadInputError, match=f"^{named}"):
        mine.layout(**arguments)
    with pytest.raises(BadInputError, match=r"^--ranks-per-node"):
        MachineFile.of(**BARE).layout(3)


@pytest.mark.parametrize(
    ("tier", "shape"), [("node", (1, 2)), ("rack", (2, 1)), ("fabric", (3, 1))]
)
def test_a_tier_that_a_layout_needs_and_the_file_lacks_is_named(mine, tier, shape):
    without = mine.model_copy(
        update={"tiers": {name: each for name, each in mine.tiers.items() if name != tier}}
    )
    with pytest.raises(BadInputError, match=f"^mine: tiers.{tier}: "):
        without.layout(*shape)
    assert without.layout(1, 1).ranks == 1


BAD = {
    "another schema": (
        "schema: hpccoll-machine",
        "entries: []\nschema: hpccoll-tune",
        "schema: 'hpccoll-tune'",
    ),
    "another version": ("schema_version: 1.0", "schema_version: 2.0", "schema_version: '2.0'"),
    "no costs": (
        "  fabric: {latency_s: 7e-6, bytes_per_s: 5e10}",
        "  fabric: []",
        "tiers.fabric: []",
    ),
    "costs from one size": ("from_bytes: 4096", "from_bytes: 0", "tiers.rack: [0, 0]"),
    "a negative latency": (
        "latency_s: 7e-6",
        "latency_s: -7e-6",
        "tiers.fabric.0.latency_s: -7e-06",
    ),
    "a latency that is no number": (
        "latency_s: 7e-6",
        "latency_s: nan",
        "tiers.fabric.0.latency_s: nan",
    ),
    "a low end above": ("low: 2e-6", "low: 4e-6", "tiers.node.0.latency_s: [4e-06, 3e-06, 5e-06]"),
    "an unknown key of a number": ("low: 2e-6", "lo: 2e-6", "tiers.node.0.latency_s.lo: '2e-6'"),
    "an unknown dtype": ("float32:", "float31:", "reduction.float31: 'float31'"),
    "two uplinks": ("{oversubscription:", "{bytes_per_s: 1e9, oversubscription:", "uplink: 'both'"),
    "an uplink without a rate": (
        "{oversubscription: {value: 2, low: 1, high: 4}}",
        "{}",
        "uplink: 'neither'",
    ),
    "an uplink of no ports": (", nodes_per_rack: 2", "", "uplink.oversubscription: 2.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_invalid_is_one_line_that_names_file_key_and_value(name, tmp_path):
    old, new, named = BAD[name]
    assert CLUSTER.count(old) == 1
    path = tmp_path / "bad.yaml"
    path.write_text(CLUSTER.replace(old, new))
    with pytest.raises(BadInputError) as raised:
        read_machine(path, "--cluster")
    assert raised.value.others == ()
    assert str(raised.value).startswith(f"{path}: {named}")
    assert "\n" not in str(raised.value)


def test_only_a_machine_is_overwritten_by_a_machine_where_it_can_be_written(mine, tmp_path):
    path = tmp_path / "a.json"
    for _ in range(2):
        write_machine(mine, path)
    path.write_text("raw data")
    for target in (path, tmp_path / "none" / "a.json"):
        with pytest.raises(BadInputError) as raised:
            write_machine(mine, target)
        assert raised.value.key == "--out"
    assert path.read_text() == "raw data"


def test_what_is_written_is_read_again_with_plain_numbers_where_there_is_no_interval(
    mine, tmp_path
):
    path = tmp_path / "m.json"
    fitted = MachineFile.of(**BARE, measured=MEASURED, validation={"x": 0.1})
    for machine in (fitted, *(read_machine(name, "--cluster") for name in cluster_names()), mine):
        write_machine(machine, path)
        assert read_machine(path, "--machine") == machine
    written = json.loads(path.read_text())
    assert written["memory"]["bytes_per_s"] == 2e12
    assert written["tiers"]["node"][0]["latency_s"] == {
        "value": 3e-6,
        "low": 2e-6,
        "high": 5e-6,
        "source": "guessed",
    }


def seconds(cluster, layout, algorithm, bound="value"):
    """Simulate an all-reduce of 16 MiB."""
    family = COLLECTIVES["all_reduce"]
    call = family.call(layout.workers)
    slices = call.slices(family.algorithm(algorithm), layout)
    cut = Cut(call, 4 << 20, slices[0].units, len(slices), 4)
    return simulate_events(slices, cut, cluster.machine(bound))


SIMULATED = [
    name for name in cluster_names() if name[0].isdigit() and read_machine(name, "--cluster").tiers
]


@pytest.mark.parametrize("name", SIMULATED)
def test_a_described_cluster_has_a_source_for_each_number_any_number_of_nodes_and_bounds(name):
    cluster = read_machine(name, "--cluster")
    numbers = [
        each
        for costs in cluster.tiers.values()
        for one in costs
        for each in (one.latency_s, one.bytes_per_s)
    ]
    assert all(
        each.source
        for each in (*numbers, *(rate.bytes_per_s for rate in cluster.reduction.values()))
    )
    for nodes in (2, 33, 2048):
        layout = cluster.layout(nodes)
        assert (layout.nodes, layout.ranks_per_node) == (nodes, int(name[0]))
    for algorithm in ("ring", "hierarchical"):
        low, value, high = (
            seconds(cluster, cluster.layout(2), algorithm, b)
            for b in ("low_cost", "value", "high_cost")
        )
        assert 0 < low < value < high < 1
    assert (cluster.nccl is not None) == (name[0] == "8")
    if name[0] == "8" and "tcp" not in name:  # in-network reduction is assumed
        assert cluster.aggregators.kind == "switches"
        assert cluster.aggregators.source.startswith("assumed")
        of_ranks = cluster.model_copy(update={"aggregators": AggregatorKind(kind="ranks")})
        layout = cluster.layout(8, 1, aggregators=1)
        assert 4 * seconds(cluster, layout, "sharp_emulated") < seconds(
            of_ranks, layout, "sharp_emulated"
        )


@pytest.mark.parametrize("name", cluster_names())
def test_a_described_cluster_has_its_name_a_source_and_a_class_or_costs_of_messages(name):
    cluster = read_machine(name, "--cluster")
    assert (cluster.name, cluster.kind) == (name, "described")
    assert cluster.source
    assert cluster.tiers or cluster.machine_class
    if cluster.machine_class:
        assert cluster.machine_class.source
        fabric = cluster.machine_class.fabric_bytes_per_s
        assert cluster.geometry.ranks_per_node == 1 if fabric is None else 5e9 < fabric.value < 1e12
    if not cluster.tiers:
        assert "nothing is simulated" in cluster.source
        with pytest.raises(BadInputError, match=f"{name}: tiers"):
            cluster.layout(2)


def test_a_machine_that_is_like_another_has_what_it_does_not_say_itself_key_by_key(tmp_path):
    (tmp_path / "base.yaml").write_text(CLUSTER)
    path = tmp_path / "like.yaml"
    path.write_text(
        "like: base.yaml\nport: {bytes_per_s: {value: 5.5e10}}\nuplink: null\nlayout: {rails: 8}\n"
    )
    base, like = (read_machine(tmp_path / f"{name}.yaml", "--cluster") for name in ("base", "like"))
    assert like.name == "like"
    assert (like.tiers, like.reduction, like.uplink) == (base.tiers, base.reduction, None)
    assert (like.geometry.rails, like.geometry.nodes_per_rack) == (8, 2)
    assert (
        like.port.bytes_per_s.value,
        like.port.bytes_per_s.low,
        like.port.burst_bytes.value,
    ) == (5.5e10, 4e10, 10)
    path.write_text("like: 8xh100-400g\nname: ours\nclass: {network: null}\n")
    ours = read_machine(path, "--cluster")
    assert (ours.name, ours.machine_class.fabric, ours.machine_class.network) == (
        "ours",
        "nvlink4",
        None,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("like: 8xh100\n", "like.yaml: like: '8xh100' is not valid"),
        ("like: like.yaml\n", "not like this one in"),
        ("like: other.yaml\n", "not like this one in"),
        ("like: [a]\n", "like.yaml: like: "),
        ("like: ''\n", "like.yaml: like: "),
        ("like: long0.yaml\n", "at most 8 files"),
        (
            "like: 8xh100-400g\nlayout: {rails: 4}\n",
            "class: 'that of 8xh100-400g, which has another layout'",
        ),
        ("like: 8xh100-400g\nport: {bytes_per_s: 12e9}\n", "--cluster 8xh100-400g --rate x0.5"),
        (
            "like: 8xh100-400g\nport: {bytes_per_sec: 12e9}\n",
            "port.bytes_per_sec: '12e9' is not valid: no such key",
        ),
        (
            "like: 8xh100-400g\nclas: null\nport: {bytes_per_s: 12e9}\n",
            "clas: 'null' is not valid: no such key",
        ),
        ("like: 8xh100-400g\nclass: null\nport: {bytes: 1}\n", "port.bytes"),
        ("like: bad.yaml\n", "bad.yaml: schema"),
    ],
)
def test_a_machine_that_is_like_none_or_like_itself_is_refused_in_one_line(
    text, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.yaml").write_text("like: like.yaml\n")
    (tmp_path / "bad.yaml").write_text("a: 1\n")
    for number in range(20):
        (tmp_path / f"long{number}.yaml").write_text(f"like: long{number + 1}.yaml\n")
    (tmp_path / "like.yaml").write_text(text)
    with pytest.raises(BadInputError) as raised:
        read_machine("like.yaml", "--cluster")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
