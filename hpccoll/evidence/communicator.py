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
        least, most: of a number; None is no limit.
    """

    what: str
    since: int
    words: Mapping[str, int] = field(default_factory=dict)
    text: bool = False
    alone: bool = False
    least: int = 0
    most: int | None = None

    @property
    def expected(self) -> str:
        """What is valid, for people."""
        limit = "up" if self.most is None else f"to {self.most}"
        return ", ".join(self.words) or ("a text" if self.text else f"a whole number from {self.least} {limit}")

    def takes(self, value: object) -> bool:
        if self.words or self.text:
            return isinstance(value, str) and bool(value) and (self.text or value in self.words)
        return type(value) is int and self.least <= value and (self.most is None or value <= self.most)


BUFFERS = "buffers"
"""The one setting that is none of ncclConfig_t."""

SETTINGS: Mapping[str, Setting] = {
    "min_ctas": Setting("the fewest thread blocks, one a channel, of a kernel; NCCL_MIN_CTAS wins", 21700, least=1),
    "max_ctas": Setting("the most thread blocks, one a channel, of a kernel; NCCL_MAX_CTAS wins", 21700, least=1),
    "cga_cluster_size": Setting("thread blocks of a cluster, 0 to 8; NCCL_CGA_CLUSTER_SIZE wins", 21700, most=8),
    "net_name": Setting("the network: IB, Socket, or a plugin's name; NCCL_NET wins", 21700, text=True),
    "traffic_class": Setting(
        "quality of service: the traffic class of RoCE, the service level of InfiniBand; NCCL_IB_TC wins", 22600
    ),
    "collnet_enable": Setting(
        "1: switches between nodes may reduce; NCCL_COLLNET_ENABLE wins", 22700, alone=True, most=1
    ),
    "cta_policy": Setting(
        "efficiency: few thread blocks on registered buffers; zero: copy engines, no kernels; NCCL_CTA_POLICY wins",
        22700, {"default": 0, "efficiency": 1, "zero": 2}, alone=True,
    ),
    "nvls_ctas": Setting(
        "thread blocks of kernels of NVLink SHARP; NCCL_NVLS_NCHANNELS wins", 22700, alone=True, least=1
    ),
    "n_channels_per_net_peer": Setting(
        "channels between two ranks over the network; NCCL_NCHANNELS_PER_NET_PEER wins", 22800, least=1, most=64
    ),
    "nvlink_centric_sched": Setting(
        "1: kernels are scheduled for NVLink first; NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE wins", 22800, most=1
    ),
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
    "traffic_class": "NCCL_IB_TC",
    "collnet_enable": "NCCL_COLLNET_ENABLE",
    "cta_policy": "NCCL_CTA_POLICY",
    "nvls_ctas": "NCCL_NVLS_NCHANNELS",
    "n_channels_per_net_peer": "NCCL_NCHANNELS_PER_NET_PEER",
    "nvlink_centric_sched": "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
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
