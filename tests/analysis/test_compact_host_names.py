"""Host names as ranges."""

from hpccoll.analysis.compact_host_names import host_ranges


def test_hosts_are_written_in_short():
    assert host_ranges(["n2", "n1", "n3", "n7"]) == "n[1-3], n7"
    assert host_ranges(["node09", "node10", "n9", "n10", "login"]) == "login, n9, n10, node[09-10]"
    assert host_ranges(["n1.a.org", "n2.a.org", "n2.b.org", "n3"]) == "n3, n[1-2].a.org, n2.b.org"
