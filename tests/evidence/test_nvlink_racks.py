"""Whether racks of Slurm's topology are NVLink domains: only what NVML names for every node is said."""

import pytest

from hpccoll.evidence.nvlink_racks import nvlink_sentence

RACKS = {"n1": 0, "n2": 0, "n3": 1, "n4": 1}


@pytest.mark.parametrize(
    ("domains", "racks", "words"),
    [
        ("aabb", RACKS, "each of the 2 racks of Slurm's topology is one NVLink domain"),
        ("aaaa", RACKS, "not NVLink domains: NVML names 1 NVLink domain"),
        ("abcd", RACKS, "not NVLink domains: NVML names 4 NVLink domains"),
        ("abab", RACKS, "not NVLink domains: NVML names 2 NVLink domains"),
        (["a", "a", "b", ""], RACKS, None),
        (["a", "a", "b"], RACKS, None),
        ([], RACKS, None),
        ("aabb", {}, None),
        ("aabb", dict.fromkeys(RACKS, 0), None),
    ],
)
def test_racks_are_nvlink_domains_if_nvml_names_one_for_each(domains, racks, words):
    sentence = nvlink_sentence(dict(zip(RACKS, domains, strict=False)), racks)
    assert (sentence == "") if words is None else (words in sentence)
