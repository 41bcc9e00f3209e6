"""A journal of three cases, begun by one attempt."""

import raw_examples

from hpccoll.store.journal import Journal

CASES = [raw_examples.case(size) for size in (8, 16, 32)]
JOB = raw_examples.job(*CASES)


def begin(out, done=1):
    """Return the journal of an attempt that has measured the first cases, and begun the next."""
    journal = Journal(out, JOB)
    journal.begin(raw_examples.attempt())
    for case in CASES[:done]:
        journal.start(case)
        journal.record(raw_examples.outcome(case))
    journal.start(CASES[done])
    return journal
