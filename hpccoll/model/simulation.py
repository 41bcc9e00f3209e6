"""Simulations: of an operation, by events or in waves, and of an algorithm on a layout, at each bound of a machine."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.planned_schedule import choose_channels
from hpccoll.cases.requested_schedule import (
    RequestedOperation,
    RequestedSchedule,
    requested_operation,
    requested_schedule,
)
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import AGGREGATORS, IntegerRange
from hpccoll.common.units import format_decimal_bytes
from hpccoll.host.cpu_and_memory import available_memory
from hpccoll.model.equal_waves import operation_waves
from hpccoll.model.event_simulation import simulate_events
from hpccoll.model.machine import Machine
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import Bound
from hpccoll.model.memory_work import memory_work, seconds_beside_messages
from hpccoll.model.path_times import (
    exchanges_of_many_ranks,
    largest_fold_of_ports,
    sums_paths,
    times_along_path,
)
from hpccoll.model.simulation_work import EVENT_S, ScheduleWork
from hpccoll.model.stand_ins import StandIn, StandIns, stand_ins
from hpccoll.model.torus_links import Torus
from hpccoll.model.traffic import has_more_messages, kept_traffic
from hpccoll.model.wave_simulation import simulate_runs
from hpccoll.schedule import Cut, Layout, Parameter, Schedule, itemsize
from hpccoll.schedule.lanes import lane_sequences

if TYPE_CHECKING:
    from hpccoll.cases.transport_table import ChannelRule

BOUNDS: tuple[Bound, ...] = ("value", "low_cost", "high_cost")

RADIX = IntegerRange(2, (1 << 16) - 1)
"""The ports of an aggregator: see ``sharp_emulated``."""

FEW_MESSAGES = 30_000
"""The most messages to simulate by events in any case: about a second."""

MANY_MESSAGES = 500_000
"""The most messages to simulate by events if lanes run side by side, for which all ranks at once is less accurate."""

LEAST_SHARE, MOST_SILENT_S = 1e-3, 1.0
"""Progress is reported after this share of all simulations, or after these seconds."""

MUCH_MEMORY = 1 << 30
"""The bytes that a simulation may need without a look at how many are free."""


class Simulated(NamedTuple):
    """The time of an operation."""

    seconds: float  # from the start of all ranks to the end of the last one
    exact: bool  # whether every message was an event


def simulate(
    schedules: Sequence[Schedule],
    cut: Cut,
    machine: Machine,
    window: int = 1,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> Simulated:
    """Return the time of one operation.

    Args:
        schedules: the schedules of the slices, which the lanes of ``cut`` take in turn.
        cut: the positions of the units.
        machine: the machine model, with all tiers that messages cross.
        window: the number of channels in flight at once, each with a lane for every slice.
        dtype: the type of the elements, which decides what a fold costs.
        progress: is called now and then with the number of messages simulated so far.
    """
    most = _most_events(len(schedules), cut.lanes, window)
    if _has_at_most(schedules, cut.lanes, most):
        return Simulated(
            simulate_events(schedules, cut, machine, window, dtype, progress), exact=True
        )
    return Simulated(simulate_waves(schedules, cut, machine, window, dtype, progress), exact=False)


def _has_at_most(schedules: Sequence[Schedule], lanes: int, most: int) -> bool:
    """Return whether an operation has at most ``most`` messages.

    Messages are paired, to count them, unless the steps of a schedule show that it has more.
    """
    if any(has_more_messages(schedule, most) for schedule in schedules):
        return False
    messages = []
    for schedule in schedules:
        traffic = kept_traffic(schedule)
        if traffic is None:
            return False
        messages.append(len(traffic.source))
    return sum(islice(cycle(messages), lanes)) <= most


def simulate_waves(
    schedules: Sequence[Schedule],
    cut: Cut,
    machine: Machine,
    window: int = 1,
    dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> float:
    """Return the seconds of one operation in waves: see ``simulate``."""
    sequences = len(lane_sequences(len(schedules), cut.lanes, window))
    waves = operation_waves(tuple(schedules), cut)
    return simulate_runs(waves, machine, sequences, machine.fold_byte_s(dtype), progress)


def _most_events(slices: int, lanes: int, window: int) -> int:
    """Return the most messages of an operation that are simulated by events."""
    return MANY_MESSAGES if len(lane_sequences(slices, lanes, window)) > 1 else FEW_MESSAGES


class ExpectedWork(NamedTuple):
    """The work of the simulations of an operation, estimated before they run."""

    messages: float  # the messages of one simulation
    seconds: float  # the time of all of them
    pairing_s: float  # the time to pair messages before, once for all sizes


class SimulatedOperation(NamedTuple):
    """The simulated times of an operation."""

    operation: RequestedOperation
    parameters: dict[str, Parameter]  # its own parameters, with channels and window
    seconds: dict[Bound, float]  # the time by bound
    exact: bool  # whether every message was an event
    # the simulations of fewer ranks that the times follow from, in words
    stand_ins: str | None = None


class AlgorithmSimulation:
    """An algorithm on a layout.

    Args:
        machine: the machine.
        family: the name of the collective.
        name: the name of the algorithm.
        parameters: parameters of the algorithm, of the collective and of runs.
        layout_of: returns the layout of the ranks with a number of aggregators.
        dtype: the type of the elements.
        aggregators: the number of aggregators [none; if they are switches, as many as the algorithm
            needs].
        shared: returns the costs of the machine that are left where other operations run at the
            same time.
        nodes_of_job: the nodes of the job, whose costs may depend on them [those of the layout].
        ports: the ports of each rank, which send their parts of the vector at once.
        torus: the torus of the nodes of the job, if they are on one.
    """

    def __init__(
        self,
        machine: MachineFile,
        family: str,
        name: str,
        parameters: Mapping[str, Parameter],
        layout_of: Callable[[int], Layout],
        *,
        dtype: str,
        aggregators: int | None = None,
        shared: Callable[[Machine], Machine] = lambda machine: machine,
        nodes_of_job: int | None = None,
        ports: int = 1,
        torus: Torus | None = None,
    ) -> None:
        self.machine = machine
        self.ports = ports
        self.torus = torus
        self.dtype = dtype
        self.shared = shared
        self.family = collective(family)
        self.algorithm = self.family.algorithm(name)
        self.parameters = dict(parameters)
        self.layout = self._layout(layout_of, aggregators)
        self.assumed = None
        nodes = nodes_of_job or self.layout.nodes
        self.machines: dict[Bound, Machine] = {}
        for bound in BOUNDS:
            self.machines[bound] = shared(machine.machine(bound).in_job(nodes, ports, torus))
        self._known_works: list[ScheduleWork] = []  # of the slices, once they are known
        if self.algorithm.aggregates and machine.aggregators.kind == "switches":
            self.assumed = machine.aggregators.source or "assumed: aggregators are switches"

    @property
    def own_parameters(self) -> dict[str, Parameter]:
        """The parameters of the algorithm and of the collective, without those of runs, such as channels."""
        own = {*self.algorithm.parameters, *self.family.arguments}
        return {name: value for name, value in self.parameters.items() if name in own}

    def _layout(self, layout_of: Callable[[int], Layout], aggregators: int | None) -> Layout:
        """Return the layout, with as many switches as the algorithm needs."""
        bare = layout_of(aggregators or 0)
        are_switches = self.machine.aggregators.kind == "switches"
        if aggregators is not None or not are_switches or not self.algorithm.aggregates:
            return bare
        # a switch for every rack
        if "radix" in self.algorithm.parameters and "radix" not in self.parameters:
            ports = max(map(len, bare.groups("rack")))
            self.parameters["radix"] = min(max(ports, RADIX.minimum), RADIX.maximum)
        counts = range(AGGREGATORS.maximum + 1)
        enough = bisect_left(counts, True, key=lambda count: self._unmet(layout_of(count)) is None)
        return layout_of(min(enough, AGGREGATORS.maximum))

    def _unmet(self, layout: Layout) -> str | None:
        """Return the requirement of the algorithm that a layout does not meet, as a sentence; None if it meets all."""
        arguments = self.family.arguments
        parameters = {
            name: value for name, value in self.own_parameters.items() if name not in arguments
        }
        return self.algorithm.unmet(layout, **parameters)

    def unpredicted_reason(self, nbytes: int) -> str | None:
        """Return why nothing can be predicted for a size; None if something can."""
        workers = self.layout.workers
        unmoved = self.family.unmoved_reason(nbytes, self.dtype, workers)
        if unmoved:
            return unmoved
        arguments = {
            name: self.parameters[name] for name in self.family.arguments if name in self.parameters
        }
        try:
            self.family.call(workers, None, **arguments)
        except BadInputError as error:
            return str(error)
        copies = self.parameters.get("copies", self.algorithm.parameters.get("copies", 0))
        if int(copies) > 0:
            return "copies on a rank are not modelled"
        unmet = self._unmet(self.layout) or self.algorithm.unmet_size(nbytes) or ""
        unmet = unmet.removeprefix(f"{self.algorithm.name} of {self.family.name}").lstrip(": ")
        return unmet or self._unsimulated_reason(nbytes) or self._memory_reason(nbytes)

    def _unsimulated_reason(self, nbytes: int) -> str | None:
        """Return why the ports of a rank or the links of a torus are not predicted; None if they are."""
        path = self.machines["value"].path
        if self.ports > 1 and (path is None or path.further_port_s is None):
            return f"{self.machine.name} was not fitted to several ports of a rank"
        shared = []
        if self.ports > 1:
            shared.append("several ports")
        if self.torus:
            shared.append("a torus")
        if not shared:
            return None
        operation = self._operation(nbytes)
        if self._sums_paths(operation):
            return None
        lanes = operation.cut.lanes
        several = f"it runs {lanes} schedules at once" if lanes > 1 else "its messages share more"
        return f"{several}, which is not simulated on {' and '.join(shared)}"

    def _sums_paths(self, operation: RequestedOperation) -> bool:
        """Return whether the time is a sum along the critical path, and not simulated."""
        return sums_paths(self.machines["value"], operation.schedules, operation.cut)

    def _memory_reason(self, nbytes: int) -> str | None:
        """Return why there is too little memory; None if there is enough."""
        if self._stand_ins(nbytes):
            return None
        operation = self._operation(nbytes)
        if self._sums_paths(operation) and exchanges_of_many_ranks(
            operation.schedules, operation.cut
        ):
            return None
        needed = self._block(operation) * max(work.rank_bytes for work in self._works(operation))
        if needed < MUCH_MEMORY:
            return None
        free = available_memory()
        if needed < free:
            return None
        needs = f"it needs about {format_decimal_bytes(needed)} of memory to pair the messages of a step"
        return f"{needs}; {format_decimal_bytes(free)} are free"

    def _block(self, operation: RequestedOperation) -> int:
        """Return how many ranks stand for all: on a torus all ranks, because links differ."""
        if self.torus:
            return self.layout.ranks
        return operation_waves(operation.schedules, operation.cut).block

    def _operation(self, nbytes: int) -> RequestedOperation:
        return requested_operation(
            self.algorithm.name,
            self.family.name,
            self.layout,
            nbytes,
            dtype=self.dtype,
            parameters=self._run_parameters(nbytes),
        )

    def _run_parameters(self, nbytes: int) -> dict[str, Parameter]:
        """Return its own parameters, with channels and window if the collective has them."""
        return self.own_parameters | self._channels(nbytes)

    def _works(self, operation: RequestedOperation) -> list[ScheduleWork]:
        """Return the work of each slice in one lane, the same for all sizes."""
        if not self._known_works:
            cost = self.algorithm.declared(self.layout.workers, **self.own_parameters)
            steps = int(cost.steps) if cost else 0
            self._known_works = [
                ScheduleWork.of(schedule, steps) for schedule in operation.schedules
            ]
        return self._known_works

    def work(self, nbytes: int) -> ExpectedWork:
        """Return the expected work for a size that can be predicted."""
        if instead := self._stand_ins(nbytes):
            return self._work_of_stand_ins(instead, nbytes)
        operation = self._operation(nbytes)
        works_of_slices = self._works(operation)
        lanes = operation.cut.lanes
        messages = lanes // len(works_of_slices) * sum(work.messages for work in works_of_slices)
        if self._sums_paths(operation):
            if exchanges_of_many_ranks(operation.schedules, operation.cut):
                return ExpectedWork(messages, seconds=1.0, pairing_s=0.0)
            (work,) = works_of_slices
            seconds = work.seconds_along_path(self._block(operation))
            return ExpectedWork(messages, seconds, work.pairing_s)
        if messages <= _most_events(len(works_of_slices), lanes, operation.window):
            seconds = messages * EVENT_S
        else:
            seconds = _seconds_in_waves(operation, works_of_slices)
        simulations = len({self._same(bound) for bound in BOUNDS})
        pairing_s = sum(work.pairing_s for work in works_of_slices)
        return ExpectedWork(messages, seconds * simulations, pairing_s)

    def _same(self, bound: Bound) -> Bound:
        """Return the first bound at which the machine costs the same."""
        return next(first for first in BOUNDS if self.machines[first] == self.machines[bound])

    def times(
        self,
        nbytes: int,
        progress: Callable[[float], None] | None = None,
        bounds: Sequence[Bound] = BOUNDS,
    ) -> SimulatedOperation:
        """Return the simulated times for a size; ``progress`` gets the share of the simulations that is done."""
        if instead := self._stand_ins(nbytes):
            simulated = self._times_of_stand_ins(instead, nbytes, progress, bounds)
        else:
            simulated = self.simulated_times(nbytes, progress, bounds)
        costs = self.machines["value"]
        if not costs.start_skew_s and not costs.own_memory:
            return simulated
        cut = simulated.operation.cut
        fold = largest_fold_of_ports(simulated.operation.schedules, cut, self.ports)
        memory = memory_work(cut.call, self.algorithm.name, nbytes, fold)
        seconds = {}
        for bound, simulated_s in simulated.seconds.items():
            beside_s = seconds_beside_messages(self.machines[bound], self.layout, memory)
            seconds[bound] = simulated_s + beside_s
        return simulated._replace(seconds=seconds)

    def simulated_times(
        self,
        nbytes: int,
        progress: Callable[[float], None] | None,
        bounds: Sequence[Bound],
    ) -> SimulatedOperation:
        """Return the times of the messages and folds of all ranks, for a size without stand-ins: see ``times``."""
        operation = self._operation(nbytes)
        simulated_as = {bound: self._same(bound) for bound in bounds}
        different = list(dict.fromkeys(simulated_as.values()))
        if self._sums_paths(operation):
            report = progress and self._share(nbytes, 0, 1, progress)
            machines = [self.machines[bound] for bound in different]
            sums = times_along_path(
                operation.schedules[0], operation.cut, machines, self.dtype, report
            )
            sum_at = dict(zip(different, sums, strict=True))
            seconds = {bound: sum_at[same] for bound, same in simulated_as.items()}
            return SimulatedOperation(operation, self._run_parameters(nbytes), seconds, exact=False)
        simulated: dict[Bound, Simulated] = {}
        for number, bound in enumerate(different):
            report = progress and self._share(nbytes, number, len(different), progress)
            simulated[bound] = simulate(
                operation.schedules,
                operation.cut,
                self.machines[bound],
                operation.window,
                self.dtype,
                report,
            )
        seconds = {bound: simulated[same].seconds for bound, same in simulated_as.items()}
        is_exact = all(result.exact for result in simulated.values())
        return SimulatedOperation(operation, self._run_parameters(nbytes), seconds, is_exact)

    def _stand_ins(self, nbytes: int) -> StandIns | None:
        """Return the stand-ins that are simulated in the place of all ranks, if there are any."""
        if any(machine.cpus and machine.cpus.of == "machine" for machine in self.machines.values()):
            return None
        if self.machines["value"].path and self._sums_paths(self._operation(nbytes)):
            return None
        if self.parameters.get("traffic") or "traffic" in self.family.arguments:
            return None
        blocks = self.family.units == "per_rank"
        return stand_ins(
            self.algorithm.name, self.layout, nbytes, itemsize(self.dtype), blocks=blocks
        )

    def _simulation(self, instead: StandIn, nbytes: int) -> "AlgorithmSimulation":
        """Return the simulation of a stand-in, with the channels of all ranks."""
        parameters = self.parameters | self._channels(nbytes)
        return AlgorithmSimulation(
            self.machine,
            self.family.name,
            self.algorithm.name,
            parameters,
            instead.layout.with_aggregators,
            dtype=self.dtype,
            shared=self.shared,
            nodes_of_job=self.layout.nodes,
            ports=self.ports,
        )

    def _work_of_stand_ins(self, instead: StandIns, nbytes: int) -> ExpectedWork:
        works = [
            self._simulation(stand_in, nbytes).work(stand_in.nbytes) for stand_in in instead.chosen
        ]
        messages = sum(work.messages for work in works)
        seconds = sum(work.seconds for work in works)
        pairing_s = sum(work.pairing_s for work in works)
        return ExpectedWork(messages, seconds, pairing_s)

    def _times_of_stand_ins(
        self,
        instead: StandIns,
        nbytes: int,
        progress: Callable[[float], None] | None,
        bounds: Sequence[Bound],
    ) -> SimulatedOperation:
        simulated = []
        for number, stand_in in enumerate(instead.chosen, 1):
            simulation = self._simulation(stand_in, nbytes)
            simulated.append(simulation.simulated_times(stand_in.nbytes, None, bounds))
            if progress:
                progress(number / len(instead.chosen))
        columns = []
        seconds = {}
        for bound in bounds:
            column = [operation.seconds[bound] for operation in simulated]
            columns.append(column)
            seconds[bound] = instead.time(column)
        miss = max(map(instead.miss, columns))
        most = max(map(instead.bound, columns))
        sentence = instead.sentence(miss, most)
        operation = self._operation(nbytes)
        parameters = self._run_parameters(nbytes)
        return SimulatedOperation(operation, parameters, seconds, exact=False, stand_ins=sentence)

    def _share(
        self, nbytes: int, number: int, total: int, progress: Callable[[float], None]
    ) -> Callable[[int], None]:
        """Return the function that reports now and then which share of ``total`` simulations is done."""
        messages = max(self.work(nbytes).messages, 1)
        shown, shown_s = 0.0, monotonic()

        def report(done: int) -> None:
            nonlocal shown, shown_s
            share = (number + min(done / messages, 1.0)) / total
            if share - shown >= LEAST_SHARE or monotonic() - shown_s >= MOST_SILENT_S:
                shown, shown_s = share, monotonic()
                progress(share)

        return report

    def _requested(self) -> RequestedSchedule:
        return requested_schedule(
            self.algorithm.name, self.family.name, self.layout, parameters=self.own_parameters
        )

    def _channels(self, nbytes: int) -> dict[str, Parameter]:
        """Return channels and window; nothing for a collective that is not cut into channels."""
        if self.family.uncut:
            return {}
        slices = self._requested().slices
        requested = {"channels", "segment"} & self.parameters.keys()
        if self.machine.critical_path and not requested and not self.algorithm.pipelined:
            return {"channels": 1, "window": 1}  # as what the machine was fitted to
        rule: ChannelRule = "messages"
        if self.machine.nccl:
            rule = "groups"
        channels, window = choose_channels(
            self.parameters,
            nbytes,
            self.layout,
            slices,
            pipelined=self.algorithm.pipelined,
            rule=rule,
        )
        return {"channels": channels, "window": window}


def _seconds_in_waves(operation: RequestedOperation, works: Sequence[ScheduleWork]) -> float:
    """Return the expected seconds of one simulation of an operation in waves; ``works`` are those of its slices."""
    cut = operation.cut
    waves = operation_waves(operation.schedules, cut)
    in_turn = len(lane_sequences(len(works), cut.lanes, operation.window)) == 1
    works_of_lanes = islice(cycle(works), cut.lanes)
    seconds = []
    for lane, work in enumerate(works_of_lanes):
        period = waves.cycle(lane) if in_turn else 0
        seconds.append(work.seconds(waves.block, period))
    return sum(seconds)
