"""Why numbers are lower than expected: causes from symptoms and from what a log says. The table is ``causes.toml``."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import Any

from hpccoll.evidence.log_record import LogRecord
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.published_rates import version_of
from hpccoll.store.rows import Row

LIKELIEST = 3
"""How many causes a fail names."""


OF_AMD = "transport rccl"
"""The trait of nodes with AMD's GPUs."""

_OF_RCCL = {"NCCL": "RCCL", "nccl-tests": "rccl-tests", "nccl.conf": "rccl.conf"}
"""The names of RCCL; its variables have those of NCCL (its initEnv reads ``/etc/rccl.conf``)."""


def in_words_of_rccl(text: str) -> str:
    """Return a text on NCCL as one on RCCL; the names of variables stay."""
    return re.sub(r"\b(nccl-tests|nccl\.conf|NCCL)\b", lambda name: _OF_RCCL[name.group()], text)


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a set of verdicts has in common."""

    name: str  # as the table of causes names it
    words: str  # the symptom with its figures, as a sentence without its end
    # how much of the expected bandwidth is left; None if the symptom does not depend on it
    share: float | None


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of a fail."""

    what: str  # what may be wrong
    check: str  # the command, or the line of a log, that shows whether it is
    because: str  # the symptom that it follows from, or the fact of the log that proves it
    proven: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the cause as JSON has it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownCause:
    """A row of the table, whose keys are its fields."""

    what: str
    symptoms: frozenset[str]
    check: str
    source: str
    share: Sequence[float] = (0.0, 1.0)
    slows: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    proven: re.Pattern[str] | None = None
    excluded: re.Pattern[str] | None = None
    context: re.Pattern[str] | None = None
    what_amd: str = ""
    check_amd: str = ""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_KnownCause":
        """Return a row as TOML has it."""
        sets = {name: frozenset(row.get(name, ())) for name in ("symptoms", "needs", "slows")}
        patterns = {
            name: re.compile(row[name]) for name in ("proven", "excluded", "context") if name in row
        }
        return cls(**{**row, **sets, **patterns})

    def cause(self, because: str, traits: Collection[str], *, proven: bool = False) -> Cause:
        """Return the cause in the words of the vendor whose GPUs the traits name."""
        if OF_AMD not in traits:
            return Cause(self.what, self.check, because, proven)
        cause_of_amd = in_words_of_rccl(self.what_amd or self.what)
        check_of_amd = in_words_of_rccl(self.check_amd or self.check)
        return Cause(cause_of_amd, check_of_amd, because, proven)

    def distance(self, share: float | None) -> float:
        """Return the logarithm of how far a share is from those that the cause leaves; 0 within them."""
        if not share:
            return 0.0
        low, high = self.share
        nearest = min(max(share, low), high)
        return abs(log(nearest / share))

    def proof(self, facts: Iterable[str]) -> str:
        """Return the first fact that proves the cause; empty if none does."""
        if self.proven is None:
            return ""
        return next(filter(self.proven.search, facts), "")

    def is_excluded(self, facts: Iterable[str], passing: Iterable[str]) -> bool:
        """Return whether a fact excludes the cause, or a size passes that it would slow."""
        if not self.slows.isdisjoint(passing):
            return True
        return self.excluded is not None and any(map(self.excluded.search, facts))

    def context_in(self, facts: Iterable[str]) -> list[str]:
        """Return the facts that are said with the symptom."""
        return list(filter(self.context.search, facts)) if self.context else []


@cache
def _table() -> tuple[Sequence[_KnownCause], Mapping[str, Sequence[str]]]:
    """Return the causes, and what is lacking by traits."""
    import tomllib  # only a fail has causes

    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [_KnownCause.of(row) for row in table["cause"]], table["lacking"]


def likeliest_causes(
    symptoms: Sequence[Symptom],
    facts: Collection[str] = (),
    traits: Collection[str] = (),
    *,
    passing: Collection[str] = (),
) -> tuple[Cause, ...]:
    """Return the likeliest causes of symptoms, at most ``LIKELIEST``.

    Args:
        symptoms: the symptoms, the most specific first.
        facts: what is known of the run, as ``facts_of`` says it.
        traits: those of the machine, as ``traits_of`` says them.
        passing: the sizes that pass, ``small`` or ``large``, so that nothing slows them.
    """
    causes, lacking_by_trait = _table()
    lacking = {need for trait in traits for need in lacking_by_trait.get(trait, ())}
    possible: list[tuple[tuple[float, ...], Cause]] = []
    for row in causes:
        ranks = [rank for rank, symptom in enumerate(symptoms) if symptom.name in row.symptoms]
        if not ranks or row.needs & lacking:
            continue
        proof = row.proof(facts)
        if proof:
            possible.append(((0,), row.cause(f"the log has {proof}", traits, proven=True)))
        elif not row.is_excluded(facts, passing):
            rank = ranks[0]
            symptom = symptoms[rank]
            context = row.context_in(facts)
            distance = row.distance(symptom.share)
            order = (1, distance > 0, rank, distance, not context)
            because = "; ".join((symptom.words, *context))
            possible.append((order, row.cause(because, traits)))
    possible.sort(key=lambda ordered: ordered[0])
    return tuple(cause for _, cause in possible[:LIKELIEST])


def traits_of(rows: Iterable[Row], machine: MachineFile | None) -> set[str]:
    """Return what is known of the machine that was measured, in the words of the table ``lacking``."""
    traits = {f"transport {row.transport}" for row in rows}
    like = machine.machine_class if machine else None
    if like:
        network = (like.network or "").partition("-")[2]
        traits |= {f"fabric {like.fabric}", f"network {network}"}
    return traits


def age_of(library: str, figures: Iterable[str]) -> Iterator[str]:
    """Yield as a fact for the table how old a library is next to those of published figures, if both are known."""
    version = version_of(library)
    versions = list(filter(None, map(version_of, figures)))
    if not versions or not version:
        return
    oldest = min(versions)
    if version >= oldest:
        yield library
    else:
        yield f"{library} is older than those figures that say theirs (from {'.'.join(map(str, oldest))} on)"


def facts_of(
    log: LogRecord | None, variables: Mapping[str, str], rails: int | None = None
) -> Iterator[str]:
    """Yield what is known of a run, in the words that the table of causes searches.

    Args:
        log: the content of its logs.
        variables: the variables of its environment that its file records.
        rails: the number of ports of a node, as the machine is described; None if it is not.
    """
    settings = dict(variables)
    if log:
        settings |= log.settings
    for name, value in settings.items():
        yield f"{name}={value}"
    if log is None:
        return
    if log.settings:  # variables of NCCL's configuration files are in no environment
        yield "variables are logged"
    if log.network_type:
        yield f"network {log.network_type}: {', '.join(log.network) or 'Socket'}"
    if log.gdr is not None:
        yield "GPUDirect RDMA on every hop" if log.gdr else "not every hop with GPUDirect RDMA"
    yield from _path_facts(log)
    yield from _port_facts(log, rails)
    if any("nvls" in line.algorithm for line in log.collectives):
        yield "NVLS runs"
    if "tuner" in log.plugins:
        yield f"tuner plugin {log.plugins['tuner']}"
    else:
        yield "no tuner plugin"
    for lost in log.unavailable:
        yield f"unavailable {lost.feature}: {lost.reason} ({lost.line})"


def _path_facts(log: LogRecord) -> Iterator[str]:
    """Yield the paths that messages take."""
    for path in log.paths:
        yield f"path {path}"
    kinds = {path.partition("/")[0] for path in log.paths}
    if kinds - {"NET"} == {"P2P"}:
        yield "every path in a node is peer-to-peer"


def _port_facts(log: LogRecord, rails: int | None) -> Iterator[str]:
    """Yield how many ports of a node are used, if both numbers are known, and what ports they are."""
    if rails and log.devices:
        ports = len(log.devices)
        number = "fewer ports than" if ports < rails else "as many ports as"
        yield f"{number} described: {ports} of {rails}"
    for kind in {port.rpartition("/")[2] for port in log.devices}:
        yield f"ports of {kind}"
