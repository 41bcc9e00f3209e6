"""The simulation of schedules for many ranks: all messages of a step at once, as arrays over the ranks.

It follows ``event_simulation`` with three simplifications. Messages that start at the same time share a resource until
all of them have passed; those that start later follow them, first come, first served. Lanes take turns, wave by wave,
by the times at which their waves begin; of those that begin together, the first. What passes a port at once after a
pause (``burst_bytes``) is left out. Where no messages share a resource, the result is the same.

Equal blocks of ranks are simulated once (``equal_waves``), and equal steps are left out (``leap``): both are exact.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hpccoll.model.compiled_waves import CompiledWave, State
from hpccoll.model.equal_waves import OperationRuns, operation_runs
from hpccoll.model.leap import advance
from hpccoll.model.machine import Machine
from hpccoll.schedule import Cut, Schedule
from hpccoll.schedule.lanes import lane_sequences

SAME_TIME = 1e-6
"""What begins within this part of the time of a message begins together."""


def simulate_waves(
    schedules: Sequence[Schedule], cut: Cut, machine: Machine, window: int = 1, dtype: str = "float32",
    progress: Callable[[int], None] | None = None,
) -> float:  # fmt: skip
    """Return the seconds of one operation, from the start of all ranks to the end of the last one: see ``simulate``."""
    sequences = len(lane_sequences(len(schedules), cut.lanes, window))
    runs = operation_runs(tuple(schedules), cut)
    fold_s, instant_s = machine.fold_s.get(dtype, 0.0), _instant(machine, cut)
    state = State(schedules[0].layout, runs.block, machine, fold_s, sequences, instant_s)
    messages = 0
    for passed in (_one_after_another if sequences == 1 else _in_turns)(state, runs, cut.lanes):
        messages += state.blocks * passed
        if progress:
            progress(messages)
    return float(state.ready.max(initial=0.0))


def _one_after_another(state: State, runs: OperationRuns, lanes: int) -> Iterator[int]:
    """Advance by lanes that follow one another; yield how many messages have passed since the last time."""
    for lane in range(lanes):
        for run in runs.of(lane):
            waves = [CompiledWave(state, wave, 0) for wave in run.waves]
            messages, linear = sum(wave.messages for wave in waves), all(wave.linear for wave in waves)
            cycle = waves[0].advance if len(waves) == 1 else partial(_advance_all, waves)
            for passed in advance(state.times, state.ranks, cycle, run.repeats, linear=linear):
                yield passed * messages


def _advance_all(waves: Sequence[CompiledWave]) -> None:
    for wave in waves:
        wave.advance()


def _in_turns(state: State, runs: OperationRuns, lanes: int) -> Iterator[int]:
    """Advance by lanes side by side; yield how many messages have passed after each wave."""
    sequences = len(state.ready)

    def waves(lane: int) -> Iterator[CompiledWave]:
        for run in runs.of(lane):
            compiled = [CompiledWave(state, wave, lane % sequences) for wave in run.waves]
            for _ in range(run.repeats):
                yield from compiled

    turns = {lane: (float(state.ready[lane].min()), waves(lane)) for lane in range(sequences)}
    while turns:
        together = min(begin for begin, _ in turns.values()) + state.instant_s
        lane = min(lane for lane, (begin, _) in turns.items() if begin <= together)
        _, left = turns.pop(lane)
        if wave := next(left, None):
            wave.advance()
            turns[lane] = state.begin(lane % sequences, wave.ended), left
            yield wave.messages
        elif lane + sequences < lanes:
            turns[lane + sequences] = float(state.ready[lane % sequences].min()), waves(lane + sequences)


def _instant(machine: Machine, cut: Cut) -> float:
    """Return up to how many seconds apart times count as one: a small part of what a unit takes in the fastest tier."""
    nbytes = int(cut.edges(0)[-1]) * cut.itemsize / cut.units
    costs = [tier.of(nbytes) for tier in machine.tiers.values()]
    alone = [each.latency_s + each.overhead_s + each.gap_s + nbytes * each.byte_s for each in costs]
    return SAME_TIME * min(filter(None, alone), default=0.0)
