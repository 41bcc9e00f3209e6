"""Models of runs: machines fitted to observations of a known machine, and their predictions of other ones."""

from dataclasses import replace

from model_observations import MACHINE, observation, observed
from raw_examples import raw

from hpccoll.model.fit import fit
from hpccoll.model.machine import Cpus, MessageCosts, Tier
from hpccoll.model.run_model import RunModel
from hpccoll.model.validation import validate
from hpccoll.schedule import Layout


def modelled(calibration, others, **more):
    """Return the model of a run: the machine fitted to a calibration, and its predictions of other measurements."""
    machine, used = fit([*calibration, *others], "here")
    validated = validate([*calibration, *others], machine.machine(), used)
    return RunModel([raw()], "mpi", machine, validated, **more)


SIZES = tuple(1 << k for k in range(10, 24, 2))
TRIPS = observed("send_recv", "ping_pong", Layout.of(4, 2), sizes=SIZES)


def slower(observations, factor):
    return [replace(one, seconds=one.seconds * factor) for one in observations]


def whole_model():
    """Return a model of everything: two protocols, shared resources, noise, held-out algorithms and native calls."""
    machine = replace(
        MACHINE,
        tiers={
            **MACHINE.tiers,
            "rack": Tier(
                (MessageCosts(latency_s=3e-5, byte_s=1e-15), MessageCosts(5000, 9e-5, byte_s=1e-15))
            ),
        },
        port_byte_s=8e-9,
        cpus=Cpus(2, 6e-9, "machine"),
    )
    about, four, six = (
        {"kind": "measured on a testbed", "cpus": 2},
        Layout.of(4, 1),
        Layout.of(8, 1),
    )
    here = {"machine": machine, "noise": 0.01, "sizes": SIZES, "about": about}
    calibration = [
        *observed("send_recv", "ping_pong", four, **here),
        *observed("bidirectional", "exchange", four, **here),
        *observed("multi_pair", "exchange", four, concurrent=2, **here),
        *observed("reduce_scatter", "ring", four, **here),
        *observed("all_gather", "ring", four, **here),
    ]
    others = [
        *slower(observed("all_reduce", "ring", six, **here), 1.1),
        *slower(observed("all_reduce", "recursive_doubling", six, **here), 0.8),
        observation("all_reduce", "native", 1024, 1e-3, six),
    ]
    return modelled(calibration, others)
