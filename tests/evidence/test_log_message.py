"""Lines that begin like earlier ones, and lines in the forms that make logs long: they are read as any other line."""

import tracemalloc

import pytest
from library_logs import TEXTS

from hpccoll.evidence import log_message
from hpccoll.evidence.log_message import FORMS, MessageReader, split_messages
from hpccoll.evidence.log_set import RULES, read_log_files, read_logs
from hpccoll.evidence.nccl import RULES_OF_FORMS

PREFIXES = (
    "",
    "[1,0]<stdout>:",
    "2025-05-16T16:39:51.{:03}Z ",
    "2025-05-16 16:39:51,{:03} INFO ",
    "17123456{:02}.123456 ",
    "Thu Jul 18 15:41:{:02} 2024[1,0]<stdout>:",
    "\x1b[36mrank0-1  | \x1b[0m",
    "x-10:20:{:02} ",
)
HEADS = "n1:100:100 [0] NCCL INFO ", "n1:100:120 [0] NCCL INFO ", "[2] NCCL INFO ", "NCCL INFO "
TEXTS_OF_LINES = (
    "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    "Connected all rings",
    "Using network IB",
    "a text at 12:13:14.567",
    "cut n2:7:8 [0] NCCL INFO Using network Socket",
    'a column"',
    "more &gt; less",
    "comm 0x5 rank 0 nranks 2 cudaDev 0 commId 0xab - Init START",
    "\x1b[0mcoloured",
    "NCCL version 2.30.1",
    "[n1:0:9 - comm.c:400][x] INFO job",
    "said | said",
    " | | ",
    "",
)
EXAMPLES = {
    "idle": (
        "Trees [0] 1/2/-1->0->-1 [1] 1/-1/-1->0->2",
        "Channel 00/02 :    0   1   2   3",
        "Ring 00 : 3 -> 0 -> 1",
        "Connected all rings, use ring PXN 0 GDR 1",
        "threadThresholds 8/8/64 | 16/8/64 | 512 | 512",
        "2 coll channels, 2 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer",
        "+ PCI[24.0] - GPU/7000 (0)",
        "Setting affinity for GPU 0 to ffff,ffffffff",
    ),
    "channel": (
        "Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0(2)/GDRDMA",
        "Channel 01 : 0[0] -> 1[1] via SHM/direct",
        "Channel 00/0 : 0[1b000] -> 1[1c000] via P2P/IPC comm 0x7f00 nRanks 08",
    ),
    "call": (
        (
            "AllReduce: opCount 1f sendbuff 0x7f00 recvbuff (nil) count 8 datatype 7 op 0 root 0 comm 0x55d0 "
            "[nranks=4] stream 0x1"
        ),
    ),
    "collective": ("AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}",),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_lines_that_begin_like_earlier_ones_are_taken_apart_as_the_first_ones(prefix, monkeypatch):
    lines = [
        f"{prefix.format(10 + number)}{head}{text}\n"
        for head in HEADS
        for number, text in enumerate((TEXTS_OF_LINES[0], *TEXTS_OF_LINES, *TEXTS_OF_LINES))
    ]
    quickly = [message._replace(form="") for message in split_messages(lines)]
    monkeypatch.setattr(log_message, "MAX_HEADS", 0)
    assert quickly == [*split_messages(lines)]


def test_all_forms_have_examples():
    assert EXAMPLES.keys() == FORMS.keys() == {"idle", *RULES_OF_FORMS}


@pytest.mark.parametrize(
    ("form", "text"), [(form, text) for form, texts in EXAMPLES.items() for text in texts]
)
def test_only_the_rule_of_its_form_and_rules_for_any_text_match_a_line_of_a_form(form, text):
    *_, message = split_messages(
        [f"n1:7:8 [0] NCCL INFO {end}" for end in ("Using network IB", text)]
    )
    assert message.form == form
    matching = [rule for rule in RULES["nccl"] if rule[0].pattern and rule[0].match(text)]
    assert matching == [rule for name, rule in RULES_OF_FORMS.items() if name == form]
    assert read_logs({"a": f"n1:7:8 [0] NCCL INFO {text}"}).unavailable == ()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_first_messages_name_the_processes_and_threads_of_all(name):
    lines = (TEXTS[name] * 2).splitlines()
    some = [*MessageReader().first_messages(lines)]
    every = [*split_messages(lines)]
    for fact in ("process", "thread"):
        in_order = [
            dict.fromkeys(getattr(message, fact) for message in messages)
            for messages in (some, every)
        ]
        assert [*in_order[0]] == [*in_order[1]]


def test_a_log_is_read_by_lines_and_its_messages_are_not_kept(tmp_path):
    call = (
        "n1:7:8 [0] NCCL INFO AllReduce: opCount {:x} sendbuff 0x7f00 recvbuff 0x7f80 count {} datatype 7 op 0 root 0 "
        "comm 0x55d0 [nranks=4] stream 0x1\n"
    )
    sizes = []
    for calls in (2_000, 20_000):
        log = tmp_path / "a.log"
        log.write_text("".join(call.format(number, number) for number in range(calls)))
        tracemalloc.start()
        read_log_files([log])
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert sizes[1] < 1.2 * sizes[0] < log.stat().st_size
