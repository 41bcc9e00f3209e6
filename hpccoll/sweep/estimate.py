"""The estimate: how long a job takes, about, on a machine that has nothing else to do."""

from hpccoll.spec.case import PASS_S, SETTLE_S, Job
from hpccoll.sweep import probe_launch

LAUNCH_S = 1.5
"""What starting ranks costs."""
ROUND_S = 0.01
"""What a round of a case costs beside its iterations: it is compiled, filled and checked anew."""
SLURM_S = 20.0
"""What a Slurm job costs beside its launches: Snakemake starts twice in it."""


def seconds(job: Job) -> float:
    """Return how long the launches of ``job`` take, if no case needs longer than its time for its least iterations.

    Between nodes each case has a pass beside its rounds, which counts bytes.
    """
    launches = len(job.shapes) + sum(probe_launch.wanted(job, shape) for shape in job.shapes)
    counted = sum(job.shape(case).nodes > 1 for case in job.cases)
    measured = len(job.cases) * (job.effort.seconds + job.effort.rounds * ROUND_S)
    return LAUNCH_S * launches + measured + counted * (PASS_S + SETTLE_S)
