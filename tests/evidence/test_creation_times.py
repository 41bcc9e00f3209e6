"""Times of the creation of communicators: the lines of ncclCommInitRankFunc in src/init.cc of each version of NCCL."""

import json

import pytest
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.line_prefixes import time_of_day_s
from hpccoll.evidence.creation_delays import creation_delays, creation_growth
from hpccoll.evidence.creation_sentences import creation_summary, delay_sentences
from hpccoll.evidence.log_set import read_logs
from hpccoll.render.log_report import launch_findings

PHASES = {
    "kernels": 0.26,
    "alloc": 0.97,
    "bootstrap": 0.07,
    "allgathers": 0.01,
    "topo": 0.06,
    "graphs": 0.0,
    "connections": 0.21,
    "rest": 0.0,
}
"""The phases of one rank of 16, from a public log of two nodes of H100 with NCCL 2.2x."""

PLACE = "comm 0x55f{rank} rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {gpu}b000 commId 0x77e1"

FORMS = {
    "2.22.3": (
        f"ncclCommInitRank {PLACE} - Init START", f"ncclCommInitRank {PLACE} - Init COMPLETE", "Init timings"
    ),
    "2.24.3": (
        f"ncclCommInitRankConfig {PLACE} - Init START", f"ncclCommInitRankConfig {PLACE} - Init COMPLETE",
        "Init timings - ncclCommInitRankConfig",
    ),
    "2.30.7": (
        f"[Rank {{rank}}] ncclCommInitRank {PLACE} - Init START", f"ncclCommInitRank {PLACE} - Init COMPLETE",
        "Init timings - ncclCommInitRank",
    ),
}  # fmt: skip
"""The lines START and COMPLETE, and the beginning of that with the times, by version."""

OF_2_18 = f"{PLACE} - Init START", f"{PLACE} - Init COMPLETE"
"""The lines of 2.18.6, which logs no times."""


def header(rank, clock=""):
    return f"{clock}n{rank // 8}:7{rank:03}:8{rank:03} [{rank % 8}] NCCL INFO"


def timings(rank, size, begin, **changed):
    phases = PHASES | changed
    if begin == "Init timings":
        del phases["alloc"]
    words = ", ".join(f"{phase} {time:.2f}" for phase, time in phases.items())
    return f"{header(rank)} {begin}: rank {rank} nranks {size} total {sum(phases.values()):.2f} ({words})"


def created(rank, size, version="2.24.3", **changed):
    """Return the lines with which a rank creates a communicator; ``changed`` are times of its phases in s."""
    start, end, begin = FORMS[version]
    place = {"rank": rank, "size": size, "gpu": rank % 8}
    lines = [f"{header(rank)} {start.format(**place)}", f"{header(rank)} {end.format(**place)}"]
    return [*lines, timings(rank, size, begin, **changed)]


def creations(*ranks):
    return read_logs({"a.log": "\n".join(line for lines in ranks for line in lines)}).creations


def creation(*ranks):
    (one,) = creations(*ranks)
    return one


@pytest.mark.parametrize("version", FORMS)
def test_the_times_of_all_phases_are_read_by_rank_with_its_host(version):
    one = creation(*(created(rank, 16, version, topo=rank / 100) for rank in range(16)))
    assert (one.name, one.size, one.ranks) == ("0x77e1", 16, tuple(range(16)))
    assert one.hosts == ("n0",) * 8 + ("n1",) * 8
    assert one.phases_s["topo"] == tuple(rank / 100 for rank in range(16))
    assert one.phases_s["kernels"] == (0.26,) * 16
    assert ("alloc" in one.phases_s) == (version != "2.22.3")
    usual = (
        sum(PHASES.values()) - PHASES["topo"] - (0 if "alloc" in one.phases_s else PHASES["alloc"])
    )
    assert one.total_s == pytest.approx([usual + rank / 100 for rank in range(16)])


@pytest.mark.parametrize("version", FORMS)
@pytest.mark.parametrize("phase", ["kernels", "topo", "graphs", "connections"])
def test_a_slow_rank_is_named_with_its_host_and_phase(version, phase):
    ranks = [created(rank, 16, version, bootstrap=12.1) for rank in range(16)]
    ranks[11] = created(11, 16, version, **{phase: 12.3})
    (delay,) = creation_delays(creation(*ranks))
    assert (delay.phase, delay.ranks, delay.hosts) == (phase, (11,), ("n1",))
    assert (delay.longest_s, delay.usual_s) == (12.3, PHASES[phase])
    (sentence,) = delay_sentences(creation(*ranks))
    assert "rank 11 on n1" in sentence
    assert phase in sentence


def test_a_rank_that_began_last_is_named_and_not_those_that_waited_for_it():
    ranks = [created(rank, 16, bootstrap=0.07 if rank == 3 else 30.0) for rank in range(16)]
    (delay,) = creation_delays(creation(*ranks))
    assert (delay.phase, delay.ranks) == (None, (3,))
    assert delay.delay_s == pytest.approx(29.93)


def test_a_rank_whose_device_is_slow_to_set_did_not_begin_last():
    ranks = [created(rank, 16, bootstrap=30.0) for rank in range(16)]
    ranks[3] = created(3, 16, rest=29.9)
    assert [(delay.phase, delay.ranks) for delay in creation_delays(creation(*ranks))] == [
        ("rest", (3,))
    ]


def test_ranks_that_only_waited_for_the_last_one_at_the_end_are_not_named():
    ranks = [
        created(
            rank, 16, connections=9.0 if rank == 3 else 0.2, rest=8.8 if rank in {1, 2} else 0.0
        )
        for rank in range(16)
    ]
    assert [(delay.phase, delay.ranks) for delay in creation_delays(creation(*ranks))] == [
        ("connections", (3,))
    ]


def test_all_ranks_of_a_slow_host_are_named():
    ranks = [
        created(rank, 16, alloc=6.0 if rank >= 8 else 0.9, bootstrap=0.1 if rank >= 8 else 5.2)
        for rank in range(16)
    ]
    (delay,) = creation_delays(creation(*ranks))
    assert (delay.phase, delay.ranks, delay.hosts) == ("alloc", tuple(range(8, 16)), ("n1",))


@given(st.integers(1, 12), st.floats(0, 60), st.randoms(), st.sampled_from(sorted(PHASES)))
def test_ranks_that_are_alike_name_nobody(size, long, noise, phase):
    """The times of the ranks differ by a tenth of those of the slow phase, and by some hundredths of a second."""
    ranks = [
        created(rank, size, **{phase: long * noise.uniform(0.95, 1.05) + noise.uniform(0, 0.2)})
        for rank in range(size)
    ]
    assert creation_delays(creation(*ranks)) == []


def test_the_slow_kernels_of_all_ranks_of_a_public_log_are_nobodys_fault():
    """Of NVIDIA/nccl#1646: one node of 8 B200, where each rank loads kernels for 52 s."""
    public = {0: (52.33, 0.84), 3: (52.45, 0.57), 4: (52.94, 0.03)}
    ranks = [
        created(rank, 8, kernels=kernels, alloc=0.4, bootstrap=bootstrap, topo=1.1)
        for rank, (kernels, bootstrap) in public.items()
    ]
    assert creation_delays(creation(*ranks)) == []


def test_times_belong_to_the_communicator_that_the_thread_has_just_completed():
    world = created(1, 16, kernels=9.0)
    split = "comm 0x66 rank 1 nranks 8 cudaDev 1 nvmlDev 1 busId 1b000 parent 0x55f1 splitCount 2 color 0 key 1"
    start = f"{header(1)} ncclCommSplit {split}- Init START"
    end = f"{header(1)} ncclCommSplit {split} - Init COMPLETE"
    found = creations(
        [*world, start, end, timings(1, 8, "Init timings - ncclCommSplit", kernels=0.5)]
    )
    names = [(one.name, one.size, one.phases_s["kernels"]) for one in found]
    assert names == [("0x77e1", 16, (9.0,)), ("splitCount 2 color 0", 8, (0.5,))]


def test_times_without_the_lines_around_them_are_one_communicator_if_no_rank_comes_twice():
    lines = [created(rank, 4)[-1:] for rank in range(4)]
    assert creation(*lines).ranks == (0, 1, 2, 3)
    other_process = [created(0, 4)[-1].replace(":7000:", ":7009:")]
    assert creations(*lines, other_process) == ()


@pytest.mark.parametrize(
    "clocks",
    [
        ("[2026-11-28 09:59:58] ", "[2026-11-28 10:00:03] "),
        ("[2026-11-28 23:59:57.500] ", "[2026-11-29 00:00:02.500] "),
        ("2026-11-28T09:59:58.25Z ", "2026-11-28T10:00:03.25Z "),
        ("11:59:58 AM 0: ", "12:00:03 PM 0: "),
        ("1790857026.125 ", "1790857031.125 "),
        ("Sat Nov 28 09:59:58 2026[1,0]<stdout>:", "Sat Nov 28 10:00:03 2026[1,0]<stdout>:"),
    ],
)
def test_the_clock_of_the_log_gives_the_time_from_start_to_complete(clocks):
    lines = [
        f"{header(0, clock)} {line.format(rank=0, size=8, gpu=0)}"
        for clock, line in zip(clocks, OF_2_18, strict=True)
    ]
    one = creation(lines)
    assert (one.logged_s, one.total_s, one.phases_s) == ((5.0,), (None,), {})


def test_without_phases_the_rank_whose_line_start_comes_late_began_last():
    ends = {rank: 20.0 if rank == 5 else 50.5 for rank in range(8)}
    lines = [
        f"{header(rank, f'[2026-11-28 10:00:{second:05.2f}] ')} {line.format(rank=rank, size=8, gpu=rank)}"
        for rank, waited in ends.items()
        for second, line in zip((50.5 - waited, 50.5), OF_2_18, strict=True)
    ]
    (delay,) = creation_delays(creation(lines))
    assert (delay.phase, delay.ranks, delay.delay_s) == (None, (5,), 30.5)


def test_a_clock_of_whole_seconds_names_nobody_for_one_second():
    lines = [
        f"{header(rank, f'10:00:0{second} ')} {line.format(rank=rank, size=4, gpu=rank)}"
        for rank in range(4)
        for second, line in zip((int(rank == 3), 2), OF_2_18, strict=True)
    ]
    one = creation(lines)
    assert one.logged_s == (2.0, 2.0, 2.0, 1.0)
    assert creation_delays(one) == []


def test_a_clock_that_goes_back_and_lines_without_one_give_no_time():
    texts = ("10:00:05 ", "10:00:03 "), ("", "10:00:03 "), ("", "")
    for clocks in texts:
        lines = [
            f"{header(0, clock)} {line.format(rank=0, size=8, gpu=0)}"
            for clock, line in zip(clocks, OF_2_18, strict=True)
        ]
        assert creations(lines) == ()


@pytest.mark.parametrize(
    "text", ["n1:10:12 [0] ", "mlx5_0:1 ", "12:60:00 ", "1:2:3 ", "1.25 ", "[0]<stdout>:"]
)
def test_numbers_that_are_no_time_of_day_are_none(text):
    assert time_of_day_s(text) is None


def test_a_log_without_times_says_nothing(tmp_path):
    (tmp_path / "a.log").write_text("".join(f"{line}\n" for line in created(0, 1)[:2]))
    found = launch_findings(read_logs({"a.log": (tmp_path / "a.log").read_text()}), None)
    assert [one for one in found if "creation" in one.kind] == []
    (launch,) = json.loads(invoke("evidence", tmp_path, "--json").out)["launches"]
    assert (launch["record"]["creations"], launch["creation_delays"]) == ([], [])


@given(st.randoms(), st.sampled_from(sorted(FORMS)))
def test_damaged_lines_never_raise_and_never_invent_a_time(noise, version):
    text = "\n".join(line for rank in range(3) for line in created(rank, 3, version))
    at = noise.randrange(len(text))
    damaged = (
        text[:at]
        + noise.choice(["", "\n", "9" * 400, "-", "nan", "%", "\x00"])
        + text[at + noise.randrange(9) :]
    )
    for one in read_logs({"a.log": damaged}).creations:
        creation_delays(one)
        assert {*one.ranks} <= {*range(one.size)}


@pytest.mark.parametrize(
    "values", ["total nan (kernels 0.1)", "total 1.0 (kernels", "total 1e9 (x 1.0)", "total"]
)
def test_partial_values_are_no_times(values):
    assert (
        creations([f"{header(0)} Init timings - ncclCommInitRank: rank 0 nranks 8 {values}"]) == ()
    )
    assert (
        creations([f"{header(0)} Init timings: rank {'9' * 18} nranks {'9' * 18} total 1.0 ()"])
        == ()
    )


def test_phases_that_are_damaged_are_left_out():
    one = creation(
        [
            f"{header(0)} Init timings: rank 0 nranks 8 total 1.00 (kernels 0.5, x nan, topo -0.00, graphs)"
        ]
    )
    assert (one.total_s, one.phases_s) == ((1.0,), {"kernels": (0.5,), "topo": (0.0,)})
    assert "kernels 500 ms" in creation_summary([one])


def test_the_growth_over_the_launches_is_that_of_the_largest_communicators():
    launches = [
        creations(*(created(rank, size, bootstrap=size / 10) for rank in range(size)))
        for size in (2, 8, 32)
    ]
    growth = creation_growth([[*launches[1], *launches[0]], launches[2], launches[0], ()])
    rest = sum(PHASES.values()) - PHASES["bootstrap"]
    assert growth.seconds == pytest.approx({size: rest + size / 10 for size in (2, 8, 32)})
    assert 0.2 < growth.exponent < 0.5
    assert creation_growth(launches[:1]) is None


@pytest.mark.parametrize("exponent", [0, 1, 2])
def test_the_exponent_is_that_of_a_power_law(exponent):
    launches = []
    for size in (2, 4, 16):
        phases = dict.fromkeys(PHASES, 0.0) | {"bootstrap": 0.5 * size**exponent}
        launches.append(creations(*(created(rank, size, **phases) for rank in range(size))))
    assert creation_growth(launches).exponent == pytest.approx(exponent)


def test_the_report_prints_the_slow_rank_and_the_growth_over_several_logs(tmp_path):
    for size in (8, 16):
        ranks = [created(rank, size, bootstrap=size) for rank in range(size)]
        ranks[5] = created(5, size, kernels=size + 0.19)
        text = "\n".join(line for lines in ranks for line in lines)
        (tmp_path / f"{size}.log").write_text(text.replace("0x77e1", f"0x77e{size:x}"))
    ran = invoke("evidence", tmp_path)
    assert ran.code == 0
    assert ran.out.count("rank 5 on n0") == 2
    assert "8 ranks 9.51 s, 16 ranks 17.5 s" in ran.out
    document = json.loads(invoke("evidence", tmp_path, "--json").out)
    assert document["creation_growth"]["seconds"] == pytest.approx({"8": 9.51, "16": 17.51})
    (delay,) = document["launches"][0]["creation_delays"]
    assert (delay["phase"], delay["ranks"], delay["hosts"]) == ("kernels", [5], ["n0"])
