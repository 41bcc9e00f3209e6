"""Observations of a machine whose times are exactly those of a given model."""

from hpccoll.model.machine import Link, MachineModel
from hpccoll.model.observations import Observation
from hpccoll.schedule import COLLECTIVES, Layout

SIZES = tuple(1 << k for k in range(10, 23))
APART = Layout.of(6, 1)
MACHINE = MachineModel({"node": Link(1e-6, 1e-10), "rack": Link(5e-5, 8e-9)}, gamma_s=3e-10)


def observation(collective, algorithm, nbytes, seconds, layout=APART, about=(), **params):
    """An observation, with the fields ``about`` in addition to its parameters; the library's own algorithm is None."""
    family = COLLECTIVES[collective]
    arguments = {name: value for name, value in params.items() if name in family.arguments}
    call = family.call(layout.workers, **arguments)
    more = {"requested": params, "op": "sum" if family.has_op else None, **dict(about)}
    return Observation(call, family.algorithms.get(algorithm), params, nbytes, seconds, layout, **more)


def observed(collective, algorithm, layout=APART, machine=MACHINE, sizes=SIZES, **params):
    """What an algorithm takes by what it declares, at every size."""
    blank = [observation(collective, algorithm, nbytes, 1.0, layout, **params) for nbytes in sizes]
    return [
        observation(
            collective, algorithm, one.nbytes, machine.seconds(one.cost, one.nbytes, one.tier), layout, **params
        )
        for one in blank
    ]
