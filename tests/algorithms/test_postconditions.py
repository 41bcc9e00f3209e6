"""Every algorithm in the table of contents meets the postcondition of its collective, on any layout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_examples import AGGREGATORS, ALGORITHMS, cases, places, variants

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import Layout

each_algorithm = pytest.mark.parametrize(
    ("collective", "algorithm"), ALGORITHMS.values(), ids=ALGORITHMS
)
EVERY_P = [*range(1, 10), 12, 16, 17]
"""Small numbers, powers of two and their neighbours, and three times a power of two."""
HOMES = [
    Layout.of(4, 2),
    Layout.of(6, 2),
    Layout.of(7, 3),
    Layout.of(8, 2),
    Layout((0, 1, 0, 1, 2)),
    Layout((0, 1, 0, 1, 0, 1)),
    Layout((0, 0, 1, 1, 2, 2, 3, 3), rack=(0, 0, 0, 0, 1, 1, 1, 1)),
]


@each_algorithm
def test_it_meets_the_postcondition_to_every_root_and_peer_in_place_and_out_of_place(
    collective, algorithm
):
    for p in EVERY_P:
        for number, case in enumerate(cases(collective, algorithm, places(algorithm, p))):
            case.prove(number if number and p > 8 else None)


@each_algorithm
def test_aggregators_are_idle_unless_the_algorithm_uses_them(collective, algorithm):
    for p in (1, 2, 3, 4, 5, 8, 13):
        for case in cases(collective, algorithm, Layout.of(p, aggregators=AGGREGATORS)):
            case.prove(None if p < 8 else p)
            busy = [
                me for one in case.slices for me in range(p, p + AGGREGATORS) if list(one.steps(me))
            ]
            assert bool(busy) == algorithm.aggregates


@each_algorithm
def test_it_runs_somewhere_and_says_why_it_does_not_elsewhere(collective, algorithm):
    reasons = [algorithm.unmet(places(algorithm, p)) for p in EVERY_P]
    whose = f"{algorithm.name} of {collective.name}"
    assert None in reasons
    assert next(cases(collective, algorithm, places(algorithm, 4)), None)
    assert all(
        reason is None or reason.startswith((f"{whose} needs ", f"{whose}: ")) for reason in reasons
    )
    if algorithm.aggregates:
        assert "aggregator" in algorithm.unmet(Layout.of(4))


@each_algorithm
@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=8
    )
)
def test_on_any_layout_it_says_what_it_lacks_or_meets_the_postcondition(
    collective, algorithm, homes
):
    for case in cases(collective, algorithm, Layout(*map(tuple, zip(*homes, strict=True)))):
        case.prove()


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [pytest.param(*both, id=name) for name, both in ALGORITHMS.items() if both[1].parameters],
)
def test_with_any_parameters_it_says_what_it_needs_or_meets_the_postcondition(
    collective, algorithm
):
    plain = [Layout.of(p) for p in (1, 2, 3, 5)]
    for layout in (*plain, *HOMES, Layout.of(4, aggregators=6), Layout.of(8, aggregators=8)):
        for turn, parameters in enumerate(variants(algorithm, layout)):
            case = next(cases(collective, algorithm, layout, **parameters))
            case.prove(turn)


@each_algorithm
def test_a_parameter_that_names_no_algorithm_is_answered_with_the_choices(collective, algorithm):
    for name, default in algorithm.parameters.items():
        if isinstance(default, str):
            with pytest.raises(BadInputError, match="'no_such' is not valid: choose from "):
                algorithm.unmet(Layout.of(4), **{name: "no_such"})
            with pytest.raises(BadInputError, match="'no_such' is not valid: choose from "):
                list(cases(collective, algorithm, Layout.of(4), **{name: "no_such"}))


@pytest.mark.parametrize(
    ("collective", "algorithm"), [both for both in ALGORITHMS.values() if both[1].floor]
)
def test_a_floor_sends_nothing_and_leaves_the_buffer_as_it_was(collective, algorithm):
    for case in cases(collective, algorithm, Layout.of(5)):
        case.prove()
        assert not any(list(case.slices[0].steps(me)) for me in range(5))


@each_algorithm
def test_a_page_is_vectorised_unless_it_declares_that_it_is_not(collective, algorithm):
    for p in (2, 3, 4, 8):
        for case in cases(collective, algorithm, places(algorithm, p)):
            for schedule in case.slices:
                if schedule.vectorised:
                    everywhere = list(schedule.steps(np.arange(schedule.layout.ranks)))
                    assert len(everywhere) >= max(len(list(schedule.steps(me))) for me in range(p))
