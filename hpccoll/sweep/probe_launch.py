"""The probe of a launch: the same ranks, untimed, with logs; what these say is in a file that the timed launch reads.

It costs a launch and no measurement: where it fails, takes too long or leaves no logs, the file says so.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from hpccoll.errors import BadInputError
from hpccoll.evidence.log_settings import INTERRUPTED_FILE
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.spec.case import Job, Shape
from hpccoll.spec.probe_cases import probe_cases
from hpccoll.store.durable_files import replacing_file
from hpccoll.sweep import child_process

OUTPUT = "launch.log"
"""The log of what the ranks and their launcher print: MPI libraries have no other."""


def wanted(job: Job, shape: Shape) -> bool:
    """Return whether logs have something to say of the cases of ``shape``."""
    return bool(probe_cases(job, shape))


def place_of(out: Path, job: Job, shape: Shape) -> Path:
    """Return the directory of the logs, beside the raw file ``out``."""
    return out.with_name(f"{job.name}.{shape}.logs")


def file_of(out: Path, job: Job, shape: Shape) -> Path:
    """Return the file of what they say."""
    return out.with_name(f"{job.name}.{shape}.evidence.json")


def told_to_end(out: Path, job: Job, shape: Shape) -> bool:
    """Return whether the ranks of the last probe were told to end: there is no time for anything after it."""
    return (place_of(out, job, shape) / INTERRUPTED_FILE).exists()


def allocation(hosts: Sequence[str]) -> str:
    """Return what tells this allocation from others: Slurm's job, and its hosts where they are known."""
    return " ".join((os.environ.get("SLURM_JOB_ID", "local"), *hosts))


def known(file: Path, job: Job, where: str) -> bool:
    """Return whether an earlier launch of this job in this allocation has read its logs, and all of them."""
    try:
        found = ProbeResult.load(file)
    except BadInputError:  # there is none, or somebody has cut it short
        return False
    whole = found.record is not None and found.failure is None
    return whole and (found.job_sha256, found.allocation) == (job.sha256, where)


def ask(command: list[str], start_timeout_s: float, out: Path, job: Job, shape: Shape, where: str) -> ProbeResult:
    """Run a probe, and return what it found; that is also in the file.

    Its time is limited: for the start, for every case, and for one that is stuck and has to say where.

    Args:
        command: that starts it; its ranks log into ``place_of``.
        start_timeout_s: how long the start may take.
        out: the raw file.
        job: that is probed.
        shape: of the launch.
        where: the allocation.

    Raises:
        OSError: where there is no room for logs.
    """
    place = place_of(out, job, shape)
    rmtree(place, ignore_errors=True)  # logs of an earlier one are not ours
    place.mkdir(parents=True)
    limit_s = start_timeout_s + job.effort.timeout + len(probe_cases(job, shape)) * job.effort.seconds
    failed = child_process.run(command, limit_s, place / OUTPUT)
    found = ProbeResult.from_logs(place, failed, job_sha256=job.sha256, allocation=where)
    with replacing_file(file_of(out, job, shape)) as unfinished:
        unfinished.write_text(json.dumps(found.to_json(), indent=1))
    return found
