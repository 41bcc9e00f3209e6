"""A diagnosis whose transfers another program makes: ``sendrecv_perf`` or ``all_reduce_perf`` of nccl-tests.

In each slot the program is launched on all pairs of nodes at once, and its output is read. It
prints one time, which is recorded for both directions: no direction can be told. A launch that
fails, or prints wrong results, has no time.
"""

import math
import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

import numpy as np

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_text
from hpccoll.common.limits import TABLE_BYTES
from hpccoll.common.units import format_count
from hpccoll.common.version import __version__
from hpccoll.diagnosis.nodes_alone import FAILED_PAIRS, FailedPair
from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import (
    DiagnosisOptions,
    Load,
    RecordedDiagnosis,
    Recorder,
    StoppedError,
)
from hpccoll.diagnosis.robust_statistics import median
from hpccoll.diagnosis.slot_records import Diagnosis, Floats, Purpose, Slots
from hpccoll.host.cpu_and_memory import testbed_facts
from hpccoll.host.env_allowlist import allowed_variables
from hpccoll.interop.nccl_tests import PairResult, read_pair
from hpccoll.store.schema import ON_TESTBED
from hpccoll.sweep.child_process import GRACE_S, exit_text, root_cause
from hpccoll.sweep.launch import JOB_ID
from hpccoll.sweep.slurm.squeue import allocated_hosts, host_names

SRUN = "srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --nodelist={hosts}"
"""The launch on two nodes of an allocation. Steps wait for resources that other steps have, such as
the one that runs this process, unless they overlap; without --exact they have all CPUs and GPUs of
their nodes (man srun, 20.11 on)."""

FIRST_DEADLINE_S = 300.0
"""The seconds of a launch while none has succeeded."""

LEAST_DEADLINE_S = 60.0
"""The least seconds of a launch after one has succeeded."""

MEDIAN_LAUNCHES = 10
"""The median durations of launches that a launch may take after one has succeeded."""

MOST_HOSTS = 256
"""The most hosts. Each pair of a slot is a step: with single links that many hosts take 39,000, and
Slurm allows a job 40,000 by default (MaxStepCount in man slurm.conf)."""

POLL_S = 0.05
"""Seconds between two looks whether launches have ended, few compared with those of a launch."""


class _Launch(NamedTuple):
    pair: tuple[int, int]
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path


@dataclass(slots=True)
class PairLaunches:
    """Measures slots by launches of a program on pairs of hosts."""

    program: Sequence[str]
    launch: str  # the command line of the launcher, with {hosts} for the two of a pair
    hosts: Sequence[str]
    progress: Callable[[int, int, Purpose], None]
    stop: Callable[[], bool]
    failures: list[FailedPair] = field(default_factory=list)
    first_result: PairResult | None = None
    _slots: int = 0  # measured so far
    _durations: list[float] = field(default_factory=list)

    def measure(self, slots: Slots) -> Floats:
        """Return the times of slots, up to the first in which a launch missed its deadline.

        Raises:
            StoppedError: if ``stop`` says so.
            UnusableError: if the program fails on all pairs before it has succeeded on any.
        """
        rows: list[Floats] = []
        expected = self._slots + len(slots.partners)
        for partners in slots.partners:
            self.progress(self._slots, expected, slots.purpose)
            row = np.full(len(partners), np.nan)
            with self._launched(partners) as launches:
                running = self._await(launches, row)
            if running and self.stop():
                raise StoppedError(rows)
            rows.append(row)
            self._slots += 1
            if running:
                row[[end for launch in running for end in launch.pair]] = np.inf
                break
            if self.first_result is None and self.failures:
                pairs, (first, *_) = format_count(len(self.failures), "pair"), self.failures
                raise UnusableError(
                    "--with",
                    f"{Path(self.program[0]).name} failed on {pairs}, which are all; {_named(first)}",
                )
        return np.array(rows)

    @contextmanager
    def _launched(self, partners: Sequence[int]) -> Iterator[list[_Launch]]:
        """Launch the program on the pairs of a slot; in the end, end what has not ended."""
        launches: list[_Launch] = []
        with TemporaryDirectory(prefix="hpccoll-") as directory:
            try:
                for a, b in enumerate(map(int, partners)):
                    if a < b:
                        try:
                            launches.append(self._start((a, b), Path(directory)))
                        except OSError as error:  # this host has as many processes as it may
                            self._failed((a, b), str(error))
                yield launches
            finally:
                _end([launch.process for launch in launches])

    def _start(self, pair: tuple[int, int], directory: Path) -> _Launch:
        first, second = pair
        command = shlex.split(
            self.launch.replace("{hosts}", f"{self.hosts[first]},{self.hosts[second]}")
        )
        output = directory / f"{first}-{second}.out"
        errors = directory / f"{first}-{second}.err"
        with output.open("wb") as stdout, errors.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, *self.program],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # a process group of its own
            )
        return _Launch(pair, process, output, errors)

    @property
    def _deadline_s(self) -> float:
        if not self._durations:
            return FIRST_DEADLINE_S
        return max(LEAST_DEADLINE_S, MEDIAN_LAUNCHES * median(np.array(self._durations)))

    def _await(self, launches: Sequence[_Launch], row: Floats) -> Sequence[_Launch]:
        """Fill in the times [hosts] of launches, and return those that had not ended by the deadline, or a stop."""
        begun = time.monotonic()
        running = launches
        while True:
            passed = time.monotonic() - begun
            ended = [launch for launch in running if launch.process.poll() is not None]
            running = [launch for launch in running if launch not in ended]
            for launch in ended:
                _signal_group(launch.process, signal.SIGKILL)  # what the launcher has left
                row[[*launch.pair]] = seconds = self._seconds(launch)
                if math.isfinite(seconds):
                    self._durations.append(passed)
            if not running or self.stop() or passed > self._deadline_s:
                return running
            time.sleep(POLL_S)

    def _seconds(self, launch: _Launch) -> float:
        """Return the time of a launch that has ended; NaN if it failed."""
        code = cast("int", launch.process.returncode)
        text, errors = (file.read_text(errors="replace") for file in (launch.output, launch.errors))
        try:
            result = read_pair(Path("output"), text)
            why = ""
        except BadInputError as error:
            result, why = None, str(error)
        if result and result.wrong:
            why = format_count(result.wrong, "wrong element")
        elif code:
            lines = [
                line.strip()
                for line in (*text.splitlines(), *errors.splitlines())
                if not line.startswith("#")
            ]
            why = ": ".join(filter(None, (exit_text(code), root_cause(lines))))
        if result and not why:
            self.first_result = self.first_result or result
            return result.seconds
        self._failed(launch.pair, why)
        return math.nan

    def _failed(self, pair: tuple[int, int], why: str) -> None:
        self.failures.append({"hosts": [self.hosts[node] for node in pair], "why": why})


def _named(failure: FailedPair) -> str:
    return f"{' and '.join(failure['hosts'])}: {failure['why']}"


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End launches that have not ended, and their process groups: a launcher ends its ranks on SIGTERM."""
    running = [process for process in processes if process.poll() is None]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            _signal_group(process, number)
        until = time.monotonic() + GRACE_S
        while any(process.poll() is None for process in running) and time.monotonic() < until:
            time.sleep(POLL_S)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def diagnose_with(
    program: str,
    options: DiagnosisOptions,
    hosts: Sequence[str],
    *,
    launch: str = SRUN,
    progress: Callable[[int, int, Purpose], None] = lambda *_: None,
    stop: Callable[[], bool] = lambda: False,
) -> RecordedDiagnosis:
    """Run a diagnosis whose transfers a program of nccl-tests makes.

    Args:
        program: its command line, such as ``sendrecv_perf -b 256M -e 256M``; the largest size
            counts.
        options: what is asked; those that say how to transfer are without effect, since the program
            decides that.
        hosts: their names, as the launcher knows them.
        launch: the command line that starts a program on two hosts, which stand in place of
            ``{hosts}``, with a comma.
        progress: shows how far the diagnosis is: the slots that are measured, how many are expected
            in all, and why they are.
        stop: says whether to end without an answer, with the slots that were measured.

    Raises:
        BadInputError: if a command line is none, a host has no rack, or the program fails on all
            pairs of a slot before it has succeeded on any.
    """
    question = options.question(hosts)
    pairs = PairLaunches(_words("--with", program), launch, hosts, progress, stop)
    if "{hosts}" not in launch:
        raise BadInputError(
            "--launch", launch, "a command line with {hosts}, which the hosts replace"
        )
    launcher, *_ = _words("--launch", launch)
    if shutil.which(launcher) is None:
        raise BadInputError("--launch", launch, f"a command on PATH: there is no {launcher}")
    recorder = Recorder(pairs.measure)
    begun = datetime.now(UTC)
    testbed = testbed_facts()
    diagnosis: Diagnosis | None = None
    with suppress(StoppedError):
        diagnosis = ask(question, recorder)
    cluster = os.environ.get("SLURM_CLUSTER_NAME")
    return RecordedDiagnosis(
        question=question,
        load=Load(
            Path(pairs.program[0]).name,
            "GPU",
            pairs.first_result.bytes if pairs.first_result else 0,
            together=True,
        ),
        measured=(*recorder.measured,),
        diagnosis=diagnosis,
        rates={},
        kind=ON_TESTBED if testbed else "measured",
        machine=f"cluster {cluster}" if cluster else f"{hosts[0]} and others",
        provenance={
            "run_id": str(uuid.uuid4()),
            "begun": begun.isoformat(timespec="seconds"),
            "hosts": [*hosts],
            "hpccoll": __version__,
            "library": pairs.first_result.library if pairs.first_result else None,
            "launcher": [f"{launch} {program}"],
            "testbed": testbed,
            "variables": allowed_variables(),
            FAILED_PAIRS: pairs.failures,
        },
    )


def _words(key: str, text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInputError(key, text, f"a command line: {error}") from None
    if not words:
        raise BadInputError(key, text, "a command line, such as sendrecv_perf -b 256M -e 256M")
    return words


def hosts_to_diagnose(text: str | None) -> tuple[str, ...]:
    """Return the hosts that ``text`` names, or those of the allocation.

    Args:
        text: names with commas, also with Slurm's brackets; or a file with a name in each line, and
            comments after #.

    Raises:
        BadInputError: if there is no allocation, if Slurm does not answer, a line is not a name,
            for fewer than three hosts, whose pairs can be compared, more than MOST_HOSTS, or one
            twice.
    """
    job = os.environ.get(JOB_ID)
    if text is None and job is None:
        raise BadInputError(
            "--hosts", None, f"there is no allocation ({JOB_ID}): name the hosts, with commas"
        )
    if text is None:
        hosts = _hosts_of_job(str(job))
    else:
        hosts = _named_hosts(text)
    if len(hosts) > MOST_HOSTS:
        why = (
            f"the program is launched on each pair in each slot; do: --hosts, {MOST_HOSTS} of them"
        )
        raise UnusableError(
            "--with", f"there are {len(hosts)} hosts, and it takes at most {MOST_HOSTS}: {why}"
        )
    if len(hosts) < 3 or len({*hosts}) < len(hosts):
        raise BadInputError(
            "--hosts", ",".join(hosts), "three hosts or more, each once: their pairs are compared"
        )
    return hosts


def _hosts_of_job(job: str) -> tuple[str, ...]:
    try:
        return allocated_hosts(job)
    except BadInputError as error:  # the job is over, or Slurm does not answer, as in a container
        why = f"the hosts of the job are not known ({JOB_ID}={job}): {error}; do: name the hosts, with commas"
        raise UnusableError("--hosts", why) from None


def _named_hosts(text: str) -> tuple[str, ...]:
    if os.path.isfile(text):  # noqa: PTH113  Path.is_file raises OSError for many names: a file name has 255 bytes
        return tuple(_hosts_of_file(Path(text)))
    names = "".join(text.split())
    if "[" in names:
        return host_names(names)
    return tuple(filter(None, names.split(",")))


def _hosts_of_file(path: Path) -> Iterator[str]:
    for number, line in enumerate(read_text(path, "--hosts", TABLE_BYTES).splitlines(), start=1):
        host = line.partition("#")[0].strip()
        if len(host.replace(",", " ").split()) > 1:
            raise BadInputError(
                f"--hosts: {path}, line {number}", line, "one host, without anything else"
            )
        if host:
            yield host
