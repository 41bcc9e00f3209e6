"""What every test may ask for."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))  # schedules.py and others that several rooms of tests share

settings.register_profile("hpccoll", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("hpccoll")


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """Skip a test that lacks something, with the reason; where HPCCOLL_REQUIRE_ALL is set, what lacks is a failure."""

    def require(condition: object, reason: str) -> None:
        if not condition and os.environ.get("HPCCOLL_REQUIRE_ALL"):
            pytest.fail(f"HPCCOLL_REQUIRE_ALL is set, and {reason}")
        if not condition:
            pytest.skip(reason)

    return require
