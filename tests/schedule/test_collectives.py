from dataclasses import replace

import pytest

from hpccoll.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, Collective, Cost, Layout, Step, all_gather, all_reduce, barrier, collective


def fresh() -> Collective:
    return replace(all_reduce, name="fresh", algorithms={})


def test_collectives_are_found_by_name():
    assert collective("all_reduce") is all_reduce
    assert all(name == row.name for name, row in COLLECTIVES.items())


def test_an_unknown_collective_is_answered_with_the_choices():
    with pytest.raises(
        BadInputError, match=f"collective: 'allreduce' is not valid: choose from {', '.join(COLLECTIVES)}"
    ):
        collective("allreduce")


def test_an_unknown_algorithm_is_answered_with_the_choices():
    row = fresh()
    row("second")(lambda _layout: ())
    row("first")(lambda _layout: ())
    with pytest.raises(BadInputError, match="algorithm: 'third' is not valid: choose from first, second"):
        row.algorithm("third")


def test_an_algorithm_is_registered_once():
    row = fresh()
    row("one")(lambda _layout: ())
    with pytest.raises(ValueError, match="fresh has an algorithm one already"):
        row("one")(lambda _layout: ())


def test_to_register_is_to_declare():
    row = fresh()

    @row("declared", cost=lambda p: Cost(p, 0, 0), floor=True)
    def declared(_layout, _me):
        yield Step()

    assert row.algorithm("declared") is declared
    assert (declared.name, declared.collective, declared.cost(7).rounds, declared.floor) == (
        "declared",
        "fresh",
        7,
        True,
    )
    assert len(declared.slices(Layout.of(3))) == 1


@pytest.mark.parametrize(
    ("row", "p", "factor"),
    [(all_reduce, 1, 0), (all_reduce, 2, 1), (all_reduce, 4, 1.5), (all_gather, 1, 0), (all_gather, 4, 0.75)],
)
def test_busbw_factors_are_those_of_nccl_tests(row, p, factor):
    assert row.busbw(p) == factor


def test_a_barrier_has_no_bandwidth():
    assert barrier.busbw is None


def test_sizes_are_counted_as_in_nccl_tests():
    assert (all_reduce.elements(1000, 4, 8), all_reduce.blocks(8)) == (250, 1)
    assert (all_gather.elements(1000, 4, 8), all_gather.blocks(8)) == (31, 8)  # of what is asked, 992 bytes are moved
    assert (barrier.elements(0, 1, 8), barrier.blocks(8)) == (8, 1)


def test_buffers_have_room_for_all_units_or_for_the_own_one():
    assert list(all_reduce.holds("src", 2, 4)) == list(all_reduce.holds("dst", 2, 4)) == [0, 1, 2, 3]
    assert list(all_gather.holds("src", 2, 4)) == [2]
    assert list(all_gather.holds("dst", 2, 4)) == list(all_gather.holds("tmp", 2, 4)) == [0, 1, 2, 3]
