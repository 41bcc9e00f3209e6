"""Recorded jobs that are simulated: training steps of many ranks, as the recorders of PyTorch and NCCL write them down.

What a job does is simulated first, without any thought of who reads it; recorders then see only
what real ones see. The assumptions:

- A step is computation between collectives. What a part of it takes is log-normal, alike for all
  ranks of a stage, by 0.1 to 2 %; now and then (1 % of the steps of a rank) a rank takes 5 to 40 %
  of a step longer (the host, the file system). GPUs differ all the time by 0.3 % (standard
  deviation).
- A kernel of a communicator begins once its rank has enqueued it and the kernel before it on the
  stream has ended. A synchronising collective ends at all ranks when the last one has come and the
  data has been transferred, but for some microseconds, which depend on the place of the rank. With
  unequal blocks each rank ends after its own part. A root waits for none; a message is of two
  ranks. Transfers vary by 2 % from call to call.
- Shapes: data parallel with buckets that computation hides (ddp); all-gathers and reduce-scatters
  of each layer, on two communicators and streams (fsdp); tensor times data parallel (tp); stages of
  a pipeline with messages, reduced by stage and over all ranks (pipeline); experts, whose
  all-to-alls have other blocks in each step (moe); embedding tables, all-to-alls of blocks that are
  unequal all the time, unequal all-gathers and reduce-scatters (dlrm).
- A late rank needs 5 to 30 % of a step more in each step: before its first operation (as a slow
  loader of data does), or spread over all of its computation (a slow GPU; in pipelines always).
  Nothing else is wrong. In a pipeline whose stages differ, the waiting of its stage hides a part of
  that.
- The last and the first stage of a pipeline also reduce among themselves (tied embeddings) if
  messages are recorded.
- Hosts have 1, 2, 4 or 8 ranks. Their clocks differ by milliseconds to seconds, and drift by up to
  20 ppm.
- PyTorch's profiler (Kineto) records some steps, those of a few ranks from another operation on,
  with kernels in tenths of microseconds; traces of 2023 have no arguments, and no host is named
  before 2.13. The recorder may start while its rank works: then that rank is late once.
- Flight Recorder keeps the latest entries, whose durations are measured on the device; its watchdog
  notices begins and ends every 100 ms. An all-to-all with splits has the plain name, an unequal
  all-gather is a batch of broadcasts. The dumps of a running job may be of different moments, some
  ranks being ahead.
- NCCL's Inspector writes whole microseconds, a file for each process, or all in one; kernels of
  messages only if asked for; it may keep the latest operations only, or samples, and lose the ends
  of some ranks.
- A log of NCCL counts calls; it may begin late, after a log was rotated.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

SHAPES = "ddp", "fsdp", "tp", "pipeline", "moe", "dlrm"
FORMATS = (
    "kineto",
    "kineto of 2023",
    "flight recorder",
    "inspector",
    "verbose inspector",
    "nccl log",
)
WITH_TIMES = FORMATS[:-1]
STEPS = {
    "kineto": (5, 12), "kineto of 2023": (5, 12), "flight recorder": (12, 24), "inspector": (12, 24),
    "verbose inspector": (12, 24), "nccl log": (3, 6),
}  # fmt: skip


UNSEEN = {
    "kineto of 2023": ("tp", "pipeline", "fsdp"),  # the groups of kernels
    # all-to-alls, but for messages of one rank
    "inspector": ("moe", "dlrm"), "verbose inspector": ("moe", "dlrm"),
    # when kernels begin, without which a short one may have little data
    "flight recorder": ("dlrm",),
}  # fmt: skip
"""What a recorder does not say, so that a late rank is drawn for another one."""


@dataclass(frozen=True)
class Ring:
    """A communicator."""

    name: str
    ranks: tuple[int, ...]
    stream: int = 0
    description: str = ""
    group: tuple[int, ...] = ()  # PyTorch's group: of messages all stages of a pipeline

    @property
    def members(self) -> tuple[int, ...]:
        return self.group or self.ranks


@dataclass
class Call:
    """An operation of a communicator that its ranks have in common."""

    ring: Ring
    collective: str  # our name; "all_to_all" also with splits
    number: int  # of the communicator
    transfer_s: float
    elements: dict[int, tuple[int, int]]  # by rank: what goes in, and what comes out
    # by rank: its part of the transfer, of unequal blocks
    parts: dict[int, float] = field(default_factory=dict)
    root: int | None = None
    begin_s: dict[int, float] = field(default_factory=dict)
    end_s: dict[int, float] = field(default_factory=dict)
    enqueued_s: dict[int, float] = field(default_factory=dict)
    place: dict[int, int] = field(default_factory=dict)  # by rank: how many it had enqueued before

    @property
    def is_uneven(self) -> bool:
        return bool(self.parts)

    @property
    def is_message(self) -> bool:
        return self.collective == "message"


class Compute(NamedTuple):
    seconds: float


class Start(NamedTuple):
    call: Call


class Wait(NamedTuple):
    call: Call


class StepEnd(NamedTuple):
    pass


Program = list[Compute | Start | Wait | StepEnd]


@dataclass(frozen=True)
class JobPlan:
    """What is simulated: everything follows from the seed."""

    seed: int
    shape: str
    format: str
    ranks: int
    per_host: int
    steps: int
    step_s: float  # about
    noise: float  # of the time of a part of a step
    late: int | None
    lag: float  # of the late rank, as a part of a step
    # whether it is late by all of its computation, or before the first operation of a step
    is_spread: bool
    has_messages: bool  # whether the recorder records messages


def drawn_plan(seed: int, *, is_late: bool) -> JobPlan:
    """Return the plan of a job.

    A late rank is drawn where its recorder sees in which operations others wait for it
    (``UNSEEN``), and in a pipeline only if a second one does the same.
    """
    chance = np.random.default_rng([seed, is_late])
    shape, recorder = (
        str(chance.choice(SHAPES)),
        str(chance.choice(WITH_TIMES if is_late else FORMATS)),
    )
    ranks = int(chance.choice([2, 4, 8, 16], p=[0.25, 0.4, 0.3, 0.05]))
    if shape == "tp":
        ranks = max(ranks, 4)
    if shape == "pipeline":
        ranks = max(ranks, 4 + 4 * is_late)
    if is_late and shape in UNSEEN.get(recorder, ()):
        recorder = "kineto"
    has_messages = (
        "kineto" in recorder
        or recorder == "flight recorder"
        or is_late
        or bool(chance.random() < 0.5)
    )
    fewest, most = STEPS[recorder]
    steps = int(chance.integers(fewest, most + 1))
    return JobPlan(
        seed,
        shape,
        recorder,
        ranks,
        int(chance.choice([1, 2, 4, 8])),
        steps,
        float(np.exp(chance.uniform(np.log(0.02), np.log(2.0)))),
        float(np.exp(chance.uniform(np.log(0.001), np.log(0.02)))),
        int(chance.integers(ranks)) if is_late else None,
        float(chance.uniform(0.05, 0.3)),
        bool(chance.random() < 0.5) or shape == "pipeline",
        has_messages,
    )


class Simulation:
    """The steps of a job: programs of its ranks, and when their operations began and ended."""

    def __init__(self, plan: JobPlan, *, is_ideal: bool = False, late_s: float = 0.0) -> None:
        self.plan, self.late_s = plan, late_s
        self.structure = np.random.default_rng([plan.seed, 1])  # what all steps have in common
        self.chance = np.random.default_rng([plan.seed, 2])
        self.is_ideal = is_ideal
        ranks = plan.ranks
        self.speed = (
            np.ones(ranks) if is_ideal else np.exp(0.003 * self.chance.standard_normal(ranks))
        )
        self.skew_s = self.structure.uniform(0, 5e-6, ranks).tolist()
        self.programs: list[Program] = [[] for _ in range(ranks)]
        self.calls: list[Call] = []
        self.counts = defaultdict[str, int](int)
        self.step_ends: list[list[float]] = [[] for _ in range(ranks)]
        self.spans: list[list[tuple[float, float]]] = [[] for _ in range(ranks)]  # of computation
        self.communicates = float(self.structure.uniform(0.05, 0.35))
        disturbed, place = self.structure.random() < 0.3, int(self.structure.integers(ranks))
        is_disturbed = disturbed and "kineto" in plan.format and not is_ideal
        # the rank that its recorder disturbs, once
        self.disturbed = place if is_disturbed else None
        self.draw_shape = getattr(self, f"_{plan.shape}")
        self.traits = self.draw_traits()

    def draw_traits(self) -> dict[str, Any]:
        """Return what the steps have in common, besides their time."""
        chance, ranks = self.structure, self.plan.ranks
        sizes = [each for each in (2, 4) if ranks % each == 0 and ranks // each >= 2]
        return {
            "parts": int(chance.integers(3, 7)),
            "split": int(chance.choice(sizes)) if sizes else 2,
            "weights": chance.uniform(0.2, 1.0, ranks),
            "broadcasts": bool(chance.random() < 0.3),
            "overlaps": bool(chance.random() < 0.5),
            "stages": chance.uniform(0.92, 1.08, ranks),
            "is_balanced": bool(chance.random() < 0.5),
            "micro": int(chance.integers(4, 9)),
            "sizes": 2 ** chance.integers(18, 26, 12),
        }

    def run(self, steps: int) -> "Simulation":
        if self.disturbed is not None:
            seconds = float(self.chance.uniform(0.2, 2)) * self.plan.step_s
            self.programs[self.disturbed].append(Compute(seconds))
        for _ in range(steps):
            self._late_before()
            self.draw_shape()
            for program in self.programs:
                program.append(StepEnd())
        self._execute()
        return self

    # What ranks do in a step

    def _late_before(self) -> None:
        plan = self.plan
        if plan.late is not None and not plan.is_spread and self.late_s:
            self.programs[plan.late].append(Compute(self.late_s))
        if self.is_ideal:
            return
        for rank in np.flatnonzero(self.chance.random(plan.ranks) < 0.01).tolist():
            self.programs[rank].append(Compute(float(self.chance.uniform(0.05, 0.4)) * plan.step_s))

    def compute(self, rank: int, part: float) -> None:
        """Add a part of the computation of a step, which its communication leaves."""
        plan = self.plan
        seconds = part * plan.step_s * (1 - self.communicates) * self.speed[rank]
        if not self.is_ideal:
            seconds *= float(np.exp(plan.noise * self.chance.standard_normal()))
        if plan.late == rank and plan.is_spread:
            seconds += part * self.late_s
        self.programs[rank].append(Compute(float(seconds)))

    def call(
        self,
        ring: Ring,
        collective: str,
        part: float,
        size: int,
        parts: Sequence[float] = (),
        root: int | None = None,
    ) -> Call:
        """Return a new operation, which takes a part of what communication takes in a step."""
        seconds = part * self.communicates * self.plan.step_s
        seconds *= 1.0 if self.is_ideal else float(np.exp(0.02 * self.chance.standard_normal()))
        count, of_rank = len(ring.ranks), dict(zip(ring.ranks, parts, strict=False))
        elements = {
            rank: _elements(collective, size, count, of_rank.get(rank, 1.0)) for rank in ring.ranks
        }
        self.counts[ring.name] += 1
        largest = max(of_rank.values(), default=1.0)
        scaled = {rank: each / largest for rank, each in of_rank.items()}
        call = Call(ring, collective, self.counts[ring.name], seconds, elements, scaled, root)
        self.calls.append(call)
        return call

    def start(self, call: Call, *, waits: bool = False) -> Call:
        for rank in call.ring.ranks:
            self.programs[rank].append(Start(call))
            if waits:
                self.programs[rank].append(Wait(call))
        return call

    def wait(self, call: Call) -> None:
        for rank in call.ring.ranks:
            self.programs[rank].append(Wait(call))

    @property
    def everyone(self) -> range:
        return range(self.plan.ranks)

    def ring(self, name: str, ranks: Sequence[int], stream: int = 0, description: str = "") -> Ring:
        return Ring(name, tuple(ranks), stream, description)

    def _ddp(self) -> None:
        world, parts, sizes = (
            self.ring("0", self.everyone, 0, "default_pg"),
            self.traits["parts"],
            self.traits["sizes"],
        )
        if self.traits["broadcasts"]:
            self.start(self.call(world, "broadcast", 0.02, 1 << 16, root=0), waits=True)
        for rank in self.everyone:
            self.compute(rank, 0.33)
        buckets = []
        for bucket in range(parts):
            for rank in self.everyone:
                self.compute(rank, 0.6 / parts)
            buckets.append(
                self.start(self.call(world, "all_reduce", 1 / parts, int(sizes[bucket])))
            )
        for each in buckets:
            self.wait(each)
        for rank in self.everyone:
            self.compute(rank, 0.07)

    def _fsdp(self) -> None:
        gathers = self.ring("0", self.everyone, 0, "default_pg")
        scatters, layers = self.ring("1", self.everyone, 1, "reduce"), self.traits["parts"]
        size = int(self.traits["sizes"][0])
        share = 1 / (3 * layers)
        pending = self.start(self.call(gathers, "all_gather", share, size))
        order = [*range(layers), *reversed(range(layers))]
        scattered = []
        for place, _ in enumerate(order):
            following = None
            if place + 1 < len(order):
                following = self.start(self.call(gathers, "all_gather", share, size))
            self.wait(pending)
            is_backward = place >= layers
            for rank in self.everyone:
                self.compute(rank, (0.6 if is_backward else 0.33) / layers)
            if is_backward:
                scattered.append(self.start(self.call(scatters, "reduce_scatter", share, size)))
            pending = following or pending
        for each in scattered:
            self.wait(each)
        self.start(self.call(gathers, "all_reduce", 0.001, 1), waits=True)
        for rank in self.everyone:
            self.compute(rank, 0.07)

    def _tp(self) -> None:
        split, layers, size = (
            self.traits["split"],
            self.traits["parts"],
            int(self.traits["sizes"][0]),
        )
        ranks = self.plan.ranks
        rows = [
            self.ring(f"{10 + n}", range(n, n + split), 0, "tp") for n in range(0, ranks, split)
        ]
        columns = [self.ring(f"{40 + n}", range(n, ranks, split), 1, "dp") for n in range(split)]
        for backward in (0, 1):
            for _ in range(layers):
                for rank in self.everyone:
                    self.compute(rank, (0.33, 0.6)[backward] / layers)
                for row in rows:
                    self.start(self.call(row, "all_reduce", 0.35 / layers, size), waits=True)
        reduced = [self.start(self.call(column, "all_reduce", 0.3, 4 * size)) for column in columns]
        for each in reduced:
            self.wait(each)
        self.start(
            self.call(self.ring("0", self.everyone, 2, "default_pg"), "all_reduce", 0.001, 1),
            waits=True,
        )
        for rank in self.everyone:
            self.compute(rank, 0.07)

    def _pipeline(self) -> None:
        """Run micro-batches one forward, one backward."""
        ranks = self.plan.ranks
        stages = self.traits["split"] if ranks // self.traits["split"] >= 2 else 2
        copies, micro = ranks // stages, self.traits["micro"]
        weights = self.traits["stages"] if not self.traits["is_balanced"] else np.ones(ranks)
        size = int(self.traits["sizes"][0])
        for copy in range(copies):
            members = [stage * copies + copy for stage in range(stages)]
            self._one_forward_one_backward(members, copy, micro, weights, size)
        columns = [
            self.ring(f"{70 + n}", range(n * copies, (n + 1) * copies), 9, "dp")
            for n in range(stages)
        ]
        for column in columns:
            self.start(self.call(column, "all_reduce", 0.4, 4 * size), waits=True)
        if stages > 2 and self.plan.has_messages:
            for copy in range(copies):
                tied = self.ring(f"{90 + copy}", (copy, (stages - 1) * copies + copy), 10, "embd")
                self.start(self.call(tied, "all_reduce", 0.02, size), waits=True)
        self.start(
            self.call(self.ring("0", self.everyone, 11, "default_pg"), "all_reduce", 0.001, 1),
            waits=True,
        )
        for rank in self.everyone:
            self.compute(rank, 0.05)

    def _one_forward_one_backward(
        self, members: Sequence[int], copy: int, micro: int, weights: Any, size: int
    ) -> None:
        stages = len(members)
        pipe = f"{100 + copy}"
        messages: dict[tuple[int, int, int], Call] = {}  # by sender, receiver and micro-batch

        def message(source: int, target: int, number: int) -> Call:
            key = source, target, number
            if key not in messages:
                stream = 20 + 2 * min(source, target) + (source > target)
                ring = Ring(pipe, (members[source], members[target]), stream, "pp", tuple(members))
                messages[key] = self.call(
                    ring, "message", 0.4 / micro / stages, size, root=members[source]
                )
            return messages[key]

        for stage, rank in enumerate(members):
            program, weight = self.programs[rank], float(weights[stage])
            warm = min(stages - stage - 1, micro)
            order = [("f", n) for n in range(warm)]
            for n in range(micro - warm):
                order += [("f", warm + n), ("b", n)]
            order += [("b", n) for n in range(micro - warm, micro)]
            for kind, number in order:
                step = 1 if kind == "f" else -1
                before, after = stage - step, stage + step
                if 0 <= before < stages:
                    received = message(before, stage, number)
                    program += [Start(received), Wait(received)]
                self.compute(rank, (0.32 if kind == "f" else 0.63) / micro * weight)
                if 0 <= after < stages:
                    program.append(Start(message(stage, after, number)))

    def _moe(self) -> None:
        world, layers, size = (
            self.ring("0", self.everyone, 0, "default_pg"),
            3,
            int(self.traits["sizes"][0]),
        )
        for _ in range(layers):
            for part in (0.1, 0.2):
                for rank in self.everyone:
                    self.compute(rank, part * 0.9)
                parts = self.chance.uniform(0.6, 1.4, self.plan.ranks)
                self.start(self.call(world, "all_to_all", 0.12, size, parts.tolist()), waits=True)
        reduced = self.start(
            self.call(self.ring("1", self.everyone, 1, "dp"), "all_reduce", 0.28, 4 * size)
        )
        self.wait(reduced)
        for rank in self.everyone:
            self.compute(rank, 0.1)

    def _dlrm(self) -> None:
        world, size, weights = (
            self.ring("0", self.everyone, 0, "default_pg"),
            int(self.traits["sizes"][0]),
            self.traits["weights"],
        )
        first = self.start(
            self.call(world, "all_to_all", 0.3, size, weights.tolist()),
            waits=not self.traits["overlaps"],
        )
        for rank in self.everyone:
            self.compute(rank, 0.4)
        self.wait(first)
        self.start(self.call(world, "all_gather", 0.1, size, weights.tolist()), waits=True)
        for rank in self.everyone:
            self.compute(rank, 0.3)
        self.start(self.call(world, "all_to_all", 0.3, size, weights.tolist()), waits=True)
        self.start(
            self.call(world, "reduce_scatter", 0.1, size, weights[::-1].tolist()), waits=True
        )
        for rank in self.everyone:
            self.compute(rank, 0.2)
        self.start(self.call(world, "all_reduce", 0.2, size), waits=True)
        for rank in self.everyone:
            self.compute(rank, 0.1)

    # When operations begin and end

    def _execute(self) -> None:
        ranks = self.plan.ranks
        self.now, self.at, self.placed = [0.0] * ranks, [0] * ranks, [0] * ranks
        self.last: list[dict[int, Call]] = [{} for _ in range(ranks)]  # on each stream
        pending = deque(range(ranks))
        stuck = 0
        while pending:
            rank = pending.popleft()
            begun, program = self.at[rank], self.programs[rank]
            while self.at[rank] < len(program) and self._advance(rank, program[self.at[rank]]):
                self.at[rank] += 1
            stuck = 0 if self.at[rank] > begun else stuck + 1
            if stuck > ranks:
                raise RuntimeError("the programs of the ranks never end")
            if self.at[rank] < len(program):
                pending.append(rank)

    def _advance(self, rank: int, item: Compute | Start | Wait | StepEnd) -> bool:
        """Let a rank do the next item of its program; return False if others are not there yet."""
        if isinstance(item, Compute):
            self.spans[rank].append((self.now[rank], self.now[rank] + item.seconds))
            self.now[rank] += item.seconds
        elif isinstance(item, StepEnd):
            self.step_ends[rank].append(self.now[rank])
        elif isinstance(item, Wait):
            if rank not in item.call.end_s:
                return False
            self.now[rank] = max(self.now[rank], item.call.end_s[rank])
        else:
            return self._start(rank, item.call)
        return True

    def _start(self, rank: int, call: Call) -> bool:
        """Let a rank enqueue an operation, if it is known when its stream is free."""
        before = self.last[rank].get(call.ring.stream)
        if before is not None and rank not in before.end_s:
            return False
        free = before.end_s[rank] if before is not None else 0.0
        call.enqueued_s[rank] = self.now[rank] - 1e-5
        call.begin_s[rank] = max(self.now[rank], free) + 1e-6
        call.place[rank] = self.placed[rank]
        self.placed[rank] += 1
        self.last[rank][call.ring.stream] = call
        if len(call.begin_s) == len(call.ring.ranks):
            self._end(call)
        return True

    def _end(self, call: Call) -> None:
        came = max(call.begin_s.values())
        for rank, begin in call.begin_s.items():
            if call.collective == "broadcast" and rank == call.root:
                end = begin + call.transfer_s
            elif call.collective == "broadcast":
                end = max(begin, call.begin_s[call.root or 0]) + call.transfer_s
            else:
                end = came + call.transfer_s * call.parts.get(rank, 1.0)
            jitter = 0.0 if self.is_ideal else float(self.chance.uniform(0, 1e-6))
            call.end_s[rank] = end + self.skew_s[rank] + jitter


def _elements(collective: str, size: int, count: int, part: float) -> tuple[int, int]:
    """Return the elements that go in and come out at a rank."""
    block = max(1, int(size * part / count))
    return {
        "all_gather": (block, block * count), "reduce_scatter": (block * count, block),
        "all_to_all": (size, max(1, int(size * part))),
    }.get(collective, (max(1, int(size * part)),) * 2)  # fmt: skip


def simulate(plan: JobPlan) -> Simulation:
    """Return the steps of a job; the lag of its late rank is a part of a step that nothing disturbs."""
    late_s = 0.0
    if plan.late is not None:
        ideal = Simulation(plan, is_ideal=True).run(3)
        late_s = plan.lag * (ideal.step_ends[0][2] - ideal.step_ends[0][1])
    return Simulation(plan, late_s=late_s).run(plan.steps)
