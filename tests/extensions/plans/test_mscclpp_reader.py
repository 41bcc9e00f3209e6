"""A plan of MSCCL++, read: ours come back, and one that some order of execution makes wrong is refused."""

import copy
import json
import pickle
import random
import re
from contextlib import nullcontext

import pytest
from cli_runner import invoke
from plan_machine import ROUND_TRIPS, Machine, WrongResultError, exported, is_registered_for

from hpccoll.cases.algorithm_files import with_files
from hpccoll.cases.requested_schedule import requested_schedule
from hpccoll.common.errors import UnusableError
from hpccoll.extensions.plans import mscclpp_order
from hpccoll.extensions.plans.mscclpp_reader import plan_of
from hpccoll.render.pictures import schedule_view
from hpccoll.schedule import Cut, Layout, count
from hpccoll.schedule.prove import prove
from hpccoll.store.load_results import read_results

UNCONNECTED = "rabenseifner", "double_binary_tree"
"""The algorithms of which, on some numbers of ranks, ranks of a node send each other nothing."""


@pytest.mark.parametrize(("collective", "name"), ROUND_TRIPS)
def test_what_is_written_on_2_to_8_ranks_is_proven_again(collective, name):
    tried = [
        (p, node)
        for p in range(2, 9)
        for node in {p, 2}
        if is_registered_for(collective, name, p, node)
    ]
    assert len(tried) > 4
    for p, node in tried:
        plan = plan_of(exported(collective, name, p, node))
        assert (plan.call.collective.name, plan.call.p) == (collective, p)
        prove(plan.call, plan.slices)
        read, written = plan.slices[0].layout.node, tuple(rank // node for rank in range(p))
        assert len({*zip(read, written, strict=True)}) == len({*read}), (
            "nodes are split, and never joined"
        )
        assert read == written or name in UNCONNECTED


@pytest.mark.long
def test_a_ring_of_32_ranks_is_proven_again():
    assert plan_of(exported("all_reduce", "ring", 32, 8)).call.p == 32


@pytest.mark.parametrize(
    "name", ["ring", "hierarchical", "rabenseifner", "swing", "recursive_doubling"]
)
def test_the_schedule_of_a_plan_has_the_steps_and_bytes_of_the_one_that_was_written(name):
    call, _, slices = requested_schedule(name, "all_reduce", Layout.of(8, 4), parameters={})
    read = plan_of(exported("all_reduce", name, 8, 4)).slices
    ours, theirs = (count(each, Cut(call, 8 * 64, each[0].units, 1, 4)) for each in (slices, read))
    assert ours.steps == theirs.steps
    assert (ours.sent == theirs.sent).all()


def mutant(seed):
    """Return a plan with one fault: an operation lost, doubled, of another chunk, or after the next one."""
    chosen = random.Random(seed)  # noqa: S311 - a choice, no secret
    names = ["ring", "hierarchical", "rabenseifner", "double_binary_tree", "swing", "direct"]
    plan = exported("all_reduce", chosen.choice(names), 4, chosen.choice([4, 2]))
    change = chosen.choice(["drop", "double", "shift", "swap"])
    ops = chosen.choice(chosen.choice(plan["gpus"])["threadblocks"])["ops"]
    fit = {"double": lambda one: one["name"] != "nop", "shift": lambda one: "src_buff" in one}.get(
        change, bool
    )
    number = chosen.choice([k for k, one in enumerate(ops) if fit(one)])
    text = f"{change} {ops[number]['name']}"
    if change == "drop":
        del ops[number]
    elif change == "double":
        ops.insert(number, copy.deepcopy(ops[number]))
    elif change == "swap":
        ops[number : number + 2] = reversed(ops[number : number + 2])
    else:
        ops[number][chosen.choice(["src_buff", "dst_buff"])][0]["index"] += chosen.choice([-1, 1])
    return text, plan


def wrong_in_some_order(plan, orders=40):
    for seed in range(orders):
        try:
            Machine(plan, seed).run()
        except (WrongResultError, TimeoutError) as error:
            return repr(error)
    return None


HARMLESS = {
    "drop nop": "what stood on its sides uses no chunk in common, or another nop orders it",
    "swap nop": "what moved over it uses no chunk that the operations there use",
    "swap signal": "both are signals or waits of one thread, of different channels that the peers serve in any order",
    "swap wait": "the same, or a wait whose messages are for operations behind a later nop",
    "swap put": "the puts use different chunks",
    "swap pwsf": "the puts use different ports or chunks",
    "swap re": "the folds use different chunks",
}
"""The mutants that are accepted, and why no order makes them wrong."""


def check_mutants(seeds, orders):
    accepted, refused = [], []
    for seed in seeds:
        text, plan = mutant(seed)
        try:
            plan_of(plan)
            accepted.append((text, seed, wrong_in_some_order(plan, orders)))
        except UnusableError as error:
            refused.append(str(error))
    assert [each for each in accepted if each[2]] == []
    names = r"rank \d+, (unit \d+ of (dst|scratch)|thread block \d+)"
    assert [each for each in refused if not re.match(names, each)] == []
    assert {text for text, *_ in accepted} <= HARMLESS.keys()
    return accepted


def test_mutants_that_some_order_of_execution_makes_wrong_are_refused_with_rank_and_unit():
    assert 4 < len(check_mutants(range(30), 10)) < 15


@pytest.mark.long
def test_200_mutants_that_some_order_of_execution_makes_wrong_are_refused_with_rank_and_unit():
    assert 40 < len(check_mutants(range(200), 40)) < 80


def test_a_plan_of_which_one_put_has_no_wait_is_wrong_in_some_order_and_names_both_sides():
    plan = exported("all_reduce", "ring", 4, 4)
    ops = plan["gpus"][1]["threadblocks"][0]["ops"]
    ops.remove([one for one in ops if one["name"] == "wait"][1])
    ops.append({"name": "wait", "channel_ids": [0], "channel_type": "memory"})
    assert wrong_in_some_order(plan)
    with pytest.raises(
        UnusableError,
        match=r"rank 1, unit 0 of scratch: .*rank 0, .*\(put\).*rank 1.*\(re\).* either order",
    ):
        plan_of(plan)


@pytest.mark.parametrize("lost", ["signal", "wait"])
def test_signals_and_waits_that_do_not_match_name_the_side_that_has_too_few(lost):
    plan = exported("all_reduce", "ring", 4, 4)
    ops = plan["gpus"][2]["threadblocks"][0]["ops"]
    ops.remove(next(one for one in ops if one["name"] == lost))
    with pytest.raises(
        UnusableError,
        match=rf"^rank 2, .*\({lost}\): too few {lost}s: .* \d+ signals and \d+ waits in a",
    ):
        plan_of(plan)


def test_a_relaxed_signal_orders_reads_and_no_writes():
    """The data is put before it, and may be seen after it: a start may be relaxed, an end may not."""
    plan = exported("all_gather", "ring", 2, 2)
    for gpu in plan["gpus"]:
        (ops,) = (block["ops"] for block in gpu["threadblocks"])
        first, second = (k for k, one in enumerate(ops) if one["name"] == "signal")
        ops[first]["name"] = "rlxsignal"
    plan_of(plan)
    ops[second]["name"] = "rlxsignal"
    with pytest.raises(
        UnusableError, match=r"the program of rank 0 .* can read it after the run while .*\(put\)"
    ):
        plan_of(plan)


def test_a_relaxed_wait_sees_nothing_that_was_written():
    plan = exported("all_gather", "ring", 2, 2)
    for gpu in plan["gpus"]:
        (ops,) = (block["ops"] for block in gpu["threadblocks"])
        first, second = (one for one in ops if one["name"] == "wait")
        first["name"] = "rlxwait"
    plan_of(plan)
    second["name"] = "rlxwait"
    with pytest.raises(
        UnusableError, match=r"the program of rank 1 .* can read it after the run while .*\(put\)"
    ):
        plan_of(plan)


def meeting(signal, wait):
    """Return a plan that folds the peer's input, which its program wrote, after signals and waits of a kind."""
    on = {"channel_type": "memory"}
    channel = on | {"channel_ids": [0]}
    gpus = []
    for me in range(2):
        ends = [one | {"index": me, "size": 1} for one in ({"type": "i"}, {"buffer_id": 0})]
        ops = [
            {"name": name} | channel
            for name in (signal, wait, "nop", "rres", "nop", "signal", "wait")
        ]
        ops[3] |= {"src_buff": ends, "dst_buff": ends}
        references = [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]
        block = {"id": 0, "ops": ops, "channels": [channel], "remote_buffer_refs": references}
        gpu = {
            "id": me,
            "input_chunks": 2,
            "output_chunks": 2,
            "scratch_chunks": 0,
            "threadblocks": [block],
        }
        gpu["remote_buffers"] = [{"rank": 1 - me, "type": "i", "access_channel_types": ["memory"]}]
        gpus.append(gpu | {"channels": [on | {"connected_to": [1 - me]}]})
    return {
        "name": "meeting",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "gpus": gpus,
    }


@pytest.mark.parametrize("signal", ["signal", "rlxsignal"])
@pytest.mark.parametrize("wait", ["wait", "rlxwait"])
def test_a_relaxed_wait_sees_what_the_program_of_the_signalling_rank_wrote_before_the_run(
    signal, wait, tmp_path
):
    """As in the all-reduce that MSCCL++ publishes, and it is said; a fold before the wait reads what may be missing."""
    plan = meeting(signal, wait)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    for file in (path, f"file:{path}"):
        assert ("relaxed waits" in invoke("show", file).out) == (wait == "rlxwait")
    ops = plan["gpus"][0]["threadblocks"][0]["ops"]
    ops[1], ops[3] = ops[3], ops[1]
    with pytest.raises(
        UnusableError, match=r"rank 0, .*\(rres\) can .* it before the program of rank 1"
    ):
        plan_of(plan)


def test_a_put_that_waits_for_no_signal_is_refused_with_the_rank_that_has_to_signal_first():
    """Rank 0 can run before rank 1's program has read the result of the run before."""
    plan = exported("all_gather", "ring", 2, 2)
    for gpu in plan["gpus"]:
        (ops,) = (block["ops"] for block in gpu["threadblocks"])
        put = next(k for k, one in enumerate(ops) if one["name"] == "put")
        del ops[:put]
    with pytest.raises(
        UnusableError, match=r"\(put\) can write it before .* rank (\d) .* let rank \1 signal"
    ):
        plan_of(plan)


LOCAL, REMOTE = ({key: 0, "index": 0, "size": 1} for key in ("type", "buffer_id"))
LOCAL["type"] = "i"


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, {"channel_type": "none"}),
        (3, {"channel_type": "port"}),
        (3, {"name": "re"}),
        (3, {"name": "res"}),
        (3, {"name": "rre"}),
        (3, {"name": "put"}),
        (
            3,
            {
                "name": "put",
                "src_buff": [LOCAL, LOCAL | {"type": "o"}],
                "dst_buff": [REMOTE, REMOTE],
            },
        ),
        (3, {"name": "put", "src_buff": [LOCAL], "dst_buff": [LOCAL]}),
        (3, {"name": "put", "src_buff": [LOCAL | {"size": 2}], "dst_buff": [REMOTE]}),
        (3, {"name": "copy", "src_buff": [LOCAL, LOCAL], "dst_buff": [LOCAL, LOCAL]}),
        (3, {"name": "re", "src_buff": [LOCAL, LOCAL], "dst_buff": [LOCAL, LOCAL]}),
        (3, {"name": "get", "src_buff": [REMOTE], "dst_buff": [LOCAL | {"index": 1}]}),
        (
            3,
            {
                "name": "get",
                "src_buff": [REMOTE],
                "dst_buff": [LOCAL],
                "channel_type": "port",
                "channel_ids": [0],
            },
        ),
        (
            3,
            {
                "name": "pws",
                "src_buff": [LOCAL],
                "dst_buff": [REMOTE],
                "channel_type": "port",
                "channel_ids": [0, 0],
            },
        ),
    ],
)
def test_an_operation_that_the_executor_runs_otherwise_than_its_text_says_is_refused(
    number, change
):
    """Its kernel copies the first of several pairs, reads all of a put from one buffer, ..."""
    plan = meeting("signal", "wait")
    plan["gpus"][0]["threadblocks"][0]["ops"][number] |= change
    with pytest.raises(
        UnusableError, match=rf"thread block 0, operation {number} .*: the executor does not run"
    ):
        plan_of(plan)


def test_a_flush_of_its_own_does_nothing_and_leaves_the_put_before_it_unordered():
    plan = exported("all_gather", "ring", 2, 1)
    plan_of(plan)
    for gpu in plan["gpus"]:
        (ops,) = (block["ops"] for block in gpu["threadblocks"])
        (number,) = (k for k, one in enumerate(ops) if one["name"] == "pwsf")
        ops[number]["name"] = "pws"
        ops.insert(
            number + 1,
            {"name": "flush", "channel_ids": ops[number]["channel_ids"], "channel_type": "port"},
        )
    with pytest.raises(
        UnusableError, match=r"the program of rank . .* can write it after the run while .*\(pws\)"
    ):
        plan_of(plan)


def test_channels_of_one_kind_are_numbered_on_from_one_entry_to_the_next():
    plan = exported("all_reduce", "ring", 3, 3)
    before = plan_of(plan).slices
    for gpu in plan["gpus"]:
        for owner, key in ((gpu, "connected_to"), (gpu["threadblocks"][0], "channel_ids")):
            owner["channels"] = [
                each | {key: [one]} for each in owner["channels"] for one in each[key]
            ]
    for one, other in zip(plan_of(plan).slices, before, strict=True):
        assert [[*one.steps(me)] for me in range(3)] == [[*other.steps(me)] for me in range(3)]


def test_scratch_of_64_mib_bounds_the_sizes_of_a_plan_that_reuses_it():
    plan = exported("all_reduce", "ring", 2, 2)
    (scratch,) = {gpu["scratch_chunks"] for gpu in plan["gpus"]}
    assert plan_of(plan | {"reuse_resources": True}).sizes == (0, (64 << 20) // scratch * 2)


def empty(collective, p, chunks):
    gpu = {
        "input_chunks": chunks,
        "output_chunks": chunks,
        "scratch_chunks": 0,
        "threadblocks": [],
        "channels": [],
    }
    gpus = [{"id": me} | gpu for me in range(p)]
    return {
        "name": "empty",
        "collective": collective,
        "protocol": "LL",
        "inplace": True,
        "gpus": gpus,
    }


@pytest.mark.parametrize("collective", ["reducescatter", "alltoall", "allgather"])
def test_chunks_that_do_not_divide_among_the_ranks_prove_nothing(collective):
    with pytest.raises(UnusableError, match=r"rank 0: .*chunks are not those"):
        plan_of(empty(collective, 2, 1))


@pytest.mark.parametrize(
    ("plan", "missing"),
    [
        (
            empty("allreduce", 50, 1),
            "rank 1's unit 0, rank 2's unit 0, rank 3's unit 0 and 46 more",
        ),
        (empty("allreduce", 1, 1) | {"inplace": False}, "rank 0's unit 0"),
    ],
)
def test_a_plan_that_does_nothing_is_refused_with_the_first_contributions_that_are_missing(
    plan, missing
):
    with pytest.raises(UnusableError, match=f"rank 0, unit 0 of dst: it ends without {missing}$"):
        plan_of(plan)


def test_a_fold_of_what_is_folded_already_names_the_operation_and_what_it_counts_twice():
    plan = exported("all_reduce", "ring", 2, 2)
    ops = plan["gpus"][1]["threadblocks"][0]["ops"]
    number = next(k for k, one in enumerate(ops) if one["name"] == "re")
    ops[number + 1 : number + 1] = [{"name": "nop"}, ops[number]]
    words = rf"rank 1, unit (\d) of dst: .*thread block 0, operation {number + 2} \(re\) counts twice rank 0's unit \1$"
    with pytest.raises(UnusableError, match=words):
        plan_of(plan)


def test_sets_of_contributions_that_fill_the_memory_are_refused_before_they_are_made():
    with pytest.raises(UnusableError, match="2097152 chunks of 64 ranks are too many"):
        plan_of(empty("allreduce", 64, 16384))


def test_a_channel_with_more_signals_than_can_be_proven_is_refused(monkeypatch):
    plan = exported("all_reduce", "ring", 2, 2)
    # four channels, each with four signals and waits in two runs
    for most in (4 * 4 * 4, 4 * 4 * 4 - 1):
        monkeypatch.setattr(mscclpp_order, "MAX_PAIRS", most)
        with (
            pytest.raises(UnusableError, match="more signals than can be proven")
            if most % 2
            else nullcontext()
        ):
            plan_of(plan)


def swap_ids(plan):
    for gpu in plan["gpus"]:
        gpu["id"] = 1 - gpu["id"]


def borrow_a_signal(plan):
    for gpu in plan["gpus"]:
        gpu["semaphores"] = [{"init_value": -1}]
    acquire, release = (
        {"name": f"sem_{name}", "semaphore_ids": [0]} for name in ("acquire", "release")
    )
    block = plan["gpus"][0]["threadblocks"][0]
    block["ops"] = [acquire, {"name": "nop"}, *block["ops"], {"name": "nop"}, release]


def with_operations(one, times=1):
    return lambda plan: plan["gpus"][1]["threadblocks"][0]["ops"].extend([one] * times)


def wait_for_two(plan):
    plan["gpus"][1]["semaphores"] = [{"init_value": 2}]
    with_operations({"name": "sem_acquire", "semaphore_ids": [0]})(plan)


def test_the_protocol_of_packets_changes_nothing_of_other_operations():
    plan = exported("all_reduce", "ring", 2, 2)
    assert plan_of(plan | {"protocol": "LL"}).sentence == plan_of(plan).sentence


def test_thread_blocks_meet_at_barriers_and_share_an_operation():
    one = {
        "name": "copy",
        "src_buff": [{"type": "i", "index": 0, "size": 2}],
        "dst_buff": [{"type": "o", "index": 0, "size": 2}],
    }
    blocks = [
        {"id": k, "channels": [], "ops": [one | {"tbg_info": {"tb_id": k, "tbg_size": 2}}]}
        for k in range(2)
    ]
    gpu = {
        "id": 0,
        "input_chunks": 2,
        "output_chunks": 2,
        "scratch_chunks": 2,
        "threadblocks": blocks,
        "channels": [],
    }
    plan = {
        "name": "copy",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": False,
        "gpus": [gpu],
    }
    assert (plan_of(plan).slices[0].units, plan_of(plan).multiple) == (4, 64)
    barrier = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    half = [{"type": "s", "index": 0, "size": 2}]
    for block in blocks:  # each writes its half of scratch, and the second one reads all of it
        block["ops"] = [block["ops"][0] | {"dst_buff": half}, barrier]
    blocks[1]["ops"].append({"name": "copy", "src_buff": half, "dst_buff": one["dst_buff"]})
    plan_of(plan)
    for block in blocks:
        block["ops"][1] = {"name": "nop"}
    with pytest.raises(
        UnusableError, match=r"rank 0, unit 0 of scratch: .*block 0.*block 1.* either order"
    ):
        plan_of(plan)
    blocks[0]["ops"][1] = barrier
    with pytest.raises(UnusableError, match="barrier 0: 1 thread blocks meet, not 2"):
        plan_of(plan)


def test_show_says_of_a_plan_that_it_is_proven_and_draws_it(tmp_path):
    path = tmp_path / "ring.json"
    assert (
        invoke("show", "ring", "-p", 4, "-b", "1M", "--format", "mscclpp", "--out", path).code == 0
    )
    assert (
        json.loads(path.read_text())["name"]
        == "all_reduce by ring, 4 workers, channels=1, window=1"
    )
    shown = invoke("show", path, "--out", tmp_path / "ring.svg")
    assert "proven: the postcondition of all_reduce" in shown.out
    assert (tmp_path / "ring.svg").read_text().startswith("<svg")
    assert "for multiples of 64 B below 4 GiB, right in every order of execution." in shown.out
    assert invoke("show", f"file:{path}").out == shown.out
    assert invoke("show", f"file:{path}", "-p", 5).is_bad_input("4 workers", "plan")
    assert invoke("show", path, "-p", 4, "--racks", "2", "--ranks-per-node", 1).code == 0
    path.write_text(json.dumps(exported("all_reduce", "ring", 4, 2)))
    assert [
        invoke("show", path, *more).out.splitlines()[0].partition(" on ")[2]
        for more in ((), ("-p", 4))
    ] == ["4 workers on 2 nodes of 2", "4 workers on 1 node"]
    for text, words in (("[1]", "it is not a valid plan of MSCCL++"), ("[1", "it is not JSON")):
        path.write_text(text)
        assert invoke("show", path).is_bad_input(f"file:{path}: ", words)


def test_a_plan_has_one_name_however_its_path_is_written_and_that_name_finds_it_in_its_directory(
    tmp_path, monkeypatch
):
    path = tmp_path / "a#b" / "ring#4.json"
    path.parent.mkdir()
    path.write_text(json.dumps(exported("all_reduce", "ring", 4, 4)))
    monkeypatch.chdir(path.parent)
    (name,) = with_files([f"file:{path}", "file:ring#4.json", "file:../a#b/ring#4.json"])
    assert re.fullmatch(r"file:ring#4\.json#[0-9a-f]{8}", name)
    shown = invoke("show", name)  # which forgets the plans of this process
    assert (shown.code, with_files([name, "ring", name])) == (0, [name, "ring"])
    assert invoke("show", "file:ring#4.json#00000000").is_bad_input("it has changed since")


def test_the_ranks_of_a_plan_are_predicted_like_those_of_the_schedule_that_was_written(tmp_path):
    path = tmp_path / "ring.json"
    assert (
        invoke("show", "ring", "-p", 4, "-b", "1M", "--format", "mscclpp", "--out", path).code == 0
    )
    size = (
        "-b",
        "1M",
        "-e",
        "1M",
        "--nodes",
        4,
        "--ranks-per-node",
        1,
        "--cluster",
        "1x25g-tcp",
        "--json",
    )
    rows = json.loads(invoke("predict", "-a", f"ring,file:{path}", *size).out)
    assert {row["algorithm"].partition("#")[0] for row in rows} == {"ring", "file:ring.json"}
    assert len({row["median_s"] for row in rows}) == 1


def test_a_plan_is_left_out_at_sizes_that_it_is_not_for_and_show_says_which_it_is_for(tmp_path):
    """Those of a plan of all_gather are of the whole output, as S is."""
    plan = exported("all_gather", "ring", 4, 4) | {
        "min_message_size": 1024,
        "max_message_size": 4 << 20,
    }
    (tmp_path / "ring.json").write_text(json.dumps(plan))
    assert (
        "for multiples of 64 B from 1 KiB to 4 MiB, right"
        in invoke("show", tmp_path / "ring.json").out
    )
    name, size = (
        f"file:{tmp_path / 'ring.json'}",
        ("-f", 2, "--nodes", 4, "--cluster", "1x25g-tcp", "--json"),
    )
    predicted = invoke("predict", "-c", "all_gather", "-a", name, "-b", 512, "-e", "8M", *size)
    assert {row["bytes"] for row in json.loads(predicted.out)} == {1 << k for k in range(10, 23)}
    assert "needs 1 KiB to 4 MiB" in predicted.err
    (tmp_path / "a.yaml").write_text(
        f"algorithms: {name}\ncollectives: all_gather\nbytes: [512, 1K, 4M, 8M]\nranks: 4"
    )
    planned = json.loads(invoke("plan", tmp_path / "a.yaml", "--json").out)
    assert {case["bytes"] for job in planned["jobs"] for case in job["cases"]} == {1 << 10, 4 << 20}
    assert {skip["reason"].partition(" of ")[2] for skip in planned["skips"]} == {
        "all_gather needs 1 KiB to 4 MiB"
    }
    (tmp_path / "ring.json").write_text(json.dumps(plan | {"max_message_size": 8}))
    assert invoke("show", tmp_path / "ring.json").is_bad_input(
        "plan", "smallest message has 1024 bytes"
    )


def test_a_plan_of_more_ranks_than_can_be_drawn_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule_view, "MAX_WORKERS", 3)
    (tmp_path / "ring.json").write_text(json.dumps(exported("all_gather", "ring", 4, 4)))
    assert invoke("show", tmp_path / "ring.json").is_bad_input("--workers", "4", "3")


PROVES = """import sys
from hpccoll.cli.job_program import main
from hpccoll.extensions.plans import mscclpp_reader
read = mscclpp_reader.PLAN_FORMAT.read
mscclpp_reader.PLAN_FORMAT = mscclpp_reader.PLAN_FORMAT._replace(
    read=lambda *words: print("proves", file=sys.stderr, flush=True) or read(*words))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.mpi
def test_one_rank_proves_a_plan_once_for_all(tmp_path, mpiexec):
    path, small = (
        tmp_path / "ring.json",
        ("-b", "4K", "-e", "4K", "-n", "6", "--rounds", "1", "--in-place"),
    )
    assert (
        invoke("show", "ring", "-p", 2, "-b", "4K", "--format", "mscclpp", "--out", path).code == 0
    )
    result = mpiexec(2, "-c", PROVES, "-a", f"file:{path}", *small, "--out", tmp_path / "a.h5")
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("proves") == 1
    assert {(row.status, row.wrong) for row in read_results([tmp_path / "a.h5"]).rows} == {
        ("ok", 0)
    }


def test_a_plan_that_is_sent_to_another_rank_has_the_same_steps():
    plan = plan_of(exported("all_reduce", "ring", 4, 2))
    sent = pickle.loads(pickle.dumps(plan))  # noqa: S301 - our own
    assert (sent.call, sent.sizes) == (plan.call, plan.sizes)
    for one, other in zip(sent.slices, plan.slices, strict=True):
        assert [[*one.steps(me)] for me in range(4)] == [[*other.steps(me)] for me in range(4)]


@pytest.mark.mpi
def test_ranks_run_a_plan_as_an_algorithm(tmp_path, mpiexec):
    path, small = tmp_path / "swing.json", ("-b", "4K", "-e", "4K", "-n", "6", "--in-place")
    assert (
        invoke("show", "swing", "-p", 2, "-b", "4K", "--format", "mscclpp", "--out", path).code == 0
    )
    result = mpiexec(
        2, "-m", "hpccoll", "run", "-a", f"file:{path}", *small, "--out", tmp_path / "a.h5"
    )
    assert result.returncode == 0, result.stderr
    (row,) = read_results([tmp_path / "a.h5"]).rows
    assert (row.status, row.wrong, row.algorithm.partition("#")[0]) == ("ok", 0, "file:swing.json")
    table = invoke("tune", tmp_path / "a.h5", "--out", tmp_path / "table.json")
    assert table.is_bad_input("no complete and correct result of an algorithm")
    assert (
        invoke("show", "ring", "-p", 2, "-b", "4K", "--format", "mscclpp", "--out", path).code == 0
    )
    again = mpiexec(
        2, "-m", "hpccoll", "run", "-a", f"file:{path}", *small, "--out", tmp_path / "a.h5"
    )
    assert (again.returncode, "this one holds another job" in again.stderr) == (2, True), (
        again.stderr
    )
    renamed = invoke("show", f"file:{path}#{row.algorithm.partition('#')[2]}", "-p", 2)
    assert renamed.is_bad_input("algorithm", "it has changed since")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda plan: plan.update(collective="sendrecv"),
            ["collective", "'sendrecv'", "allgather"],
        ),
        (lambda plan: plan.update(protocol="Bogus"), ["protocol", "'Bogus'", "Simple, LL"]),
        (lambda plan: plan.pop("gpus"), ["plan: gpus is missing"]),
        (
            lambda plan: plan["gpus"][0]["threadblocks"][0]["ops"].insert(0, {"name": "ppkt"}),
            ["(ppkt)", "not read"],
        ),
        (
            lambda plan: plan["gpus"][0]["threadblocks"][0]["ops"].insert(0, {"name": "pipeline"}),
            ["(pipeline)"],
        ),
        (lambda plan: plan["gpus"][0].update(input_chunks=1 << 40), ["chunk", "more than"]),
        (
            lambda plan: plan["gpus"][1].update(input_chunks=8, output_chunks=8),
            ["rank 1", "those of rank 0", "8, 8"],
        ),
        (
            lambda plan: [each.update(output_chunks=4) for each in plan["gpus"]],
            ["rank 0", "all_reduce", "2, 4"],
        ),
        (swap_ids, ["rank 0", "id is not 0"]),
        (
            lambda plan: plan.update(inplace="false"),
            ["inplace", '"false"', "neither true nor false"],
        ),
        (lambda plan: plan.update(gpus=[]), ["gpus", "0 is not valid"]),
        (
            lambda plan: [each.update(output_chunks=0) for each in plan["gpus"]],
            ["rank 0", "all_reduce", "2, 0"],
        ),
        (
            lambda plan: plan["gpus"][1]["threadblocks"][0].update(id=1),
            ["rank 1, thread block 0: its id is 1"],
        ),
        (
            lambda plan: plan["gpus"][1]["channels"][0]["connected_to"].append(-1),
            ["rank 1: connected_to: -1 is not valid: a whole number from 0 to 1"],
        ),
        (
            lambda plan: plan["gpus"][1]["remote_buffers"][0].update(rank=-1),
            ["rank 1, thread block 0", "rank: -1"],
        ),
        (
            lambda plan: plan["gpus"][1]["threadblocks"][0]["channels"][0].update(
                channel_ids=[-1, -2]
            ),
            ["-1"],
        ),
        (
            lambda plan: plan["gpus"][1]["remote_buffers"][0].update(access_channel_types=["port"]),
            ["rank 1, thread block 0", "remote buffer 0 is not for memory channels"],
        ),
        (with_operations({"name": "nop"}, 64), ["rank 1, thread block 0", "82 ops", "64"]),
        (
            with_operations({"name": "barrier", "barrier_id": 16, "num_threadblocks": 1}),
            ["barrier_id: 16"],
        ),
        (
            with_operations({"name": "sem_acquire", "semaphore_ids": [0]}),
            ["semaphore_ids has 0", "there is none"],
        ),
        (
            with_operations({"name": "copy", "src_buff": [{}], "dst_buff": 7}),
            ["(copy)", "not a valid operation of MSCCL++"],
        ),
        (
            wait_for_two,
            ["too few signals: semaphore 0 of rank 1 has 0 signals and 1 wait in a run"],
        ),
        (borrow_a_signal, ["rank 0, semaphore 0: init_value", "from 0 to"]),
        (
            lambda plan: next(
                one for one in plan["gpus"][1]["threadblocks"][0]["ops"] if one["name"] == "re"
            ).update(reduce_op="min"),
            ["rank 1", "(re)", "'min'", "sum"],
        ),
        (
            lambda plan: plan["gpus"][1]["threadblocks"][0]["ops"][3].update(
                tbg_info={"tb_id": 0, "tbg_size": 0}
            ),
            ["no chunk"],
        ),
        (
            lambda plan: plan["gpus"][1]["threadblocks"][0]["ops"][3].update(
                tbg_info={"tb_id": 2, "tbg_size": 2}
            ),
            ["rank 1", "place in a group"],
        ),
        (
            lambda plan: plan["gpus"][1]["threadblocks"][0]["ops"][0].update(channel_ids=[7]),
            ["channel_ids: 7"],
        ),
        (lambda plan: plan.update(gpus=7), ["not a valid plan of MSCCL++"]),
        (
            lambda plan: plan.update(colletive=plan.pop("collective")),
            ["before August 2025", "not read"],
        ),
        (
            lambda plan: [gpu.update(inputChunks=gpu.pop("input_chunks")) for gpu in plan["gpus"]],
            ["before August 2025", "not read"],
        ),
        (
            lambda plan: [
                plan["gpus"][1].update(output_chunks=0),
                plan["gpus"][1]["threadblocks"][0]["ops"][0].update(name="pipeline"),
            ],
            ["rank 1, thread block 0, operation 0 (pipeline): hpccoll cannot read it"],
        ),
        (lambda plan: plan["gpus"][1].pop("scratch_chunks"), ["rank 1: scratch_chunks is missing"]),
        (lambda plan: plan["gpus"].pop(), ["rank 0: connected_to: 1", "from 0 to 0"]),
        (
            lambda plan: plan["gpus"][1]["remote_buffers"][0].update(type="q"),
            ["type of remote buffer 0", "'q'", "i, o"],
        ),
        (
            with_operations(
                {"name": "copy", "src_buff": [LOCAL | {"index": 9}], "dst_buff": [LOCAL]}
            ),
            ["(copy), buffer i of rank 1: index 9 and size 1 are not of its 2 chunks"],
        ),
        *[
            (
                lambda plan, size=size: plan.update(min_message_size=size),
                [f"min_message_size: {text} is not a whole"],
            )
            for size, text in (
                (-5, "-5"),
                (True, "true"),
                (1e3, "1000.0"),
                ("64K", '"64K"'),
                (None, "null"),
            )
        ],
    ],
)
def test_what_is_not_read_is_named(change, words, tmp_path):
    plan = exported("all_reduce", "ring", 2, 2)
    change(plan)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert invoke("show", tmp_path / "plan.json").is_bad_input("plan.json", *words)
