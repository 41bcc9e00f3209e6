"""Names of hosts: with and without their domains, and what is not known to be one host."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.store.host_names import canonical_hosts, host_ranges
from hpccoll.store.racks_file import read_racks


@pytest.mark.parametrize(
    ("names", "hosts"),
    [
        ("node01 node01.cluster.example", [0, 0]),
        ("node01.cluster.example node01", [0, 0]),
        ("node01.cluster node01 node01.cluster.example.", [0, 0, 0]),
        ("Node01 NODE01.Cluster.Example node02", [0, 0, 2]),
        ("n1.a.example n1.b.example n1", [0, 1, 2]),
        ("n1 n10 n1-ib0", [0, 1, 2]),
        ("10.0.0.1 10.0.0.12 10", [0, 1, 2]),
        ("", []),
    ],
)
def test_names_with_and_without_a_domain_are_of_one_host_if_no_other_host_is_meant(names, hosts):
    names = names.split()
    assert canonical_hosts(names) == {
        name: names[host] for name, host in zip(names, hosts, strict=True)
    }


def test_hosts_are_written_in_short():
    assert host_ranges(["n2", "n1", "n3", "n7"]) == "n[1-3], n7"
    assert host_ranges(["node09", "node10", "n9", "n10", "login"]) == "login, n9, n10, node[09-10]"
    assert host_ranges(["n1.a.org", "n2.a.org", "n2.b.org", "n3"]) == "n3, n[1-2].a.org, n2.b.org"


def test_racks_are_read_from_lines_of_a_host_and_its_rack(tmp_path):
    file = tmp_path / "racks"
    file.write_text("# the hall\nn1 a\n\n n2\tb  # moved\nn1 a\n")
    assert read_racks(file, "--racks") == {"n1": "a", "n2": "b"}


@pytest.mark.parametrize("line", ["n1", "n1 a b", "n0 b"])
def test_a_line_that_is_no_host_with_one_rack_is_refused_with_its_number(tmp_path, line):
    file = tmp_path / "racks"
    file.write_text(f"n0 a\n{line}\n")
    with pytest.raises(
        BadInputError, match=f"--racks: .*line 2: '{line}' is not valid: a host and its one rack"
    ):
        read_racks(file, "--racks")
