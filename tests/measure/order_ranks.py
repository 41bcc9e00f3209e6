"""Ranks that reveal every algorithm of ours, and print those whose order is not that of the schedule."""

import sys

from mpi4py import MPI

from hpccoll.cases.catalogue import algorithms_of
from hpccoll.common.errors import BadInputError
from hpccoll.measure.order.order_runner import reveal_order
from hpccoll.measure.ranks import Ranks
from hpccoll.order.request import OrderRequest, reducing_collectives
from hpccoll.schedule.collective import NATIVE

SIZES = 64, 6000


def main(transports):
    ranks = Ranks(MPI.COMM_WORLD)
    ran, wrong = 0, []
    for transport in transports:
        for collective in reducing_collectives():
            for algorithm in algorithms_of(collective):
                request = OrderRequest(
                    algorithm=algorithm, collectives=[collective], sizes=SIZES, ladder=False,
                    dtype="float32", root=0, transport=transport, device="cpu",
                )  # fmt: skip
                if algorithm == NATIVE and transport != transports[0]:
                    continue
                try:
                    revealed = reveal_order(ranks, request, show=lambda *_: None, stop=lambda: 0)
                except BadInputError:  # on all ranks: it does not run here, or is a floor
                    continue
                ran += 1
                if revealed and not revealed.is_answered:
                    wrong.append(f"{collective}:{algorithm}/{transport}")
    if ranks.comm.rank == 0:
        print(ran, *wrong)


if __name__ == "__main__":
    main(sys.argv[1:])
