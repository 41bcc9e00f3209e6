"""Run a command whose MPI programs are counted, and join what their ranks wrote."""

import os
import shlex
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hpccoll.common.errors import UnusableError
from hpccoll.executor.counting_library import (
    BARRIER_FILE,
    BARRIER_VARIABLE,
    DIRECTORY_VARIABLE,
    SUFFIX,
    UNKNOWN,
    CallsLine,
    GroupLine,
    RankFile,
    counting_library,
    read_rank_file,
)
from hpccoll.store.counted_job import (
    CALLS,
    CallKind,
    CountedGroup,
    CountedJob,
    CountedLaunch,
    CountedRank,
    ranks_of_runs,
)

LIBRARY_VARIABLE = "LD_PRELOAD"

NO_RANK = (
    "no rank has written a count; do: check that the program is linked with MPI as a shared library, that {directory} "
    "is on a file system that its nodes share, and that the launcher passes LD_PRELOAD and HPCCOLL_COUNT on (mpirun of "
    "Open MPI on several nodes: -x LD_PRELOAD -x HPCCOLL_COUNT)"
)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """How a counted command ended."""

    command: Sequence[str]
    exit_code: int  # negative: the signal that ended it
    began: datetime
    wall_s: float


def library_to_preload() -> Path:
    """Return the library that LD_PRELOAD brings into a program; UnusableError if it is missing."""
    return counting_library()


def run_counted(command: Sequence[str], directory: Path, *, barrier: bool) -> CommandRun:
    """Run a command whose MPI programs write their counts to ``directory``; its input and output are this process's.

    Raises:
        UnusableError: if the counting library is missing, or the command cannot be started.
    """
    environment = dict(os.environ)
    preloaded = environment.get(LIBRARY_VARIABLE)
    environment[LIBRARY_VARIABLE] = str(counting_library())
    if preloaded:
        environment[LIBRARY_VARIABLE] += f":{preloaded}"
    environment[DIRECTORY_VARIABLE] = str(directory.resolve())
    environment.pop(BARRIER_VARIABLE, None)
    if barrier:
        environment[BARRIER_VARIABLE] = "1"
        (directory / BARRIER_FILE).touch()
    began = datetime.now(UTC)
    begin = time.monotonic()
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise UnusableError(
            "count", f"{shlex.join(command)} cannot be started: {error.strerror}"
        ) from error
    with _signals_passed_on(child):
        code = child.wait()
    return CommandRun(command, code, began, time.monotonic() - begin)


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave signals to the command: a terminal sends it its own, and those to this process are passed on."""

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    handlers = {signal.SIGINT: signal.SIG_IGN, signal.SIGQUIT: signal.SIG_IGN}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        handlers[number] = pass_on  # type: ignore[assignment]
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def join_rank_files(directory: Path, run: CommandRun | None = None) -> CountedJob:
    """Return the job whose ranks wrote to a directory.

    Raises:
        UnusableError: if no rank has written.
    """
    files: list[RankFile] = []
    damaged: list[str] = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            files.append(read_rank_file(path))
        except (OSError, ValueError) as error:
            damaged.append(f"{path.name}: {error}")
    if not files:
        raise UnusableError(str(directory), NO_RANK.format(directory=directory))
    return _Joined(files).job(run, damaged)


def _launches(files: Iterable[RankFile]) -> list[list[RankFile]]:
    """Return the files of each launch.

    Launchers name a launch, or not. The k-th process with a rank, in the order of begins, is of the
    k-th launch among those of the same name and size.
    """
    in_order = list(files)
    in_order.sort(key=lambda file: file.number("began_unix_ns"))
    launches: dict[tuple[str, int, int], list[RankFile]] = {}
    seen = defaultdict[tuple[str, int, int], int](int)
    for file in in_order:
        launch = file.facts.get("launch", UNKNOWN)
        size = file.number("size")
        rank = file.number("rank")
        turn = seen[launch, size, rank]
        if rank >= 0:
            seen[launch, size, rank] += 1
        key = launch, size, turn
        launches.setdefault(key, []).append(file)
    return list(launches.values())


@dataclass
class _Joined:
    """The tables of a job, filled rank by rank."""

    files: Sequence[RankFile]
    launches: list[CountedLaunch] = field(default_factory=list)
    ranks: list[CountedRank] = field(default_factory=list)
    groups: dict[CountedGroup, int] = field(default_factory=dict)  # without nodes and communicators
    communicators: dict[int, int] = field(default_factory=dict)
    kinds: dict[CallKind, int] = field(default_factory=dict)
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def job(self, run: CommandRun | None, damaged: Sequence[str]) -> CountedJob:
        for number, files in enumerate(_launches(self.files)):
            self._add_launch(files[0])
            files.sort(key=lambda file: file.number("rank"))
            for file in files:
                self._add_rank(number, file)
        first_ns = min(file.number("began_unix_ns") for file in self.files)
        job = CountedJob(
            command="",
            exit_code=0,
            began=_time_text(datetime.fromtimestamp(first_ns / 1e9, UTC)),
            wall_s=self._wall_s(),
            barrier=self._has_barriers(),
            launches=self.launches,
            ranks=self.ranks,
            groups=self._counted_groups(),
            kinds=list(self.kinds),
            calls=np.array(self.rows, CALLS),
            damaged=damaged,
        )
        if run is None:
            return job
        command = shlex.join(run.command)
        began = _time_text(run.began)
        return replace(
            job, command=command, exit_code=run.exit_code, began=began, wall_s=run.wall_s
        )

    def _has_barriers(self) -> bool:
        return any(file.facts.get("barrier") == "1" for file in self.files)

    def _add_launch(self, first: RankFile) -> None:
        ranks = max(first.number("size"), 0)
        abi = first.facts.get("abi", UNKNOWN)
        library = first.facts.get("version", UNKNOWN)
        path = first.facts.get("library", UNKNOWN)
        self.launches.append(CountedLaunch(ranks, abi, library, path))

    def _wall_s(self) -> float:
        """Return the time from the first rank's begin to the last one's end, by the clocks of their hosts."""
        begins = []
        ends = []
        for file in self.files:
            begin_ns = file.number("began_unix_ns")
            begins.append(begin_ns)
            ends.append(begin_ns + file.number("ran_ns"))
        return (max(ends) - min(begins)) / 1e9

    def _add_rank(self, launch: int, file: RankFile) -> None:
        numbers = {group.number: self._group(launch, group) for group in file.groups}
        row = len(self.ranks)
        rank = file.number("rank")
        ran_s = file.number("ran_ns") / 1e9
        cost_s = file.number("cost_ps") / 1e12
        writing_s = file.number("writing_ns") / 1e9
        host = file.facts.get("host", "unknown")
        end = file.facts.get("end", "unknown")
        self.ranks.append(
            CountedRank(launch, rank, host, end, ran_s, cost_s, writing_s, file.left_out)
        )
        for calls in file.calls:
            kind = _kind(calls, numbers[calls.group])
            number = self.kinds.setdefault(kind, len(self.kinds))
            seconds = calls.ns / 1e9
            waiting_s = calls.wait_ns / 1e9
            sizes = calls.least_bytes, calls.most_bytes
            self.rows.append((number, row, calls.calls, calls.bytes, seconds, waiting_s, *sizes))

    def _group(self, launch: int, line: GroupLine) -> int:
        """Return the number of a group, the same for all ranks that are in it."""
        members = line.ranks
        if members == UNKNOWN:
            members += line.ranks_hash
        sizes = line.size, line.blocks
        group = CountedGroup(launch, line.created_by, *sizes, line.is_inter, members, 0, 0)
        number = self.groups.setdefault(group, len(self.groups))
        self.communicators[number] = max(self.communicators.get(number, 0), line.communicators)
        return number

    def _counted_groups(self) -> list[CountedGroup]:
        hosts = {(rank.launch, rank.rank): rank.host for rank in self.ranks}
        groups = []
        for group, number in self.groups.items():
            nodes = _nodes(ranks_of_runs(group.members), group.launch, hosts)
            communicators = self.communicators[number]
            groups.append(replace(group, nodes=nodes, communicators=communicators))
        return groups


def _time_text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _kind(calls: CallsLine, group: int) -> CallKind:
    size_class = max(calls.least_bytes, 0).bit_length()
    how = calls.dtype, calls.operation, calls.in_place
    return CallKind(calls.collective, calls.variant, group, *how, size_class)


def _nodes(members: list[int] | None, launch: int, hosts: Mapping[tuple[int, int], str]) -> int:
    """Return on how many nodes ranks are; 0 if one of them has written nothing."""
    if members is None:
        return 0
    names = set()
    for rank in members:
        if (launch, rank) not in hosts:
            return 0
        names.add(hosts[launch, rank])
    return len(names)
