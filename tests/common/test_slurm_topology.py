"""Slurm's topology: examples of its manuals, and lines as its plugins print them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.common.slurm_topology import (
    BLOCK,
    FLAT,
    MAX_HOSTS,
    RING,
    TREE,
    expand_hosts,
    parse_topology,
)
from hpccoll.store.host_names import host_ranges
from hpccoll.store.racks_file import read_racks

TREE_CONF = """\
SwitchName=s0 Nodes=dev[0-5]
SwitchName=s1 Nodes=dev[6-11]
SwitchName=s2 Nodes=dev[12-17]
SwitchName=s3 Switches=s[0-2]
"""
"""topology.conf(5), section EXAMPLE, topology/tree."""

BLOCK_CONF = """\
BlockName=block1 Nodes=node[1-32]
BlockName=block2 Nodes=node[33-64]
BlockName=block3 Nodes=node[65-96]
BlockName=block4 Nodes=node[97-128]
BlockSizes=30,120
"""
"""topology.conf(5), section EXAMPLE, topology/block."""

RING_CONF = "RingName=ring0 Nodes=node[01-08]\nRingName=ring1 Nodes=node[09-16]\n"
"""topology.conf(5), section EXAMPLE, topology/ring (26.05)."""

TREE_SHOWN = """\
SwitchName=sw_root Level=1 LinkSpeed=1 Nodes=node[01-04] Switches=s[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node[01-02]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=node[03-04]
"""
"""Topology topo1 of topology.yaml(5), section EXAMPLE, as _print_topo_record of topology_tree.c prints it."""

BLOCK_SHOWN = """\
BlockName=b1 BlockIndex=0 Nodes=node[01-04] BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=node[05-08] BlockSize=4
BlockName=b3 BlockIndex=2 Nodes=node[09-12] BlockSize=4
BlockName=b4 BlockIndex=3 Nodes=node[13-16] BlockSize=4
AggregatedBlock=b[1-4] BlockIndex=4 Nodes=node[01-16] BlockSize=16
"""
"""Topology topo2 of topology.yaml(5), section EXAMPLE, as _print_topo_record of topology_block.c prints it."""

BLOCK_SHOWN_23_11 = (
    "BlockName=b1 BlockIndex=0 Nodes=node[01-04]\nBlockName=b2 BlockIndex=1 Nodes=node[05-08]\n"
)
"""The same of 23.11 and 24.05, without sizes."""

RING_SHOWN = (
    "RingName=ring0 Nodes=node[01-08] RingSize=8\nRingName=ring1 Nodes=node[09-16] RingSize=8\n"
)
"""Topology topo4 of topology.yaml(5), section EXAMPLE, as _print_topo_record of topology_ring.c prints it."""

TOPOLOGIES = {
    "tree of topology.conf": (TREE_CONF, TREE, {
        "s0": ("dev0", "dev5"), "s1": ("dev6", "dev11"), "s2": ("dev12", "dev17"),
    }),
    "blocks of topology.conf": (
        BLOCK_CONF, BLOCK, {"block1": ("node1", "node32"), "block2": ("node33", "node64"),
                            "block3": ("node65", "node96"), "block4": ("node97", "node128")},
    ),
    "rings of topology.conf": (RING_CONF, RING, {"ring0": ("node01", "node08"), "ring1": ("node09", "node16")}),
    "tree": (TREE_SHOWN, TREE, {"s1": ("node01", "node02"), "s2": ("node03", "node04")}),
    "blocks": (
        BLOCK_SHOWN, BLOCK, {"b1": ("node01", "node04"), "b2": ("node05", "node08"), "b3": ("node09", "node12"),
                             "b4": ("node13", "node16")},
    ),
    "blocks of 23.11": (BLOCK_SHOWN_23_11, BLOCK, {"b1": ("node01", "node04"), "b2": ("node05", "node08")}),
    "rings": (RING_SHOWN, RING, {"ring0": ("node01", "node08"), "ring1": ("node09", "node16")}),
    "flat": ("", FLAT, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_racks_of_a_topology_are_its_leaf_switches_blocks_or_rings(name):
    text, plugin, ends = TOPOLOGIES[name]
    topology = parse_topology(text.splitlines())
    assert topology.plugin == plugin
    assert {rack: (hosts[0], hosts[-1]) for rack, hosts in topology.racks.items()} == ends


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_file_of_racks_may_have_slurms_lines(name, tmp_path):
    text, _, ends = TOPOLOGIES[name]
    (tmp_path / "racks").write_text(f"# of scontrol show topology\n{text}\nextra its-own\n")
    racks = read_racks(tmp_path / "racks", "--racks")
    assert racks.pop("extra") == "its-own"
    assert {(racks[first], racks[last]) for first, last in ends.values()} == {
        (rack, rack) for rack in ends
    }
    assert {*racks.values()} == {*ends}


@pytest.mark.parametrize(
    "lines",
    [
        ["BlockName=b1 BlockIndex=0 Nodes=node[01-04"],
        ["BlockName=b1 Nodes=node[4-1]"],
        ["- topology: topo1"],
        ["SwitchName=s1 Level=x Nodes=n1"],
        ["BlockName=b1 Nodes=node[1-4]", "SwitchName=s1 Level=0 Nodes=node[3-6]"],
        ["BlockName=b1 Nodes=node[1-4]", "node4 b2"],
    ],
)
def test_damaged_and_contradicting_lines_are_refused_with_their_number(lines, tmp_path):
    (tmp_path / "racks").write_text("\n".join(lines))
    with pytest.raises(BadInputError, match=rf"--racks: .*, line {len(lines)}: .*show topology"):
        read_racks(tmp_path / "racks", "--racks")


@pytest.mark.parametrize(
    "text",
    [
        TREE_SHOWN + BLOCK_SHOWN,
        "slurm_load_topo error: Invalid topology",
        "BlockName=b1 Nodes=node[01-04",
        "PartitionName=a",
    ],
)
def test_what_is_no_topology_of_one_plugin_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"topology|range|host"):
        parse_topology(text.splitlines())


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        (
            "node[001-003,010],gpu-[1-2]-[3-4]",
            [
                "node001",
                "node002",
                "node003",
                "node010",
                "gpu-1-3",
                "gpu-1-4",
                "gpu-2-3",
                "gpu-2-4",
            ],
        ),
        ("login", ["login"]),
        ("n[8-11].cluster.example", [f"n{number}.cluster.example" for number in range(8, 12)]),
        ("", []),
    ],
)
def test_ranges_stand_for_hosts_with_their_leading_zeros(text, hosts):
    assert expand_hosts(text) == hosts


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=40), st.integers(1, 5))
def test_hosts_survive_their_ranges(numbers, width):
    hosts = {f"node{number:0{width}}" for number in numbers}
    assert {*expand_hosts(host_ranges(hosts).replace(" ", ""))} == hosts


@pytest.mark.parametrize(
    "text", ["n[1-3", "n]1", "n[a-b]", "n[3-1]", "n[]", f"n[0-{MAX_HOSTS}]", "n[1-9999]-[1-9999]"]
)
def test_ranges_that_are_incomplete_or_too_long_are_a_value_error(text):
    with pytest.raises(ValueError, match=r"host|range"):
        expand_hosts(text)


@pytest.mark.parametrize("level", ["x", "", "-1", "1.5"])
def test_a_level_that_is_not_a_number_is_named_with_its_line(level):
    lines = ["SwitchName=s1 Level=0 Nodes=n1", f"SwitchName=s2 Level={level} Nodes=n2"]
    with pytest.raises(
        ValueError, match=rf"Level={re.escape(level)} is not a number: {re.escape(lines[1])}"
    ):
        parse_topology(lines)


def test_a_level_of_many_digits_is_no_error():
    assert parse_topology([f"SwitchName=s1 Level={'9' * 5000} Nodes=n1"]).racks == {}
