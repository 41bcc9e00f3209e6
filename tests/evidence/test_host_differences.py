"""What hosts of one launch log differently, and on which hosts a warning was logged."""

import pytest

from hpccoll.evidence.log_set import read_logs
from hpccoll.render.log_report import launch_findings

PORT = "[{}]mlx5_{}:1/{}"


def line(host, text, level="INFO"):
    return f"{host}:7:8 [0] {'net.cc:1 ' if level == 'WARN' else ''}NCCL {level} {text}\n"


def ports(host, *numbers, kind="IB"):
    listed = " ".join(PORT.format(place, number, kind) for place, number in enumerate(numbers))
    return line(host, f"NET/IB : Using {listed} [RO]; OOB eth0:10.0.0.1<0>")


def differences(*texts):
    record = read_logs({"nccl.log": "".join(texts)})
    return {
        one.fact: {frozenset(hosts) for hosts in one.hosts.values()}
        for one in record.host_differences
    }


PAIR = {frozenset({"n1", "n3"}), frozenset({"n2"})}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([ports("n1", 0, 1), ports("n2", 0), ports("n3", 0, 1)], {"ports": PAIR}),
        ([ports("n1", 0, 1), ports("n2", 2, 3), ports("n3", 0, 1)], {}),
        ([ports("n1", 0), ports("n1", 1), ports("n2", 0, 1)], {}),
        (
            [line(f"n{n}", f"Using network {'Socket' if n == 2 else 'IB'}") for n in (1, 2, 3)],
            {"network": PAIR},
        ),
        (
            [line(f"n{n}", f"NCCL version 2.2{7 if n == 2 else 8}.3") for n in (1, 2, 3)],
            {"version": PAIR},
        ),
        (
            [line(f"n{n}", f"NCCL_IB_TC set by environment to {n == 2}.") for n in (1, 2, 3)],
            {"NCCL_IB_TC": PAIR},
        ),
        ([line("n1", "NCCL_IB_TC set by environment to 1."), ports("n2", 0)], {}),
        ([line(f"n{n}", f"NCCL_HOSTID set by environment to {n}.") for n in (1, 2)], {}),
    ],
)
def test_what_differs_between_hosts_is_named_with_the_hosts_of_each_value(texts, expected):
    assert differences(*texts) == expected


BANNER = "NCCL version {}+cuda12.4\n"


@pytest.mark.parametrize(
    ("tags", "hosts"),
    [
        (("n1: ", "n2: "), {"2.21.5": ("n1",), "2.19.3": ("n2",)}),
        (("[1,0]<stdout>:", "[1,8]<stdout>:"), {"2.21.5": ("n1",), "2.19.3": ("n2",)}),
        (("0: ", "1: "), {"2.21.5": ("n1",), "2.19.3": ("n2",)}),
        (("[default0]:", "[default0]:"), {}),
        (("", ""), {}),
    ],
)
def test_a_version_without_a_host_is_of_the_host_whose_lines_have_its_prefix(tags, hosts):
    texts = [
        f"{tag}{line(host, 'Using network IB')}{tag}{BANNER.format(version)}"
        for tag, host, version in zip(tags, ("n1", "n2"), ("2.21.5", "2.19.3"), strict=True)
    ]
    record = read_logs({"nccl.log": "".join(texts)})
    found = {
        version: names for one in record.host_differences for version, names in one.hosts.items()
    }
    assert (found, record.versions) == (hosts, ("2.21.5", "2.19.3"))
    each_alone = read_logs({f"{number}.log": text for number, text in enumerate(texts)})
    assert [one.fact for one in each_alone.host_differences] == ["version"]
    same = read_logs({"nccl.log": "".join(texts).replace("2.19.3", "2.21.5")})
    assert (same.host_differences, same.version, same.versions) == ((), "2.21.5", ())


@pytest.mark.parametrize("tags", [("n1: ", "n2: "), ("", "")])
def test_different_versions_are_wrong_if_a_communicator_was_not_created(tags):
    failed = line("n2", "Message truncated", "WARN") + line("n2", "init.cc:968 -> 3")
    texts = [
        f"{tag}{line(host, 'Using network IB')}{tag}{BANNER.format(version)}"
        for tag, host, version in zip(tags, ("n1", "n2"), ("2.21.5", "2.19.3"), strict=True)
    ]
    for version, count in (("2.19.3", 2), ("2.21.5", 1)):
        record = read_logs({"nccl.log": "".join((*texts, failed)).replace("2.19.3", version)})
        wrong = [one.text for one in launch_findings(record, None) if one.kind == "failure"]
        assert len(wrong) == count
        assert all("2.21.5" in text and "2.19.3" in text for text in wrong[1:])


def test_a_warning_that_some_hosts_logged_names_them():
    common, own = (
        line("n1", "of all", "WARN") + line("n2", "of all", "WARN"),
        line("n2", "of one", "WARN"),
    )
    record = read_logs({"nccl.log": common + own})
    hosts = {
        one.text.split()[2]: one.values["hosts"]
        for one in launch_findings(record, None)
        if one.kind == "warning"
    }
    assert hosts == {"all": (), "one": ("n2",)}
