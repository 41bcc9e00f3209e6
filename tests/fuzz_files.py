"""Damaged raw files and journals, and how they are read: ``python tests/fuzz.py files``.

A bit, bytes, a block of zeros, a cut, two swapped blocks; in journals also a line that is deleted,
repeated, swapped with another, moved, or of another journal. Damage may be harmless: the results
are unchanged. The reader may refuse the file in one line. In a journal it may lose lines that it
names, while the others are unchanged. Anything else is a defect: a changed figure, another
exception, a process that dies or hangs, changed lines that are not named.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import raw_examples
from fuzz import in_child

from hpccoll.cases.case import Effort
from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.checksummed_lines import ChainEnd
from hpccoll.store.journal import Journal, journal_path
from hpccoll.store.raw_results import Failure, RawResults
from hpccoll.store.result_files import read_raw

HARMLESS, REFUSED, NAMED = "harmless", "refused", "damage named, and the rest unchanged"
ALLOWED = {"raw file": {HARMLESS, REFUSED}, "journal": {HARMLESS, REFUSED, NAMED}}


def results(path: Path) -> RawResults:
    """Return results with two attempts, rounds, a skipped case and a failure note."""
    cases = [raw_examples.case(size) for size in (8, 1024, 1 << 20, 1 << 30)]
    job = raw_examples.job(*cases, effort=Effort(rounds=2))
    evidence = {"record": {"nccl": "2.27"}, "why": None, "logs": "x.logs"}
    first = [raw_examples.round_outcome(1, case, iterations=20) for case in cases[:3]]
    second = [
        raw_examples.round_outcome(2, cases[0], iterations=30, events=True),
        raw_examples.skipped(cases[3]),
    ]
    attempts = [
        (raw_examples.attempt(1), first),
        (raw_examples.attempt(2, evidence=evidence), second),
    ]
    failures = [Failure(case_id=cases[2].id, rank=1, message="stuck", attempt=1)]
    return RawResults(path=path, job=job, attempts=attempts, failures=failures)


def write_examples(directory: Path) -> dict[str, Path]:
    """Write the results as a raw file and as a journal, and return the paths by kind."""
    raw = results(directory / "whole.h5")
    hdf5.write_raw_file(raw, raw.path)
    Journal(directory / "begun.h5", raw.job, raw).close(remove=False)
    return {"raw file": raw.path, "journal": journal_path(directory / "begun.h5")}


def content(raw: RawResults) -> tuple[object, dict[tuple[int, str], object]]:
    """Return the job, attempts and failures of a file, and its outcomes by attempt and case."""
    outcomes = {
        (a.number, o.case.id): raw_examples.comparable(o) for a, done in raw.attempts for o in done
    }
    return raw_examples.comparable(
        (raw.job, [attempt for attempt, _ in raw.attempts], raw.failures)
    ), outcomes


def is_part(now: object, was: object) -> bool:
    """Return whether an outcome is that which was written, or that of some of its rounds."""
    if now == was:
        return True
    rounds, all_rounds = (set(dict(dict(each)["times"])["round"][2]) for each in (now, was))
    return rounds < all_rounds


def verdict(path: Path, before: RawResults) -> str:
    """Return how a file was read: HARMLESS, REFUSED, NAMED or a description of the defect."""
    try:
        after = read_raw(path)
    except BadInputError as error:
        return REFUSED if "\n" not in str(error) else f"more than one line: {error}"
    except Exception as error:  # noqa: BLE001  any other exception is a defect
        return f"{type(error).__name__}: {error}"
    (header, was), (header_after, now) = content(before), content(after)
    changed = [key for key in was if now.get(key) != was[key]]
    named = bool(after.unrecovered_damage) or any("were cut" in note for note in after.notes)
    if (header, was) == (header_after, now):
        return NAMED if named else HARMLESS
    if named and now.keys() <= was.keys() and all(is_part(now[key], was[key]) for key in now):
        return NAMED
    return f"other figures: {changed or 'of the job or an attempt'}, {after.damage}, {after.notes}"


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Return a content with one place flipped, overwritten, zeroed, cut out, or swapped with another."""
    size = draw.choice([1, 8, 64, 512, 4096])
    at, other = (draw.randrange(len(content)) // size * size for _ in range(2))
    before, old, after = content[:at], content[at : at + size], content[at + size :]
    swapped = bytearray(content)
    swapped[at : at + size], swapped[other : other + size] = content[other : other + size], old
    flipped = bytes([old[0] ^ 1 << draw.randrange(8)]) + old[1:]
    places = (flipped, draw.randbytes(len(old)), bytes(len(old)), b"")
    return draw.choice([*(before + new + after for new in places), before, bytes(swapped)])


FOREIGN = ChainEnd("0123456789abcdef").encode([{"start": "another"}])[0][1:]
"""A line of another journal."""


def lines_changed(draw: random.Random, content: bytes) -> bytes:
    """Return a content with lines deleted, repeated, swapped or moved, or with one of another journal."""
    lines = content.split(b"\n")
    one, other = sorted(draw.sample(range(len(lines)), 2))
    left, between, right = lines[:one], lines[one:other], lines[other:]
    first, *rest = between
    changed = [
        [*left, *right],
        [*left, *rest, *right],
        [*left, first, *between, *right],
        [*left, *rest, first, *right],
    ]
    changed.append([*left, FOREIGN, *between, *right])
    return b"\n".join(draw.choice([*changed, [*left, right[0], *rest, first, *right[1:]]]))


def damaged_files(whole: Path, number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield kinds of damage with their numbers, each with the verdict on the file that was damaged so."""
    intact = whole.read_bytes()
    before = read_raw(whole)
    draw = random.Random(seed)  # noqa: S311  no secret
    kinds = (damaged, lines_changed) if whole.suffix == ".journal" else (damaged,)
    path = whole.with_name(f"damaged-{whole.name}")
    for at in range(number):
        kind = kinds[at % len(kinds)]
        content = kind(draw, intact)
        path.write_bytes(content)
        result, _ = in_child(lambda: verdict(path, before))
        if result == HARMLESS and content != intact and kind is lines_changed:
            result = "a changed line was read without a message"
        yield f"{kind.__name__} {at}", result


def trials(seed: int, number: int, directory: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield what was damaged, how it was read, and whether that is a defect."""
    for kind, whole in write_examples(directory).items():
        for what, result in damaged_files(whole, number // len(ALLOWED), seed):
            yield f"{kind}, {what}", result, result not in ALLOWED[kind]
