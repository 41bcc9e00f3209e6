"""A schedule as a plan of MSCCL++: it is right in any order of execution, and within the limits of the executor."""

import pytest
from cli_runner import invoke
from plan_machine import EXPORTED, PLAN, Machine, exported


@pytest.mark.parametrize(("collective", "name", "p", "per_node"), EXPORTED)
def test_a_plan_gives_the_right_result_in_random_orders_of_execution(collective, name, p, per_node):
    plan = exported(collective, name, p, per_node)
    for seed in range(3):
        Machine(plan, seed).run()


def test_lanes_have_thread_blocks_and_channels_of_their_own():
    plan = exported("all_reduce", "ring", 4, 2, "--param", "channels=3", "--param", "window=2")
    gpu = plan["gpus"][0]
    assert len(gpu["threadblocks"]) > len(
        exported("all_reduce", "ring", 4, 2)["gpus"][0]["threadblocks"]
    )
    # to one and from one, for two lanes
    assert [len(each["connected_to"]) for each in gpu["channels"]] == [2, 2]
    for seed in range(3):
        Machine(plan, seed).run()


@pytest.mark.parametrize(
    "arguments",
    [
        ("all_reduce", "ring", 16, 16),
        ("all_gather", "direct", 24, 8),
        ("all_reduce", "ring", 16, 16, "--param", "channels=8", "--param", "window=8"),
    ],
)
def test_a_thread_block_holds_what_the_executor_holds(arguments):
    """A GPU has any number of semaphores, as in MSCCL++'s alltoall_ring: the executor's 16 are an operation's."""
    for gpu in exported(*arguments, nbytes=16 * 48 * 64)["gpus"]:
        for block in gpu["threadblocks"]:
            assert len(block["ops"]) <= 64
            assert all(len(one.get("semaphore_ids", ())) <= 16 for one in block["ops"])
            assert all(len(each["channel_ids"]) <= 16 for each in block["channels"])
            assert all(len(each["remote_buffer_ids"]) <= 16 for each in block["remote_buffer_refs"])


@pytest.mark.parametrize("arguments", [("all_reduce", "ring", 4, 4), ("all_to_all", "bruck", 6, 3)])
def test_the_largest_message_of_a_plan_is_the_one_whose_offsets_have_32_bits(arguments):
    plan = exported(*arguments)
    gpu = plan["gpus"][0]
    buffers = gpu["input_chunks"], gpu["output_chunks"], gpu["scratch_chunks"]
    ends = [
        size * max(buffers) // gpu["input_chunks"]
        for size in (plan["max_message_size"] + k for k in (0, 1))
    ]
    assert ends[0] < 1 << 32 <= ends[1] + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ring", "-p", 4, "-b", 100], ["--bytes", "100", "a multiple of 64", "4 chunks"]),
        (["binomial", "-c", "broadcast", "-p", 4, "-b", 64], ["no broadcast", "all_gather"]),
        (["sharp_emulated", "-p", 4, "-b", 64, "--aggregators", 1], ["no aggregators"]),
        (["ring", "-p", 4, "-b", 64, "--fold-cost", 1], ["--fold-cost", "--format goal"]),
    ],
)
def test_what_a_plan_cannot_say_is_refused_in_one_line(arguments, words):
    assert invoke("show", *PLAN, *arguments).is_bad_input(*words)


def test_a_plan_of_too_many_operations_is_refused_before_it_is_made():
    size = 16 * 4096
    assert invoke("show", "ring", "-p", 4096, "-b", size, "--format", "mscclpp").is_bad_input(
        "--format mscclpp: ", "at most 1,048,576 operations, not about 67,0"
    )
    assert invoke(
        "show", "recursive_doubling", "-p", 4096, "-b", size, "--format", "mscclpp"
    ).is_bad_input("--format mscclpp: ", "chunks in operations")
