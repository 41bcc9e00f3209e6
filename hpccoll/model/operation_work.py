"""What a measured operation consists of: the work on its critical path, and what it moves in memory.

Programs of others do some things that no schedule says, and results that were imported have them as
parameters: ranks tell each other addresses first, use ports one after another, fold in segments, or
copy more or less than MPI libraries do.
"""

from collections import Counter
from typing import TypeAlias

from hpccoll.model.address_messages import address_messages
from hpccoll.model.critical_path import (
    RowWork,
    critical_path,
    folded_in_segments,
    sharing_links,
)
from hpccoll.model.equal_waves import OperationWaves, cut_of_port, largest_fold
from hpccoll.model.memory_work import MemoryWork, memory_work
from hpccoll.model.observations import Observation
from hpccoll.model.path_times import TypicalCosts
from hpccoll.model.unknown_messages import schedules_of
from hpccoll.schedule import Cut, itemsize
from hpccoll.store.schema import (
    ADDRESSES,
    COPIED,
    NOTHING_COPIED,
    PARTS_COPIED,
    PORT_USE,
    VECTOR_COPIED,
)

NODE = "node"
RACK = "rack"

OperationWork: TypeAlias = tuple[Counter[RowWork], MemoryWork]
"""What is on the critical path of an operation, and what it moves in memory."""

HABITS = (ADDRESSES, COPIED, PORT_USE)
"""The parameters that say what a program does besides the messages of a schedule."""


def has_habits(observation: Observation) -> bool:
    """Return whether an operation has work that neither its schedule nor its ports and torus say."""
    named = any(name in observation.params for name in HABITS)
    return named or observation.folded_segment > 0 or observation.ports_of_link > 1


def operation_work(observation: Observation) -> OperationWork:
    """Return what is on the critical path of a measured operation, and what it moves in memory.

    Raises:
        TooManyMessagesError: if it has more than ``MOST_MESSAGES``.
    """
    (schedule,) = schedules_of(observation)
    call = observation.call
    size = itemsize(observation.dtype)
    elements = call.collective.elements(observation.nbytes, size, observation.layout.workers)
    cut = cut_of_port(Cut(call, elements, schedule.units, 1, size), observation.ports)
    torus = observation.torus
    waves = OperationWaves((schedule,), cut, everyone=torus is not None)
    path = critical_path(waves, TypicalCosts(), torus)
    if observation.ports_of_link > 1:
        path = sharing_links(path, observation.ports_of_link)
    if observation.folded_segment:
        path = folded_in_segments(path, observation.folded_segment)
    turns = observation.ports // observation.ports_at_once
    work: Counter[RowWork] = Counter({kind: count * turns for kind, count in path.items()})
    if ADDRESSES in observation.params:
        work += _addresses(observation)
    # each port that is in use at once receives its part of the vector
    fold = largest_fold(waves) * observation.ports_at_once
    memory = memory_work(call, observation.name_of_algorithm, observation.nbytes, fold)
    if COPIED in observation.params:
        memory = memory._replace(copied_bytes=_copied_bytes(observation))
    return work, memory


def _copied_bytes(observation: Observation) -> int:
    """Return what a rank copies, or a port of it if all ports copy at once."""
    size = observation.nbytes
    copied = {
        NOTHING_COPIED: 0,
        VECTOR_COPIED: size,
        PARTS_COPIED: size // observation.ports,
    }
    return copied[str(observation.params[COPIED])]


def _addresses(observation: Observation) -> Counter[RowWork]:
    """Return the messages in which ranks tell each other first where their buffers are."""
    layout = observation.layout
    recipients = str(observation.params[ADDRESSES])
    tier = RACK if layout.nodes > 1 else NODE
    messages: Counter[RowWork] = Counter()
    messages.update(address_messages(recipients, tier, layout.workers, observation.ports))
    return messages
