"""A library breaks a guideline where the intervals show that a detour through its own calls is faster."""

from dataclasses import replace

import pytest
from finding_values import value_lines
from golden_page import assert_golden

from hpccoll.analysis.guideline_findings import DETOURS, guideline_findings
from hpccoll.analysis.opening_findings import opening_findings
from hpccoll.cases.algorithm_registry import COLLECTIVES

PARTS = ("reduce", 5.0), ("broadcast", 5.0)
MPICH = {"mpi": {"version": "MPICH 5.0.2"}, "hosts": ["alpha"]}


@pytest.fixture
def own(make_row):
    """``own(name, microseconds)`` is a library's own call of 1 KiB on 2 ranks, out of place."""

    def call(name, microseconds, nbytes=1024, **changes):
        collective = COLLECTIVES[name]
        root, op = 0 if collective.rooted else None, "sum" if collective.has_op else None
        changes = {"root": root, "op": op, **changes} | (
            {"in_place": True} if collective.one_buffer else {}
        )
        return make_row(
            "native", nbytes=nbytes, seconds=microseconds * 1e-6, collective=name, **changes
        )

    return call


@pytest.fixture
def found(make_run, of_rows):
    """``found(*rows)`` are the findings on rows of one run."""

    def findings(*rows, runs=None):
        return [*guideline_findings(of_rows(*rows, runs=runs or [make_run(provenance=MPICH)]))]

    return findings


def test_each_rule_of_a_broken_guideline_shows_in_its_results(own, found, make_run):
    def broken(microseconds=15.0, **changes):
        return [own(name, us, **changes) for name, us in (("all_reduce", microseconds), *PARTS)]

    def again(*rows):
        return [replace(row, run_id="run-2") for row in rows]

    def gathers(*shape):
        return [
            own(name, us, ranks=shape[0], nodes=shape[1], ranks_per_node=1, oversubscribed=False)
            for name, us in (("gather", 9.0), ("all_gather", 5.0))
        ]

    slow, reduce, broadcast = broken()
    elsewhere = again(reduce, broadcast)
    of_mpich, other = make_run(provenance=MPICH), {"mpi": {"version": "Open MPI v5.0.8, x"}}
    several, of_both = (
        [of_mpich, make_run(run_id="run-2", provenance=each)] for each in (MPICH, other)
    )

    def one_buffer(*fast):
        return [
            own("broadcast", 15.0),
            *(
                own(name, 5.0 if in_place in fast else 20.0, in_place=in_place)
                for in_place in (False, True)
                for name in ("scatter", "all_gather")
            ),
        ]

    scenarios = {
        "two calls together": found(*broken()),
        "intervals meet": found(*broken(10.5)),
        "one of them was not measured": found(slow, reduce),
        "of another root": found(slow, *(replace(row, root=1) for row in (reduce, broadcast))),
        "a part moved fewer bytes": found(slow, replace(reduce, bytes=500), broadcast),
        "of another variant": found(slow, *(replace(row, variant="other") for row in (reduce, broadcast))),
        "more ranks than cores": found(*broken(oversubscribed=True)),
        "our own schedule": found(replace(slow, algorithm="ring", transport="mpi"), reduce, broadcast),
        "an algorithm that was asked for": found(replace(slow, params={"forced": "ring"}), reduce, broadcast),
        "copies in host memory": found(*broken(transport="staged", device="cuda")),
        "no interval": found(replace(slow, ci_low_s=None, ci_high_s=None), reduce, broadcast),
        "several sizes, one of which keeps it": found(
            *broken(), *broken(20.0, nbytes=2048), *broken(10.0, nbytes=4096)),
        "several shapes": found(*gathers(4, 4), *gathers(8, 8)),
        "both placements, of which one breaks it": found(*broken(in_place=True), own("all_reduce", 9.0)),
        "a larger message is faster": found(own("scatter", 9.0), own("scatter", 8.0, nbytes=2048, in_place=False)),
        "not clearly": found(own("scatter", 9.0), own("scatter", 8.8, nbytes=2048)),
        "calls of two launches": found(slow, *elsewhere, runs=several),
        "two launches show it": found(*broken(), *again(*broken(20.0)), runs=several),
        "two libraries": found(*broken(), *again(*broken(10.0)), runs=of_both),
        "one of two shows it": found(*broken(), *again(*broken(10.0)), runs=several),
        "one buffer, a detour out of place": found(*one_buffer(False)),
        "or in place": found(*one_buffer(True)),
        "or in both": found(*one_buffer(False, True)),
    }  # fmt: skip
    assert_golden(
        "guideline_findings",
        [
            line
            for rule, findings in scenarios.items()
            for line in (f"-- {rule}", *value_lines(findings))
        ],
    )


def test_a_page_begins_with_broken_guidelines(own, of_rows, make_run):
    results = of_rows(own("gather", 9.0), own("all_gather", 5.0), runs=[make_run(provenance=MPICH)])
    (finding,) = opening_findings(results)
    assert (
        str(finding)
        == "MPICH 5.0.2: gather takes longer than its all_gather: 1.80x at 1 KiB (2 ranks)."
    )
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("name", "detour"), [(name, each) for name, detours in DETOURS.items() for each in detours]
)
@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_detour_gives_the_result_of_its_collective_at_the_same_size(name, detour, p):
    """Each call folds what ranks have after the one before; an all_to_all sends a rank's own block to all."""
    call = COLLECTIVES[name].call(p)
    has = [{unit: {(me, unit)} for unit in call.source(me, p)} for me in range(p)]
    for part in (COLLECTIVES[each].call(p) for each in detour):
        has = [
            {
                unit: set().union(
                    *(
                        has[origin].get(at) or has[origin][origin]
                        for origin, at in part.result(me, unit)
                    )
                )
                for unit in part.target(me, p)
            }
            for me in range(p)
        ]
    for me in range(p):
        for unit in call.target(me, p):
            assert has[me][unit] == call.result(me, unit)
