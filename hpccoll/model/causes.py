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


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a set of verdicts has in common."""

    name: str  # as the table of causes names it
    words: str  # the symptom with its figures, as a sentence without its end
    share: float | None  # how much of the expected bandwidth is left; None if the symptom does not depend on it


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

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_KnownCause":
        """Return a row as TOML has it."""
        sets = {name: frozenset(row.get(name, ())) for name in ("symptoms", "needs", "slows")}
        patterns = {name: re.compile(row[name]) for name in ("proven", "excluded", "context") if name in row}
        return cls(**{**row, **sets, **patterns})

    def distance(self, share: float | None) -> float:
        """Return the logarithm of how far a share is from those that the cause leaves; 0 within them."""
        low, high = self.share
        return abs(log(min(max(share, low), high) / share)) if share else 0.0


@cache
def _table() -> tuple[Sequence[_KnownCause], Mapping[str, Sequence[str]]]:
    """Return the causes, and what is lacking by traits."""
    import tomllib  # only a fail has causes

    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [_KnownCause.of(row) for row in table["cause"]], table["lacking"]


def likeliest_causes(
    symptoms: Sequence[Symptom], facts: Collection[str] = (), traits: Collection[str] = (), *,
    passing: Collection[str] = (),
) -> tuple[Cause, ...]:  # fmt: skip
    """Return the likeliest causes of symptoms, at most ``LIKELIEST``.

    Args:
        symptoms: the symptoms, the most specific first.
        facts: what is known of the run, as ``facts_of`` says it.
        traits: those of the machine, as ``traits_of`` says them.
        passing: the sizes that pass, ``small`` or ``large``, so that nothing slows them.
    """
    causes, table = _table()
    lacking = {each for trait in traits for each in table.get(trait, ())}
    found = []
    for known in causes:
        shown = [(rank, each) for rank, each in enumerate(symptoms) if each.name in known.symptoms]
        if not shown or known.needs & lacking:
            continue
        proof = next((fact for fact in facts if known.proven and known.proven.search(fact)), "")
        excluded = not known.slows.isdisjoint(passing) or any(
            known.excluded and known.excluded.search(fact) for fact in facts
        )
        if excluded and not proof:
            continue
        rank, symptom = shown[0]
        context = [fact for fact in facts if known.context and known.context.search(fact)]
        because = f"the log has {proof}" if proof else "; ".join((symptom.words, *context))
        distance = known.distance(symptom.share)
        order = (not proof, not proof and (distance > 0, rank, distance, not context))
        found.append((order, Cause(known.what, known.check, because, bool(proof))))
    found.sort(key=lambda each: each[0])
    return tuple(cause for _, cause in found[:LIKELIEST])


def traits_of(rows: Iterable[Row], machine: MachineFile | None) -> set[str]:
    """Return what is known of the machine that was measured, in the words of the table ``lacking``."""
    traits = {f"transport {row.transport}" for row in rows}
    if machine and (like := machine.machine_class):
        traits |= {f"fabric {like.fabric}", f"network {(like.network or '').partition('-')[2]}"}
    return traits


def age_of(library: str, figures: Iterable[str]) -> Iterator[str]:
    """Yield how old a library is next to those of published figures, as far as known, as a fact for the table."""
    versions = [version for version in map(version_of, figures) if version]
    if versions and (own := version_of(library)):
        oldest = ".".join(map(str, min(versions)))
        older = f"{library} is older than those figures that say theirs (from {oldest} on)"
        yield older if own < min(versions) else library


def facts_of(log: LogRecord | None, variables: Mapping[str, str], rails: int | None = None) -> Iterator[str]:
    """Yield what is known of a run, in the words that the table of causes searches.

    Args:
        log: the content of its logs.
        variables: the variables of its environment that its file records.
        rails: the number of ports of a node, as the machine is described; None if it is not.
    """
    settings = {**variables, **(log.settings if log else {})}
    yield from (f"{name}={value}" for name, value in settings.items())
    if log is None:
        return
    if log.settings:  # variables of NCCL's configuration files are in no environment
        yield "variables are logged"
    if log.network_type:
        yield f"network {log.network_type}: {', '.join(log.network) or 'Socket'}"
    if log.gdr is not None:
        yield "GPUDirect RDMA on every hop" if log.gdr else "not every hop with GPUDirect RDMA"
    yield from (f"path {path}" for path in log.paths)
    if {path.partition("/")[0] for path in log.paths} - {"NET"} == {"P2P"}:
        yield "every path in a node is peer-to-peer"
    if rails and log.devices:
        number = "fewer ports than" if len(log.devices) < rails else "as many ports as"
        yield f"{number} described: {len(log.devices)} of {rails}"
    yield from (f"ports of {kind}" for kind in {port.rpartition("/")[2] for port in log.devices})
    if any("nvls" in one.algorithm for one in log.collectives):
        yield "NVLS runs"
    yield f"tuner plugin {log.plugins['tuner']}" if "tuner" in log.plugins else "no tuner plugin"
    yield from (f"unavailable {each.feature}: {each.reason} ({each.line})" for each in log.unavailable)
