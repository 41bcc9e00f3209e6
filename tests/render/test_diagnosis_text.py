"""The text of diagnoses: the answer first, then what to exclude, then what it is based on."""

import math
from dataclasses import replace

from golden_page import assert_golden
from recorded_diagnoses import LOAD, recorded

from hpccoll.diagnosis.core_waits import CoreWait, finding_of_load
from hpccoll.diagnosis.history import MachineHistory, PastState, PlaceHistory
from hpccoll.diagnosis.slot_records import Component
from hpccoll.diagnosis.verdict import MachineVerdict, NamedFault, Place, verdict_of
from hpccoll.render.diagnosis_text import diagnosis_lines, history_lines
from hpccoll.store.schema import HOST_LOAD

RACK = tuple(f"n{node}" for node in range(24, 32))
HEALTHY = MachineVerdict(
    verdicts=(),
    exclude=(),
    complete=True,
    slots=33,
    noise=0.031,
    smallest_effect=1.0712,
    too_many=False,
    nodes=16,
    smallest_link_effect=1.1234,
    unjudged=(),
    only_directions=False,
    racks=(),
    links=True,
    load=LOAD,
    kind="measured on a testbed",
    machine="a machine",
    begun="2026-11-26T08:00:00+00:00",
)


def fault(
    kind,
    *hosts,
    effect=1.192,
    chance=1e-9,
    candidates=(),
    under_load_only=False,
    slots=None,
    **about,
):
    place = Place(kind, hosts, **about)
    low, high = effect * 0.98, effect * 1.02
    counts = slots or {
        "screen": 15,
        "racks": 12,
        "retest": 23,
        "accused": 9,
        "links": 12,
        "hung": 1,
    }
    return NamedFault(place, candidates, effect, low, high, chance, under_load_only, counts)


def verdict(*faults, **changes):
    return replace(HEALTHY, verdicts=faults, **changes)


def hung(host, *partners):
    return replace(fault("hung", host, effect=math.inf), missed_with=partners)


DIRECTIONS = (Place("receive", ("n1",)),), (Place("send", ("n2",)),)
NODES = (
    (Place("node", ("n1",)), Place("node", ("n2",))),
    (Place("node", ("n1",)), Place("node", ("n3",))),
)
LOADED = CoreWait("n1", 0.304, 0.0212, 1.41)
BUSY = {
    HOST_LOAD: [
        {
            "host": "n1",
            "load_average": [2.5, 9.0],
            "stolen": 0,
            "other_cores": 1.9,
            "busiest": [{"name": "make", "cores": 1.8}],
        }
    ]
}
BY_PROGRAM = replace(LOAD, program="sendrecv_perf")
"""Its options decide what it transfers, and --rate is refused beside it."""
SITUATIONS = {
    "a healthy machine": verdict(),
    "a healthy machine of racks, without single links": verdict(nodes=128, racks=("a", "b", "c", "d"), links=False),
    "a healthy machine that is as fast as it should be": verdict(has_rate=True),
    "a healthy machine, by another program": verdict(load=BY_PROGRAM),
    "a healthy machine of racks that are too small": verdict(racks=("a", "b", "c", "d"), unjudged_racks=("e",)),
    "a healthy machine of two racks": verdict(unjudged_racks=("a", "b")),
    "two healthy nodes, or both slow": verdict(nodes=2, only_directions=True),
    "two healthy nodes, by another program": verdict(nodes=2, only_directions=True, load=BY_PROGRAM),
    "a slow node and a hung one": verdict(
        fault("node", "n5"), hung("n3", "n7", "n9"), exclude=("n3", "n5")
    ),
    "a node whose rank waited for a core": verdict(
        replace(fault("receive", "n1", effect=1.3), wait=LOADED), findings=(finding_of_load([LOADED], BUSY),)
    ),
    "a node that sends slowly, and one that receives slowly": verdict(
        fault("send", "n5", chance=2e-4), fault("receive", "n6", effect=1.3), exclude=("n5", "n6")
    ),
    "an uplink, a rack, and a path of a rack that is unknown": verdict(
        fault("uplink", *RACK, rack="rack3"), fault("rack", *RACK, rack="b"), fault("shared_link", *RACK)
    ),
    "a link, one that never answers, and a rail": verdict(
        fault("link", "n1", "n6"), fault("link", "n1", "n7", effect=math.inf, rail=0), fault("rail", "n5", rail=1)
    ),
    "two nodes, of which a direction is slow": verdict(
        fault("receive", "n1", candidates=DIRECTIONS, slots={"screen": 24}), nodes=2, only_directions=True
    ),
    "three nodes, two of them slow": verdict(fault("node", "n1", candidates=NODES, slots={"screen": 48}), nodes=3),
    "two nodes, of which one is hung": verdict(
        fault("hung", "n1", effect=math.inf, candidates=((Place("hung", ("n1",)),), (Place("hung", ("n2",)),))),
        nodes=2, noise=math.nan, smallest_effect=math.inf,
    ),
    "several slow nodes": verdict(
        *(fault("node", f"n{node}", effect=1 + node / 50) for node in (5, 6, 7)), exclude=("n5", "n6", "n7")
    ),
    "64 nodes, none of which answers": verdict(
        fault("hung", "n0", effect=math.inf, candidates=tuple((Place("hung", (f"n{node}",)),) for node in range(64))),
        nodes=64, noise=math.nan, smallest_effect=math.inf,
    ),
    "explanations without end": verdict(
        fault("node", "n0", candidates=tuple((Place("node", (f"n{node}",)),) for node in range(64))), nodes=64
    ),
    "more than a quarter": verdict(*(fault("node", f"n{node}") for node in range(5)), too_many=True),
    "more than a quarter that is hung": verdict(
        *(hung(f"n{node}", f"n{node + 5}", f"n{node + 20}") for node in range(12)), too_many=True
    ),
    "a node whose transfers end with an error": verdict(
        replace(hung("n3", "n7", "n9"), place=Place("failed", ("n3",)), error='NCCL: "$(x)" unhandled cuda error'),
        exclude=("n3",),
    ),
    "slow nodes of Kubernetes": verdict(
        fault("node", "gpu-5"), hung("gpu-3", "gpu-7"), exclude=("gpu-3", "gpu-5"), kubernetes=True
    ),
    "two nodes, of which one fails": verdict(
        replace(
            fault("failed", "n1", effect=math.inf, candidates=((Place("hung", ("n1",)),), (Place("hung", ("n2",)),))),
            error="NCCL: unhandled system error",
        ),
        nodes=2, noise=math.nan, smallest_effect=math.inf,
    ),
    "a node that is slow under load only": verdict(fault("node", "n5", under_load_only=True)),
    "a node that was not judged": verdict(unjudged=("n3",)),
    "more than half of the nodes, which were not judged": verdict(
        unjudged=tuple(f"n{node}" for node in range(9)), noise=math.nan, smallest_effect=math.inf
    ),
    "an interrupted diagnosis": verdict(complete=False, noise=math.nan, smallest_effect=math.inf, links=False),
    "a diagnosis that may still run": verdict(complete=False, noise=math.nan, smallest_effect=math.inf, links=False,
                                              kept_at="2026-11-26T08:00:12+00:00"),
    "a job that may still run": verdict(complete=False, noise=math.nan, smallest_effect=math.inf, links=False,
                                        kept_at="2026-11-26T08:00:12+00:00", slurm_job="17"),
}  # fmt: skip


def test_the_text_of_each_situation_is_the_golden_page():
    page = []
    for situation, said in SITUATIONS.items():
        page += [f"## {situation}", *diagnosis_lines(said), ""]
    assert_golden("diagnosis", page)


def test_what_is_to_be_pasted_is_safe_in_a_shell_whatever_a_host_is_called():
    diagnosis = recorded(16, (Component("node", (5,)), 30))
    odd = replace(
        diagnosis.question, hosts=tuple(f"{host};{{rm}} '" for host in diagnosis.question.hosts)
    )
    lines = [*diagnosis_lines(verdict_of(replace(diagnosis, question=odd)))]
    pasted = [line for line in lines if line.startswith(("--exclude", "scontrol"))]
    assert len(pasted) == 2
    assert all("""'n5;{rm} '"'"''""" in line for line in pasted)


def history(*rows):
    """Return the history of rows of states, each a factor or the name of a state."""
    begun = [f"2026-11-{day:02}T08:00:00+00:00" for day in range(1, len(rows[0][1]) + 1)]
    places = tuple(
        PlaceHistory(
            place,
            tuple(
                PastState(when, *((each, None) if isinstance(each, str) else ("slow", each)))
                for when, each in zip(begun, states, strict=True)
            ),
        )
        for place, states in rows
    )
    return MachineHistory(tuple(begun), places, HEALTHY)


def test_the_history_is_the_golden_page_in_as_many_tables_as_the_terminal_needs():
    node = (
        Place("node", ("n2",)),
        [1.2, 1.25, "healthy", 1.2, "hung", *["absent"] * 4, "healthy", "absent"],
    )
    link = Place("link", ("n1", "n7")), ["healthy", "undecided", *["healthy"] * 8, 1.5]
    page = [
        *history_lines(history(node, link), 60),
        "",
        *history_lines(MachineHistory(("2026",), (), HEALTHY), 60),
    ]
    assert max(map(len, page)) <= 60
    assert_golden("diagnosis_history", page)


def test_of_a_newest_diagnosis_without_an_end_it_is_said_that_it_may_still_run_unless_a_signal_ended_it():
    def said(**changes):
        newest = replace(HEALTHY, complete=False, **changes)
        return "\n".join(history_lines(MachineHistory(("2026",), (), newest), 200))

    may_run = said(kept_at="2026-11-26T08:00:12+00:00", slurm_job="17")
    assert "running" in may_run
    assert "squeue -j 17" in may_run
    assert "running" not in said(kept_at=None)


def test_diagnoses_of_one_day_are_told_apart_by_the_hour():
    past = history((Place("node", ("n2",)), [1.2, "healthy"]))
    again = replace(past, begun=("2026-11-01T08:00:00+00:00", "2026-11-01T09:30:00+00:00"))
    assert "11-01 08:00  11-01 09:30" in "\n".join(history_lines(again, 60))
