"""How often ``hpccoll diagnose`` is right on the testbed: with faults that are drawn, with two at once, and with none.

By hand, as root, on a machine where nothing else runs; a run of 16 hosts takes half a minute:

    python tests/benchmarks/diagnose.py --hosts 16 --rate 100mbit --keep DIR >> diagnose.md python
    tests/benchmarks/diagnose.py --hosts 6 --rate 1gbit --keep DIR >> diagnose.md python
    tests/benchmarks/diagnose.py --hosts 6 --rate 1gbit --slow 40 --faults 6 --healthy 12 --keep DIR
    python tests/benchmarks/diagnose.py --hosts 6 --rate 1gbit --slow 40 --faults 6 --healthy 12
    --busy 8 --keep DIR
    python tests/benchmarks/diagnose.py --hosts 16 --rate 100mbit --keep DIR --shard 1/2    # and 2/2 on another machine
    python tests/benchmarks/diagnose.py --hosts 16 --rate 100mbit --keep DIR --read         # nothing is measured

Each run is a line in ``DIR/SETTING/*.jsonl`` when it has ended, and a raw file beside it. A call
that was killed continues there, and repeats launches that failed; the files of shards are put into
one directory and read together. Places, kinds and sizes of faults follow from the seed: wires,
links, uplinks and all wires of racks lose 10 to 20 % of their rate; with ``--slow`` it is the wire
of a host that does. Rank 0 is on each host in turn. With ``--busy`` processes beside each run, load
may be why nothing is decided, but never why something healthy is accused. Healthy runs are then
resampled (``resampled_times``). It ends with 1 where what is asked is missed, or not all of it is
recorded.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1]))  # simulated_machine.py

import numpy as np
from diagnose_simulated import also_right
from resampled_times import RecordedRun, ResampledTimes, UsedUpError
from tables import print_table, verdict
from testbed_bench import run_testbed

from hpccoll.cli.diagnose import INCOMPLETE
from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.diagnosis_file import read_diagnosis
from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import RecordedDiagnosis
from hpccoll.diagnosis.slot_records import OF_A_RACK, Component, Kind
from hpccoll.diagnosis.small_clusters import FEWEST_NODES_TO_FIT
from hpccoll.diagnosis.verdict import verdict_of

ONE, TWO, HEALTHY = "one fault", "two faults", "healthy"
PERCENT = 10, 20
"""By how much a rate is lower, drawn between these."""

DIRECTIONS: dict[Kind, list[str]] = {"node": [], "send": ["--send"], "receive": ["--receive"]}
"""The kinds of faults of a host's wire, and what restricts ``testbed fault`` to them."""

LEAST_EXACT = {ONE: 36 / 40, TWO: 8 / 10}
LEAST_NOTHING_ELSE = 39 / 40
MOST_ALARMS = 1 / 300
"""The shares of runs that are asked; of replays, the alarms. No healthy run may alarm."""

MOST_LAUNCHES = 3
"""How often a run is launched at most, if its launch fails: then there is no verdict, and no code of a diagnosis."""

MOST_SECONDS = {16: 45}
"""How long a run may take, by hosts."""


class Planted(NamedTuple):
    """A fault of the testbed."""

    component: Component
    percent: float  # by how much the rate is lower


@dataclass(frozen=True)
class Setting:
    """A testbed, and its name."""

    hosts: int
    rate: float  # of a wire, in Mbit/s
    racks: int  # 0: all hosts are in one
    name: str
    busy: int = 0  # processes beside each run, each of which uses as much of a core as it gets
    # by how many per cent the wire of a host is slower; None: faults are drawn
    slow: float | None = None

    @property
    def text(self) -> str:
        racks = f", {self.racks} racks" if self.racks else ""
        busy = f", beside {self.busy} busy processes" if self.busy else ""
        return f"{self.hosts} hosts, wires of {self.rate:g} Mbit/s{racks}{busy}"

    @property
    def directory(self) -> str:
        racks = f"-{self.racks}racks" if self.racks else ""
        busy = f"-{self.busy}busy" if self.busy else ""
        return f"{self.hosts}-{self.rate:g}mbit{racks}{busy}"

    @property
    def percent(self) -> tuple[float, float]:
        """Between which per cents a rate is lower."""
        return PERCENT if self.slow is None else (self.slow, self.slow)

    @property
    def uplink(self) -> float:
        """Mbit/s: two hosts of a rack transfer to others at once."""
        return 2 * self.rate

    @property
    def rack_of(self) -> np.ndarray:
        """[hosts]: in blocks, as the testbed has them."""
        return np.arange(self.hosts) * max(1, self.racks) // self.hosts

    def up(self) -> None:
        racks = (
            ["--racks", str(self.racks), "--uplink", f"{self.uplink:g}mbit"] if self.racks else []
        )
        self.call(
            "up", "--nodes", str(self.hosts), "--cpus", "1", "--rate", f"{self.rate:g}mbit", *racks
        )

    def call(self, command: str, *words: str, check: bool = True) -> int:
        return run_testbed(command, "--name", self.name, *words, check=check)

    def kinds(self, faults: int) -> list[Kind]:
        """Return the kinds that several faults at once may have: of few hosts, only pairs of nodes can be told."""
        if self.slow is not None or (faults > 1 and self.hosts < FEWEST_NODES_TO_FIT):
            return ["node"]
        return [*DIRECTIONS, "link", *(OF_A_RACK if self.racks else ())]

    def members(self, component: Component) -> set[int]:
        """Return the hosts of a component."""
        if component.kind in OF_A_RACK:
            return set(np.flatnonzero(np.isin(self.rack_of, component.where)).tolist())
        return {*component.where}

    def draw(self, number: int, faults: int, rng: np.random.Generator) -> list[Planted]:
        """Draw faults of different hosts; single ones take turns in their kinds."""
        planted: list[Planted] = []
        kinds = self.kinds(faults)
        while len(planted) < faults:
            kind = kinds[number % len(kinds)] if faults == 1 else kinds[rng.integers(len(kinds))]
            places = self.racks if kind in OF_A_RACK else self.hosts
            where = sorted(rng.choice(places, 2 if kind == "link" else 1, replace=False).tolist())
            component, percent = (
                Component(kind, tuple(where)),
                round(float(rng.uniform(*self.percent)), 1),
            )
            if not any(
                self.members(component) & self.members(other.component) for other in planted
            ):
                planted.append(Planted(component, percent))
        return planted

    def plant(self, fault: Planted) -> None:
        kind, where = fault.component.kind, fault.component.where
        left = 1 - fault.percent / 100
        rate = ["--rate", f"{(self.uplink if kind == 'uplink' else self.rate) * left:.3f}mbit"]
        if kind == "uplink":
            self.call("fault", "--uplink", f"rack{where[0] + 1}", *rate)
        elif kind == "link":
            self.call("fault", f"n{where[0] + 1}", "--to", f"n{where[1] + 1}", *rate)
        else:
            for host in self.members(fault.component):
                self.call("fault", f"n{host + 1}", *DIRECTIONS.get(kind, []), *rate)

    def ranks(self, number: int) -> list[str]:
        """Return the hosts of the ranks of a run: rank 0 is on each of them in turn."""
        first = number % self.hosts
        return [f"n{1 + (first + rank) % self.hosts}" for rank in range(self.hosts)]

    def component(self, named: dict[str, Any]) -> Component:
        """Return a component of a verdict's JSON, which names hosts and racks, with their numbers."""
        names = [named["rack"]] if named["rack"] else named["where"]
        numbers = sorted(int(name.removeprefix("rack").removeprefix("n")) - 1 for name in names)
        return Component(named["kind"], tuple(numbers), named["rail"])


class Run(NamedTuple):
    """A diagnosis with faults that follow from the seed."""

    sort: str  # ONE, TWO or HEALTHY
    number: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.sort.replace(' ', '-')}-{self.number:03}-{self.seed}"

    def measure(self, setting: Setting, raw: Path) -> dict[str, Any]:
        """Plant the faults, diagnose, and return the record."""
        faults = {ONE: 1, TWO: 2, HEALTHY: 0}[self.sort]
        planted = setting.draw(
            self.number, faults, np.random.default_rng([self.seed, zlib.crc32(self.name.encode())])
        )
        for left in (raw, raw.with_suffix(".html")):  # of a call that was killed
            left.unlink(missing_ok=True)
        setting.call("clear")
        for fault in planted:
            setting.plant(fault)
        ranks, hosts = str(setting.hosts), setting.ranks(self.number)
        command = ["srun", "-N", ranks, "-n", ranks, "-m", "arbitrary", "--mpi=pmi2"]
        diagnose = ["hpccoll", "diagnose", "--out", str(raw), "--seed", str(self.number)]
        with (
            tempfile.NamedTemporaryFile("w", suffix=".hosts") as file,
            busy_processes(setting.busy),
        ):
            print(*hosts, sep="\n", file=file, flush=True)
            order = {"SLURM_HOSTFILE": file.name}
            before, begun = os.getloadavg()[0], time.monotonic()
            code = run_testbed(
                "run", "--name", setting.name, *command, *diagnose, check=False, environment=order
            )
            seconds = time.monotonic() - begun
        setting.call("clear")
        return {
            **self._asdict(),
            "code": code,
            "seconds": seconds,
            "leads": hosts[0],
            "load_average": [round(before, 1), round(os.getloadavg()[0], 1)],
            "planted": [
                (fault.component.kind, fault.component.where, fault.percent) for fault in planted
            ],
            "verdict": verdict_of(read_diagnosis(raw)).to_json() if raw.exists() else None,
        }


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have processes use the cores, each in a session of its own, which Linux gives as much as a rank of Slurm's."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Score(NamedTuple):
    """What a verdict is worth."""

    exact: bool  # it is the truth, and certain
    undecided: bool  # the truth is among several explanations, or load may explain what seems slow
    wrong: bool  # it accuses something healthy

    @classmethod
    def of(cls, record: dict[str, Any], setting: Setting) -> "Score":
        """Return what the verdict of a record is worth; without a verdict, it names nothing."""
        truth = {Component(kind, tuple(where)) for kind, where, _ in record["planted"]}
        found = record["verdict"] or {"verdicts": [], "complete": False, "too_many": False}
        accused = [fault for fault in found["verdicts"] if fault.get("waited_for_core") is None]
        certain = {setting.component(fault) for fault in accused if not fault["candidates"]}
        explanations = [
            [{*map(setting.component, each)} for each in fault["candidates"]]
            for fault in accused
            if fault["candidates"]
        ]
        wrong = bool(certain - truth - also_right(truth, setting.rack_of))
        wrong |= any(truth not in each for each in explanations) or (
            found["too_many"] and not truth
        )
        is_open = bool(explanations) or len(accused) < len(found["verdicts"])
        exact = certain == truth and not is_open and found["complete"] and not found["too_many"]
        return cls(exact, is_open and not wrong, wrong)


def runs_of(asked: argparse.Namespace) -> list[Run]:
    """Return all runs in the order in which they are measured: drawn, so that whatever drifts meets all sorts."""
    two = 0 if asked.two is None and asked.slow is not None else asked.two
    wanted = {ONE: asked.faults, TWO: 10 if two is None else two, HEALTHY: asked.healthy}
    runs = [
        Run(sort, number, asked.seed) for sort, count in wanted.items() for number in range(count)
    ]
    return [runs[index] for index in np.random.default_rng(asked.seed).permutation(len(runs))]


def read_records(keep: Path, runs: Sequence[Run]) -> dict[Run, list[dict[str, Any]]]:
    """Return the records of runs, of each launch one; what a killed call has left of a line does not count."""
    lines = [
        line
        for path in sorted(keep.glob("*.jsonl"))
        for line in path.read_text().splitlines(keepends=True)
    ]
    found: dict[Run, list[dict[str, Any]]] = {run: [] for run in runs}
    for record in (json.loads(line) for line in lines if line.endswith("\n")):
        found.get(Run(*(record[name] for name in Run._fields)), []).append(record)
    return {run: records for run, records in found.items() if records}


def is_missing(records: Sequence[dict[str, Any]]) -> bool:
    """Return whether a run has to be measured, of which there are these records."""
    failed = all(
        record["verdict"] is None and record["code"] not in (0, INCOMPLETE) for record in records
    )
    return failed and len(records) < MOST_LAUNCHES


def measure(setting: Setting, runs: Sequence[Run], keep: Path, file: Path) -> None:
    """Measure the runs that have no record yet, or whose launches failed."""
    keep.mkdir(parents=True, exist_ok=True)
    if file.exists() and not file.read_text().endswith("\n"):
        file.write_text(file.read_text().rpartition("\n")[0] + "\n")
    records = read_records(keep, runs)
    missing = [run for run in runs if is_missing(records.get(run, []))]
    if not missing:
        return
    try:
        setting.up()
        for left, run in zip(reversed(range(len(missing))), missing, strict=True):
            record = run.measure(setting, keep / f"{run.name}.h5")
            with file.open("a") as lines:
                print(json.dumps(record), file=lines)
            print(
                f"{run.name}: {record['seconds']:.1f} s, {Score.of(record, setting)}; {left} left",
                file=sys.stderr,
            )
    finally:
        setting.call("down", check=False)


def read_complete(files: Iterable[Path]) -> Iterator[RecordedDiagnosis]:
    """Yield the diagnoses of raw files, without those that are lost, damaged or interrupted."""
    for file in files:
        with suppress(BadInputError):
            if (recorded := read_diagnosis(file)).diagnosis:
                yield recorded


def print_alarms(files: Sequence[Path], replays: int) -> bool:
    """Print in how many replays of healthy runs something is accused; return whether in few, and all files are read."""
    recorded = [*read_complete(files)]
    measured, alarms = [RecordedRun(each.measured) for each in recorded], 0
    unused = 1 + max((each.question.seed for each in recorded), default=0)
    are_read = verdict(
        f"{len(files)} healthy runs have files", f"{len(recorded)}", len(recorded) == len(files)
    )
    what = f"{replays} replays of {len(recorded)} healthy runs: alarms at most {MOST_ALARMS:.1%}"
    try:
        for number in range(replays):
            times = ResampledTimes(measured, number)
            alarms += bool(
                ask(replace(recorded[0].question, seed=unused + number), times.measure).faults
            )
    except UsedUpError as error:
        return verdict(what, str(error), reached=False)
    return verdict(what, str(alarms), alarms <= MOST_ALARMS * replays) and are_read


def sort_of(record: dict[str, Any]) -> str:
    """Return the row of the table: the kind of a single fault, or how many there are."""
    return record["planted"][0][0] if record["sort"] == ONE else record["sort"]


def print_records(setting: Setting, records: Sequence[dict[str, Any]]) -> None:
    """Print what the runs gave, and those that were not exact."""
    sorts = [*setting.kinds(1), TWO, HEALTHY]
    rows = []
    for sort in sorts:
        if runs := [record for record in records if sort_of(record) == sort]:
            scores, seconds = (
                [Score.of(record, setting) for record in runs],
                [record["seconds"] for record in runs],
            )
            counts = [sum(getattr(score, name) for score in scores) for name in Score._fields]
            loads = [max(record.get("load_average", [math.nan])) for record in runs]
            load = f"{min(loads):.0f} to {max(loads):.0f}"
            rows.append(
                [
                    sort,
                    len(runs),
                    *counts,
                    load,
                    f"{statistics.median(seconds):.0f}",
                    f"{max(seconds):.0f}",
                ]
            )
    percent = " to ".join(f"{each:g}" for each in dict.fromkeys(setting.percent))
    counted = (
        "runs:",
        "exact:",
        "undecided:",
        "healthy accused:",
        "load average:",
        "median s:",
        "most s:",
    )
    print_table([f"slow by {percent} %", *counted], rows)
    for record in records:
        score = Score.of(record, setting)
        if not score.exact:
            found = record["verdict"] and [
                (each["kind"], *each["where"]) for each in record["verdict"]["verdicts"]
            ]
            planted = [
                (kind, *(place + 1 for place in where), f"{percent} %")
                for kind, where, percent in record["planted"]
            ]
            name = Run(*(record[name] for name in Run._fields)).name
            circumstances = (
                f"rank 0 on {record.get('leads')}, load average {record.get('load_average')}"
            )
            print(f"- {name}: {planted}: {found}, {score}, {circumstances}")


def print_verdicts(setting: Setting, records: Sequence[dict[str, Any]]) -> bool:
    """Print what is asked and was measured, and return whether all of it is reached."""
    reached = []
    for sort in (ONE, TWO, HEALTHY):
        scores = [Score.of(record, setting) for record in records if record["sort"] == sort]
        if not scores:
            continue
        runs, exact, wrong = (
            len(scores),
            sum(score.exact for score in scores),
            sum(score.wrong for score in scores),
        )
        if setting.busy:
            reached.append(
                verdict(
                    f"{runs} runs, {sort}: nothing healthy accused", f"{runs - wrong}", not wrong
                )
            )
            continue
        if sort == HEALTHY:
            reached.append(
                verdict(f"{runs} healthy runs without a fault", f"{exact}", exact == runs)
            )
            continue
        asked = LEAST_EXACT[sort]
        reached.append(
            verdict(
                f"{runs} runs with {sort}: exact in {asked:.0%}", f"{exact}", exact >= asked * runs
            )
        )
        if sort == ONE:
            got, asked = runs - wrong, LEAST_NOTHING_ELSE
            reached.append(
                verdict(f"nothing else accused in {asked:.1%}", f"{got}", got >= asked * runs)
            )
    if records and (most := MOST_SECONDS.get(setting.hosts)):
        seconds = max(record["seconds"] for record in records)
        reached.append(verdict(f"a run in {most} s", f"{seconds:.0f} s at most", seconds <= most))
    return all(reached)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=16, help="hosts of the testbed [16]")
    parser.add_argument(
        "--rate", default="100mbit", help="rate of their wires, such as 1gbit [100mbit]"
    )
    parser.add_argument(
        "--racks", type=int, default=0, help="racks, which then have faults, too [none]"
    )
    parser.add_argument("--faults", type=int, default=40, help="runs with one fault [40]")
    parser.add_argument("--two", type=int, help="runs with two faults [10, with --slow none]")
    parser.add_argument("--healthy", type=int, default=60, help="runs without [60]")
    parser.add_argument(
        "--slow",
        type=float,
        metavar="PERCENT",
        help="faults are wires slower by this [10 to 20, all kinds]",
    )
    parser.add_argument(
        "--busy", type=int, default=0, help="processes that use the cores beside each run [0]"
    )
    parser.add_argument(
        "--bootstrap", type=int, default=300, help="replays of the healthy runs [300]"
    )
    parser.add_argument("--seed", type=int, default=43, help="of all that is drawn [43]")
    parser.add_argument(
        "--shard", default="1/1", metavar="K/N", help="only each N-th run, from the K-th on [1/1]"
    )
    parser.add_argument(
        "--keep", type=Path, required=True, help="directory of the records and raw files"
    )
    parser.add_argument("--read", action="store_true", help="measure nothing")
    parser.add_argument("--name", default="diagnose", help="name of the testbed [diagnose]")
    asked = parser.parse_args()
    unit = {"mbit": 1, "gbit": 1000}
    rate = float(asked.rate[:-4]) * unit[asked.rate[-4:]]
    setting = Setting(asked.hosts, rate, asked.racks, asked.name, asked.busy, asked.slow)
    keep = (asked.keep / setting.directory).resolve()
    runs, (shard, shards) = runs_of(asked), map(int, asked.shard.split("/"))
    if not asked.read:
        measure(setting, runs[shard - 1 :: shards], keep, keep / f"{shard}-of-{shards}.jsonl")
    records = {run: each[-1] for run, each in read_records(keep, runs).items()}
    print(f"## Testbed: {setting.text}\n")
    print_records(setting, [*records.values()])
    reached = [
        verdict(f"{len(runs)} runs are recorded", f"{len(records)}", len(records) == len(runs))
    ]
    reached.append(print_verdicts(setting, [*records.values()]))
    healthy = [keep / f"{run.name}.h5" for run in records if run.sort == HEALTHY]
    if healthy and asked.bootstrap:
        reached.append(print_alarms(healthy, asked.bootstrap))
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
