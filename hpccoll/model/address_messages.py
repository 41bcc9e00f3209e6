"""Messages of addresses: ranks that write into each other's memory tell where it is first.

The programs over uTofu of PICO's authors (github.com/HLC-Lab/bine_trees_fugaku, 0755a2e,
lib/fugaku/bine_utofu.cc) send two addresses of 8 bytes for each port, over MPI: in an all-gather, or
to each rank to which they will send, and, if more than three ports are in use, to as many for those
that go the other way round.
"""

from collections import Counter

from hpccoll.model.critical_path import PathAddresses
from hpccoll.schedule import ceil_log2
from hpccoll.store.schema import ADDRESSES_OF_ALL

BYTES_OF_PORT = 16
"""The bytes of the two addresses of a port."""

ONE_WAY_PORTS = 3
"""The most ports that all go the same way round the dimensions of a torus."""


def address_messages(recipients: str, tier: str, ranks: int, ports: int) -> Counter[PathAddresses]:
    """Return the messages of addresses that follow one another.

    Args:
        recipients: ADDRESSES_OF_ALL, or ADDRESSES_OF_PEERS.
        tier: the tier that messages cross.
        ranks: the number of ranks.
        ports: the ports of a rank.
    """
    own = BYTES_OF_PORT * ports
    rounds = ceil_log2(ranks)
    if recipients == ADDRESSES_OF_ALL:
        # taken for recursive doubling, as all-gathers of few bytes are
        return Counter(PathAddresses(tier, own << k, 0) for k in range(rounds))
    ways = 2 if ports > ONE_WAY_PORTS else 1
    return Counter({PathAddresses(tier, own, rounds - 1): ways})
