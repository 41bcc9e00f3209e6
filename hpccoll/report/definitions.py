"""What the words of the report mean: a sentence or two for each collective, and a definition for each term."""

from collections.abc import Sequence

from hpccoll.report import call_labels
from hpccoll.report.chart_groups import ChartGroup
from hpccoll.report.wire_bandwidth import HEADER_MODEL

COLLECTIVE_DESCRIPTIONS = {
    "all_reduce": "Every rank ends with the reduction of the buffers of all. S is one such buffer.",
    "reduce_scatter": "Every rank ends with its block of the reduction of the buffers of all. S is the whole buffer "
    "that a rank puts in, n blocks.",
    "all_gather": "Every rank ends with the blocks of all. S is the whole result, n blocks.",
    "broadcast": "Every rank ends with the buffer of the root. S is that buffer.",
    "reduce": "The root ends with the reduction of the buffers of all. S is one such buffer.",
    "gather": "The root ends with the blocks of all. S is the whole result at the root, n blocks.",
    "scatter": "Every rank ends with its block of the buffer of the root. S is the whole buffer at the root, n blocks.",
    "all_to_all": "Every rank has a block for every rank. S is what one rank has for all, its own block included.",
    "all_to_all_v": "Every rank has a block for every rank, and the blocks are not equal: the traffic names how. S "
    "is what one rank has for all, its own block included, on average over the ranks.",
    "barrier": "No rank goes on before all have come. It moves no data of the user's: it has a time, and neither a "
    "size nor a bandwidth.",
    "send_recv": "Ping-pong: a message of S bytes goes from the first rank to the second, and one comes back. The time "
    "is that of the round trip, and busbw = 2 S / t, what the wire carries in the direction that is in use. Benchmarks "
    "that give half of the round trip as latency show half of this time. All other ranks rest.",
    "bidirectional": "Two ranks send a message of S bytes to each other at the same time. busbw = S / t, for each of "
    "the two directions. All other ranks rest.",
}

DEFINITIONS = {
    "size": "S, the bytes of the collective as nccl-tests count them: the whole buffer where each rank has a block of "
    "it. KiB, MiB and GiB are powers of 1024.",
    "algbw": "S / t, in GB/s of 1e9 bytes per second, or in MB/s of 1e6.",
    "busbw": "algbw times a factor of the n ranks, comparable with nccl-tests: 2(n-1)/n for all-reduce; (n-1)/n for "
    "reduce-scatter, all-gather, all-to-all, gather and scatter; 1 for broadcast and reduce. nccl-tests have neither "
    "ping-pong nor unequal blocks: all_to_all_v has (n-1)/n with the mean of what ranks send; send_recv has 2, as S "
    "goes to and fro within the time; bidirectional has 1, as their sendrecv. A barrier has none.",
    "timing": "How one operation's time follows from the clocks of its ranks: max is the longest duration over the "
    "ranks; span is the latest end minus the earliest start. Never an average over ranks.",
    "median, interval": "Over the timed iterations; the interval holds the median with 95 % confidence. Of several "
    "rounds: the median of their medians, and an interval that holds those of all rounds (of 9 rounds or more it "
    "leaves out as many of the lowest and of the highest ends as that of a median leaves out samples).",
    "round": "All calls of a launch are gone through in an order, then again in another; all ways to do one are "
    "measured right after one another, so that series take turns. They are compared round by round. A ratio is the "
    "median of the ratios of the rounds. A winner has in each round a median below the 95 % interval of each other; of "
    "one round the intervals may not touch, and without them nobody wins.",
    "ahead": "How many times as long as the fastest the runner-up takes: 1.20x ahead is a fifth longer.",
    "pairs of ranks": "Where messages go between two ranks, lines show the median pair, the faster of two in the "
    "middle; of a pair that was measured more than once, the last.",
    "traffic": "How unequal the blocks of an all_to_all_v are: uniform, all equal; zipf, rank j as popular as 1/(j + "
    "1); random, each pair its own; or weights from a file, with the first digits of its digest.",
    "native": "The library's own collective at its default settings: the faster of its in-place and out-of-place call "
    "in the same run, and so of the same variant; it is compared with those whose ranks are numbered as its own.",
    "auto": "What a table of hpccoll tune chose for the size, as executed says (and evidence, with its transport): one "
    "of the others, and so in no comparison. It is in the charts over size of time and of busbw.",
    "sharp_emulated": "Software: ranks that play the switches of a reduction tree, one process each. It says what the "
    "algorithm does, and nothing of what a switch would take.",
    "aggregators": "Ranks beside the workers that only aggregate; algorithms without a use for them leave them idle. "
    "They are in no number of ranks.",
    "mapping": "How ranks are numbered. block: ranks of a node follow one another, and so do the nodes of a rack; "
    "cyclic: dealt one by one over the racks, and in each over its nodes; mixed: neither. A case that asks for one is "
    "renumbered inside its job, so that both are measured on the same hosts; the root goes by these numbers, too.",
    "variant": "An environment that the sweep file names, and what NCCL's communicators are made with in it. "
    "Each is a job of its own, and compared within itself.",
    "of the wire": "busbw over what a wire between two nodes was calibrated to carry: on a testbed whose wires were "
    "calibrated within 2 % of what TCP carries of their rate, and no rack shares a wire, with one rank on each node, "
    "from the size on from which the calibration comes to it; less may pass faster, as a burst. On several rails it is "
    "over what those that were used carry together. Of nothing else is there a per cent, nor of aggregation, by ranks "
    "or by switches, which spares workers some bytes.",
    "counted, sent": "Bytes of one operation that all nodes send to each other: counted from the schedule that we ran; "
    "sent, as the counters of their ports saw it, with headers. Between racks: those of the counted that leave a rack. "
    "What a node sends is the mean over the nodes of workers; hosts of aggregators are told apart. " + HEADER_MODEL,
    "rails": "Ports of a node, each to a network of its own. A port is used where it carries more than 2 % of what the "
    "node sends.",
    "floor": "An empty schedule: what the harness itself costs. It is in no map, efficiency or ratio.",
    "oversubscribed": "More ranks than cores: the ranks wait for each other's time slices.",
    "status": "Only ok and partial rows are drawn or compared. partial: rounds are missing; wrong: the buffer that was "
    "timed held wrong elements; failed, skipped and partial rows say why.",
    "requested, executed": "What was asked of the library, in one word, and what ran, as far as there is evidence; "
    "else unknown. Evidence of the library's own is what its logs say in an untimed launch of the same environment "
    "before the timed one. Where the two differ, lines are named by both: native (sharp asked, ring ran).",
    "offloaded": "sharp, nvls, nvls_tree, symmetric_multicast, collnet_direct, collnet_chain: switches reduce, "
    "and ranks send a vector once. busbw supposes more bytes than that and may pass every link: compare algbw, and "
    "there is no per cent.",
    "kind": "measured; measured on a testbed (real Slurm and MPI, metered virtual wires, whose rate it says; the "
    "nodes share the CPUs of one machine); measured on a shared GPU; "
    "simulated; modelled.",
}  # fmt: skip


def describe_collective(collective: str, groups: Sequence[ChartGroup]) -> str:
    """Return what a collective does and how its size is counted, and its root where that is always the same."""
    roots = {call_labels.root_rank(point.row) for group in groups for point in group.points}
    one = "Only the library has no other placement than the one buffer; it stands beside both of the others."
    shared = collective == "broadcast" and {call_labels.placement_label(p.row) for g in groups for p in g.usable} > {""}
    return " ".join(
        filter(None, (COLLECTIVE_DESCRIPTIONS.get(collective), "The root is rank 0." * (roots == {0}), one * shared))
    )
