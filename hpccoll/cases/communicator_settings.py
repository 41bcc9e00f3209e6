"""Settings of NCCL's communicators, which nccl4py passes when it creates them: names, values, versions, validation."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from hpccoll.common.errors import BadInputError

CommunicatorSettings = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class CommunicatorSetting:
    """A field of ncclConfig_t, or the way in which buffers are registered with NCCL."""

    meaning: str  # what it sets, in one line
    since: int  # the first version of NCCL that has the setting: major x 10000 + minor x 100
    variable: str | None = None  # the environment variable that overrides it; None without one
    # the names of its values, each with the number that NCCL takes; empty for a number or a text
    values: Mapping[str, int] = field(default_factory=dict)
    # the first version that has a value, for values that are newer than the setting
    value_since: Mapping[str, int] = field(default_factory=dict)
    text: bool = False  # whether its value is a text
    library_only: bool = False  # whether it changes NCCL's own collectives only, not sends and receives
    least: int = 0  # the smallest number
    most: int | None = None  # the largest number; None is no limit

    @property
    def effect(self) -> str:
        """The effect in one line."""
        return f"{self.meaning}; {self.variable} wins" if self.variable else self.meaning

    @property
    def expected(self) -> str:
        """The valid values, for people."""
        limit = "up" if self.most is None else f"to {self.most}"
        return ", ".join(self.values) or ("a text" if self.text else f"a whole number from {self.least} {limit}")

    def accepts(self, value: object) -> bool:
        if self.values or self.text:
            return isinstance(value, str) and bool(value) and (self.text or value in self.values)
        return type(value) is int and self.least <= value and (self.most is None or value <= self.most)


BUFFERS = "buffers"
"""The only setting that is not a field of ncclConfig_t."""

COMMUNICATOR_SETTINGS: Mapping[str, CommunicatorSetting] = {
    "min_ctas": CommunicatorSetting(
        "minimum number of thread blocks of a kernel, one per channel", 21700, "NCCL_MIN_CTAS", least=1
    ),
    "max_ctas": CommunicatorSetting(
        "maximum number of thread blocks of a kernel, one per channel", 21700, "NCCL_MAX_CTAS", least=1
    ),
    "cga_cluster_size": CommunicatorSetting(
        "thread blocks of a cluster, 0 to 8", 21700, "NCCL_CGA_CLUSTER_SIZE", most=8
    ),
    "net_name": CommunicatorSetting("the network: IB, Socket, or a plugin's name", 21700, "NCCL_NET", text=True),
    "traffic_class": CommunicatorSetting(
        "quality of service: the traffic class of RoCE, the service level of InfiniBand", 22600, "NCCL_IB_TC"
    ),
    "collnet_enable": CommunicatorSetting(
        "1: switches between nodes may reduce", 22700, "NCCL_COLLNET_ENABLE", library_only=True, most=1
    ),
    "cta_policy": CommunicatorSetting(
        "efficiency: few thread blocks on registered buffers; zero (2.28): copy engines only", 22700, "NCCL_CTA_POLICY",
        {"default": 0, "efficiency": 1, "zero": 2}, {"zero": 22800}, library_only=True,
    ),
    "nvls_ctas": CommunicatorSetting(
        "thread blocks of kernels of NVLink SHARP", 22700, "NCCL_NVLS_NCHANNELS", library_only=True, least=1
    ),
    "n_channels_per_net_peer": CommunicatorSetting(
        "channels between two ranks over the network", 22800, "NCCL_NCHANNELS_PER_NET_PEER", least=1, most=64
    ),
    "nvlink_centric_sched": CommunicatorSetting(
        "1: kernels are scheduled for NVLink first", 22800, "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", most=1
    ),
    "graph_usage_mode": CommunicatorSetting(
        "1: one CUDA graph at a time; 2 (default): graphs mixed with other launches", 22900,
        "NCCL_GRAPH_MIXING_SUPPORT",
        least=1, most=2,  # with 0, no graphs, a case with graph=1 may hang (src/plugin/profiler.cc of 2.29.2)
    ),
    BUFFERS: CommunicatorSetting(
        "memory of ncclMemAlloc: allocated (and no more), registered, or in symmetric windows", 22700,
        values={"allocated": 0, "registered": 1, "symmetric": 2},
    ),
}  # fmt: skip
"""The settings by the names of nccl4py's NCCLConfig, and the registration of buffers."""


def check_settings(key: str, settings: Mapping[str, object]) -> None:
    """Check the names and values of settings, which messages call ``key``.

    Raises:
        BadInputError: names the first setting that is not known or has a value that NCCL does not take.
    """
    for name, value in settings.items():
        if name not in COMMUNICATOR_SETTINGS:
            raise BadInputError(key, name, COMMUNICATOR_SETTINGS)
        if not COMMUNICATOR_SETTINGS[name].accepts(value):
            raise BadInputError(f"{key}.{name}", value, COMMUNICATOR_SETTINGS[name].expected)


def overridden_settings(variables: Collection[str], settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each of ``settings`` that one of the environment's ``variables`` overrides, and that variable."""
    for name in settings:
        known = COMMUNICATOR_SETTINGS.get(name)
        if known and known.variable and known.variable in variables:
            yield name, known.variable


def nccl_config(settings: CommunicatorSettings) -> dict[str, int | str]:
    """Return the fields of ncclConfig_t with the values that NCCL takes, without the registration of buffers."""
    return {
        name: COMMUNICATOR_SETTINGS[name].values.get(str(value), value)
        for name, value in settings.items()
        if name != BUFFERS
    }


def min_nccl_version(settings: CommunicatorSettings) -> int:
    """Return the first version of NCCL that has all of ``settings`` with these values.

    An older one ignores the settings that it lacks, and refuses the values.
    """
    known = ((COMMUNICATOR_SETTINGS[name], str(value)) for name, value in settings.items())
    return max((setting.value_since.get(value, setting.since) for setting, value in known), default=0)
