"""The command ``order`` of a schedule: in which order an algorithm of ours adds, computed without ranks."""

from pathlib import Path

from hpccoll.cli.command import Command
from hpccoll.cli.common import INCOMPLETE, JSON, LAYOUT, ROOT, WORKERS, show_found
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.options import Option, PositionalArgument

NATIVE = "native"


def order(
    algorithm: str,
    workers: int | None = None,
    collective: str | None = None,
    nbytes: str = "1M",
    dtype: str = "float32",
    ranks_per_node: int | None = None,
    racks: str = "1",
    mapping: str = "block",
    aggregators: int = 0,
    root: int | None = None,
    param: list[str] | None = None,
    out: Path | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Compute in which order an algorithm adds the numbers of the ranks.

    Two calls give the same bits if they add in the same order. The output has the summation tree of
    each range of elements, the depth and the bound of the error that follows from it, whether all
    ranks get the same bits, and what changes them. Ends with 3 if ranks add in different orders.
    """
    from hpccoll.analysis.order_record import order_record
    from hpccoll.cases.case import Case
    from hpccoll.cases.catalogue import check_case
    from hpccoll.cases.requested_schedule import requested_layout, requested_schedule
    from hpccoll.common.units import parse_parameter, parse_size
    from hpccoll.render.order_text import order_lines
    from hpccoll.render.pictures.schedule_view import MAX_WORKERS
    from hpccoll.schedule import DTYPE

    if workers is None:
        raise UnusableError("-p", "the number of workers is missing")
    if algorithm == NATIVE:
        expected = (
            "left out: a library's order is revealed by ranks: mpiexec -n 4 hpccoll order native"
        )
        raise BadInputError("-p", workers, expected)
    layout = requested_layout(workers, ranks_per_node, racks, aggregators, MAX_WORKERS, mapping)
    parameters = dict(map(parse_parameter, param or ()))
    shared = ("channels", "window", "segment")
    own = {name: value for name, value in parameters.items() if name not in shared}
    requested = requested_schedule(algorithm, collective, layout, root=root, parameters=own)
    family = requested.call.collective
    if not family.has_op:
        raise BadInputError("-c", family.name, "a collective that reduces")
    case = Case(
        collective=family.name,
        algorithm=algorithm,
        dtype=DTYPE.read("-d", dtype),
        bytes=parse_size(nbytes, "-b"),
        root=requested.call.root if family.rooted else None,
        params=parameters,
    )
    check_case(case)
    record = order_record(case, layout)
    show_found(record, order_lines(record), as_json=as_json)
    if out:
        from hpccoll.render.pictures.order_picture import draw_order

        draw_order(record, out)
    return 0 if record.ranks_agree else INCOMPLETE


ORDER = Command(
    name="order",
    run=order,
    example="""Examples:
  hpccoll order ring -p 8 -b 1M --out ring.svg
  hpccoll order rabenseifner -p 6 --param first=near --param pairing=adjacent""",
    arguments=(PositionalArgument("algorithm", "algorithm, see hpccoll list", "ALGORITHM"),),
    options={
        "What is added": (
            WORKERS,
            Option(
                ("-c", "--collective"),
                "all_reduce, reduce_scatter or reduce [the first with this algorithm]",
                metavar="NAME",
            ),
            Option(("-b", "--bytes"), "message size", "1M", name="nbytes", metavar="SIZE"),
            Option(("-d", "--dtype"), "type of the elements", "float32", metavar="TYPE"),
            *LAYOUT,
            ROOT,
            Option(("--param",), "parameter, such as channels=4", metavar="K=V", kind="list"),
        ),
        OPTIONS: (
            Option(("--out",), "drawing of the trees", metavar="F.svg|F.png", kind="path"),
            JSON,
        ),
    },
)
