"""Prints the table of the faults of the peer kernel and its programs, with the check that finds each.

    PYTHONPATH=tests python tests/transports/peer/mutations.py      # 10 minutes on 2 cores

It needs gcc with libtsan. A flag is not needed if clocks say that others order the same accesses.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from peer_accesses import Ordered
from peer_cases import SOME
from peer_cluster import PeerCluster
from peer_mutants import (
    BARRIERS,
    ELEMENTS,
    EPOCHS,
    RANKS,
    THREADED,
    ignored_abort_is_found,
    is_found_by_interleavings,
    missing_waits_with_conflicts,
    sanitized,
)
from peer_words import OverwrittenWords
from sanitized_cluster import flags_of
from schedule_examples import case_of

from hpccoll.transports.peer.program import Await
from hpccoll.transports.peer.program_tables import AWAIT

PROTOCOLS = "simple", "ll"
SANITIZER = "ThreadSanitizer"


def rows(directory: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the mutation, the protocol, the check, and what it found."""
    for protocol in PROTOCOLS:
        yield from rows_of_flags(protocol, directory)
        yield "a flag is not awaited", protocol, "vector clocks", dropped_flags(protocol)
    for name, fault in EPOCHS.items():
        found = is_found_by_interleavings(fault, directory)
        yield (
            name,
            fault.protocol,
            "orders of blocks, one at a time",
            "found" if found else "MISSED",
        )
    torn = [sanitized("words", "ll", name, directory)[1] for name in SOME]
    found = torn.count("torn: a race")
    yield "a word is stored in two halves", "ll", SANITIZER, f"{found} of {len(SOME)} schedules"
    yield from rows_of_barriers(directory)
    for protocol in PROTOCOLS:
        yield (
            "a wait between two folds is left out",
            protocol,
            "the accesses of rows",
            left_out(protocol),
        )
    ignored = ignored_abort_is_found(directory)
    yield (
        "the kernel never looks at the abort",
        "both",
        "a wait for ever",
        "found" if ignored else "MISSED",
    )


def rows_of_flags(protocol: str, directory: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of flags that are awaited without acquire, or raised without release."""
    verdicts: Counter[tuple[str, str]] = Counter()
    for name in SOME:
        for line in sanitized("flags", protocol, name, directory)[1:]:
            verdict, order, _ = line.split(": ")
            verdicts[order, verdict] += 1
    for order in ("acquire", "release"):
        by_verdict = {verdict: number for (of, verdict), number in verdicts.items() if of == order}
        verb = "awaited without acquire" if order == "acquire" else "raised without release"
        yield f"a flag is {verb}", protocol, SANITIZER, in_words(by_verdict, protocol)


def in_words(by_verdict: dict[str, int], protocol: str) -> str:
    needed = by_verdict.get("found", 0) + by_verdict.get("missed", 0)
    words = f"{by_verdict.get('found', 0)} of {needed} flags"
    if by_verdict.get("not needed"):
        others = "words order the same here, and not on a GPU" if protocol == "ll" else "not needed"
        words += f"; {by_verdict['not needed']} more: {others}"
    if by_verdict.get("unexpected"):
        words += f"; {by_verdict['unexpected']} are found that clocks do not need"
    return words


def dropped_flags(protocol: str) -> str:
    """Return how many flags clocks find missing if they are not awaited, in words."""
    needed = 0
    total = 0
    for name in SOME:
        cluster = PeerCluster(case_of(name, RANKS).operation(ELEMENTS, "float32"), protocol)
        for me, _, place in flags_of(cluster, AWAIT, Await):
            total += 1
            if protocol == "ll":
                words = OverwrittenWords(cluster.programs, (me, place[-1].peer))
                needed += bool(words.overwritten_unread())
            else:
                needed += bool(Ordered(cluster.programs, dropped=place).races())
    return f"{needed} of {total} flags"


def rows_of_barriers(directory: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the waits that the threads of a block lack."""
    verdicts: Counter[tuple[str, str]] = Counter()
    for name in THREADED:
        for protocol in PROTOCOLS:
            for line in sanitized("threads", protocol, name, directory)[1:]:
                verdict, barrier = line.split(": ")
                verdicts[barrier, verdict] += 1
    runs = len(THREADED) * len(PROTOCOLS)
    for barrier in BARRIERS:
        found = f"{verdicts[barrier, 'found']} of {runs} programs"
        yield f"threads do not wait {barrier}", "both", SANITIZER, found


def left_out(protocol: str) -> str:
    found, waits = missing_waits_with_conflicts(protocol)
    return f"{found} of {waits} waits; the others separate folds without a conflict"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        print("| mutation | protocol | found by | found |\n| --- | --- | --- | --- |")
        for row in rows(Path(place)):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
