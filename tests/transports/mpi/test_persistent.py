"""The MPI transports under a real MPI; contract.py has the checks."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from schedule_examples import Case

from hpccoll.schedule import Copy, Layout, Part, Recv, RecvReduce, Schedule, Send, Step, all_reduce
from hpccoll.schedule.step import Range
from hpccoll.transports.buffer_pieces import accessed_parts

CONTRACT = Path(__file__).parent / "contract.py"


@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "executor"), [(1, "compiled"), (3, "compiled"), (4, "compiled"), (3, "python")])
def test_the_mpi_transports_pass_the_contract_checks(mpiexec, ranks, executor):
    ran = mpiexec(ranks, CONTRACT, executor, timeout=480)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""


@pytest.mark.mpi
def test_a_failed_contract_check_fails_the_program(mpiexec, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(f"""
import sys
sys.path.append({str(CONTRACT.parent)!r})
import contract, contract_schedules
contract.CHECKS[1:] = []
contract_schedules.run_lockstep = lambda *_: None
contract.main()
""")
    ran = mpiexec(2, broken)
    assert ran.returncode != 0
    assert "every schedule agrees with lockstep bit for bit" in ran.stdout
    assert "not what lockstep has" in ran.stdout


def compiler(steps, channels=1):
    """Return the compiler of rank 0 of four for a schedule of these steps, an all-reduce in place in 16 units."""
    from hpccoll.transports.mpi.lowering import MpiLowering  # where there is an MPI

    schedule = Schedule(Layout.of(4), 16, lambda _me: iter(steps()))
    asked = Case(all_reduce.call(4), (schedule,)).operation(64, channels=channels, window=2)
    return MpiLowering(0, asked, np.zeros(0, asked.dtype), np.zeros(asked.count, asked.dtype), None)


def test_sequences_are_slices_times_window():
    from hpccoll.transports.mpi.lowering import MpiLowering  # where there is an MPI

    for slices, channels, window, sequences in ((1, 4, 2, 2), (2, 4, 2, 4), (2, 1, 1, 2), (2, 3, 9, 6)):
        case = Case(all_reduce.call(4), (Schedule(Layout.of(4), 4, lambda _me: iter(())),) * slices)
        asked = case.operation(64, channels=channels, window=window)
        made = MpiLowering(0, asked, np.zeros(0, asked.dtype), np.zeros(asked.count, asked.dtype)).sequences()
        assert len(made) == sequences


PARTS = st.builds(
    lambda buffer, ranges: Part(buffer, tuple(Range(first, first + units) for first, units in ranges)),
    st.sampled_from(["dst", "tmp"]),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=2),
)
ACTIONS = st.one_of(
    st.builds(Send, st.just(1), PARTS),
    st.builds(Recv, st.just(1), PARTS),
    st.builds(RecvReduce, st.just(1), PARTS),
    st.builds(Copy, PARTS, PARTS),
)


@given(st.lists(ACTIONS, max_size=5))
@pytest.mark.usefixtures("mpiexec")
def test_overlapping_actions_share_an_element(actions):
    one = compiler(list)
    elements = [
        {(at, e) for (at, a), (_, b) in one._pieces(0, *accessed_parts(Step(x))) for e in range(a, b)} for x in actions
    ]
    touched = {
        place
        for place, mine in enumerate(elements)
        if any(mine & theirs for other, theirs in enumerate(elements) if other != place)
    }
    assert one._overlapping(0, Step(*actions)) == touched


@pytest.mark.usefixtures("mpiexec")
def test_the_steps_of_a_slice_are_generated_once_for_all_channels():
    told = []

    def steps():
        told.append("once")
        yield Step(Send(1, 0), Recv(1, 1))

    assert [len(sequence) for sequence in compiler(steps, channels=8).sequences()] == [4, 4]
    assert told == ["once"]
