"""The load of a host, from files like those of /proc."""

import os

import pytest

from hpccoll.host import machine_load
from hpccoll.host.machine_load import core_wait_ns, load_between, read_load

TICKS = os.sysconf("SC_CLK_TCK")
RANK, LAUNCHER, SHELL, MAKE, OTHER = 50, 40, 30, 60, 70
IDLE = {
    1: ("systemd", 0, 0, 0), 2: ("kthreadd", 0, 0, 0), 9: ("kworker/0:1", 2, 0, 0), SHELL: ("bash", 1, 0, 0),
    LAUNCHER: ("mpiexec", SHELL, 0, 0), RANK: ("python", LAUNCHER, 0, 0), MAKE: ("make", SHELL, 0, 0),
    OTHER: ("python", 1, 500, 0),
}  # fmt: skip
"""By its id the name, the parent, the CPU seconds and those of ended children of each process."""


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """What a host shows at some second: its processes, and the seconds of each CPU state."""

    def sample(second, processes, *, stolen=0, load=1.5):
        root = tmp_path / str(second)
        for pid, (name, parent, used, ended) in processes.items():
            directory = root / "proc" / str(pid)
            directory.mkdir(parents=True)
            fields = ["S", parent, *[0] * 9, used * TICKS, 0, ended * TICKS, 0, 20, 0]
            (directory / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")
        (root / "proc" / "loadavg").write_text(f"{load} 0.5 0.1 1/99 4711\n")
        states = [second * TICKS, 0, 0, second * TICKS, 0, 0, 0, stolen * TICKS, 0, 0]
        (root / "proc" / "stat").write_text(f"cpu  {' '.join(map(str, states))}\ncpu0 1 2 3\n")
        monkeypatch.setattr(machine_load.time, "monotonic", lambda: float(second))
        return read_load(root)

    return sample


def after(**seconds):
    """Return the processes of IDLE after some of them used so many seconds more."""
    return {
        pid: (name, parent, used + seconds.get(f"p{pid}", 0), ended + seconds.get(f"ended{pid}", 0))
        for pid, (name, parent, used, ended) in IDLE.items()
    }


TREE = {90: ("make", MAKE, 1, 300), 91: ("cc1", 90, 100, 0)}
OURS = {80: ("probe", RANK, 5, 0), 81: ("slurmstepd", 1, 5, 0), 82: ("cc1", 80, 5, 0)}
CIRCLE = {90: ("a", 91, 5, 0), 91: ("b", 90, 5, 0)}
MAKE_4, STRESS = [("make", 0.4)], {90: ("stress", 1, 20, 0), 91: ("sleep", 1, 0, 0)}


@pytest.mark.parametrize(
    ("before", "afterwards", "busiest"),
    [
        pytest.param(
            {},
            after(p50=9, p40=1, p30=1, p9=2, p60=3, p70=1),
            [("make", 0.3), ("python", 0.1)],
            id="not ours, our launchers and the kernel",
        ),
        pytest.param({}, IDLE | OURS, [], id="our children and services of Slurm"),
        pytest.param(
            {90: ("cc1", MAKE, 100, 0)}, after(ended60=104), MAKE_4, id="what an ended child used"
        ),
        pytest.param(
            TREE,
            after(ended60=404),
            [("make", 0.3)],
            id="not what descendants of ended parents used before",
        ),
        pytest.param(
            {}, IDLE | STRESS, [("stress", 2.0)], id="the whole of what began in the time"
        ),
        pytest.param(
            {},
            IDLE | {90: ("a) \x1b[2J b", 1, 20, 0)},
            [("a????2J?b", 2.0)],
            id="a name for a terminal",
        ),
        pytest.param(CIRCLE, IDLE, [], id="process ids that are reused while /proc is read"),
    ],
)
def test_processes_of_others_are_counted(sample, before, afterwards, busiest):
    found = load_between(sample(100, IDLE | before), sample(110, afterwards), {RANK})
    assert found["busiest"] == [{"name": name, "cores": cores} for name, cores in busiest]
    assert found["other_cores"] == pytest.approx(sum(cores for _, cores in busiest))


def test_stolen_time_is_a_share_of_the_time_of_all_cpus(sample):
    found = load_between(sample(100, IDLE, load=0.5), sample(110, IDLE, stolen=5, load=2.5), {RANK})
    assert found["stolen"] == 0.2  # 5 of 10 + 10 + 5 seconds
    assert (found["load_average"], found["seconds"]) == ([0.5, 2.5], 10.0)


def test_a_host_that_shows_no_counters_has_no_load(tmp_path):
    assert read_load(tmp_path) is None


def test_the_time_that_this_process_waited_for_a_core_is_the_second_number_of_schedstat(tmp_path):
    assert core_wait_ns(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/schedstat").write_text("5000 700 9\n")
    assert core_wait_ns(tmp_path) == 700
