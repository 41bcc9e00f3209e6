"""The mesh: groups of every axis are disjoint and cover all ranks, in Megatron-LM's order of ranks."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.parallelism import AXES, REPLICAS, Mesh


@st.composite
def meshes(draw):
    shard, ep, more = (draw(st.integers(1, 4)) for _ in range(3))
    return Mesh(draw(st.integers(1, 4)), shard * ep * more, draw(st.integers(1, 4)), shard, ep)


def group_of(mesh, axis, rank):
    return next(group for group in mesh.groups(axis) if rank in group)


@given(meshes(), st.sampled_from([*AXES, *REPLICAS]))
def test_the_groups_of_every_axis_partition_the_ranks(mesh, axis):
    groups = mesh.groups(axis)
    assert sorted(chain(*groups)) == list(range(mesh.ranks))
    assert {len(group) for group in groups} == {mesh.size(axis)}


@given(meshes())
def test_two_ranks_share_one_axis_at_most_and_a_group_is_in_one_stage(mesh):
    pairs = [
        {pair for group in mesh.groups(axis) for pair in combinations(group, 2)}
        for axis in ("tp", "dp", "pp")
    ]
    assert not any(first & second for first, second in combinations(pairs, 2))
    for axis in ("tp", "dp", "shard", "ep", *REPLICAS):
        assert all(len({mesh.stage_of(rank) for rank in group}) == 1 for group in mesh.groups(axis))
    assert all(
        list(map(mesh.stage_of, group)) == list(range(mesh.pp)) for group in mesh.groups("pp")
    )
    if mesh.pp > 1:
        assert all(first == group_of(mesh, "pp", second)[0] for first, second in mesh.pairs(0, 1))


@given(meshes(), st.sampled_from(sorted(REPLICAS.items())))
def test_the_parts_of_a_data_parallel_group_and_their_replicas_make_it_up(mesh, axes):
    replica, part = axes
    for rank in range(mesh.ranks):
        joined = set(chain(*(group_of(mesh, replica, each) for each in group_of(mesh, part, rank))))
        assert joined == set(group_of(mesh, "dp", rank))


def test_consecutive_ranks_are_tensor_parallel_then_data_parallel_then_stages():
    mesh = Mesh(tp=2, dp=2, pp=2)
    assert mesh.groups("tp") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.groups("dp") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert mesh.groups("pp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    shards = Mesh(dp=4, shard=2)
    assert (shards.groups("shard"), shards.groups("replica")) == (
        [[0, 1], [2, 3]],
        [[0, 2], [1, 3]],
    )


@given(meshes())
def test_the_text_of_a_mesh_is_parsed_to_the_same_mesh_and_without_dp_it_takes_the_ranks_that_are_left(
    mesh,
):
    assert Mesh.parse(mesh.text, mesh.ranks) == mesh
    assert Mesh.parse("", mesh.ranks) == Mesh(dp=mesh.ranks)
    assert Mesh.parse(" tp=2 , pp=3, shard=2 ", 6 * 4) == Mesh(tp=2, dp=4, pp=3, shard=2)


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("dp=4,tp=2", 6),
        ("tp=4", 6),
        ("tp", 8),
        ("=2", 8),
        ("tp=two", 8),
        ("tp=0", 8),
        ("tp=2,tp=2", 4),
        ("cp=2", 8),
        ("dp=8,shard=3", 8),
        ("ep=3", 8),
    ],
)
def test_a_wrong_mesh_is_refused(text, ranks):
    with pytest.raises(BadInputError, match=r"^parallel.*"):
        Mesh.parse(text, ranks)
