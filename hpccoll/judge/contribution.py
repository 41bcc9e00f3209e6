"""Rows of one's own run as rows of the table of published figures, without hosts, users and paths.

Each cell is a word that the table knows, a number, a version, or what the user has written for it;
no text of the results is copied.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpccoll.analysis.printed_caveats import caveats_of
from hpccoll.cases.library_request import NCCL_ALGORITHMS, requested_by_environment
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import NAME
from hpccoll.common.text import join_words
from hpccoll.evidence.log_record import NCCL_LIBRARIES, LogRecord
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.held import Acceptance
from hpccoll.judge.named_gpus import gpus_with_model, other_gpus
from hpccoll.judge.verdicts import settings_of
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import PublishedFigure, node_class, version_of
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row, Run

TABLE_NAMES = {
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
    "collnet_direct": "CollnetDirect",
    "collnet_chain": "CollnetChain",
    "pat": "PAT",
}
"""How the table writes an algorithm, where that is not the project's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContributorForm:
    """What a contributor says about a run; each text is empty if it is left open."""

    machine: str = ""  # what tells runs of one source apart, such as ``Example Lab, 8 x H100``
    gpu: str = ""  # the GPU, as the class of the cluster names it [what the results name]
    operator: str = ""  # whose machine it is
    source: str = ""  # where the numbers are published, or what tells them from other sources

    @property
    def texts(self) -> Mapping[str, str]:
        """The texts by the options that give them."""
        return {
            "--machine-name": self.machine,
            "--gpu": self.gpu,
            "--operator": self.operator,
            "--source": self.source,
        }


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a run contributes."""

    figures: Sequence[tuple[str, PublishedFigure]]  # each after its fabric
    left_out: Mapping[str, int] = field(default_factory=dict)  # numbers of rows, by the reason


def contribution_of(
    judged: Iterable[Judged],
    runs: Iterable[Run],
    machine: MachineFile,
    form: ContributorForm,
    log: LogRecord | None = None,
) -> Contribution:
    """Return the rows of a run that the table can have.

    Args:
        judged: the rows with their verdicts: those that fail are left out.
        runs: the runs of the rows.
        machine: the described cluster that was measured.
        form: what the contributor says.
        log: the log of the run, which names algorithms.

    Raises:
        BadInputError: if the cluster has no class, or a text of the form cannot be published.
    """
    like = machine.machine_class
    if like is None:
        needed = "a cluster with the section class: fabric and network (hpccoll list clusters)"
        raise UnusableError(
            "--cluster", f"{machine.name} has no class of machines; do: give {needed}"
        )
    if form.gpu and like.gpus and form.gpu not in like.gpus:
        raise BadInputError("--gpu", form.gpu, like.gpus)
    run_of = {run.run_id: run for run in runs}
    _check_public(form, like, run_of.values())
    figures: list[tuple[str, PublishedFigure]] = []
    left_out: Counter[str] = Counter()
    for judgement in judged:
        run = run_of.get(judgement.row.run_id)
        is_logged = log is not None and log.ranks in (None, judgement.row.ranks)
        measured = _Measured(judgement, run, log if is_logged else None)
        gpu = _gpu(measured, like, form)
        reason = _obstacle(measured, machine, like) or _algorithm_obstacle(measured)
        if not reason and not gpu:
            choices = join_words(like.gpus, "or") or "NAME"
            reason = f"the results do not name their GPU: give --gpu {choices}"
        if reason:
            left_out[reason] += 1
        else:
            figures.append((like.fabric, _figure(measured, like, form, gpu)))
    return Contribution(figures, left_out)


def _check_public(form: ContributorForm, like: ClassSection, runs: Iterable[Run]) -> None:
    """Check that no text that is published has a host of the runs, or a path.

    Raises:
        BadInputError: if one has; the line names the option.
    """
    hosts: set[str] = set()
    for run in runs:
        for host in run.hosts:
            hosts |= {host, host.partition(".")[0]}
    class_words = " ".join((like.fabric, like.network or "", like.operator or "", *like.gpus))
    texts = {**form.texts, "--cluster: class": class_words}
    for option, text in texts.items():
        if text:
            NAME.check(option, text)
        for word in re.split(r"[\s,;:()]+", text):
            if word in hosts:
                raise BadInputError(option, text, f"words without a host of the run: {word}")
            if word.startswith(("/", "~")) and not word.startswith("//"):
                raise BadInputError(option, text, f"words without a path: {word}")


@dataclass(frozen=True, slots=True)
class _Measured:
    """A row with its verdict, and what is known of its run."""

    judged: Judged
    run: Run | None
    log: LogRecord | None  # if it is about as many ranks

    @property
    def row(self) -> Row:
        return self.judged.row

    @property
    def requested(self) -> str:
        """The algorithm that a setting chooses; empty if the library was free."""
        row = self.row
        settings = settings_of(self.run, self.log)
        return row.requested or requested_by_environment(settings, row.collective) or ""

    @property
    def ran(self) -> set[str]:
        """The algorithms that a log or the results prove, by the project's names."""
        row = self.row
        if self.log:
            lines = self.log.lines_of_case(row.collective, row.bytes, row.ranks, dtype=row.dtype)
            logged = {line.algorithm for line in lines}
            if logged:
                return logged
        executed = (row.executed or "").partition(" ")[0]
        return {executed}.intersection(NCCL_ALGORITHMS.values())

    @property
    def library(self) -> str:
        """The version of NCCL, or RCCL with its version, as the table has it; empty if unknown."""
        named: object = self.judged.library
        if self.run and not named:
            nccl = self.run.provenance.get("nccl")
            named = nccl.get("version") if isinstance(nccl, Mapping) else ""
        version = ".".join(map(str, version_of(str(named))))
        if self.row.transport == "rccl":
            return f"RCCL {version}".strip()
        return version


def _obstacle(measured: _Measured, machine: MachineFile, like: ClassSection) -> str:
    """Return why the table cannot have a row; empty if it can."""
    row = measured.row
    if row.algorithm != NATIVE or row.transport not in NCCL_LIBRARIES or not row.busbw_Bps:
        return "the table has bus bandwidths of calls of NCCL and RCCL only"
    if row.transport != like.library:
        return f"{machine.name} has {like.library.upper()}: give another --cluster"
    crosses, _ = node_class(like, row.nodes)
    if crosses and like.network is None:
        return f"the network of {machine.name} is unknown: give a --cluster with class: network"
    if measured.judged.acceptance is Acceptance.FAIL:
        return "the row fails, and the table is of healthy machines"
    caveats = caveats_of(row)
    if row.ranks_per_node is None:
        caveats.append("its nodes have different numbers of ranks")
    if measured.run:
        caveats.append(other_gpus(measured.run, machine))
    return "; ".join(filter(None, caveats))


def _algorithm_obstacle(measured: _Measured) -> str:
    """Return why the algorithm of a row cannot be written; empty if it can, or need not."""
    ran = measured.ran
    if len(ran) > 1:
        return f"the log names {join_words(sorted(ran))} for this size"
    unknown = {*ran, measured.requested}.difference(NCCL_ALGORITHMS.values(), {""})
    if unknown:
        return f"the table has no algorithm {join_words(sorted(unknown))}"
    settings = settings_of(measured.run, measured.log)
    is_off = settings.get("NCCL_NVLS_ENABLE") == "0"
    if is_off and not ran and not measured.requested:
        return "NVLS is off, and nothing names the algorithm: give --log with SUBSYS=INIT,TUNING"
    return ""


def _gpu(measured: _Measured, like: ClassSection, form: ContributorForm) -> str:
    """Return the GPU of a row as the class names it; empty if neither form nor results say it."""
    if form.gpu:
        return form.gpu
    named = gpus_with_model(measured.run) if measured.run else []
    words = [word for name in named for word in re.split(r"[^\w]", name)]
    for gpu in like.gpus:
        if any(word.startswith(gpu) for word in words):
            return gpu
    return like.gpus[0] if len(like.gpus) == 1 else ""


def _figure(
    measured: _Measured, like: ClassSection, form: ContributorForm, gpu: str
) -> PublishedFigure:
    """Return a row that the table can have."""
    row = measured.row
    crosses_network, _ = node_class(like, row.nodes)
    network = like.network if crosses_network else None
    algorithm = next(iter(measured.ran), measured.requested)
    algorithm_in_table = TABLE_NAMES.get(algorithm, algorithm)
    is_forced = bool(measured.requested)
    operator = form.operator or like.operator or ""
    return PublishedFigure(
        network=network,
        gpus_per_node=row.ranks_per_node or 1,
        nodes=row.nodes,
        collective=row.collective,
        nbytes=row.bytes,
        dtype=row.dtype,
        in_place=row.in_place,
        algorithm=algorithm_in_table,
        forced=is_forced,
        rate=row.busbw_Bps or 0.0,
        run=form.machine,
        source=form.source,
        gpu=gpu,
        operator=operator,
        library=measured.library,
    )
