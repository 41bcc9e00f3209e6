"""The whole table under real MPI: every collective by every algorithm of the catalogue, the library's own included.

The cases are drawn from the catalogue, so that another algorithm, or another parameter of one, is
tested at once. Each launch is one job of ``hpccoll run``; what must not run there is skipped, for
the reason that ``unmet_needs`` gives.
"""

from contextlib import suppress
from functools import cache
from itertools import count, product
from pathlib import Path
from typing import NamedTuple

import pytest

from hpccoll.cases.case import Case, Effort, Job
from hpccoll.cases.catalogue import (
    NATIVE,
    distinct_placements,
    distinct_transports,
    known_parameters,
)
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.cases.transport_table import TRANSPORTS, transports_of_device
from hpccoll.common.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout
from hpccoll.schedule.unequal_blocks import PATTERNS
from hpccoll.store import hdf5

PAIRS = Path(__file__).with_name("paired_ranks.py")
EFFORT = Effort(warmup=1, min_iterations=3, max_iterations=3)
SMALL, LARGE = 48, 100_003
CUT = {"channels": 3, "window": 2}
NUMBER = 2
"""What to try for a parameter that is a number."""

pytestmark = pytest.mark.mpi


class Launch(NamedTuple):
    """Ranks of one job."""

    workers: int
    aggregators: int = 0
    # ranks 0 and 1 take themselves for a node, 2 and 3, and so on; else all are on one
    paired: bool = False
    # all sizes, and the first and the last root; else one size, the last root, other parameters
    whole: bool = True
    only_aggregating: bool = False  # only algorithms that aggregators have a part in

    @property
    def layout(self):
        ranks = range(self.workers + self.aggregators)
        return Layout(
            tuple(me // 2 if self.paired else 0 for me in ranks), aggregators=self.aggregators
        )

    @property
    def transports(self):
        """The transports that there are on its layout."""
        over = transports_of_device("cpu")
        return [
            name
            for name in over
            if all(need.met(self.layout, {}) for need in TRANSPORTS[name].needs)
        ]


LAUNCHES = (
    Launch(2),
    Launch(4, paired=True, whole=False),
    Launch(3, 1, only_aggregating=True),
    Launch(4, 3, paired=True, whole=False, only_aggregating=True),
)


def roots(family, launch):
    last = launch.workers - 1
    return ((0, last) if launch.whole else (last,)) if family.rooted else (None,)


def sizes(family, launch):
    """Return sizes S, each with whether it is cut into channels."""
    if family.token:
        return ((SMALL, False),)  # its size is its own
    return ((SMALL, False), (LARGE, True)) if launch.whole else ((LARGE, True),)


def arguments(family, root, p):
    """Yield what a call may have besides its root."""
    yield {}
    if "traffic" in family.arguments:
        yield from (
            {"traffic": pattern} for pattern in PATTERNS if pattern != family.arguments["traffic"]
        )
    if "peer" in family.arguments:
        yield {"peer": (root + 1) % p}
    if "concurrent" in family.arguments:
        yield {"concurrent": 1}


def calls(family, algorithm, launch):
    """Yield cases of one algorithm with its defaults: sizes, types, roots, arguments and placements."""
    knows = known_parameters(family.name, algorithm)
    cut = {name: value for name, value in CUT.items() if name in knows}
    ops = [*REDUCTIONS] if family.has_op else [None]
    turn = count(len(family.name) + len(algorithm))  # so that all dtypes and ops come up
    for (size, in_channels), root in product(sizes(family, launch), roots(family, launch)):
        for values in arguments(family, root, launch.workers):
            for in_place in distinct_placements(family.name, algorithm, (False, True)):
                number = next(turn)
                moves = distinct_transports(family.name, algorithm, launch.transports)
                if launch.paired and not launch.aggregators:
                    # tiered, which only several nodes have, or what serves in its place
                    moves = moves[-1:]
                every = family.token or launch.aggregators
                for transport in moves if every else [moves[number // 2 % len(moves)]]:
                    yield Case(
                        collective=family.name,
                        algorithm=algorithm,
                        transport=transport,
                        dtype=DTYPES[number % len(DTYPES)],
                        op=ops[number // 2 % len(ops)],
                        bytes=size,
                        in_place=in_place,
                        root=root,
                        params={**(cut if in_channels else {}), **values},
                    )


def variants(family, algorithm, layout):
    """Yield a case for each value of the algorithm's own parameters that makes sense to it, the others at defaults."""
    own, names = (
        family.algorithm(algorithm).parameters,
        {name for row in COLLECTIVES.values() for name in row.algorithms},
    )
    for name, default in own.items():
        for value in sorted({default, NUMBER} if isinstance(default, int) else names):
            case = Case(
                collective=family.name,
                algorithm=algorithm,
                dtype="int32",
                op="sum" if family.has_op else None,
                bytes=LARGE,
                params={**own, name: value},
            )
            with suppress(BadInputError):  # no algorithm that it can be made of
                unmet_needs(case, layout)
                if case.params != own:
                    yield case


@cache
def cases(launch):
    made = []
    for family in COLLECTIVES.values():
        for algorithm in (*family.algorithms, NATIVE):
            aggregates = algorithm != NATIVE and family.algorithm(algorithm).aggregates
            if launch.only_aggregating and not aggregates:
                continue
            made += calls(family, algorithm, launch)
            if not launch.whole and algorithm != NATIVE:
                made += variants(family, algorithm, launch.layout)
    return tuple({case.id: case for case in made}.values())


@pytest.fixture(scope="module")
def outcomes(mpiexec, tmp_path_factory):
    """What became of every case of a launch, by its id."""

    @cache
    def outcomes(launch):
        here = tmp_path_factory.mktemp("table")
        job = Job(
            name="table",
            ranks=launch.workers,
            nodes=launch.layout.nodes,
            aggregators=launch.aggregators,
            effort=EFFORT,
            cases=cases(launch),
        )
        (here / "job.json").write_text(job.to_json())
        program = [PAIRS] if launch.paired else ["-m", "hpccoll", "run"]
        files = ["--job", here / "job.json", "--out", here / "F.h5"]
        ended = mpiexec(launch.layout.ranks, *program, *files, "--exit-zero", timeout=480)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        ((_, done),) = hdf5.read_raw_file(here / "F.h5").attempts
        return {outcome.case.id: outcome for outcome in done}

    return outcomes


@pytest.mark.parametrize("launch", LAUNCHES)
def test_every_case_is_correct_or_skipped_for_the_catalogues_reason(launch, outcomes):
    found = outcomes(launch)
    assert found.keys() == {case.id for case in cases(launch)}
    reasons = {case.id: unmet_needs(case, launch.layout) for case in cases(launch)}
    assert {name: (o.status, o.reason) for name, o in found.items()} == {
        name: ("skipped" if reason else "ok", reason) for name, reason in reasons.items()
    }
    wrong = {
        (o.wrong, o.case.collective, o.case.algorithm)
        for o in found.values()
        if o.status == "ok" and o.wrong != 0
    }
    assert wrong <= {(None, "barrier", NATIVE)}  # which has no buffer


def test_every_algorithm_has_run_over_every_transport_that_makes_a_difference(outcomes):
    ran = {
        (outcome.case.collective, outcome.case.algorithm, outcome.case.transport)
        for launch in LAUNCHES
        for outcome in outcomes(launch).values()
        if outcome.status == "ok"
    }
    everything = [
        (name, own) for name, family in COLLECTIVES.items() for own in (*family.algorithms, NATIVE)
    ]
    assert ran == {
        (name, own, over)
        for name, own in everything
        for over in distinct_transports(name, own, transports_of_device("cpu"))
    }
