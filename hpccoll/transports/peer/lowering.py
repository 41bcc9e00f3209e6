"""The lowering of schedules for the peer kernel: for each sequence of a rank, a program that one block runs.

How messages move is the protocol: simple_sequence.py, ll_sequence.py.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpccoll.schedule import Copy, Send, Step
from hpccoll.schedule.operation import Operation
from hpccoll.transports.peer.ll_sequence import LLSequence
from hpccoll.transports.peer.program import Program, Protocol, SentSpans, words_at, words_from
from hpccoll.transports.peer.sequence_lowering import total_length
from hpccoll.transports.peer.simple_sequence import SimpleSequence
from hpccoll.transports.peer.words import elements_in_words, spans_in_words
from hpccoll.transports.shared_lowering import Lowering, Span


class PeerProposal(NamedTuple):
    """What a rank tells each peer before its programs are made."""

    operation: str
    protocol: Protocol
    sends: SentSpans
    expects: list[list[int]]  # by sequence and message: the elements that it expects from the peer


class PeerLowering(Lowering):
    """Lowers the steps of a rank on its buffers src, dst and tmp, the scratch of each sequence, and those of peers.

    Attributes:
        scratch_lengths: the elements of each sequence's scratch, once ``programs`` has been called.
        word_elements: over ``ll``, the elements that ranks write for each other in one operation, by
            the name of the words, once ``programs`` has been called.
    """

    def __init__(self, me: int, operation: Operation, protocol: Protocol = "simple") -> None:
        super().__init__(me, operation)
        self.protocol = protocol
        self.sequences = operation.sequences
        self.scratch_lengths: dict[str, int] = {}
        self.word_elements: dict[str, int] = {}

    def proposals(self) -> list[PeerProposal]:
        """Return the proposal for each rank."""
        proposals = list(map(self._empty_proposal, range(self.operation.layout.ranks)))
        for number, lanes in enumerate(self.sequences):
            for lane in lanes:
                for step in self.steps(lane):
                    self._propose(step, lane, number, proposals)
        return proposals

    def _empty_proposal(self, _peer: int) -> PeerProposal:
        sequences = self.sequences
        return PeerProposal(
            self.operation.description,
            self.protocol,
            sends=[[] for _ in sequences],
            expects=[[] for _ in sequences],
        )

    def _propose(
        self, step: Step, lane: int, sequence: int, proposals: Sequence[PeerProposal]
    ) -> None:
        """Append the messages of a step to the proposals for its peers, without empty ones."""
        for action in step.actions:
            if isinstance(action, Copy):
                continue
            part = self.spans(lane, action.part)
            if not part:
                continue
            proposal = proposals[int(action.peer)]
            if isinstance(action, Send):
                proposal.sends[sequence].append(part)
            else:
                proposal.expects[sequence].append(total_length(part))

    def mismatched_peers(self, received: Sequence[PeerProposal]) -> list[int]:
        """Return the ranks that would send messages that this rank does not expect, or in another protocol."""
        mismatched = []
        for peer, (own, proposal) in enumerate(zip(self.proposals(), received, strict=True)):
            lengths = [list(map(total_length, messages)) for messages in proposal.sends]
            moves_alike = (proposal.operation, proposal.protocol) == (own.operation, own.protocol)
            if not moves_alike or lengths != own.expects:
                mismatched.append(peer)
        return mismatched

    def programs(self, received: Sequence[PeerProposal]) -> list[Program]:
        """Return the program of each sequence, after all ranks have found that their proposals match."""
        sends = [proposal.sends for proposal in self.proposals()]
        arrivals = [proposal.sends for proposal in received]
        if self.protocol == "ll":
            self._place_words(sends, arrivals)
        programs = []
        for number, lanes in enumerate(self.sequences):
            sequence = self._sequence(number, lanes, sends, arrivals)
            programs.append(sequence.program())
            self.scratch_lengths[sequence.scratch] = sequence.scratch_length
        return programs

    def _place_words(self, sends: Sequence[SentSpans], arrivals: Sequence[SentSpans]) -> None:
        itemsize = self.operation.dtype.itemsize
        for peer, sent in enumerate(sends):
            self.word_elements[words_at(peer)] = elements_in_words(sent, itemsize)
        for peer, sent in enumerate(arrivals):
            self.word_elements[words_from(peer)] = elements_in_words(sent, itemsize)

    def _sequence(
        self,
        number: int,
        lanes: range,
        sends: Sequence[SentSpans],
        arrivals: Sequence[SentSpans],
    ) -> SimpleSequence | LLSequence:
        if self.protocol == "simple":
            return SimpleSequence(self, number, lanes, _messages(arrivals, number))
        itemsize = self.operation.dtype.itemsize
        outgoing_words = []
        incoming_words = []
        for peer, (sent, arriving) in enumerate(zip(sends, arrivals, strict=True)):
            outgoing_words.append(spans_in_words(sent, words_at(peer), itemsize))
            incoming_words.append(spans_in_words(arriving, words_from(peer), itemsize))
        return LLSequence(
            self,
            number,
            lanes,
            _messages(incoming_words, number),
            _messages(outgoing_words, number),
            begun=_peers_to_tell(sends, arrivals, number),
            awaited=_peers_to_tell(arrivals, sends, number),
        )


def _messages(sent: Sequence[SentSpans], number: int) -> dict[int, Iterator[list[Span]]]:
    """Return the messages of a sequence by peer."""
    messages = {}
    for peer, sequences in enumerate(sent):
        messages[peer] = iter(sequences[number])
    return messages


def _peers_to_tell(
    sends: Sequence[SentSpans], arrivals: Sequence[SentSpans], number: int
) -> list[int]:
    """Return the peers from which a sequence receives, and to which no sequence sends."""
    peers = []
    for peer, (sent, arriving) in enumerate(zip(sends, arrivals, strict=True)):
        if arriving[number] and not any(sent):
            peers.append(peer)
    return peers
