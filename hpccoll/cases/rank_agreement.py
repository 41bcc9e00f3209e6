"""Whether all ranks end with the same bits, as MPI demands: a property of an algorithm, for its listing."""

from hpccoll.schedule import Algorithm, Collective, Layout
from hpccoll.schedule.order import ranks_agree


def agreement(collective: Collective, algorithm: Algorithm) -> bool | None:
    """Return whether all ranks end with the same bits, at the defaults of an algorithm; None if that means nothing.

    Seen at 8 ranks on two nodes, and at 6, with aggregators if it takes them.
    """
    if not collective.has_op or algorithm.floor:
        return None
    aggregators = 8 * algorithm.aggregates
    agree = None
    for p in (6, 8):
        layout = Layout.of(p, p // 2, aggregators=aggregators)
        if algorithm.unmet(layout) is not None:
            continue
        call = collective.call(p)
        slices = call.slices(algorithm, layout)
        agree = agree is not False and ranks_agree(call, slices)
    return agree
