"""The result files below given paths: finds them, reads them, and reports unreadable and damaged ones."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpccoll.cases.case import Job
from hpccoll.cases.plan import PLAN_FILE, Plan
from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.order.order_file import RevealedOrder, is_order_file
from hpccoll.store import hdf5
from hpccoll.store.journal import has_records, journal_path, read_journal
from hpccoll.store.raw_results import RawResults
from hpccoll.store.sealed_file import RAW, OtherContentError

COMPANION_SUFFIX = re.compile(r"\.(journal|reserve|interrupted|failure-\w+)$")
"""The suffixes of the files that accompany a raw file."""


def find_raw_files(paths: Iterable[Path]) -> list[Path]:
    """Return the raw files at and below the paths, each once, also where only a journal exists.

    A file that accompanies a raw file, such as a failure note, stands for it.

    Raises:
        BadInputError: for a path that does not exist or is a sweep file.
    """
    raw_files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists() and not journal_path(path).exists():
            raise BadInputError("path", str(path), "there is no such raw file or directory")
        if path.suffix in (".yaml", ".yml"):
            expected = f"results; those of a sweep file are in results/{path.stem}, unless --out put them elsewhere"
            raise BadInputError("path", str(path), expected)
        for file in (
            sorted([*path.rglob("*.h5"), *path.rglob("*.h5.journal")]) if path.is_dir() else [path]
        ):
            raw_file = file.with_name(COMPANION_SUFFIX.sub("", file.name))
            if has_results(raw_file):
                raw_files.setdefault(raw_file.resolve(), raw_file)
    return list(raw_files.values())


def without_order_files(paths: Iterable[Path]) -> list[Path]:
    """Return paths without the files of ``hpccoll order``, which have no results, but say more about them."""
    return [path for path in paths if not is_order_file(path)]


def _may_be_raw(path: Path, error: BadInputError) -> bool:
    """Return whether a file that cannot be read may be a raw file, by its name: it would be read in a directory."""
    return path.suffix == ".h5" and not isinstance(error, OtherContentError)


def has_results(raw_file: Path) -> bool:
    """Return whether a raw file exists, or a journal with records."""
    return raw_file.exists() or has_records(journal_path(raw_file))


def read_raw(path: Path, case_ids: Collection[str] | None = None) -> RawResults:
    """Read a raw file, or its journal if that holds more; a note says if the raw file cannot be read.

    ``path`` may be a file that accompanies it; of a file that was read before, only some cases may
    be needed.

    Raises:
        BadInputError: if neither can be read.
    """
    raw_file = path.with_name(COMPANION_SUFFIX.sub("", path.name))
    journal, notes = journal_path(raw_file), []
    if raw_file.exists() or not has_records(journal):
        try:
            raw = hdf5.read_raw_file(raw_file, case_ids)
            if raw.complete or not has_records(journal):
                return raw
        except BadInputError as error:
            if not has_records(journal):
                raise
            notes = [f"{error}; its journal is read in its place"]
    raw = read_journal(journal)
    raw.notes[:0] = notes
    return raw


MAX_LISTED_LINES = 5
"""The maximum number of damaged lines of one journal that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFiles:
    """The result files below some paths."""

    raw_results: list[RawResults]  # the content of raw files and journals, each launch once
    plans: dict[Path, Plan] = field(default_factory=dict)  # the plans by their paths
    # the error of each unreadable file
    unreadable: dict[Path, BadInputError] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # further remarks on files, one sentence each
    orders: list[RevealedOrder] = field(default_factory=list)  # the files of ``hpccoll order``

    @property
    def unstarted_jobs(self) -> Iterator[Job]:
        """Yield the planned jobs without results."""
        started = {raw.job.sha256 for raw in self.raw_results}
        for plan in self.plans.values():
            yield from (job for job in plan.jobs if job.sha256 not in started)

    @property
    def damaged(self) -> Iterator[str]:
        """Yield a sentence for each unreadable file and each damaged line of a journal."""
        yield from map(str, self.unreadable.values())
        for raw in self.raw_results:
            lines = raw.unrecovered_damage
            yield from (
                f"{raw.path}: {line}; what is lost is to be measured again"
                for line in lines[:MAX_LISTED_LINES]
            )
            if omitted := len(lines[MAX_LISTED_LINES:]):
                yield f"{raw.path}: and {omitted} lines more are damaged, missing or moved; {lines[-1]}"

    @property
    def notes(self) -> Iterator[str]:
        """Yield further remarks on the files, one sentence each."""
        yield from self.remarks
        yield from (f"{raw.path}: {note}" for raw in self.raw_results for note in raw.notes)


def read_all(paths: Iterable[Path], *, shows_damage: bool = False) -> ResultFiles:
    """Read the raw files, journals and plans below ``paths``, and the orders that are among them.

    Args:
        paths: files and directories.
        shows_damage: whether a raw file that cannot be read is an answer as in a directory, even if
            it is the only one.

    Raises:
        BadInputError: for a path that does not exist; if nothing is found; if none of the named
            files can be read, unless this is an answer; if a directory holds only an unreadable
            plan.
    """
    named = list(paths)
    paths = without_order_files(named)
    orders = [RevealedOrder.load(path, "path") for path in named if path not in paths]
    raw_results, plans = [], {}
    unreadable: dict[Path, BadInputError] = {}
    # beside the raw files of a directory, and no error there
    ignored: dict[Path, BadInputError] = {}
    for path in find_raw_files(paths):
        try:
            raw_results.append(read_raw(path))
        except BadInputError as error:
            beside = isinstance(error, OtherContentError) and path not in paths
            (ignored if beside else unreadable)[path] = error
    for path in (path / PLAN_FILE for path in paths if (path / PLAN_FILE).exists()):
        try:
            plans[path] = Plan.load(path)
        except BadInputError as error:
            unreadable[path] = error
    if not (raw_results or plans or unreadable):
        if ignored:
            raise combine_errors(*ignored.values())
        raise BadInputError("path", ", ".join(map(str, named)), RAW.elsewhere)
    is_directory_scan = any(path.is_dir() for path in paths) and not {
        path.name for path in unreadable
    } <= {PLAN_FILE}
    is_answer = is_directory_scan or (
        shows_damage and all(_may_be_raw(*item) for item in unreadable.items())
    )
    if unreadable and not raw_results and not is_answer:
        raise combine_errors(*unreadable.values())
    distinct, omissions = _drop_copies(raw_results)
    remarks = [*map(str, ignored.values()), *omissions]
    return ResultFiles(
        raw_results=distinct, plans=plans, unreadable=unreadable, remarks=remarks, orders=orders
    )


def _drop_copies(raw_results: Sequence[RawResults]) -> tuple[list[RawResults], list[str]]:
    """Return the raw results without launches that another one holds, and a remark for each omission.

    Of copies the one with the most measurements is kept.
    """
    path_of_launch: dict[tuple[str, str], Path] = {}
    kept: dict[Path, RawResults] = {}
    remarks = []
    for raw in sorted(raw_results, key=lambda raw: -raw.measurements):
        launches = [(raw.job.sha256, attempt.run_id) for attempt, _ in raw.attempts]
        earlier_files = {
            str(path_of_launch[launch]): None for launch in launches if launch in path_of_launch
        }
        distinct = [
            pair
            for pair, launch in zip(raw.attempts, launches, strict=True)
            if launch not in path_of_launch
        ]
        if earlier_files and not distinct:
            remarks.append(
                f"{raw.path} is left out: it is a copy of {', '.join(earlier_files)}, or of a part of it"
            )
            continue
        if earlier_files:
            remarks.append(
                f"{raw.path}: launches are left out that {', '.join(earlier_files)} also has"
            )
        kept[raw.path] = replace(raw, attempts=distinct) if earlier_files else raw
        path_of_launch |= dict.fromkeys(launches, raw.path)
    return [kept[raw.path] for raw in raw_results if raw.path in kept], remarks
