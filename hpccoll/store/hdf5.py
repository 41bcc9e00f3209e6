"""Raw files: sealed files of the results of a job, a group for each attempt."""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpccoll.cases.case import Job
from hpccoll.common.errors import BadInputError
from hpccoll.common.records import from_builtins
from hpccoll.store.hdf5_attempt import read_attempt, write_attempt
from hpccoll.store.plausibility import ImplausibleError, check_plausible
from hpccoll.store.raw_results import Attempt, Failure, RawResults
from hpccoll.store.sealed_file import RAW, OpenElsewhereError, create_text, open_sealed, stored_object, write_sealed

_ATTEMPT_PREFIX = "attempt_"


def write_raw_file(raw: RawResults, path: Path) -> None:
    """Write ``raw`` to ``path``, whole or not at all.

    Raises:
        ImplausibleError: if the reader would refuse ``raw``; nothing is written.
    """
    check_plausible(raw)
    write_sealed(path, RAW, lambda file: _write_content(file, raw))


def _write_content(file: Any, raw: RawResults) -> None:
    file.attrs.update(
        status="complete" if raw.complete else "partial",
        job=raw.job.name,
        job_sha256=raw.job.sha256,
        job_json=raw.job.to_json(),
    )
    if raw.failures:
        records = [json.dumps(asdict(failure)) for failure in raw.failures]
        dataset = create_text(file, "failures", records, "JSON: the failure notes of ranks whose attempt ended")
        dataset.make_scale("failure")
    for attempt, outcomes in raw.attempts:
        if outcomes:
            write_attempt(file.create_group(f"{_ATTEMPT_PREFIX}{attempt.number}"), attempt, outcomes)


def check_replaceable(path: Path, content: str, is_ours: Callable[[Attempt], bool]) -> None:
    """Check that a command whose files hold ``content``, of attempts that are ``is_ours``, may write one to ``path``.

    Raises:
        BadInputError: if it holds anything else, or another process has it open for writing.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        attempts = [attempt for attempt, _ in read_raw_file(path).attempts]
        replaceable = bool(attempts) and all(map(is_ours, attempts))
    except OpenElsewhereError:
        raise
    except BadInputError:
        replaceable = False
    if not replaceable:
        raise BadInputError("--out", str(path), f"a new file, or one of {content}: it holds something else")


def read_raw_file(path: Path, case_ids: Collection[str] | None = None) -> RawResults:
    """Read a raw file, or only the outcomes of some cases of one that was read before.

    Raises:
        BadInputError: if the file cannot be read, or its content differs from what was written or is implausible.
    """
    with open_sealed(path, RAW) as file:
        job_json = str(file.attrs["job_json"])
        if file.attrs["job_sha256"] != hashlib.sha256(job_json.encode()).hexdigest():
            raise ImplausibleError("its job was changed after it was written: job_sha256 differs")
        size = path.stat().st_size
        names = [name for name in file if name.startswith(_ATTEMPT_PREFIX)]
        attempts = [read_attempt(stored_object(file, name, size), size, case_ids) for name in names]
        raw = RawResults(
            path=path, job=Job.from_json(job_json), attempts=sorted(attempts, key=lambda pair: pair[0].number)
        )
        if "failures" in file:
            records = stored_object(file, "failures", size).asstr()[:]
            raw.failures = [from_builtins(json.loads(record), Failure) for record in records]
        if case_ids is None:
            check_plausible(raw)
        return raw
