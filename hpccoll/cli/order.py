"""The ranks of ``hpccoll order``: its options, and what rank 0 prints and writes."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hpccoll.cli.option_parser import MPIEXEC, OptionParser
from hpccoll.cli.progress_counter import ProgressDisplay
from hpccoll.cli.rank_program import run_rank
from hpccoll.cli.run_options import variant_settings
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.limits import RANK
from hpccoll.common.options import Option, PositionalArgument
from hpccoll.common.records import json_text
from hpccoll.common.terminal import show_status
from hpccoll.common.units import parse_parameter, parse_size
from hpccoll.measure import mpi_startup

if TYPE_CHECKING:
    from hpccoll.measure.ranks import Ranks
    from hpccoll.measure.run.job_runner import JobRunner
    from hpccoll.order.request import OrderRequest

ORDER_SUMMARY = "Reveal in which order a library, or an algorithm, adds the numbers of the ranks."
ORDER_END = """\
Examples:
  mpiexec -n 4 hpccoll order native
  mpiexec -n 8 hpccoll order native -c all -b 8 -e 4M --out mpich.json
  mpiexec -n 4 hpccoll order ring -b 8,64K,4M
  hpccoll order ring -p 8 --help            (computed, without ranks)

Two calls give the same bits if they add in the same order. Inputs that lose
small numbers beside a large one reveal it from outside, for every element;
random numbers confirm it. Sizes between two probed ones of one order are not
probed. The exit code is 3 if an order cannot be told, or if an algorithm of
ours adds in another order than its schedule.
"""

SMALLEST, LARGEST = "4", "1M"

ALL = "all"

OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "What to probe": (
        Option(
            ("-c", "--collective"), "collectives that reduce, or all", "all_reduce", metavar="C,.."
        ),
        Option(
            ("-b", "--begin"),
            "smallest size, or all sizes: 8,64K,4M",
            shown_default=f"{SMALLEST} to {LARGEST}: every 2^k and 3 * 2^k",
            metavar="SIZES",
        ),
        Option(("-e", "--end"), "largest size", metavar="SIZE"),
        Option(("-d", "--dtype"), "float32, float64, float16, bfloat16", "float32", metavar="TYPE"),
        Option(("-r", "--root"), "root of a rooted collective", "0", metavar="RANK"),
        Option(
            ("-t", "--transport"),
            "mpi, shm, tiered; on GPUs nccl, mpi, staged",
            "mpi",
            metavar="NAME",
        ),
        Option(
            ("--device",),
            "device of the buffers: cpu, cuda",
            shown_default="cuda for nccl",
            metavar="NAME",
        ),
        Option(("--variant",), "variant of 'hpccoll list', such as mpich-ring", metavar="NAME"),
        Option(("--param",), "parameter of the algorithm: channels=4", metavar="K=V", kind="list"),
    ),
    "Output": (
        Option(("--out",), "file of the order", metavar="F.json", kind="path"),
        Option(("--json",), "JSON output", kind="flag"),
    ),
}

ALGORITHM = PositionalArgument("algorithm", "native, or an algorithm of 'hpccoll list'", "[NAME]")

CANNOT_TELL = 3
"""The exit code if the order of a size cannot be told, or is not that of the schedule."""


def is_of_schedule(words: Sequence[str]) -> bool:
    """Return whether the words after ``order`` ask for a computed order: they name the number of workers."""
    flags = [word.partition("=")[0] for word in words]
    return "--workers" in flags or any(flag.startswith("-p") for flag in flags)


def main(argv: Sequence[str]) -> int:
    """Run one rank of ``order``, or compute the order of a schedule; return the exit code."""
    if is_of_schedule(argv):
        from hpccoll.cli.schedule_order import ORDER

        return ORDER.main(argv)
    return run_rank(argv, OrderProgram)


def build_order_parser() -> OptionParser:
    """Return the parser of ``hpccoll order``."""
    parser = OptionParser(
        "order", ORDER_SUMMARY, OPTIONS, None, ORDER_END, arguments=(ALGORITHM,), launcher=MPIEXEC
    )
    parser.set_defaults(communicator=[])
    return parser


class OrderProgram:
    """The order of an algorithm, as all ranks reveal it.

    Args:
        argv: the options.

    Raises:
        BadInputError: if an option is invalid.
    """

    runner: "JobRunner | None" = None

    def __init__(self, argv: Sequence[str]) -> None:
        self.arguments = build_order_parser().parse_args(argv)
        arguments = self.arguments
        usual = "cuda" if arguments.transport == "nccl" else "cpu"
        self.device: str = arguments.device or usual
        if arguments.out and arguments.out.suffix != ".json":
            raise BadInputError("--out", str(arguments.out), "a file name that ends with .json")
        self._request = self._read_request()

    def _read_request(self) -> "OrderRequest":
        from hpccoll.cases.transport_table import DEVICES
        from hpccoll.order.masks import mask_of
        from hpccoll.order.request import OrderRequest, reducing_collectives
        from hpccoll.schedule import DTYPE

        arguments = self.arguments
        if self.device not in DEVICES:
            raise BadInputError("--device", self.device, DEVICES)
        dtype = DTYPE.read("-d", arguments.dtype)
        mask_of(dtype, 2)
        reducing = reducing_collectives()
        collectives = list(dict.fromkeys(arguments.collective.split(",")))
        if collectives == [ALL]:
            collectives = reducing
        for name in collectives:
            if name not in reducing:
                raise BadInputError("-c", name, [*reducing, ALL])
        sizes = [parse_size(text, "-b") for text in (arguments.begin or SMALLEST).split(",")]
        ladder = arguments.end is not None or arguments.begin is None
        if ladder:
            if len(sizes) > 1:
                raise UnusableError("-e", "not with a list of sizes")
            sizes.append(parse_size(arguments.end or LARGEST, "-e"))
        if sizes != sorted(sizes):
            raise UnusableError("-b", "sizes ascend, and -e is the largest one")
        return OrderRequest(
            algorithm=arguments.algorithm or "native",
            collectives=collectives,
            sizes=sizes,
            ladder=ladder,
            dtype=dtype,
            root=RANK.read("-r", arguments.root),
            transport=arguments.transport,
            device=self.device,
            params=dict(parse_parameter(text) for text in arguments.param),
            **variant_settings(arguments),
        )

    def run_before_mpi(self, *, first: bool) -> int | None:  # noqa: ARG002  of the protocol
        """Set the variables of a variant, which libraries read when they start."""
        os.environ.update(self._request.environment)
        return None

    def run(self, ranks: "Ranks", stop: mpi_startup.StopSignal) -> int:
        """Reveal the order, write it to a file, and print it."""
        from hpccoll.measure.order.order_runner import reveal_order

        out = self.arguments.out
        ranks.run_at_root(self._prepare_out)
        display = ProgressDisplay("sizes")

        def show(done: int, collective: str) -> None:
            display(done, doing=collective)
            if ranks.comm.rank == 0:
                display.draw()

        with stop.measuring():
            revealed = reveal_order(ranks, self._request, show=show, stop=lambda: stop.signal)
        if revealed is None:
            return 0
        show_status(display.stream, "")
        from hpccoll.render.revealed_order import revealed_order_lines
        from hpccoll.store.durable_files import replacing_file

        if out:
            with writing(out), replacing_file(out) as unfinished:
                revealed.save(unfinished)
        if self.arguments.json:
            print(json_text(revealed), flush=True)
        else:
            print("\n".join(revealed_order_lines(revealed)), flush=True)
        if stop.signal or not revealed.is_answered:
            return CANNOT_TELL
        return 0

    def _prepare_out(self) -> None:
        out = self.arguments.out
        if out:
            with writing(out):
                out.parent.mkdir(parents=True, exist_ok=True)

    def end(self, _code: int) -> None:
        """Nothing is left to be done."""
