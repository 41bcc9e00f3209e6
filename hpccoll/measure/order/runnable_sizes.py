"""The sizes at which an algorithm runs on these ranks; rank 0 alone selects them."""

from collections.abc import Sequence

from hpccoll.cases.case import Shape
from hpccoll.cases.catalogue import check_case
from hpccoll.cases.skip_reason import LaunchFacts, skip_reason
from hpccoll.common.errors import UnusableError
from hpccoll.order.request import OrderRequest
from hpccoll.schedule import Layout


def runnable_sizes(
    request: OrderRequest, collective: str, sizes: Sequence[int], layout: Layout, library: str
) -> list[int]:
    """Return the sizes at which an algorithm runs.

    Args:
        request: what is to be revealed.
        collective: one of its collectives.
        sizes: in bytes.
        layout: of the ranks.
        library: the version string of the MPI library.

    Raises:
        BadInputError: if a value is invalid, or no size can run; names the reason at the
            largest one.
    """
    facts = LaunchFacts(
        shape=Shape(layout.nodes, layout.workers, 0),
        variant=request.variant,
        sets={**request.environment, **request.communicator},
        mpi=library,
    )
    runnable: list[int] = []
    reason: str | None = None
    for nbytes in sizes:
        case = request.case(collective, nbytes)
        check_case(case)
        reason = skip_reason(case, layout, facts)
        if reason is None:
            runnable.append(nbytes)
    if not runnable:
        raise UnusableError(f"{request.algorithm} of {collective}", str(reason))
    return runnable
