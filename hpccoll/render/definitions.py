"""Definitions of the report: a description of each collective, and a definition of each term."""

import re
from collections.abc import Mapping, Sequence

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.strength import STRENGTHS, Strength, requirements
from hpccoll.analysis.wire_bandwidth import HEADER_MODEL
from hpccoll.cases.algorithm_registry import emulations
from hpccoll.common.text import join_words
from hpccoll.store.call_key import root_rank
from hpccoll.store.host_names import jobs_and_hosts
from hpccoll.store.rows import PICO
from hpccoll.store.schema import MODELLED

COLLECTIVE_DESCRIPTIONS = {
    "all_reduce": "Every rank ends with the reduction of the buffers of all ranks. S is one buffer.",
    "reduce_scatter": "Every rank ends with its block of the reduction of the buffers of all ranks. S is the whole "
    "input buffer of a rank, n blocks.",
    "all_gather": "Every rank ends with the blocks of all ranks. S is the whole result, n blocks.",
    "broadcast": "Every rank ends with the buffer of the root. S is that buffer.",
    "reduce": "The root ends with the reduction of the buffers of all ranks. S is one buffer.",
    "gather": "The root ends with the blocks of all ranks. S is the whole result at the root, n blocks.",
    "scatter": "Every rank ends with its block of the buffer of the root. S is the whole buffer at the root, n blocks.",
    "all_to_all": "Every rank has a block for every rank. S is the blocks of one rank, its own included.",
    "all_to_all_v": "Every rank has a block for every rank, with sizes that the traffic pattern defines. S is the "
    "blocks of one rank, its own included: the mean over the ranks.",
    "barrier": "No rank continues before all ranks have arrived. A barrier moves no user data: it has a time, but no "
    "size and no bandwidth.",
    "send_recv": "Ping-pong: the first rank sends a message of S bytes to the second, which sends one back. The time "
    "is that of the round trip, and busbw = 2 S / t: the bandwidth of the wire in the direction in use. Benchmarks "
    "that report half of the round trip as latency show half of this time. All other ranks are idle.",
    "bidirectional": "Two ranks send a message of S bytes to each other at the same time. busbw = S / t, for each of "
    "the two directions. All other ranks are idle.",
    "training_step": "Every rank computes a step of the model, and meanwhile runs the collectives of its parallelism, "
    "with the named algorithm if they have it. Exposed communication is the time by which the step is longer than "
    "that of null, which has neither collectives nor codecs.",
    "multi_pair": "Pairs, a rank of the first half and one of the second, send messages of S bytes to each other. "
    "busbw = S / t, of one pair: k pairs at once carry k times as much. All other ranks are idle.",
}

HEADINGS = {"training_step": "Training steps"}
"""The headings of parts of the page that are not named after a collective."""


def _strength_meaning(strength: Strength) -> str:
    required = join_words(requirements(strength))
    if not required:
        return "anything less"
    return required if strength == "weak" else f"also {required}"


STRENGTH_MEANINGS: Mapping[Strength, str] = {
    strength: _strength_meaning(strength) for strength in reversed(STRENGTHS)
}
"""What each strength takes, besides what the weaker ones take, the strongest first."""

ANSWERS_IN_BRIEF = (
    "native is the library's own call. A factor such as 1.44x is the mean over the sizes of its range; in brackets are "
    "the smallest and the largest. Evidence is strong where the choice is clearly faster than native at every size, "
    "fair at half of the sizes or more, weak at fewer; other load, noise, shared cores and fewer than three rounds "
    "weaken it. tie: no choice is clearly faster. none: nothing can be compared. A range that ends between two "
    "measured sizes ends where the curves cross."
)

_strengths = "; ".join(f"{strength}: {meaning}" for strength, meaning in STRENGTH_MEANINGS.items())

DEFINITIONS = {
    "size": "S, the bytes of the collective as nccl-tests count them: the whole buffer, even if each rank has only a "
    "block of it. KiB, MiB and GiB are powers of 1024. Where a range ends between two measured "
    "sizes, the curves of two choices cross.",
    "algbw": "S / t, in GB/s of 1e9 bytes per second, or in MB/s of 1e6.",
    "busbw": "algbw times a factor of the n ranks, comparable with nccl-tests: 2(n-1)/n for all-reduce; (n-1)/n for "
    "reduce-scatter, all-gather, all-to-all, gather and scatter; 1 for broadcast and reduce. nccl-tests have neither "
    "ping-pong nor unequal blocks: the factor of all_to_all_v is (n-1)/n, with the mean bytes of a rank; that of "
    "send_recv is 2, because S is sent in both directions within the time; those of bidirectional and multi_pair "
    "are 1, as for sendrecv of nccl-tests. A barrier has no busbw.",
    "timing": "How the time of an operation is derived from the clocks of its ranks: max is the longest duration over "
    "the ranks; span is the latest end minus the earliest start. Over NCCL operations may also be "
    "aggregated: many are queued back to back, and the longest duration over the ranks is divided by their number. The "
    "timings nccl-tests and osu run the loops of the programs of that name: their time is the mean over iterations and "
    "ranks. Rows of different timings are never compared.",
    "median, interval": "The median over the timed iterations, and its 95 % confidence interval. With several rounds: "
    "the median of their medians, and an interval that contains the intervals of all rounds (with 9 rounds, it "
    "drops the lowest and the highest end, with 12 two of each, as the interval of a median drops samples).",
    "round": "One pass over all cases of a launch, in an order of its own. All series of a call are measured one after "
    "another and compared round by round. A ratio is the median of the ratios of the rounds. If the "
    "winner takes 10.0, 10.2 and 10.1 us in three rounds, the 95 % intervals of all others begin above these, such as "
    "at 10.4, 10.5 and 10.3 us; with one round, the intervals must be disjoint. Without intervals there is no winner.",
    "strength of evidence": f"How sure an answer is. {_strengths}. A lead at a size is clear if in each round "
    "the median of the choice is below the 95 % interval of every other choice, or of native while no other choice is "
    "clearly faster; with one round, the intervals are disjoint.",
    "over native": "The time of the library's own collective over that of the choice: at 1.20x native takes 1.20 times "
    "as long. Of a range of sizes it is the geometric mean over the sizes of their medians over the rounds.",
    "exposed, share": "In a training step, exposed is the median of the step minus that of the same step without "
    "communication and codecs (null), in a pipeline with the bubble; share is exposed over the whole step.",
    "null": "The same training step without communication, and without the codecs of compressed gradients.",
    "all communication": "In a training step, the sum of the durations of all collectives of a rank, whether or not "
    "computation hides them: the median over iterations of the largest over ranks.",
    "transfer, waiting": "In a training step, of the collectives in which ranks wait for all others: transfer adds up "
    "the shortest durations over ranks, waiting what the collectives of a rank take beyond these, hidden or not. Ranks "
    "wait for late ones, or leave one after the other. Both are medians over iterations of the largest over ranks.",
    "forward, backward": "In a training step, for the computations of that phase, the sum of the times since the end "
    "of the preceding computation, waiting included: the median over iterations of the largest over ranks.",
    "pairs of ranks": "If two ranks exchange messages, lines show the median pair (of two, the faster); a pair that "
    "was measured repeatedly has its last measurement.",
    "traffic": "The distribution of the blocks of an all_to_all_v: uniform, all equal; zipf, rank j is as popular as "
    "1/(j + 1); random, each pair has a random size; or weights from a file, with the first digits of its digest.",
    "native": "The library's own collective at its default settings, in the run, placement, variant and mapping of "
    "what is compared with it: a ring in place, with the library's call in place.",
    "auto": "The choice of a table of hpccoll tune for the size, named in executed (and in evidence, with its "
    "transport). It is left out of rankings, because it duplicates another row, but drawn in the charts of time and of "
    "busbw against size.",
    **{name: emulation.definition for name, emulation in emulations().items()},
    "aggregators": "Ranks that only aggregate, in addition to the workers; algorithms without aggregation leave them "
    "idle. No number of ranks includes them.",
    "mapping": "The order in which ranks are assigned to nodes. block: consecutive ranks are on one node, and "
    "consecutive nodes in one rack; cyclic: ranks are dealt one by one to the racks, and in each rack to its nodes; "
    "mixed: neither. A case that requests a mapping renumbers its ranks inside the job, so that both mappings are "
    "measured on the same hosts; the root has its number in the mapping.",
    "variant": "A named environment of the sweep file, with the settings of its NCCL communicators. Each variant is a "
    "job of its own, and compared within itself.",
    "of the wire": "busbw over the calibrated rate of a wire between two nodes: on a testbed whose wires were "
    "calibrated within 2 % of the TCP throughput at their rate, without racks that share a wire, with one rank on each "
    "node, and from the smallest size for which the calibration holds; smaller messages may be faster, as a burst. "
    "With several rails it is over the total rate of the rails in use. Other results have no percentage, and neither "
    "has aggregation by ranks or by switches, because workers then send fewer bytes.",
    "of memory": "busbw over that of a single copy: the bytes that the call reads and writes in the memory of a "
    "node if it copies each datum once (of S bytes on p ranks: all_reduce 3 p - 1, reduce_scatter and reduce p + 1, "
    "all_gather, all_to_all and broadcast 2 p, gather and scatter 2; in place 2 p - 2 for 2 p, and 2 (p - 1) / p for "
    "2), at the rate of a copy. Before the first case, all ranks copy at once what the next rank has just written, "
    "with 64 KiB to 64 MiB in the buffers of each; the rate is that of the same bytes in buffers. More than 100 % "
    "are possible, because caches save bytes, and a reduction writes less than it reads. Only launches on one node, "
    "with a core for each rank, have a percentage, from 64 KiB on, and not on GPUs.",
    "counted, sent": "Bytes that all nodes send to each other in one operation: counted from the schedule that we ran; "
    "sent, from the counters of their ports, with headers. Between racks: the counted bytes that leave a rack. The "
    "bytes of a node are the mean over the nodes of workers; hosts of aggregators are listed separately. "
    + HEADER_MODEL,
    "rails": "Ports of a node, each to a network of its own. A port is in use if it carries more than 2 % of the bytes "
    "that the node sends.",
    "floor": "An empty schedule: the cost of the harness itself. It is left out of maps, efficiencies and ratios.",
    "oversubscribed": "More ranks than cores: the ranks wait for each other's time slices.",
    "status": "Only ok and partial rows are drawn or compared. partial: rounds are missing; wrong: the timed buffer "
    "had wrong elements; failed, skipped and partial rows have a reason.",
    "requested, executed": "The algorithm that was requested of the library, and the algorithm that ran according to "
    "the evidence; unknown without evidence. Evidence comes from the logs of an untimed launch of the same environment "
    "before the timed one. If the two differ, series are named after both: native (sharp asked, ring ran).",
    "offloaded": "sharp, nvls, nvls_tree, symmetric_multicast, collnet_direct, collnet_chain: switches reduce, "
    "and ranks send a vector once. busbw assumes more bytes and may exceed every link: compare algbw; there is no "
    "percentage.",
    "kind": "measured; measured on a testbed (real Slurm and MPI, metered virtual wires at the given rate; the "
    "nodes share the CPUs of one machine); measured on a shared GPU; imported (by another program), which charts draw "
    "solid; simulated (from a schedule) and modelled (by "
    "NCCL's own formulas): predictions, which charts draw dashed or dotted. No answer, finding or ratio "
    "includes what is imported or predicted.",
}


OVERVIEW = "overview"
"""The name of the page's first part, and of its chart, if there are several collectives."""


def heading_of(collective: str) -> str:
    """Return the heading of the part of the page on a collective."""
    return HEADINGS.get(collective, collective)


def describe_collective(collective: str, groups: Sequence[ChartGroup]) -> str:
    """Return the description of a collective, with its root if that is always rank 0."""
    sentences = [COLLECTIVE_DESCRIPTIONS.get(collective)]
    roots = {root_rank(point.row) for group in groups for point in group.points}
    if roots == {0}:
        sentences.append("The root is rank 0.")
    placements = {placement_label(point.row) for group in groups for point in group.usable}
    if collective == "broadcast" and placements > {""}:
        sentences.append(
            "The library's call has one buffer and no placement: it is drawn in the panels of both placements."
        )
    return " ".join(filter(None, sentences))


def heading_lines(group: ChartGroup) -> tuple[str, ...]:
    """Return the lines that describe all charts of ``group``: machines, setting, and the meaning of marks."""
    machines = group.machines
    if len(machines) == 1:
        lines = [f"{group.kind} on {machines[0]}"]
    else:
        lines = [
            f"{group.kind} on machine {number}: {name}" for number, name in enumerate(machines, 1)
        ]
    lines += [group.setting, *group.emulations]
    if len(machines) > 1:
        lines.append("each machine has its own marks and lines")
    if group.several_executors:
        lines.append(PYTHON_NOTE)
    crowded = ", ".join(map(str, group.oversubscribed_counts))
    if crowded:
        lines.append(
            f"hollow marks: oversubscribed, more ranks than cores ({crowded} {group.unit})"
        )
    joined = group.mixed_hosts
    if joined:
        lines.append(f"launches on different hosts are joined: {jobs_and_hosts(joined)}")
    lines_beside: dict[str, None] = {}
    for point in group.imports:
        timing = "timed differently, and not ranked"
        if point.row.source == PICO:
            timing = "timed as hpccoll times; ranked where hpccoll measured nothing"
        lines_beside[f"{point.row.source}: on {point.machine}; {timing}"] = None
    for point in group.predictions:
        line = "dotted" if point.row.kind == MODELLED else "dashed"
        lines_beside[f"{line}: predicted, not measured; {point.prediction}"] = None
    return tuple(filter(None, (*lines, *lines_beside)))


PYTHON_NOTE = "(python): by the Python executor; small messages take microseconds longer"


def definition_of(heading: str) -> str | None:
    """Return the definition of the term of a heading; None without one."""
    return _BY_TERM.get(re.sub(r" \(.*\)$", "", heading))


_BY_TERM = {
    term: meaning for terms, meaning in DEFINITIONS.items() for term in terms.split(", ")
} | {
    "95 % interval": DEFINITIONS["median, interval"],
    "by round": DEFINITIONS["round"],
    "start skew": "How far apart the ranks start, the median over the iterations: a time includes it.",
}
