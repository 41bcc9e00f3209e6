"""A machine that runs plans of MSCCL++ in random orders: what happens, and not what is proven.

It runs a plan twice, as a program calls a collective twice: input and output are used by others in
between. Between two ``nop`` of a thread block its threads are not ordered: data moves in any order,
also before a wait that stands earlier, and reads and writes of an operation are two events. Only
what one thread does by itself, signals and waits of the same place in their lists, keeps its order.
"""

import json
import random
from collections import Counter, defaultdict, deque

from cli_runner import invoke

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.schedule import Layout

PLAN = "--format", "mscclpp"
EXPORTED = [
    ("all_reduce", name, p, per_node)
    for name, ranks in {
        "ring": (2, 3, 8), "hierarchical": (4, 6), "rabenseifner": (2, 5, 8), "double_binary_tree": (3, 8),
        "swing": (2, 8), "direct": (4,), "bidirectional_ring": (5,),
    }.items()
    for p in ranks
    for per_node in (p, 2)
] + [
    ("all_gather", "bruck", 7, 4), ("all_gather", "ring", 4, 4), ("reduce_scatter", "ring", 5, 3),
    ("all_to_all", "bruck", 6, 3), ("all_to_all", "pairwise", 4, 4), ("reduce_scatter", "recursive_halving", 8, 8),
]  # fmt: skip


ROUND_TRIPS = [
    ("all_reduce", "ring"), ("all_reduce", "hierarchical"), ("all_reduce", "rabenseifner"),
    ("all_reduce", "double_binary_tree"), ("all_reduce", "swing"), ("all_gather", "bruck"), ("all_to_all", "bruck"),
    ("all_gather", "pat"), ("reduce_scatter", "pat"), ("all_reduce", "direct"), ("all_reduce", "bidirectional_ring"),
    ("all_gather", "ring"), ("reduce_scatter", "ring"), ("all_to_all", "pairwise"),
    ("reduce_scatter", "recursive_halving"),
]  # fmt: skip


def is_registered_for(collective, name, p, per_node):
    """Return whether an algorithm can run on so many ranks."""
    return COLLECTIVES[collective].algorithm(name).unmet(Layout.of(p, per_node)) is None


def exported(collective, name, p, per_node, *arguments, nbytes=16 * 840 * 64):
    shape = "-c", collective, "-p", p, "--ranks-per-node", per_node
    return json.loads(invoke("show", name, *shape, "-b", nbytes, *PLAN, *arguments).out)


class WrongResultError(Exception):
    """A run ends with another result than its collective requires."""


def required(plan, me, number):
    """Return the contributions (rank, chunk of its input) that chunk ``number`` of the output of rank ``me`` has."""
    p, name = len(plan["gpus"]), plan["collective"]
    block = (
        plan["gpus"][me]["input_chunks"]
        if name == "allgather"
        else plan["gpus"][me]["output_chunks"]
    )
    return {
        "allreduce": lambda: {(rank, number) for rank in range(p)},
        "allgather": lambda: {(number // block, number % block)},
        "reducescatter": lambda: {(rank, me * block + number) for rank in range(p)},
        "alltoall": lambda: {(number // (block // p), me * (block // p) + number % (block // p))},
    }[name]()


class Machine:
    def __init__(self, plan, seed):
        self.plan, self.random = plan, random.Random(seed)  # noqa: S311 - an order, no secret
        self.p = len(plan["gpus"])
        self.memory = {}
        self.signals, self.taken, self.semaphores = Counter(), Counter(), Counter()
        for me, gpu in enumerate(plan["gpus"]):
            for number, each in enumerate(gpu["semaphores"]):
                self.semaphores[me, number] = each["init_value"]
        self.queues = defaultdict(deque)  # of ports
        self.speed = [self.random.random() ** 3 + 0.01 for _ in range(self.p)]
        self.run_of = [0] * self.p
        self.pairs = self.channel_pairs()
        self.blocks = []
        for me in range(self.p):
            self.start(me)

    def channel_pairs(self):
        """Return for each channel of a rank the channel at the other end."""
        ends = defaultdict(list)
        for me, gpu in enumerate(self.plan["gpus"]):
            for each in gpu["channels"]:
                for number, peer in enumerate(each["connected_to"]):
                    ends[each["channel_type"], me, peer].append(number)
        return {
            (kind, me, number): (kind, peer, ends[kind, peer, me][k])
            for (kind, me, peer), numbers in ends.items()
            for k, number in enumerate(numbers)
            if k < len(ends[kind, peer, me])
        }

    def start(self, me):
        gpu, run = self.plan["gpus"][me], self.run_of[me]
        for kind, count in (("o", gpu["output_chunks"]), ("i", gpu["input_chunks"])):
            for number in range(count):
                new = Counter({(run, me, number): 1}) if kind == "i" else None
                self.memory[self.place(me, kind, number)] = new
        for block in gpu["threadblocks"]:
            segments = [[]]
            for one in block["ops"]:
                if one["name"] == "nop":
                    segments.append([])
                else:
                    segments[-1].append(one)
            self.blocks.append(
                {"me": me, "block": block, "segments": deque(s for s in segments if s), "now": None}
            )

    def place(self, me, kind, number):
        """Return a chunk; in place, input and output are one buffer."""
        if self.plan["inplace"] and kind == "i":
            name, gpu = self.plan["collective"], self.plan["gpus"][me]
            number += me * gpu["input_chunks"] if name == "allgather" else 0
            return (me, "o", number) if name != "reducescatter" else (me, "i", number)
        if self.plan["inplace"] and kind == "o" and self.plan["collective"] == "reducescatter":
            return me, "i", number + me * self.plan["gpus"][me]["output_chunks"]
        return me, kind, number

    def chunks(self, block, me, one, side):
        """Return the places of each buffer of an operation."""
        kind, lists = one.get("channel_type"), []
        for each in one[side]:
            owner, name = me, each.get("type")
            if "buffer_id" in each:
                refs = next(
                    r for r in block["remote_buffer_refs"] if r["access_channel_type"] == kind
                )
                remote = self.plan["gpus"][me]["remote_buffers"][
                    refs["remote_buffer_ids"][each["buffer_id"]]
                ]
                owner, name = remote["rank"], remote["type"]
            lists.append([self.place(owner, name, each["index"] + k) for k in range(each["size"])])
        return lists

    def read(self, places):
        return [Counter(self.memory.get(p) or {"undefined": 1}) for p in places]

    def events(self, me, block, segment):
        """Return the chains of events of a segment: each is a list of functions that return False to wait."""
        chains, threads = [], defaultdict(list)
        for one in segment:
            name = one["name"]
            if name.endswith(("signal", "wait")) and "channel_ids" in one:
                ids = next(
                    c["channel_ids"]
                    for c in block["channels"]
                    if c["channel_type"] == one["channel_type"]
                )
                for thread, local in enumerate(one["channel_ids"]):
                    channel = (one["channel_type"], me, ids[local])
                    act = self.signal if name.endswith("signal") else self.wait
                    threads[thread].append(lambda act=act, channel=channel: act(channel))
            elif name.startswith("sem_"):
                step = 1 if name == "sem_release" else -1
                for thread, number in enumerate(one["semaphore_ids"]):
                    threads[thread].append(
                        lambda key=(me, number), step=step: self.semaphore(key, step)
                    )
            elif one.get("channel_type") == "port":
                ids = next(
                    c["channel_ids"] for c in block["channels"] if c["channel_type"] == "port"
                )
                ends = zip(
                    *(self.chunks(block, me, one, side) for side in ("src_buff", "dst_buff")),
                    strict=True,
                )
                for thread, (local, (source, target)) in enumerate(
                    zip(one["channel_ids"], ends, strict=True)
                ):
                    channel = ("port", me, ids[local])
                    threads[thread] += self.port(channel, source, target, name)
            else:
                chains.append(self.data(me, block, one))
        return [*chains, *threads.values()]

    def data(self, me, block, one):
        sources, targets = (self.chunks(block, me, one, side) for side in ("src_buff", "dst_buff"))
        held = []
        folds = one["name"] in ("re", "rre", "res", "rres")

        def read():
            held.extend(map(self.read, sources))

        def write():
            total = [sum(column, Counter()) for column in zip(*held, strict=True)]
            for source, target in zip(
                [total] * len(targets) if folds else held, targets, strict=True
            ):
                self.memory.update(zip(target, source, strict=True))

        return [read, write]

    def port(self, channel, source, target, name):
        queue, done = self.queues[channel], []

        def issue():
            queue.append(lambda: self.memory.update(zip(target, self.read(source), strict=True)))
            if name != "put":
                queue.append(lambda: self.deliver(channel))
            queue.append(lambda: done.append(1))

        return [issue, lambda: name != "pwsf" or bool(done)]

    def signal(self, channel):
        if channel[0] == "port":
            self.queues[channel].append(lambda: self.deliver(channel))
        else:
            self.deliver(channel)

    def deliver(self, channel):
        if channel in self.pairs:
            self.signals[self.pairs[channel]] += 1

    def wait(self, channel):
        if self.signals[channel] <= self.taken[channel]:
            return False
        self.taken[channel] += 1
        return None

    def semaphore(self, key, step):
        if self.semaphores[key] + step < 0:
            return False
        self.semaphores[key] += step
        return None

    def turn(self, it):
        """Let a thread block do one event; return whether it could."""
        if not it["now"]:
            if not it["segments"]:
                return False
            it["now"] = [
                deque(c) for c in self.events(it["me"], it["block"], it["segments"][0]) if c
            ]
        chains = it["now"]
        self.random.shuffle(chains)
        for chain in chains:
            if chain[0]() is not False:
                chain.popleft()
                break
        else:
            return False
        it["now"] = [c for c in chains if c]
        if not it["now"]:
            it["segments"].popleft()
        return True

    def finish(self, me):
        """Check the output of a rank, whose thread blocks have ended, and let it run again."""
        run = self.run_of[me]
        for number in range(self.plan["gpus"][me]["output_chunks"]):
            found = self.memory.get(self.place(me, "o", number))
            wanted = Counter({(run, *each): 1 for each in required(self.plan, me, number)})
            if found != wanted:
                raise WrongResultError(
                    f"rank {me}, chunk {number}, run {run}: {found}, not {wanted}"
                )
        self.run_of[me] += 1
        self.blocks = [b for b in self.blocks if b["me"] != me]
        if self.run_of[me] < 2:
            self.start(me)

    def run(self):
        """Run the plan twice; raise WrongResultError, or TimeoutError if it never ends."""
        while self.blocks:
            moved = False
            order = sorted(
                self.blocks,
                key=lambda b: self.random.random() ** (1 / self.speed[b["me"]]),
                reverse=True,
            )
            for queue in self.queues.values():
                if queue and self.random.random() < 0.3:
                    queue.popleft()()
                    moved = True
            for it in order:
                if it in self.blocks and self.turn(it):
                    moved = True
                    break
            for me in range(self.p):
                mine = [b for b in self.blocks if b["me"] == me]
                if mine and not any(b["segments"] for b in mine):
                    self.finish(me)
                    moved = True
            if not moved and not any(self.queues.values()):
                raise TimeoutError([(b["me"], b["block"]["id"]) for b in self.blocks])
