"""Schedules to draw: every algorithm, the schedule_examples, and algorithms on nodes, racks and switches."""

from collections.abc import Callable, Mapping

from schedule_examples import ALGORITHMS, EXAMPLES, Case, cases

from hpccoll.render.pictures.schedule_view import ScheduleView
from hpccoll.schedule import Layout, Parameter


def _nodes(ranks: int) -> Layout | None:
    return Layout.of(ranks, 2) if ranks % 2 == 0 and ranks > 2 else None


def _racks(ranks: int) -> Layout | None:
    if ranks % 4 or ranks < 8:
        return None
    return Layout(
        tuple(me // 2 for me in range(ranks)), tuple(me * 2 // ranks for me in range(ranks))
    )


def _one_switch(ranks: int) -> Layout | None:
    return Layout.of(ranks - 1, aggregators=1) if ranks > 1 else None


def _two_levels(ranks: int) -> Layout | None:
    return Layout.of(ranks - 3, 2, aggregators=3) if ranks > 5 else None


PLACED: Mapping[
    str, tuple[str, Callable[[int], Layout | None], Callable[[int], Mapping[str, Parameter]]]
] = {
    "nodes": ("all_reduce-hierarchical", _nodes, lambda _: {}),
    "racks": ("all_reduce-hierarchical", _racks, lambda _: {}),
    "flat": ("all_reduce-ring", _nodes, lambda _: {}),
    "one_switch": ("all_reduce-sharp_emulated", _one_switch, lambda _: {}),
    "switches": (
        "all_reduce-sharp_emulated",
        _two_levels,
        lambda ranks: {"radix": (ranks - 2) // 2, "depth": 2},
    ),
}
"""An algorithm on a layout of its own for so many ranks (workers and aggregators), and its parameters."""

NAMES = sorted(
    {*ALGORITHMS, *EXAMPLES, *PLACED}
    - {algorithm for algorithm, (_, a) in ALGORITHMS.items() if a.aggregates}
)


def _found(name: str, ranks: int) -> list[Case]:
    if name in EXAMPLES:
        return [EXAMPLES[name].case(ranks)]
    algorithm, layout_of, parameters = PLACED.get(name, (name, Layout.of, lambda _: {}))
    layout = layout_of(ranks)
    return [*cases(*ALGORITHMS[algorithm], layout, **parameters(ranks))] if layout else []


def views(name: str, ranks: int) -> list[ScheduleView]:
    """Return the calls of what is called ``name`` on so many ranks: one for each root, none where it cannot be."""
    return [
        ScheduleView(case.call, case.slices, name.rsplit("-", maxsplit=1)[-1], "A page about it.")
        for case in _found(name, ranks)
    ]


def view(name: str, ranks: int) -> ScheduleView:
    """Return the first of them."""
    return views(name, ranks)[0]
