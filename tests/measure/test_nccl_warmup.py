"""What NCCL refuses is a skipped case with its words: without a GPU the refusing is done by a stand-in for NCCL."""

from functools import partial
from types import SimpleNamespace

import pytest
import raw_examples
from mpi4py import MPI

from hpccoll.evidence.log_record import LogRecord, Unavailable
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.executed_evidence import full_reason
from hpccoll.measure.nccl_warmup import make_unless_refused
from hpccoll.measure.prepared_case import PreparedCase
from hpccoll.transports.nccl import communicators

WORDS = "NCCL_ERROR_INVALID_USAGE: invalid usage (run with NCCL_DEBUG=WARN for details)"


class NcclError(RuntimeError):
    """Has the name of CuPy's."""


class Library:
    """NCCL, as far as making and aborting communicators goes."""

    def __init__(self):
        self.aborted = 0

    def get_unique_id(self):
        return b"id"

    def NcclCommunicator(self, _ranks, _unique, _rank):  # noqa: N802  CuPy's name
        return SimpleNamespace(abort=self._abort)

    def _abort(self):
        self.aborted += 1


def making(error=None, closed=None):
    def make():
        if error:
            raise error
        return SimpleNamespace(close=lambda: closed.append("closed"))

    return make


def test_what_nccl_refuses_is_said_and_its_communicator_is_not_used_again():
    library, comm = Library(), MPI.COMM_SELF
    first = communicators.nccl_world(comm, library)
    assert not isinstance(make_unless_refused(making(), comm), str)
    assert communicators.nccl_world(comm, library) is first
    assert make_unless_refused(making(NcclError(WORDS)), comm) == f"NCCL refuses it: {WORDS}"
    assert library.aborted == 1
    assert communicators.nccl_world(comm, library) is not first
    communicators.abort_world(comm)


def test_who_is_not_refused_while_others_are_closes_what_it_made_before_the_communicator():
    done, comm = [], SimpleNamespace(allgather=lambda mine: [mine, WORDS], handle=-1)
    communicators._WORLDS[comm.handle] = SimpleNamespace(abort=lambda: done.append("aborted"))
    assert make_unless_refused(making(closed=done), comm) == f"NCCL refuses it: {WORDS}"
    assert done == ["closed", "aborted"]


def test_without_a_communicator_the_reason_is_that_of_nccl():
    said = "NCCL makes no communicator at rank 1: NCCL_ERROR_SYSTEM_ERROR"
    with pytest.raises(communicators.NcclFailedError, match=said):
        make_unless_refused(making(communicators.NcclFailedError(said)), MPI.COMM_SELF)


def test_what_is_no_refusal_fails_at_all_ranks_and_names_the_one():
    words = "NCCL_ERROR_SYSTEM_ERROR: unhandled system error"
    done, comm = [], SimpleNamespace(allgather=lambda mine: [None, words, mine], handle=-1)
    with pytest.raises(communicators.NcclFailedError, match=f"NCCL fails at rank 1: {words}"):
        make_unless_refused(making(closed=done), comm)
    assert done == ["closed"]


def test_what_stalls_is_ended_graphs_first_then_communicators_then_what_they_know():
    done = []
    ends = {name: SimpleNamespace(close=partial(done.append, name)) for name in ("plan", "transport")}
    communicators._WORLDS[-1] = SimpleNamespace(abort=partial(done.append, "communicator"))
    PreparedCase.abort(SimpleNamespace(**ends))
    assert done == ["plan", "communicator", "transport"]


def test_what_is_no_refusal_of_nccl_ends_the_job():
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        make_unless_refused(making(RuntimeError("an illegal memory access")), MPI.COMM_SELF)


@pytest.mark.parametrize(
    ("environment", "said"),
    [({"NCCL_ALGO": "PAT"}, "{line}"), ({"NCCL_ALGO": "CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}, "{why}; {line}")],
)
def test_the_lines_of_the_log_stand_beside_the_refusal_and_no_other_reason(environment, said):
    line = "No algorithm/protocol available for function AllReduce with datatype ncclFloat32."
    why = "NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
    unavailable = (
        Unavailable(feature="algorithm", reason="none is left", line=line),
        Unavailable(feature="sharp", reason="no job", line=why),
    )
    found, case = (
        ProbeResult(record=LogRecord(library="nccl", unavailable=unavailable)),
        raw_examples.case(8, algorithm="native", transport="nccl"),
    )
    asked = raw_examples.job(case, environment=environment), case
    assert (
        full_reason("NCCL refuses it: no", found, *asked) == f"NCCL refuses it: no; {said.format(line=line, why=why)}"
    )
    assert full_reason("too large", found, *asked) == "too large"
    assert full_reason("NCCL refuses it: no", None, *asked) == "NCCL refuses it: no"
