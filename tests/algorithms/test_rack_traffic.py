"""What crosses between racks: bine trees beside binomial ones and butterflies that go far first or near first."""

from pathlib import Path

import numpy as np
from golden_page import assert_golden

from hpccoll.algorithms.binomial import binomial_broadcast, binomial_gather
from hpccoll.algorithms.recursive_doubling import recursive_doubling, recursive_doubling_all_gather
from hpccoll.algorithms.recursive_halving import recursive_halving
from hpccoll.cases.requested_schedule import requested_layout
from hpccoll.schedule import COLLECTIVES, crossings, floor_log2, relabel
from hpccoll.schedule.prove import prove

RACKS = {
    64: {
        "aligned": "16,16,16,16",
        "half": "8,16,16,16,8",
        "odd": "5,16,16,16,11",
        "fragments": "9,3,16,7,12,5,12",
    },
    256: {
        "aligned": "64,64,64,64",
        "half": "32,64,64,64,32",
        "odd": "21,64,64,64,43",
        "fragments": "37,11,64,29,50,18,47",
    },
}
"""How many ranks are in each rack: of racks of 16 and of 64, all, from the middle on, from elsewhere on, and parts."""

BINOMIAL = {  # by collective, the algorithm, and whether it begins far or near
    "broadcast": (binomial_broadcast, "far"),
    "gather": (binomial_gather, "near"),
    "reduce_scatter": (recursive_halving, "far"),
    "all_gather": (recursive_doubling_all_gather, "near"),
    "all_reduce": (recursive_doubling, "near"),
}


def turned(schedule, collective):
    """Return a schedule for 2^k ranks whose distances come in the opposite order: bits of ranks and units reversed."""
    p = schedule.layout.workers
    ranks = [int(f"{me:0{floor_log2(p)}b}"[::-1], 2) for me in range(p)]
    return relabel(schedule, ranks, ranks if COLLECTIVES[collective].units == "per_rank" else None)


def schedules(collective, layout):
    """Return the schedules of a collective by the order of their distances, and bine's."""
    algorithm, first = BINOMIAL[collective]
    schedule = algorithm.schedule(layout)
    far, near = (schedule, turned(schedule, collective))[:: 1 if first == "far" else -1]
    return {
        "far first": far,
        "near first": near,
        "bine": COLLECTIVES[collective].algorithm("bine").schedule(layout),
    }


def traffic():
    """Return what crosses between racks, in S: by collective and order, [ranks and racks]."""
    layouts = [
        requested_layout(p, None, racks, 0, p)
        for p, kinds in RACKS.items()
        for racks in kinds.values()
    ]
    found = {}
    for collective in BINOMIAL:
        for layout in layouts:
            for order, schedule in schedules(collective, layout).items():
                found.setdefault((collective, order), []).append(
                    crossings(schedule, "rack").sum() / schedule.units
                )
    return {key: np.array(row) for key, row in found.items()}


def test_the_turned_schedules_are_the_collectives_too():
    layout = requested_layout(8, None, "3,5", 0, 8)
    for collective in BINOMIAL:
        for schedule in schedules(collective, layout).values():
            prove(COLLECTIVES[collective].call(8), [schedule], in_place=True)


def test_bine_trees_send_less_between_racks_that_begin_anywhere_and_more_between_whole_ones():
    found = traffic()
    kinds = [f"{p} {kind}" for p, of_p in RACKS.items() for kind in of_p]
    head = f"{'S between racks':27}" + "".join(f"{kind:>15}" for kind in kinds)
    lines = (
        f"{' '.join(key):27}" + "".join(f"{value:15.4g}" for value in row)
        for key, row in found.items()
    )
    assert_golden("rack_traffic", [head, *lines], Path(__file__).parent / "golden")
    for collective in BINOMIAL:
        share = found[collective, "bine"] / np.minimum(
            found[collective, "far first"], found[collective, "near first"]
        )
        aligned, odd = (
            share[[number for number, name in enumerate(kinds) if kind in name]]
            for kind in ("aligned", "odd")
        )
        assert (odd < (0.8 if collective == "all_reduce" else 0.75)).all()
        assert (aligned > 1).all()
