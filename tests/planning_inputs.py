"""Sweeps to plan, on one node and on a cluster of six nodes with four CPUs, of which two are gone."""

import raw_examples

from hpccoll.store.journal import Journal

TEXT = "algorithms: [ring, native]\nbytes: [8, 1K]\nranks: [2, 3]\nseed: 4\n"
PARTITION = (
    "PartitionName=work AllowAccounts=ALL Default=YES MaxNodes=UNLIMITED Nodes=n[1-6] State=UP\n"
)
STATES = {"n1": "idle", "n2": "mixed", "n3": "idle", "n4": "idle", "n5": "drained", "n6": "down*"}
NODES = "".join(f"{node}|{state}|4|worker\n" for node, state in STATES.items())
CLUSTER = "algorithms: [ring, native]\nbytes: [8, 1K]\nin_place: false\nnodes: [1, 2, 4, 6]\n"


def last_of_each_key(text):
    """Return the text of a sweep file in which later keys replace earlier ones, each with the lines below it."""
    keys, key = {}, ""
    for line in text.splitlines(keepends=True):
        if not line.startswith((" ", "-", "#")):
            keys.pop(key := line.partition(":")[0], None)
            keys[key] = ""
        keys[key] = keys.get(key, "") + line
    return "".join(keys.values())


def begin(job, out, done=0):
    """Have a journal of a job there, with the outcomes of its first cases."""
    journal = Journal(out / "raw" / f"{job.name}.h5", job)
    if done:
        journal.begin(raw_examples.attempt())
    for case in job.cases[:done]:
        journal.record(raw_examples.outcome(case))
    journal.close(remove=False)
