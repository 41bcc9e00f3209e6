"""The files of results below some paths: which there are, what can be read of them, and what cannot."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpccoll.errors import BadInputError, combine_errors
from hpccoll.spec.plan import Plan
from hpccoll.store import hdf5
from hpccoll.store.journal import has_records, journal_path, read_journal
from hpccoll.store.raw import RawResults

PLAN_FILE = "plan.json"

COMPANION_SUFFIX = re.compile(r"\.(journal|reserve|told-to-end|words-\w+)$")
"""How files end that lie beside a raw file."""


def find_raw_files(paths: Iterable[Path]) -> list[Path]:
    """Return the raw files that the paths are or hold, each once; a journal stands for a file that is not complete.

    What else lies beside a raw file, such as last words, stands for it, and so does its name where there is none yet.

    Raises:
        BadInputError: for a path that is not there, or is a sweep file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists() and not journal_path(path).exists():
            raise BadInputError("path", str(path), "a raw file or a directory that exists")
        if path.suffix in (".yaml", ".yml"):
            told = f"results; those of a sweep file are in results/{path.stem}, unless --out put them elsewhere"
            raise BadInputError("path", str(path), told)
        for file in sorted([*path.rglob("*.h5"), *path.rglob("*.h5.journal")]) if path.is_dir() else [path]:
            best = best_source(file.with_name(COMPANION_SUFFIX.sub("", file.name)))
            if best is not None:
                found.setdefault(best.resolve(), best)
    return list(found.values())


def best_source(whole: Path) -> Path | None:
    """Return what to read for the raw file ``whole``: it, or its journal where that holds more, or None for nothing."""
    journal = journal_path(whole)
    if not journal.exists() or _is_complete(whole):
        return whole
    if has_records(journal):
        return journal
    return whole if whole.exists() else None


def _is_complete(whole: Path) -> bool:
    try:
        return whole.exists() and hdf5.read_raw_file(whole).complete
    except BadInputError:
        return False


MAX_LISTED_LINES = 5
"""Damaged lines of one journal that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFiles:
    """What could be read below some paths, and what could not.

    Args:
        raw_results: raw files and journals, each launch in one of them only.
        plans: by their paths.
        unreadable: the complaint of each file that cannot be read.
        remarks: what else is to be known of files, in a sentence each.
    """

    raw_results: list[RawResults]
    plans: dict[Path, Plan] = field(default_factory=dict)
    unreadable: dict[Path, BadInputError] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def damaged(self) -> Iterator[str]:
        """Yield what is damaged, in a sentence each: files, and lines of journals."""
        yield from map(str, self.unreadable.values())
        for raw in self.raw_results:
            lost = raw.unrecovered_damage
            yield from (f"{raw.path}: {each}; what it held is to be measured again" for each in lost[:MAX_LISTED_LINES])
            if more := len(lost[MAX_LISTED_LINES:]):
                yield f"{raw.path}: and {more} lines more are damaged"

    @property
    def notes(self) -> Iterator[str]:
        """Yield what else is to be known of the files, in a sentence each."""
        yield from self.remarks
        alike: defaultdict[str, list[str]] = defaultdict(list)
        for raw in self.raw_results:
            for note in raw.notes:
                alike[note].append(str(raw.path))
        for note, (first, *others) in alike.items():
            yield f"{first}{f' and {len(others)} files more' if others else ''}: {note}"


def read_raw(path: Path) -> RawResults:
    """Read a raw file or a journal."""
    return read_journal(path) if path.suffix == ".journal" else hdf5.read_raw_file(path)


def read_all(paths: Iterable[Path]) -> ResultFiles:
    """Read the raw files, journals and plans below ``paths``.

    Raises:
        BadInputError: for a path that is not there, where files are named of which none can be read, and where there is
            nothing but a plan that cannot be read.
    """
    paths = list(paths)
    raws, plans, unreadable = [], {}, {}
    for path in find_raw_files(paths):
        try:
            raws.append(read_raw(path))
        except BadInputError as error:
            unreadable[path] = error
    for path in (path / PLAN_FILE for path in paths if (path / PLAN_FILE).exists()):
        try:
            plans[path] = Plan.load(path)
        except BadInputError as error:
            unreadable[path] = error
    of_directories = any(path.is_dir() for path in paths) and not {path.name for path in unreadable} <= {PLAN_FILE}
    if unreadable and not raws and not of_directories:
        raise combine_errors(*unreadable.values())
    distinct, remarks = _drop_copies(raws)
    return ResultFiles(
        raw_results=distinct, plans=plans, unreadable=unreadable, remarks=[*_unreadable_raw_files(raws), *remarks]
    )


def _unreadable_raw_files(raws: Iterable[RawResults]) -> Iterator[str]:
    """Yield that a raw file cannot be read, for which its journal is."""
    for raw in raws:
        whole = raw.path.with_suffix("")
        if raw.path.suffix == ".journal" and whole.exists():
            try:
                hdf5.read_raw_file(whole)
            except BadInputError as error:
                yield f"{error}; its journal is read in its place"


def _drop_copies(raws: Sequence[RawResults]) -> tuple[list[RawResults], list[str]]:
    """Return raw files without the launches that another one also has, and what was left out.

    Of copies the one with the most measurements is kept.
    """
    holds: dict[tuple[str, str], Path] = {}
    kept: dict[Path, RawResults] = {}
    remarks = []
    for raw in sorted(raws, key=lambda raw: -raw.measurements):
        launches = [(raw.job.sha256, attempt.run_id) for attempt, _ in raw.attempts]
        others = {str(holds[launch]): None for launch in launches if launch in holds}
        own = [pair for pair, launch in zip(raw.attempts, launches, strict=True) if launch not in holds]
        if others and not own:
            remarks.append(f"{raw.path} is left out: it is a copy of {', '.join(others)}, or of a part of it")
            continue
        if others:
            remarks.append(f"{raw.path}: launches are left out that {', '.join(others)} also has")
        kept[raw.path] = replace(raw, attempts=own) if others else raw
        holds |= dict.fromkeys(launches, raw.path)
    return [kept[raw.path] for raw in raws if raw.path in kept], remarks


def absent_files(found: ResultFiles) -> set[Path]:
    """Return the raw files that the plans there name and that have neither come nor begun."""
    named = {path.parent / "raw" / f"{job.name}.h5" for path, plan in found.plans.items() for job in plan.jobs}
    return {file for file in named if not file.exists() and not journal_path(file).exists()}
