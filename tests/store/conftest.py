"""The path of a raw file."""

import pytest


@pytest.fixture
def out(tmp_path):
    return tmp_path / "F.h5"
