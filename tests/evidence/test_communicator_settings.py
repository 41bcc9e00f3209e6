"""Settings of NCCL's communicators: they are documented, and the named variants use known ones."""

import re
from pathlib import Path

from hpccoll.evidence.communicator_settings import COMMUNICATOR_SETTINGS, OVERRIDING_VARIABLES
from hpccoll.evidence.variants import named_variants


def test_settings_are_explained_in_one_line_with_the_overriding_variable():
    assert {
        name for variant in named_variants().values() for name in variant.communicator
    } <= COMMUNICATOR_SETTINGS.keys()
    assert not [one.effect for one in COMMUNICATOR_SETTINGS.values() if "\n" in one.effect or len(one.effect) > 110]
    assert {name: re.findall(r"(\w+) wins", one.effect) for name, one in COMMUNICATOR_SETTINGS.items()} == {
        name: [OVERRIDING_VARIABLES[name]] if name in OVERRIDING_VARIABLES else [] for name in COMMUNICATOR_SETTINGS
    }


def test_the_guide_lists_every_setting_with_its_effect_and_version():
    text = (Path(__file__).parents[2] / "slurm/GPU.md").read_text()
    for name, setting in COMMUNICATOR_SETTINGS.items():
        assert f"| `{name}` | {setting.since // 10000}.{setting.since // 100 % 100} | {setting.effect} |" in text
