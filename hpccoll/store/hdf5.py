"""Raw files: sealed files of the results of a job, a group for each attempt."""

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from hpccoll.cases.case import Job
from hpccoll.common.errors import BadInputError, UnusableError, format_value
from hpccoll.common.records import from_builtins
from hpccoll.store.case_times import TimesOfRanks
from hpccoll.store.checked_seals import content_state
from hpccoll.store.hdf5_attempt import AttemptWriter, StoredCase, read_attempt, read_rank_times
from hpccoll.store.plausibility import (
    ImplausibleError,
    OutcomeCheck,
    check_attempt,
    check_plausible,
)
from hpccoll.store.raw_results import Attempt, Failure, Outcome, RawResults
from hpccoll.store.sealed_file import (
    RAW,
    OpenElsewhereError,
    SealedWriter,
    create_text,
    open_sealed,
    stored_object,
)

_ATTEMPT_PREFIX = "attempt_"
MAX_CHUNK_ITERATIONS = 1 << 10
"""The most iterations of a chunk of a file that is written at once: its cases may differ a thousandfold in theirs,
and each chunk is compressed as a whole."""


class RawFileWriter:
    """Writes the raw file of a job case by case, in any order; it gets its name when it is whole.

    Args:
        path: the file, which is replaced in the end.
        job: the job.
        iterations: how many iterations the cases have at most, if that is known.

    Raises:
        OSError: if the file cannot be created.
    """

    def __init__(self, path: Path, job: Job, iterations: int | None = None) -> None:
        self._file = SealedWriter(path, RAW)
        self._check = OutcomeCheck(job)
        self._iterations = iterations
        self._attempts: dict[int, AttemptWriter] = {}
        self._written: dict[tuple[int, int], Outcome] = {}

    def write(self, attempt: Attempt, number: int, outcome: Outcome) -> None:
        """Write the outcome with this number of an attempt, unless it is written already.

        Raises:
            ImplausibleError: if the reader would refuse it.
            OSError: if the disk does not take it.
        """
        place = attempt.number, number
        if self._written.get(place) is outcome:
            return
        in_memory = (
            outcome if outcome.times is None else replace(outcome, times=outcome.times.in_memory())
        )
        self._check(attempt, in_memory)
        writer = self._attempts.get(attempt.number)
        if writer is None:
            group = self._file.root.create_group(f"{_ATTEMPT_PREFIX}{attempt.number}")
            writer = self._attempts[attempt.number] = AttemptWriter(
                group, attempt, self._iterations
            )
        writer.write(number, in_memory)
        self._file.check_disk()
        self._written[place] = outcome

    def finish(self, raw: RawResults) -> None:
        """Write what is left of the results, and give the file its name.

        Raises:
            ImplausibleError: if the reader would refuse ``raw``.
            OSError: if the disk does not take it.
        """
        for attempt, outcomes in raw.attempts:
            check_attempt(attempt)
            for number, outcome in enumerate(outcomes):
                self.write(attempt, number, outcome)
            if outcomes:
                self._attempts[attempt.number].finish(attempt, outcomes)
        root = self._file.root
        root.attrs.update(
            status="complete" if raw.complete else "partial",
            job=raw.job.name,
            job_sha256=raw.job.sha256,
            job_json=raw.job.to_json(),
        )
        if raw.failures:
            records = [json.dumps(asdict(failure)) for failure in raw.failures]
            dataset = create_text(
                root, "failures", records, "JSON: the failure notes of ranks whose attempt ended"
            )
            dataset.make_scale("failure")
        self._file.finish()

    def discard(self) -> None:
        """Remove the file, unless it has its name."""
        self._file.discard()


def write_raw_file(raw: RawResults, path: Path) -> None:
    """Write ``raw`` to ``path``, whole or not at all; the times of one case at a time are in memory.

    Raises:
        ImplausibleError: if the reader would refuse ``raw``; nothing is written.
        OSError: if the file cannot be written.
    """
    check_plausible(raw)
    outcomes = (
        outcome for _, outcomes_of_attempt in raw.attempts for outcome in outcomes_of_attempt
    )
    longest = max((len(outcome.times.max_ns) for outcome in outcomes if outcome.times), default=1)
    writer = RawFileWriter(path, raw.job, min(longest, MAX_CHUNK_ITERATIONS))
    try:
        writer.finish(raw)
    finally:
        writer.discard()


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
        raise BadInputError(
            "--out", str(path), f"a new file, or one of {content}: it holds something else"
        )


def read_raw_file(path: Path, case_ids: Collection[str] | None = None) -> RawResults:
    """Read a raw file, or only the outcomes of some cases of one that was read before.

    Raises:
        BadInputError: if the file cannot be read, or its content differs from what was written or
            is implausible.
    """
    with open_sealed(path, RAW) as file:
        job_json = str(file.attrs["job_json"])
        if file.attrs["job_sha256"] != hashlib.sha256(job_json.encode()).hexdigest():
            raise ImplausibleError("its job was changed after it was written: job_sha256 differs")
        size = path.stat().st_size
        state = content_state(path.stat())
        attempts = []
        for name in file:
            if name.startswith(_ATTEMPT_PREFIX):
                load = partial(_load, path, state, name)
                attempts.append(read_attempt(stored_object(file, name, size), size, load, case_ids))
        raw = RawResults(
            path=path,
            job=Job.from_json(job_json),
            attempts=sorted(attempts, key=lambda pair: pair[0].number),
        )
        if "failures" in file:
            records = stored_object(file, "failures", size).asstr()[:]
            raw.failures = [from_builtins(json.loads(record), Failure) for record in records]
        if case_ids is None:
            check_plausible(raw)
        return raw


def _load(
    path: Path,
    state: tuple[int, ...],
    attempt: str,
    stored: StoredCase,
    check: Callable[[TimesOfRanks], None],
) -> TimesOfRanks:
    """Read the times of the ranks of a case of a file, whose state was this when it was opened.

    Raises:
        BadInputError: if the file cannot be read or has changed since, or if the times are
            implausible.
    """
    with open_sealed(path, RAW) as file:
        status = path.stat()
        if content_state(status) != state:
            raise UnusableError(
                "path", f"{format_value(str(path))} has changed since it was opened; open it again"
            )
        times = read_rank_times(
            stored_object(file, attempt, status.st_size), status.st_size, stored
        )
        check(times)
        return times
