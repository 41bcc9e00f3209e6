"""The probe of a launch: the same ranks, untimed, with library logs; the evidence goes to a file.

The timed launch reads that file. If a probe fails, times out or leaves no logs, no measurement is lost: the file holds
the reason.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree

from hpccoll.cases.case import Job, Shape
from hpccoll.cases.probe_cases import probe_cases
from hpccoll.common.errors import BadInputError
from hpccoll.evidence.log_settings import INTERRUPTED_FILE
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.store.durable_files import replacing_file
from hpccoll.sweep import child_process

OUTPUT_LOG = "launch.log"
"""The log of stdout and stderr of ranks and launcher: MPI libraries write no other log."""


def log_directory(out: Path, job: Job, shape: Shape) -> Path:
    """Return the directory of the logs, next to the raw file ``out``."""
    return out.with_name(f"{job.name}.{shape}.logs")


def evidence_file(out: Path, job: Job, shape: Shape) -> Path:
    """Return the evidence file."""
    return out.with_name(f"{job.name}.{shape}.evidence.json")


def was_interrupted(out: Path, job: Job, shape: Shape) -> bool:
    """Return whether a signal interrupted the last probe: the job's time limit is near."""
    return (log_directory(out, job, shape) / INTERRUPTED_FILE).exists()


def allocation_id(hosts: Sequence[str]) -> str:
    """Return an identifier of this allocation: Slurm's job id, and its hosts if known."""
    return " ".join((os.environ.get("SLURM_JOB_ID", "local"), *hosts))


def has_evidence(file: Path, job: Job, where: str) -> bool:
    """Return whether ``file`` holds the complete evidence of an earlier probe of this job in this allocation."""
    try:
        result = ProbeResult.load(file)
    except BadInputError:  # it is absent or truncated
        return False
    complete = result.record is not None and result.failure is None
    return complete and (result.job_sha256, result.allocation) == (job.sha256, where)


def run_probe(command: list[str], start_timeout_s: float, out: Path, job: Job, shape: Shape, where: str) -> ProbeResult:
    """Run a probe, write its evidence file, and return the evidence.

    The time limit is the sum of the start timeout, the time budgets of the cases, and one watchdog timeout.

    Raises:
        OSError: if logs cannot be written.
    """
    logs = log_directory(out, job, shape)
    rmtree(logs, ignore_errors=True)  # from an earlier probe
    logs.mkdir(parents=True)
    timeout_s = start_timeout_s + job.effort.timeout + len(probe_cases(job, shape)) * job.effort.seconds
    failure = child_process.run_child(command, timeout_s, logs / OUTPUT_LOG)
    result = ProbeResult.from_logs(logs, failure, job_sha256=job.sha256, allocation=where)
    with replacing_file(evidence_file(out, job, shape)) as unfinished:
        unfinished.write_text(json.dumps(result.to_json(), indent=1))
    return result
