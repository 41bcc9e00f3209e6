"""Settings of NCCL's communicators: they are documented, and the named variants use known ones."""

import pytest

from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS, check_settings
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import BadInputError


def test_the_settings_of_variants_are_known_and_each_is_explained_in_one_line():
    used = {name for variant in named_variants().values() for name in variant.communicator}
    assert used <= COMMUNICATOR_SETTINGS.keys()
    assert not [one.effect for one in COMMUNICATOR_SETTINGS.values() if "\n" in one.effect or len(one.effect) > 120]


def test_versions_of_values_are_newer_than_the_setting_and_named_in_its_explanation():
    for setting in COMMUNICATOR_SETTINGS.values():
        assert setting.value_since.keys() <= setting.values.keys()
        for value, since in setting.value_since.items():
            assert since > setting.since
            assert f"{value} ({since // 10000}.{since // 100 % 100})" in setting.effect


def test_a_communicator_on_which_graphs_would_hang_is_refused():
    with pytest.raises(BadInputError, match="graph_usage_mode: 0 is not valid: a whole number from 1 to 2"):
        check_settings("communicator", {"graph_usage_mode": 0})
    check_settings("communicator", {"graph_usage_mode": 1})
