"""How far predictions of larger jobs are from published results of supercomputers: fitted on few nodes.

By hand, with the directory of PICO's results, which has leonardo/, lumi/ and fugaku/ beside the
tables of metadata:

    python tests/benchmarks/supercomputers.py DIR              # the page, a minute for each machine
    python tests/benchmarks/supercomputers.py DIR leonardo     # one machine

It ends with 1 if an error is larger than asked.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_count
from hpccoll.model.run_model import RunModel, models_of
from hpccoll.model.validation import CLOSE_FACTOR, Errors, Validated
from hpccoll.render.model_report import error_table
from hpccoll.store.result_files import read_all


@dataclass(frozen=True)
class Split:
    """Which jobs a machine is fitted to, and what is asked of the errors on others."""

    fitted_nodes: int  # the most nodes of a job that it is fitted to
    median: float  # the largest median error of collectives that it is fitted to
    close: float | None = None  # the least part within ``CLOSE_FACTOR``


CHOSEN_BY = (
    "These are not errors of a blind test. The author chose what the model has besides messages, one effect after "
    "another, and from which improvement on larger jobs have curves of their own (`CLEARLY_BETTER`), while looking at "
    "the errors of Leonardo's held-out jobs."
)
NOT_RUN = (
    "No job of 8,192 ranks was held against its prediction: the largest job here has 2,048 ranks. Measurements of more "
    "than 1,024 ranks are not fitted; those on as few nodes as the fitted ones are predicted apart."
)
ABOUT_SCHEDULES = (
    "Some schedules were added because the model could not predict their algorithms on these held-out jobs: Sparbit, "
    "the reduce of a reduce-scatter and a gather, halving that begins near, Bine trees for large vectors, and buckets "
    "on a torus. Their steps are those of the sources that hpccoll/interop/pico_algorithms.toml names; so is what the "
    "programs over uTofu do besides: messages of addresses, ports that are used in turn, segments, copies. The author "
    "chose the effects of a torus and of several ports by their physics, and saw their errors on the same 512 nodes."
)
ABOUT_FUGAKU = (
    "The sources of Fujitsu MPI are not public: its algorithms are taken for those of Open MPI with the same name "
    "(`fujitsu_by_name` in hpccoll/interop/pico_algorithms.toml), except broadcast basic-linear, whose times on these "
    "512 nodes contradict its name. Messages share the links of the torus. Over uTofu, buckets go to neighbours. The "
    "other algorithms go along the dimensions in turn: the model knows the number and the sizes of the messages of "
    "each step, but not which links they share, except that both ways round two nodes are one link."
)
MISSED_ON_FUGAKU = (
    "Residuals on 512 nodes say where an effect is missing. All-to-all takes 2.0 (direct) and 1.6 times (pairwise) the "
    "predicted time. Open MPI's pairwise sends to rank + step, where ours exchanges with rank xor step: over all "
    "steps, the fullest links of this torus then carry 1.25 times as much, which explains a part. A message of 4 B of "
    "the direct one takes 2.6 us, on 8 nodes 2.1 us, so hundreds of messages under way at once cost more than the "
    "model knows. Over uTofu, operations of 32 B and 256 B take 0.7 times the predicted time: beyond 1 KiB an "
    "all-reduce or a reduce sends an empty message before each one, and the model has one curve for both. "
    "Reduce-scatter along Bine trees takes 1.3 times. In buckets, one of 512 MiB takes 3.4 times, because its program "
    "allocates 1.5 GiB in each call."
)

SPLITS = {
    "leonardo": Split(128, median=0.20, close=0.90),
    "lumi": Split(16, median=0.20, close=0.90),
    "fugaku": Split(64, median=0.35),
}


def models(directory: Path, machine: str) -> Sequence[RunModel]:
    """Return the models of a machine, one for each transport."""
    with TemporaryDirectory() as work:
        out = Path(work) / f"{machine}.h5"
        command = [sys.executable, "-m", "hpccoll", "import", directory / machine, "--out", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return models_of(read_all([out]).raw_results, most_nodes=SPLITS[machine].fitted_nodes)


def split(model: RunModel) -> tuple[list[Validated], list[Validated]]:
    """Return the measurements of larger jobs: those of fitted collectives, and those of others."""
    fitted = {case.observation.collective for case in model.validated if not case.held_out}
    seen, unseen = [], []
    for case in model.held_out:
        if case.seconds and case.observation.layout.nodes > most_fitted_nodes(model):
            (seen if case.observation.collective in fitted else unseen).append(case)
    return seen, unseen


def most_fitted_nodes(model: RunModel) -> int:
    """Return the nodes of the largest job that a machine was fitted to."""
    return max(case.observation.layout.nodes for case in model.validated if not case.held_out)


def as_few_nodes(model: RunModel) -> list[Validated]:
    """Return the measurements that were not fitted although their jobs had as few nodes: they had too many ranks."""
    most = most_fitted_nodes(model)
    return [case for case in model.held_out if case.observation.layout.nodes <= most]


def page(machine: str, model: RunModel, seconds: float) -> Iterator[str]:
    """Yield the section of a machine and transport."""
    if model.machine is None or model.machine.measured is None:
        return
    fitted = [case for case in model.validated if not case.held_out]
    seen, unseen = split(model)
    if not seen and not unseen:
        return
    nodes = ", ".join(map(str, model.machine.measured.nodes))
    yield f"## {machine}, {model.over}"
    yield ""
    yield f"Fitted on {nodes} nodes: {len(fitted)} measurements. Fit and predictions took {seconds:.0f} s of one core."
    yield ""
    yield f"| measurements | cases | measured/predicted | median error | within {CLOSE_FACTOR}x |"
    yield "| --- | --- | --- | --- | --- |"
    groups = {
        "fitted": fitted,
        "held out, collectives that are fitted": seen,
        "held out, other collectives": unseen,
        "as few nodes, more than 1,024 ranks": as_few_nodes(model),
    }
    for name, cases in groups.items():
        errors = Errors.of(cases)
        if errors:
            yield (
                f"| {name} | {errors.cases} | {errors.ratio_median:.2f} | {errors.error_median:.1%} "
                f"| {errors.within_close:.0%} |"
            )
    yield ""
    larger = model.machine.larger_jobs
    if larger:
        of_larger = [
            case.observation
            for case in fitted
            if case.observation.layout.nodes >= larger.from_nodes
        ]
        launches = {observation.key[1] for observation in of_larger}
        yield (
            f"Jobs of {larger.from_nodes} nodes and more have curves of their own, fitted to {len(of_larger)} "
            f"measurements of {format_count(len(launches), 'launch')}."
        )
        yield ""
    yield "The measurements do not determine:"
    yield ""
    for words in model.machine.measured.undetermined:
        yield f"- {words}"
    yield ""
    yield "Not fitted:"
    yield ""
    for reason, count in sorted(model.left_out.items()):
        yield f"- {count}: {reason}"
    yield ""
    yield "```text"
    yield from error_table([*seen, *unseen])
    yield "```"
    yield ""


def misses(machine: str, model: RunModel) -> Iterator[str]:
    """Yield which errors are larger than asked."""
    asked = SPLITS[machine]
    errors = Errors.of(split(model)[0])
    if errors is None:
        return
    if errors.error_median > asked.median:
        yield f"{machine} {model.over}: median error {errors.error_median:.1%}, asked {asked.median:.0%}"
    if asked.close and errors.within_close < asked.close:
        yield f"{machine} {model.over}: {errors.within_close:.0%} close, asked {asked.close:.0%}"


def main() -> int:
    directory, *machines = sys.argv[1:]
    missed: list[str] = []
    print("# Predictions of larger jobs, against published results of supercomputers\n")
    print(
        "Results of PICO (github.com/HLC-Lab/pico at 413bc5d). `tests/benchmarks/supercomputers.py` fits a machine to "
        "the collectives of the smaller jobs and predicts the larger ones. Every algorithm that takes the steps of "
        "one of ours counts.\n"
    )
    print(
        f"{CHOSEN_BY}\n\n{ABOUT_SCHEDULES}\n\n{ABOUT_FUGAKU}\n\n{MISSED_ON_FUGAKU}\n\n{NOT_RUN}\n"
    )
    for machine in machines or SPLITS:
        began = process_time()
        try:
            models_of_machine = models(Path(directory), machine)
        except BadInputError as error:
            print(f"## {machine}\n\nNo machine is fitted: {error.expected} is needed.\n")
            continue
        for model in models_of_machine:
            print("\n".join(page(machine, model, process_time() - began)))
            missed += misses(machine, model)
    print("\n".join(missed), file=sys.stderr)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
