"""Lowered to the peer kernel, a schedule has the messages, bytes and folds that ``count`` declares."""

from collections import Counter

import numpy as np
import pytest
from peer_cluster import PeerCluster
from peer_operations import operations

from hpccoll.schedule.count import count
from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.program import FoldWave, Push, buffer_of_peer, words_from
from hpccoll.transports.shared_lowering import Span

RANKS = [2, 3, 4, *[pytest.param(ranks, marks=pytest.mark.long) for ranks in (5, 6, 7, 8)]]
BUFFERS = "src", "dst", "tmp"


def instructions_of(programs, kind):
    """Return the instructions of a kind in all programs of a rank."""
    instructions = [instruction for program in programs for instruction in program.instructions]
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def folds_of(programs):
    return [fold for wave in instructions_of(programs, FoldWave) for fold in wave.folds]


def times_by_element(spans):
    """Return how often each element lies in spans, by buffer and element."""
    times = Counter()
    for span in spans:
        times.update((span.buffer, element) for element in range(span.start, span.stop))
    return times


def sent_spans(operation, protocol, source, target):
    """Return the spans of all messages between two ranks, in the buffers of the first one."""
    proposal = PeerLowering(source, operation, protocol).proposals()[target]
    return [span for messages in proposal.sends for message in messages for span in message]


@pytest.mark.parametrize("protocol", ["simple", "ll"])
@pytest.mark.parametrize("ranks", RANKS)
def test_messages_bytes_and_folds_of_each_rank_are_those_of_its_schedule(ranks, protocol):
    for name, operation in operations(ranks, "float32"):
        schedules = [operation.lane_schedule(number) for number in range(len(operation.slices))]
        counted = count(schedules, operation.cut)
        cluster = PeerCluster(operation, protocol)
        messages = [
            sum(sum(program.sent.values()) for program in of_rank) for of_rank in cluster.programs
        ]
        assert messages == counted.messages[:, 1:].sum(axis=1).tolist(), name  # 0: to itself
        itemsize = operation.dtype.itemsize
        reduced = []
        for programs in cluster.programs:
            folded = sum(len(fold.out) * (len(fold.inputs) - 1) for fold in folds_of(programs))
            reduced.append(folded * itemsize)
        assert reduced == counted.reduced.tolist(), name
        sent = np.zeros(len(cluster.programs), np.int64)
        for source in range(len(sent)):
            for target in range(len(sent)):
                spans = sent_spans(operation, protocol, source, target)
                sent[source] += sum(map(len, spans)) * itemsize
        assert sent.tolist() == counted.sent[:, 1:].sum(axis=1).tolist(), name


@pytest.mark.parametrize("ranks", RANKS)
def test_each_byte_of_a_message_is_read_from_its_peer_once(ranks):
    for name, operation in operations(ranks, "float32"):
        cluster = PeerCluster(operation)
        for me, programs in enumerate(cluster.programs):
            inputs = [span for fold in folds_of(programs) for span in fold.inputs]
            for peer in range(len(cluster.programs)):
                names = {buffer_of_peer(peer, buffer): buffer for buffer in BUFFERS}
                read = [
                    Span(names[span.buffer], span.start, span.stop)
                    for span in inputs
                    if span.buffer in names
                ]
                sent = sent_spans(operation, "simple", peer, me)
                assert times_by_element(read) == times_by_element(sent), (name, me, peer)


@pytest.mark.parametrize("ranks", RANKS)
def test_each_byte_of_a_message_is_written_into_a_word_of_its_peer_once_and_taken_once(ranks):
    for name, operation in operations(ranks, "float32"):
        cluster = PeerCluster(operation, "ll")
        for me, programs in enumerate(cluster.programs):
            pushes = instructions_of(programs, Push)
            pushed = [span for push in pushes for span in push.spans]
            for peer, programs_of_peer in enumerate(cluster.programs):
                sources = [span.source for span in pushed if span.peer == peer]
                sent = sent_spans(operation, "ll", me, peer)
                assert times_by_element(sources) == times_by_element(sent), (name, me, peer)
                inputs = [span for fold in folds_of(programs_of_peer) for span in fold.inputs]
                words = [span for span in inputs if span.buffer == words_from(me)]
                taken = times_by_element(words)
                assert set(taken.values()) <= {1}, (name, me, peer)
                assert taken.total() == sum(map(len, sent)), (name, me, peer)
