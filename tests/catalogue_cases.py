"""Cases of everything that can be asked for."""

from hpccoll.cases.case import Case
from hpccoll.cases.catalogue import NATIVE, distinct_placements
from hpccoll.schedule import COLLECTIVES, collective

BOTH = (False, True)
ALL = [(name, own) for name, family in COLLECTIVES.items() for own in (*family.algorithms, NATIVE)]


def case(name="all_reduce", algorithm="ring", **more):
    family = collective(name)
    in_place = distinct_placements(name, algorithm, BOTH)[0]
    about = {"op": "sum" if family.has_op else None, "bytes": 4096, "in_place": in_place}
    return Case(collective=name, algorithm=algorithm, **{**about, **more})
