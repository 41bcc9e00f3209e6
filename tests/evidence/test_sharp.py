"""libsharp's log: groups of ranks with trees of switches."""

from library_logs import TEXTS

from hpccoll.evidence.log_set import read_logs


def test_a_group_of_one_rank_shows_no_sharp():
    assert read_logs({"a": TEXTS["sharp"].replace("group size:2", "group size:1")}).trees == ()


def test_channels_to_sharp_before_it_refuses_are_no_evidence():
    record = read_logs({"a": TEXTS["sharp"].split("[n1:0:400")[0]})
    assert (record.paths, record.collnet, record.sharp) == ({"COLLNET/SHARP/GDRDMA": 1}, (), ())
