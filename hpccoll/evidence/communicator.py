"""What a communicator of NCCL can be made with beside its environment, by nccl4py: the settings that variants name."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hpccoll.errors import BadInputError

Settings = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of ncclConfig_t, or a way in which buffers are made known to NCCL.

    Args:
        what: it does, in one line.
        since: the first version of NCCL that has it: major x 10000 + minor x 100.
        words: its values by name, each the number that NCCL takes; none where it is a number, or a text.
        text: whether it is a text.
        alone: whether it is for NCCL's own collectives alone, and does nothing to sends and receives.
    """

    what: str
    since: int
    words: Mapping[str, int] = field(default_factory=dict)
    text: bool = False
    alone: bool = False

    @property
    def expected(self) -> str:
        """What is valid, for people."""
        return ", ".join(self.words) or ("a text" if self.text else "a whole number from 0 up")

    def takes(self, value: object) -> bool:
        if self.words or self.text:
            return isinstance(value, str) and bool(value) and (self.text or value in self.words)
        return type(value) is int and value >= 0


BUFFERS = "buffers"
"""The one setting that is none of ncclConfig_t."""

SETTINGS: Mapping[str, Setting] = {
    "min_ctas": Setting("the fewest thread blocks, one a channel, of a kernel; NCCL_MIN_CTAS wins", 21700),
    "max_ctas": Setting("the most thread blocks, one a channel, of a kernel; NCCL_MAX_CTAS wins", 21700),
    "cga_cluster_size": Setting("thread blocks of a cluster, 0 to 8; NCCL_CGA_CLUSTER_SIZE wins", 21700),
    "net_name": Setting("the network: IB, Socket, or a plugin's name; NCCL_NET wins", 21700, text=True),
    "traffic_class": Setting("quality of service: the traffic class of RoCE, the service level of InfiniBand", 22600),
    "collnet_enable": Setting("1: switches between nodes may reduce; NCCL_COLLNET_ENABLE wins", 22700, alone=True),
    "cta_policy": Setting(
        "efficiency: few thread blocks where buffers are registered; zero: copy engines in place of kernels",
        22700, {"default": 0, "efficiency": 1, "zero": 2}, alone=True,
    ),
    "nvls_ctas": Setting("thread blocks of kernels of NVLink SHARP; NCCL_NVLS_NCHANNELS wins", 22700, alone=True),
    "n_channels_per_net_peer": Setting("channels between two ranks over the network, rounded to a power of 2", 22800),
    "nvlink_centric_sched": Setting("1: kernels are scheduled for NVLink first", 22800),
    BUFFERS: Setting(
        "memory of ncclMemAlloc: allocated (and no more), registered, or in symmetric windows",
        22700, {"allocated": 0, "registered": 1, "symmetric": 2}, alone=True,
    ),
}  # fmt: skip
"""By the names of nccl4py's NCCLConfig, and how buffers are known."""


def check_settings(key: str, settings: Mapping[str, object]) -> None:
    """See that every setting is known, and has a value that NCCL can take.

    Args:
        key: below which they are written.
        settings: as they are written.

    Raises:
        BadInputError: for one that is not, or has not.
    """
    for name, value in settings.items():
        if name not in SETTINGS:
            raise BadInputError(key, name, SETTINGS)
        if not SETTINGS[name].takes(value):
            raise BadInputError(f"{key}.{name}", value, SETTINGS[name].expected)


WINNERS: Mapping[str, str] = {
    "min_ctas": "NCCL_MIN_CTAS",
    "max_ctas": "NCCL_MAX_CTAS",
    "cga_cluster_size": "NCCL_CGA_CLUSTER_SIZE",
    "net_name": "NCCL_NET",
    "collnet_enable": "NCCL_COLLNET_ENABLE",
    "nvls_ctas": "NCCL_NVLS_NCHANNELS",
}
"""Settings, and the variables that win over them where both are set."""


def overruled(variables: Collection[str], settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each of ``settings`` over which one of the environment's ``variables`` wins, and that variable."""
    yield from ((name, WINNERS[name]) for name in settings if WINNERS.get(name) in variables)


def in_numbers(settings: Settings) -> dict[str, int | str]:
    """Return the fields of ncclConfig_t with the values that NCCL takes; how buffers are known is none of them."""
    return {name: SETTINGS[name].words.get(str(value), value) for name, value in settings.items() if name != BUFFERS}


def least_version(settings: Settings) -> int:
    """Return the first version of NCCL that has all of ``settings``; an older one heeds none that it does not know."""
    return max((SETTINGS[name].since for name in settings), default=0)


def _plain(words: str) -> str:
    return re.sub(r"[ _]|flags$", "", words).lower()


_LOGGED = {_plain(name): name for name in SETTINGS}


def of_log(words: str) -> str:
    """Return the setting that NCCL's log calls ``words``, such as ``CTA policy flags``; the words, if it is none."""
    return _LOGGED.get(_plain(words), words)
