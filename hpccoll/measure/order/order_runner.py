"""Reveals the order of an algorithm on all ranks: collective by collective, size by size."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from mpi4py import MPI

from hpccoll.cases.case import Case
from hpccoll.common.errors import UnusableError
from hpccoll.executor.choice import agree_on_executor
from hpccoll.measure.gpu_assignment import RankGpus
from hpccoll.measure.order.black_box import BlackBox
from hpccoll.measure.order.call_history import (
    MOST_COMMUNICATORS,
    MOST_EPOCHS,
    blocks_at_call,
    epochs_of_calls,
)
from hpccoll.measure.provenance import gather_attempt
from hpccoll.measure.ranks import Ranks, print_of_rank
from hpccoll.measure.run.case_factory import SkippedCase, make_unless_refused
from hpccoll.measure.run.prepared_case import PreparedCase, RunSettings
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.measure.watchdog import watchdog
from hpccoll.order.epochs import Epoch
from hpccoll.order.masks import mask_of
from hpccoll.order.procedure import Call, RankOrder, reveal_at_size, reveal_masked
from hpccoll.order.request import OrderRequest
from hpccoll.order.revealed import Block, OrderAtSize, join_ranks, pack, unpack
from hpccoll.order.size_ranges import multiples, probe_sizes, ranges_of, size_ladder
from hpccoll.schedule import COLLECTIVES, itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.operation import Array

if TYPE_CHECKING:
    from hpccoll.order.order_file import OrderOfCollective, RevealedOrder
    from hpccoll.transports.gpu import Gpu

Answer = TypeVar("Answer")

WARM_UP_CALLS = 100
"""Calls before the first probe: what is revealed is the order of all later calls."""

TIMEOUT_S = 120.0
"""Seconds without progress after which a rank counts as stuck."""

ShowSizes = Callable[[int, str], None]
"""Shows how many sizes are probed, and the collective."""


def reveal_order(
    ranks: Ranks, request: OrderRequest, *, show: ShowSizes, stop: Callable[[], int]
) -> "RevealedOrder | None":
    """Reveal the order of an algorithm; all ranks call this together.

    Args:
        ranks: all of them.
        request: what is to be revealed.
        show: called at rank 0 after each size.
        stop: returns the signal on which this rank is to end, 0 if none has come.

    Returns:
        what was revealed, at rank 0; None at other ranks.

    Raises:
        BadInputError: on all ranks, if the algorithm or the type cannot run here.
    """
    progress = RankProgress()
    with watchdog(progress, TIMEOUT_S, partial(print_of_rank, ranks.comm.rank)):
        return _OrderRunner(ranks, request, progress, show, stop).run()


def _send(probes: Generator[int, OrderAtSize, None], order: OrderAtSize) -> int:
    """Return the size to probe after one of this order; 0 at the end."""
    try:
        return probes.send(order)
    except StopIteration:
        return 0


class _OrderRunner:
    def __init__(
        self,
        ranks: Ranks,
        request: OrderRequest,
        progress: RankProgress,
        show: ShowSizes,
        stop: Callable[[], int],
    ) -> None:
        self.ranks = ranks
        self.comm = ranks.comm
        self.request = request
        self.progress = progress
        self.show = show
        self.stop = stop
        self.layout = ranks.layout(0)
        if self.comm.size < 2:
            raise UnusableError("launch", "1 rank adds nothing; valid: 2 ranks or more")
        mask_of(request.dtype, self.comm.size)
        self.gpu: Gpu | None = None
        gpu_record = self._open_gpu()
        self.attempt = gather_attempt(ranks, 1, gpu_record)
        options = agree_on_executor(
            self.comm, required=False, oversubscribed=self.attempt.oversubscribed
        )
        self.settings = RunSettings(request.communicator, options)
        self.probed = 0  # sizes, of all collectives

    def _open_gpu(self) -> Mapping[str, object]:
        """Select the GPU of this rank if buffers are in GPU memory, and return its record."""
        if self.request.device != "cuda":
            return {}
        gpus = RankGpus(self.ranks)
        missing = gpus.missing_for(self.request.transport, self.request.dtype)
        if missing:
            raise UnusableError(f"transport {self.request.transport}", missing)
        self.gpu = gpus.gpu_of_rank
        return gpus.provenance({self.request.transport})

    def run(self) -> "RevealedOrder | None":
        revealed = [self._reveal(collective) for collective in self.request.collectives]
        if self.request.transport == "nccl":
            from hpccoll.transports.nccl.communicators import close_all_worlds

            close_all_worlds()  # before the communicators of MPI on which NCCL's are based
        if self.comm.rank:
            return None
        from hpccoll.measure.order.order_record import revealed_order

        return revealed_order(
            self.request, self.attempt, self.layout, [order for order in revealed if order]
        )

    def _reveal(self, collective: str) -> "OrderOfCollective | None":
        family = COLLECTIVES[collective]
        step = itemsize(self.request.dtype) * family.blocks(self.comm.size)
        sizes = multiples(self.request.sizes, step)
        if self.request.ladder:
            sizes = size_ladder(sizes[0], sizes[-1], step)
        sizes = self._runnable(collective, sizes)
        if self.request.algorithm == NATIVE:
            self._warm_up(collective, sizes[0])
        probes: Generator[int, OrderAtSize, None] = probe_sizes(sizes, step)
        orders: dict[int, OrderAtSize] = {}
        blocks: dict[int, list[Block]] = {}
        size = next(probes)
        while size:
            orders[size], blocks[size] = self._probe(collective, size)
            self.probed += 1
            self.show(self.probed, collective)
            following = 0
            if self.comm.rank == 0:
                following = _send(probes, orders[size])
            stopped = self.ranks.max_over_ranks(self.stop())
            size = 0 if stopped else self.ranks.agree(following)
        return self._ranges(collective, orders, blocks)

    def _runnable(self, collective: str, sizes: Sequence[int]) -> list[int]:
        """Return the sizes at which the algorithm runs, as rank 0 finds them.

        Raises:
            BadInputError: on all ranks, if a value is invalid, or no size can run.
        """
        library = MPI.Get_library_version()

        def select() -> list[int]:
            from hpccoll.measure.order.runnable_sizes import runnable_sizes

            return runnable_sizes(self.request, collective, sizes, self.layout, library)

        return self.ranks.run_at_root(select)

    def _box(self, comm: MPI.Intracomm, case: Case) -> BlackBox:
        def make() -> PreparedCase:
            return PreparedCase(comm, self.layout, case, self.gpu, self.settings)

        self.progress.enter("lowering")
        if case.transport != "nccl":
            return BlackBox(make())
        made = make_unless_refused(make, comm)
        if isinstance(made, SkippedCase):
            raise UnusableError(f"{case.algorithm} of {case.collective}", made.reason)
        return BlackBox(cast("PreparedCase", made))

    def _warm_up(self, collective: str, nbytes: int) -> None:
        box = self._box(self.comm, self.request.case(collective, nbytes))
        vector = box.call.random_vectors.vector(0, self.comm.rank)
        for _ in range(WARM_UP_CALLS):
            self.progress.enter("warming up")
            box.sums(vector)
        box.close()

    def _probe(self, collective: str, nbytes: int) -> tuple[OrderAtSize, list[Block]]:
        """Return the order at a size; the blocks of the whole result at rank 0, of a part at others."""
        self.progress.begin(f"{collective} of {nbytes} B")
        case = self.request.case(collective, nbytes)
        out_of_place = self._box(self.comm, case)
        in_place = self._box(self.comm, replace(case, in_place=True))
        own: RankOrder = self._run(reveal_at_size(out_of_place.call), out_of_place, in_place)
        in_place.close()
        out_of_place.close()
        in_place_agrees = bool(self.comm.allreduce(own.in_place_agrees, MPI.LAND))
        blocks, ranks_agree = self._joined(own.blocks)
        contents = frozenset((block.kind, block.tree) for block in blocks)
        return OrderAtSize(contents, ranks_agree, in_place_agrees), blocks

    def _run(
        self, procedure: Generator[Call, Array, Answer], out_of_place: BlackBox, in_place: BlackBox
    ) -> Answer:
        """Make the calls of a procedure, and return what it returns."""
        call = next(procedure)
        while True:
            self.progress.enter("revealing")
            box = in_place if call.in_place else out_of_place
            try:
                call = procedure.send(box.sums(call.vector))
            except StopIteration as end:
                answer: Answer = end.value
                return answer

    def _joined(self, blocks: Sequence[Block]) -> tuple[list[Block], bool]:
        """Return the blocks of the whole result and whether ranks agree, at rank 0; at others their own."""
        gathered = self.comm.gather(pack(blocks))
        if gathered is None:
            return list(blocks), True
        return join_ranks(map(unpack, gathered))

    def _ranges(
        self,
        collective: str,
        orders: Mapping[int, OrderAtSize],
        blocks: Mapping[int, list[Block]],
    ) -> "OrderOfCollective | None":
        """Probe each range once for what all its sizes share; all ranks follow the ranges of rank 0."""
        ranges = ranges_of(orders)
        further = []
        for sizes, in_place_agrees in self.comm.bcast(
            [(alike.sizes, alike.order.in_place_agrees) for alike in ranges]
        ):
            in_place = None if in_place_agrees else self._in_place_blocks(collective, sizes[-1])
            history = self._history(collective, sizes[0])
            further.append((in_place, history))
        if self.comm.rank:
            return None
        from hpccoll.measure.order.order_record import FurtherProbes, order_of_collective

        probes = [FurtherProbes(in_place, history) for in_place, history in further]

        return order_of_collective(
            self.request.case(collective, ranges[0].first), self.layout, ranges, blocks, probes
        )

    def _in_place_blocks(self, collective: str, nbytes: int) -> list[Block]:
        """Return the blocks in place, where they differ."""
        box = self._box(self.comm, self.request.case(collective, nbytes, in_place=True))
        own = self._run(reveal_masked(box.call, in_place=True), box, box)
        blocks = box.call.moved(own)
        box.close()
        return self._joined(blocks)[0]

    def _history(self, collective: str, nbytes: int) -> list[tuple[Epoch, list[Block]]]:
        """Return the epochs of the first calls on a new communicator, with the blocks of those that sum otherwise.

        Our own schedules are not probed: a plan is the same in every call.
        """
        if self.request.algorithm != NATIVE:
            return []
        case = self.request.case(collective, nbytes)

        def make(comm: MPI.Intracomm) -> BlackBox:
            return self._box(comm, case)

        box = make(self.comm)
        vectors = box.call.random_vectors
        numbers = range(min(vectors.count, MOST_COMMUNICATORS))
        expected = [box.sums(vectors.vector(number, self.comm.rank)) for number in numbers]
        box.close()
        epochs = epochs_of_calls(self.comm, make, expected, self.progress)
        history = []
        for number, epoch in enumerate(epochs):
            blocks: list[Block] = []
            if not epoch.is_final and number < MOST_EPOCHS:
                own = blocks_at_call(self.comm, make, epoch.first, self.progress)
                blocks, _ = self._joined(own)
            history.append((epoch, blocks))
        return history
