"""The programs whose results files hold, and what their numbers mean."""

from dataclasses import dataclass

from hpccoll.common.extensions import contributions

HPCCOLL = "hpccoll"
"""The source of our own results."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program that measures collectives."""

    title: str  # its name
    meaning: str  # what its numbers are, and how they differ from ours


SOURCES = {
    "osu": Source(
        "OSU Micro-Benchmarks",
        "a collective takes the mean over ranks of the mean over iterations, after MPI_Barrier; a non-blocking one its "
        "pure communication, without computation; point to point is timed by rank 0, and a bandwidth has a window of "
        "messages in flight",
    ),
    "nccl-tests": Source(
        "nccl-tests",
        "operations are queued back to back and timed together, without a barrier between them (timing single, of -z: "
        "waited for one by one, with barriers in the time); of ranks the mean, unless -a chose another number",
    ),
    "rccl-tests": Source(
        "rccl-tests",
        "operations of RCCL, on AMD's GPUs, are timed as those of nccl-tests are",
    ),
    "imb": Source(
        "Intel MPI Benchmarks",
        "the mean over ranks (t_avg) of the mean over iterations, each followed by a barrier; point to point the "
        "longest over ranks",
    ),
    "pico": Source(
        "PICO",
        "each iteration takes the longest duration over ranks, after MPI_Barrier, and the median of all iterations "
        "counts, as ours does; PICO warms nothing up. An algorithm of ours that it ran is named after ours, with "
        "PICO's own name as its implementation",
    ),
}
"""The sources that hpccoll knows. Its own is the longest duration over ranks after its barrier; the median of them."""


def source_named(name: str) -> Source:
    """Return a source that hpccoll knows, or the importer of an extension; its meaning may be unknown here."""
    if name in SOURCES:
        return SOURCES[name]
    for importer in contributions("importers"):
        if importer.name == name:
            return Source(name, importer.meaning)
    return Source(
        name,
        "the extension that imported these numbers, and says what they mean, is not installed here",
    )
