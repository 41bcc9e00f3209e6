import pytest

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.schedule import Algorithm, Cost, Layout, Requirement, Schedule, at_least
from hpccoll.schedule.registry import UnmetRequirementError
from hpccoll.schedule.step import Copy, Step, dst, tmp


def fold(layout, me, *, segments=4):
    for _ in range(segments):
        yield Step(Copy(dst[me], tmp[layout.workers]))


def test_parameters_are_the_keywords_of_the_text():
    assert Algorithm("fold", "c", fold).parameters == {"segments": 4}
    (schedule,) = Algorithm("fold", "c", fold).slices(Layout.of(2), segments=1)
    assert len(list(schedule.steps(0))) == 1


def test_a_declared_cost_is_that_of_the_parameters_it_names_and_channels_each_cost_their_steps():
    declared = Algorithm("fold", "c", fold, lambda p, segments=4: Cost(p, segments, 0)).declared
    assert declared(3) == Cost(3, 4, 0)
    assert declared(3, segments=2, channels=5, window=2, radix=9) == Cost(15, 2, 0)
    assert (
        Algorithm("fold", "c", fold, lambda _p, channels=1: Cost(channels, 1, 0))
        .declared(3, channels=5)
        .steps
        == 5
    )
    assert Algorithm("fold", "c", fold).declared(3) is None


def test_a_need_may_ask_for_the_value_of_a_parameter():
    need = Requirement(
        "at most 3 segments", lambda layout, values: values["segments"] <= 3 * layout.workers
    )
    picky = Algorithm("picky", "c", fold, needs=(need,))
    assert picky.unmet(Layout.of(1)) == "picky of c needs at most 3 segments"  # the default is four
    assert picky.unmet(Layout.of(1), segments=3) is None
    with pytest.raises(BadInputError, match="algorithm: picky of c needs at most 3 segments"):
        picky.slices(Layout.of(1))


@pytest.mark.parametrize("aggregators", [0, 2])
def test_a_composition_cannot_run_where_a_part_of_it_cannot(aggregators):
    picky = Algorithm("picky", "c", fold, needs=(at_least(4),))
    composed_of_it = Algorithm("whole", "c", lambda layout: (picky.schedule(layout),))
    assert composed_of_it.unmet(Layout.of(4, aggregators=aggregators)) is None
    layout = Layout.of(3, aggregators=aggregators)
    assert composed_of_it.unmet(layout) == "whole of c: picky of c needs at least 4 workers"
    with pytest.raises(
        UnmetRequirementError, match="algorithm: whole of c: picky of c needs at least 4 workers"
    ):
        composed_of_it.slices(layout)


def test_an_algorithm_of_several_slices_is_no_part_of_another():
    twice = Algorithm("twice", "c", lambda layout: (Schedule(layout, 7, iter),) * 2)
    assert [schedule.units for schedule in twice.slices(Layout.of(3))] == [7, 7]
    with pytest.raises(BadInputError, match="one that leaves the buffer in one piece, not in 2"):
        twice.schedule(Layout.of(3))


def test_an_algorithm_that_uses_aggregators_gets_them():
    seen = []

    def text(layout, me):
        seen.append((layout.workers, layout.aggregators))
        yield Step(Copy(dst[me], dst[me]))

    for aggregates, expected, busy in ((True, (3, 2), 5), (False, (3, 0), 3)):
        (schedule,) = Algorithm("text", "c", text, aggregates=aggregates).slices(
            Layout.of(3, aggregators=2)
        )
        assert schedule.layout == Layout.of(3, aggregators=2)
        assert sum(len(list(schedule.steps(me))) for me in range(5)) == busy
        assert set(seen) == {expected}
        seen.clear()


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (Algorithm("own", "c", fold, lambda _: Cost(steps=1, sent=1)), ["cost", "'reduced'"]),
        (Algorithm("own", "c", fold, lambda _: 3), ["cost", "'int'"]),
        (Algorithm("own", "c", fold, Cost(1, 1, 1)), ["cost", "not a callable"]),
        (Algorithm("own", "c", fold, needs=(at_least,)), ["needs", "'met'"]),
        (Algorithm("own", "c", lambda _: None), ["schedule", "it returns None"]),
        (Algorithm("own", "c", lambda layout: layout.mine), ["schedule", "'mine'"]),
    ],
)
def test_a_mistake_in_an_algorithm_is_one_line_with_its_file_and_what_is_wrong(algorithm, words):
    def use():
        algorithm.slices(Layout.of(2))
        algorithm.declared(2)

    with pytest.raises(UnusableError) as error:
        use()
    said = str(error.value)
    assert [word for word in ("c by own", "test_registry.py", *words) if word not in said] == []
    assert "\n" not in said
