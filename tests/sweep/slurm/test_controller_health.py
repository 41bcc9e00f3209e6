"""Slurm's controller, which may be gone for a while: who waits for it says so once, and says when it is back."""

from types import SimpleNamespace

import pytest

from hpccoll.sweep.slurm import controller_health

UP, DOWN = "Slurmctld(primary) at head is UP\n", "Slurmctld(primary) at head is DOWN\n"


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    now = [1000.0]
    time = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(controller_health, "time", time)  # of this module only
    return now


@pytest.mark.parametrize(
    ("answer", "answers"),
    [
        (DOWN, False),
        ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b is UP\n", True),
        ("Slurmctld(primary/backup) at a/b are DOWN/UP\n", True),
        ("", False),
    ],
)
def test_one_controller_that_is_up_is_enough(programs, answer, answers):
    programs("scontrol", answer, code=not answers)
    assert controller_health.ping() == answers


def test_an_outage_is_reported_once_within_30_s_and_so_is_its_end(programs, clock, capsys):
    watched, lines = controller_health.ControllerWatch(), []
    for second in range(100):
        programs("scontrol", UP if second in range(15) or second > 80 else DOWN)
        clock[0] += 1
        watched.poll()
        lines += [(second, line) for line in capsys.readouterr().err.splitlines()]
    (silent, first), (back, last) = lines
    assert 15 < silent < 45
    assert "does not answer" in first
    assert 80 < back < 90
    assert "answers again" in last
    assert watched.outages == 1


@pytest.mark.parametrize("seconds", [3.0, 100.0])
def test_a_controller_is_waited_for_as_long_as_is_asked(programs, clock, seconds):
    programs("scontrol", DOWN)
    assert not controller_health.wait_for_controller(seconds)
    assert seconds <= clock[0] - 1000.0 <= seconds + controller_health.PING_TIMEOUT_S
    programs("scontrol", UP)
    assert controller_health.wait_for_controller(seconds)
