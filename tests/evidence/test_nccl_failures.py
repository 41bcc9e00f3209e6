"""Failures in NCCL's log: the cause with its place, the callers, what failed, and what NCCL recovered from."""

import pytest

from hpccoll.evidence.log_set import read_logs

COMPLETE = "n1:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0x1 - Init COMPLETE"
FULL = "include/alloc.h:185 NCCL WARN Cuda failure 'out of memory'"


def failures_of(*lines):
    return [(one.kind, one.cause, one.callers, one.processes) for one in read_logs({"a": "\n".join(lines)}).failures]


def thread(number, *texts):
    """Return lines of a thread: warnings begin with a place, others get the header of INFO."""
    return [f"n1:1:{number} [0] {text if 'NCCL WARN' in text else f'NCCL INFO {text}'}" for text in texts]


@pytest.mark.parametrize(
    ("texts", "cause", "code"),
    [
        (["misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed", "init.cc:5 -> 2"], "ibv_open", "System"),
        (
            [
                "misc/socket.cc:484 NCCL WARN Connect to 10.0.0.2<45678> failed : Connection refused",
                "misc/socket.cc:565 -> 2", "bootstrap.cc:274 -> 2", "init.cc:1388 -> 2", "group.cc:4 -> 2 [x]",
            ],
            "misc/socket.cc:484: Connect to 10.0.0.2<45678> failed : Connection refused", "System",
        ),
        ([FULL, "include/alloc.h:99 -> 1", "init.cc:1330 -> 1"], "include/alloc.h:185: Cuda failure", "UnhandledCuda"),
        (
            ["misc/shmutils.cc:72 NCCL WARN Call to posix_fallocate failed : No space left on it", "init.cc:9 -> 2"],
            "misc/shmutils.cc:72: Call to posix_fallocate failed : No space left on it", "System",
        ),
        (
            ["init.cc:1240 (fillInfo) NCCL WARN Duplicate GPU detected : rank 1 and 0", "init.cc:12 (initRank) -> 5"],
            "init.cc:1240: Duplicate GPU", "InvalidUsage",
        ),
        (
            ["/long/src/rccl/build/hipify/src/misc/x.cc:9 NCCL WARN hipErrorOutOfMemory", "/long/src/init.cc:7 -> 1"],
            "misc/x.cc:9: hip", "UnhandledCuda",
        ),
        (["external/nccl/src/init.cu:811 -> 3"], "", "Internal"),
    ],
)  # fmt: skip
def test_the_cause_of_a_failed_creation_is_the_warning_before_the_callers(texts, cause, code):
    ((kind, found, callers, processes),) = failures_of(*thread(2, *texts))
    assert (kind, processes) == ("communicator", 1)
    assert cause in found
    assert callers.endswith(f": nccl{code}Error" if not code.startswith("Invalid") else f": nccl{code}")


def test_the_error_of_another_thread_that_the_main_thread_returns_is_the_same_failure():
    lines = [
        *thread(3, "misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed", "transport/net_ib.cc:766 -> 2"),
        *thread(3, "proxy.cc:1519 NCCL WARN [Proxy Service 0] Failed to execute operation Connect, retcode 2"),
        *thread(2, "transport.cc:169 -> 2", "init.cc:1330 -> 2"), *thread(1, "group.cc:418 -> 2", "group.cc:418 -> 2"),
    ]  # fmt: skip
    ((_, cause, callers, _),) = failures_of(*lines)
    assert cause == "misc/ibvwrap.cc:252: Call to ibv_reg_mr failed"
    assert callers == (
        "transport/net_ib.cc:766 -> 2, transport.cc:169 -> 2, init.cc:1330 -> 2, group.cc:418 -> 2: ncclSystemError"
    )


def test_the_same_failure_of_several_processes_is_one():
    lines = thread(2, FULL, "init.cc:1330 -> 1")
    ((_, _, _, processes),) = failures_of(*lines, *(line.replace("n1:1", "n2:1") for line in lines))
    assert processes == 2


def test_an_error_after_the_creation_is_that_of_a_call():
    launched = [COMPLETE, *thread(1, "enqueue.cc:9 NCCL WARN Cuda failure 'x'", "group.cc:241 -> 1")]
    driven = [COMPLETE, *thread(4, "ib.c:1 NCCL WARN NET/IB : Got completion", "proxy.cc:878 -> 6 [Progress Thread]")]
    again = thread(4, "ib.c:1 NCCL WARN NET/IB : Got completion", "proxy.cc:878 -> 6 [Progress Thread]")
    assert [kind for kind, *_ in failures_of(*launched)] == ["call"]
    assert [kind for kind, *_ in failures_of(*driven, *again)] == ["call"]
    assert [kind for kind, *_ in failures_of(COMPLETE, *thread(2, FULL, "init.cc:1330 -> 1"))] == ["communicator"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(thread(2, "net.cc:79 -> 3", "Using network Socket"), id="a plugin without devices"),
        pytest.param(thread(2, "x.cc:1 NCCL WARN y", "net_ib.cc:7 -> 2", "Using network Socket"), id="a warned one"),
        pytest.param(thread(5, "misc/socket.cc:47 -> 3", "proxy.cc:1384 -> 3"), id="a peer that ended"),
        pytest.param(thread(2, FULL), id="a warning alone"),
        pytest.param(thread(2, FULL, "init.cc:1330 -> 7"), id="in progress"),
        pytest.param(thread(2, "Channel 00 : 0 -> 1 via P2P", "ring 0 -> 1"), id="other arrows"),
    ],
)
def test_an_error_from_which_nccl_recovers_is_no_failure(lines):
    assert failures_of(*lines) == []


def test_a_recovered_set_up_of_nvls_is_the_reason_why_it_is_not_used():
    texts = ["NVLS multicast support is available on dev 0", "transport/nvls.cc:254 NCCL WARN Cuda failure 401 'x'"]
    record = read_logs(
        {"a": "\n".join([*thread(2, *texts, "transport/nvls.cc:409 -> 1", "Connected rings"), COMPLETE])}
    )
    assert record.failures == ()
    assert [(one.feature, one.line) for one in record.unavailable] == [
        ("nvls", "transport/nvls.cc:254: Cuda failure 401 'x'")
    ]
