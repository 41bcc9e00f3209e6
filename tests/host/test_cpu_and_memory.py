"""The memory and the CPUs available to ranks, with and without limits of their control groups."""

import pytest

from hpccoll.host.cpu_and_memory import available_memory, cpu_quotas, usable_cpus

GIB = 2**30
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw master:9 - cgroup cgroup rw,cpu,cpuacct\n"
)
HYBRID = f"{V1}41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.fixture
def root(tmp_path):
    """A machine with 8 GiB free."""

    def write(**files):
        for name, text in {
            "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:    {8 * 2**20} kB\n",
            **files,
        }.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def test_available_memory_is_the_kernels_or_the_rest_of_a_jobs_limit(root):
    assert available_memory(root()) == 8 * GIB
    group = "sys/fs/cgroup/system.slice/job_7"
    files = {
        "proc/self/cgroup": "0::/system.slice/job_7/step_0\n",
        "proc/self/mountinfo": V2,
        f"{group}/step_0/memory.max": "max\n",
        f"{group}/step_0/memory.current": "1\n",
        f"{group}/memory.max": f"{4 * GIB}\n",
        f"{group}/memory.current": f"{2 * GIB}\n",
        f"{group}/memory.stat": f"anon 9\ninactive_file {GIB}\nactive_file 7\n",
    }
    assert available_memory(root(**files)) == 3 * GIB


def test_available_memory_honours_limits_of_cgroup_version_1(root):
    group = "sys/fs/cgroup/memory/slurm/job_7"
    files = {
        "proc/self/cgroup": "5:memory:/slurm/job_7\n4:cpu,cpuacct:/\n0::/\n",
        "proc/self/mountinfo": HYBRID,
        f"{group}/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{group}/memory.usage_in_bytes": f"{3 * GIB}\n",
        f"{group}/memory.stat": "",
    }
    assert available_memory(root(**files)) == 0  # never negative


def groups(membership, mounts, quotas):
    """Return the files of control groups; a quota is the text of cpu.max, or those of version 1 with a comma."""
    files = {"proc/self/cgroup": membership, "proc/self/mountinfo": mounts}
    for place, text in quotas.items():
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if "," in text else ("cpu.max",)
        of_group = zip(names, text.split(","), strict=True)
        files |= {f"sys/fs/cgroup/{place}/{name}": f"{each}\n" for name, each in of_group}
    return files


CPU = "cpu,cpuacct"
SCOPE = "/system.slice/docker-4f2a.scope"
IN_SCOPE = V2.replace("0:26 /", f"0:26 {SCOPE}")
POD = {
    "kubepods": "800000 100000",
    "kubepods/pod1": "250000 100000",
    "kubepods/pod1/c1": "max 100000",
}
CASES = {
    "none": (groups("0::/\n", V2, {}), None),
    "a namespace of version 2": (groups("0::/\n", V2, {".": "50000 100000"}), 0.5),
    "docker in the namespace of its host": (groups(f"0::{SCOPE}\n", IN_SCOPE, {".": "150000 100000"}), 1.5),
    "the least of several groups": (groups("0::/kubepods/pod1/c1\n", V2, POD), 2.5),
    "version 1": (
        groups(f"4:{CPU}:/a/b\n", V1, {f"{CPU}/a": "50000,100000", f"{CPU}/a/b": "-1,100000"}), 0.5,
    ),
    "both versions": (
        groups(f"4:{CPU}:/a\n0::/b\n", HYBRID, {f"{CPU}/a": "400000,100000", "unified/b": "200000 100000"}), 2.0,
    ),
    "another controller": (groups(f"5:memory:/a\n4:{CPU}:/\n", V1, {"memory/a": "50000,100000"}), None),
    "damaged": (groups("0::/a\n", V2, {"a": "lots"}), None),
    "no period": (groups("0::/a\n", V2, {"a": "50000 0"}), None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_least_quota_of_all_control_groups_of_a_process_counts(root, name, monkeypatch):
    files, cpus = CASES[name]
    machine = root(**files)
    assert min(cpu_quotas(machine).values(), default=None) == cpus
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert usable_cpus(machine) == min(2, cpus or 2)
