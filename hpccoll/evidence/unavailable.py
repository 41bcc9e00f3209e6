"""Why something that was asked for was not done: the lines of libraries that say so, and the reason in plain words.

Within what is refused, the line that says most comes first: of several it is the one that a verdict quotes.
"""

import re

from hpccoll.evidence.log_lines import Message
from hpccoll.evidence.parser_state import Notes, Rule

_KNOWN = (
    ("sharp", r"SHARP: Set to disable on this communicator", "NCCL_SHARP_DISABLE is set"),
    ("sharp", r"SHARP: Group size:\d+ is less than threshold", "fewer nodes than NCCL_SHARP_GROUP_SIZE_THRESH"),
    ("sharp", r"less than CollNet node threshold \d+", "fewer nodes than NCCL_COLLNET_NODE_THRESHOLD"),
    (
        "sharp", r"Failed to lock SAT tree|Streaming Tree lock failed",
        "the streaming tree is held by another job or communicator",
    ),
    (
        "sharp", r"(?i:sharp job init error)|failed with status: No resource|Cannot create SHARP job",
        "the aggregation manager grants no job",
    ),
    ("sharp", r"SHARP coll init error", "libsharp could not be started"),
    ("sharp", r"SHARP group create: ", "no group of ranks could be made in the switches"),
    ("sharp", r"sharp_coll_caps_query failed", "the switches do not say what they can"),
    ("sharp", r"mixed local CollNet device counts", "nodes have different numbers of CollNet devices"),
    ("sharp", r"\b0 CollNet devices", "no CollNet device: nccl-rdma-sharp-plugins is not loaded"),
    ("sharp", r"SHARP: unsupported data type", "the switches do not add this dtype"),
    ("sharp", r"SHARP: unsupported reduce operation", "the switches do not have this operation"),
    ("sharp", r"sharp team not supported with ppn", "several ranks per node, more than UCC_TL_SHARP_TEAM_MAX_PPN"),
    ("sharp", r"Cannot initialize CollNet, using .+ instead", "CollNet could not be set up on all ranks"),
    ("sharp-dtypes", r"int8,uint8,bfloat16 Datatypes not supported", "the switches do not add int8, uint8, bfloat16"),
    ("plugin", r"NET/Plugin: Could not find: ", "libnccl-net.so is not found, NCCL uses its own network"),
    ("nvls", r"NVLS multicast support is not available", "the device or its driver has no multicast"),
    ("nvls", r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory", "NVSwitches refuse multicast memory"),
    ("nvls", r"not compatible with NCCL_NVLS_ENABLE=1", "several ranks on one GPU"),
    (
        "algorithm", r"[Nn]o algorithm/protocol available",
        "nothing that NCCL_ALGO and NCCL_PROTO leave can do it",
    ),
    (
        "algorithm", r"algSelection.*(?:cannot be honored|no algorithm)",
        "nothing that the call's own selection leaves can do it",
    ),
    ("rdma", r"NCCL_IB_DISABLE set by \w+ to 1", "NCCL_IB_DISABLE is set"),
    ("rdma", r"NCCL_NET set by \w+ to [Ss]ocket", "NCCL_NET asks for sockets"),
    ("rdma", r"[Ff]ailed to open libibverbs|[Uu]nable to (?:open|load) libibverbs", "there is no libibverbs"),
    ("rdma", r"NET/IB : No device found", "NCCL finds no RDMA device"),
    ("gdr", r"GPU Direct RDMA Disabled for HCA", "a NIC cannot reach the memory of GPUs"),
    (
        "gpu", r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        "several ranks on one GPU, which NCCL refuses",
    ),
)  # fmt: skip


def reason(text: str) -> tuple[str, str] | None:
    """Return what a message refuses and why, in plain words; None where it refuses nothing that is known."""
    if not _ANY.search(text):  # as hardly any of very many lines does
        return None
    return next((of, words) for of, shape, words in _COMPILED if shape.search(text))


def _take(notes: Notes, _match: re.Match[str], message: Message) -> None:
    if known := reason(message.text):
        notes.refuse(*known, message.text)


_COMPILED = [(of, re.compile(shape), words) for of, shape, words in _KNOWN]
_ANY = re.compile("|".join(f"(?:{shape})" for _, shape, _ in _KNOWN))

RULES: tuple[Rule, ...] = ((re.compile(""), _take),)

RANK = {(of, words): number for number, (of, _, words) in enumerate(_KNOWN)}
"""Which reason says most: the smallest number. What is not in it comes last."""
