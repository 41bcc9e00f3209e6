"""Settings of NCCL's communicators, which nccl4py passes when it creates them: names, values, versions, validation."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import FLAG, NAME, IntegerRange, Kind, OneOfWords

CommunicatorSettings = Mapping[str, int | str]


_NUMBER, _POSITIVE = IntegerRange(0, (1 << 31) - 1), IntegerRange(1, (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class CommunicatorSetting:
    """A field of ncclConfig_t, or the way in which buffers are registered with NCCL."""

    meaning: str  # what it sets, in one line
    since: int  # the first version of NCCL that has the setting: major x 10000 + minor x 100
    variable: str | None = None  # the environment variable that overrides it; None without one
    numbers: Kind[Any] = _NUMBER  # the valid values, unless they have names
    # the names of its values, each with the number that NCCL takes; empty for a number or a text
    values: Mapping[str, int] = field(default_factory=dict)
    # the first version that has a value, for values that are newer than the setting
    value_since: Mapping[str, int] = field(default_factory=dict)
    # whether it changes NCCL's own collectives only, not sends and receives
    library_only: bool = False

    @property
    def effect(self) -> str:
        """The effect in one line."""
        if not self.variable:
            return self.meaning
        return f"{self.meaning}; {self.variable} wins"

    @property
    def kind(self) -> Kind[Any]:
        """The valid values."""
        if self.values:
            return OneOfWords(tuple(self.values))
        return self.numbers


BUFFERS = "buffers"
"""The only setting that is not a field of ncclConfig_t."""

COMMUNICATOR_SETTINGS: Mapping[str, CommunicatorSetting] = {
    "min_ctas": CommunicatorSetting(
        "minimum number of thread blocks of a kernel, one per channel", 21700, "NCCL_MIN_CTAS", _POSITIVE
    ),
    "max_ctas": CommunicatorSetting(
        "maximum number of thread blocks of a kernel, one per channel", 21700, "NCCL_MAX_CTAS", _POSITIVE
    ),
    "cga_cluster_size": CommunicatorSetting(
        "thread blocks of a cluster, 0 to 8", 21700, "NCCL_CGA_CLUSTER_SIZE", IntegerRange(0, 8)
    ),
    "net_name": CommunicatorSetting("the network: IB, Socket, or a plugin's name", 21700, "NCCL_NET", NAME),
    "traffic_class": CommunicatorSetting(
        "quality of service: the traffic class of RoCE, the service level of InfiniBand", 22600, "NCCL_IB_TC"
    ),
    "collnet_enable": CommunicatorSetting(
        "1: switches between nodes may reduce", 22700, "NCCL_COLLNET_ENABLE", FLAG, library_only=True
    ),
    "cta_policy": CommunicatorSetting(
        "efficiency: few thread blocks on registered buffers; zero (2.28): copy engines only", 22700, "NCCL_CTA_POLICY",
        values={"default": 0, "efficiency": 1, "zero": 2}, value_since={"zero": 22800}, library_only=True,
    ),
    "nvls_ctas": CommunicatorSetting(
        "thread blocks of kernels of NVLink SHARP", 22700, "NCCL_NVLS_NCHANNELS", _POSITIVE, library_only=True
    ),
    "n_channels_per_net_peer": CommunicatorSetting(
        "channels between two ranks over the network", 22800, "NCCL_NCHANNELS_PER_NET_PEER", IntegerRange(1, 64)
    ),
    "nvlink_centric_sched": CommunicatorSetting(
        "1: kernels are scheduled for NVLink first", 22800, "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", FLAG
    ),
    "graph_usage_mode": CommunicatorSetting(
        "1: one CUDA graph at a time; 2 (default): graphs mixed with other launches", 22900,
        "NCCL_GRAPH_MIXING_SUPPORT",
        # with 0, no graphs, a case with graph=1 may hang (src/plugin/profiler.cc of 2.29.2)
        IntegerRange(1, 2),
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
        BadInputError: names the first setting that is not known or has a value that NCCL does not
            take.
    """
    for name, value in settings.items():
        if name not in COMMUNICATOR_SETTINGS:
            raise BadInputError(key, name, COMMUNICATOR_SETTINGS)
        COMMUNICATOR_SETTINGS[name].kind.check(f"{key}.{name}", value)


def overridden_settings(
    variables: Collection[str], settings: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield each of ``settings`` that one of the environment's ``variables`` overrides, and that variable."""
    for name in settings:
        setting = COMMUNICATOR_SETTINGS.get(name)
        if setting and setting.variable and setting.variable in variables:
            yield name, setting.variable


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
    first_version = 0
    for name, value in settings.items():
        setting = COMMUNICATOR_SETTINGS[name]
        first_version = max(first_version, setting.value_since.get(str(value), setting.since))
    return first_version
