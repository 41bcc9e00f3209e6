"""The memory available to ranks, with and without limits of the job."""

import pytest

from hpccoll.host.cpu_and_memory import available_memory

GIB = 2**30


@pytest.fixture
def root(tmp_path):
    """A machine with 8 GiB free."""

    def write(**files):
        for name, text in {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:    {8 * 2**20} kB\n", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_available_memory_without_control_groups_is_the_kernels(root):
    assert available_memory(root()) == 8 * GIB


def test_available_memory_is_the_rest_of_a_jobs_limit(root):
    group = "sys/fs/cgroup/system.slice/job_7"
    files = {
        "proc/self/cgroup": "0::/system.slice/job_7/step_0\n",
        f"{group}/step_0/memory.max": "max\n", f"{group}/step_0/memory.current": "1\n",
        f"{group}/memory.max": f"{4 * GIB}\n", f"{group}/memory.current": f"{2 * GIB}\n",
        f"{group}/memory.stat": f"anon 9\ninactive_file {GIB}\nactive_file 7\n",
    }  # fmt: skip
    assert available_memory(root(**files)) == 3 * GIB


def test_available_memory_honours_limits_of_cgroup_version_1(root):
    group = "sys/fs/cgroup/memory/slurm/job_7"
    files = {
        "proc/self/cgroup": "5:memory:/slurm/job_7\n4:cpu,cpuacct:/\n0::/\n",
        f"{group}/memory.limit_in_bytes": f"{2 * GIB}\n", f"{group}/memory.usage_in_bytes": f"{3 * GIB}\n",
        f"{group}/memory.stat": "",
    }  # fmt: skip
    assert available_memory(root(**files)) == 0  # never negative


def test_this_machine_has_available_memory():
    assert 0 < available_memory() < 2**60
