"""How much memory a case takes, held against what it takes."""

import json
from dataclasses import asdict, replace

import pytest
from cases import ALL, case

from hpccoll.errors import BadInputError
from hpccoll.measure.catalogue import NATIVE, unmet
from hpccoll.measure.memory import check_memory, memory_needed
from hpccoll.schedule import COLLECTIVES, Layout
from hpccoll.schedule.traffic import PATTERNS

MIB = 2**20


def memory_cases():
    for name, algorithm in ALL:
        family = COLLECTIVES[name]
        if family.token:
            continue
        for told in [{"traffic": pattern} for pattern in PATTERNS] if "traffic" in family.arguments else [{}]:
            asked = case(name, algorithm, bytes=4 * MIB, dtype="int32", params=told)
            if not unmet(asked, Layout.of(4)):
                yield asked


@pytest.mark.mpi
def test_no_rank_takes_more_memory_than_is_said(mpiexec, tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps([asdict(asked) for asked in memory_cases()]))
    script = __file__.replace("test_memory", "measured_memory")
    ended = mpiexec(4, script, tmp_path / "cases.json")
    assert ended.returncode == 0, ended.stderr
    shares = json.loads(ended.stdout)
    assert len(shares) > 20
    assert {name: share for name, share in shares.items() if share > 1.05} == {}  # what does not grow with the size
    assert max(shares.values()) > 0.9  # and not much less, or it would keep cases from running


def test_the_ranks_of_a_node_take_what_they_take_together():
    ring, star = (case(algorithm=algorithm, bytes=MIB) for algorithm in ("ring", "star"))
    assert memory_needed(ring, 16, 8) == pytest.approx(8 * memory_needed(ring, 16, 1), rel=0.01)
    assert memory_needed(star, 16, 1) == memory_needed(ring, 16, 1) + 14 * MIB  # all the others' vectors at the root
    assert memory_needed(star, 16, 8) == memory_needed(ring, 16, 8) + 14 * MIB  # of which there is one


def test_the_ranks_with_the_most_may_share_a_node():
    of = case("all_to_all_v", NATIVE, bytes=MIB)
    equal = replace(of, params={"traffic": "uniform"})
    assert memory_needed(of, 64, 64) == memory_needed(equal, 64, 64)  # all together have as much
    assert memory_needed(of, 64, 1) > 5 * memory_needed(equal, 64, 1)


def test_a_case_that_has_no_room_is_told_what_it_takes():
    with pytest.raises(BadInputError, match=r"2 ranks need .* GiB for it and 0.0977 GiB are free: at most about"):
        check_memory([case(), case(bytes=64 * MIB)], 2, 2, 100 * MIB)
    check_memory([case(bytes=MIB)], 2, 2, 100 * MIB)


def test_a_case_on_a_gpu_takes_memory_of_the_host_only_where_it_is_staged_there():
    asked = {over: case(bytes=MIB, device="cuda", transport=over) for over in ("nccl", "mpi", "staged")}
    of_host, of_gpu = (
        {over: memory_needed(each, 4, 2, device) for over, each in asked.items()} for device in ("cpu", "cuda")
    )
    assert of_host == {"nccl": 0, "mpi": 0, "staged": 6 * MIB}  # both buffers and scratch, of two ranks
    assert of_gpu == {"nccl": 6 * MIB, "mpi": 6 * MIB, "staged": 4 * MIB}


def test_a_gpu_that_has_no_room_is_a_reason_where_the_host_has():
    asked = [case(bytes=64 * MIB, device="cuda", transport="nccl")]
    check_memory(asked, 2, 2, 0)
    with pytest.raises(BadInputError, match=r"2 ranks need 0.375 GiB for it and 0.0977 GiB are free on their GPU:"):
        check_memory(asked, 2, 2, 100 * MIB, "cuda")
