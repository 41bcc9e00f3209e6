"""The script that pages carry is bundled once, where it can be kept."""

import re
from importlib.metadata import version

import pytest
import vl_convert

from hpccoll.report import vega_script as module
from hpccoll.report.vega_script import VEGA_SNIPPET, vega_script


@pytest.fixture(scope="module")
def bundled():
    return vl_convert.javascript_bundle(VEGA_SNIPPET)


@pytest.fixture
def bundles(bundled, monkeypatch):
    """The snippets that were bundled since the test began."""
    asked = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: asked.append(snippet) or bundled)
    return asked


def test_it_is_bundled_once_and_nothing_else_is_left(bundles, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    first, second = vega_script.__wrapped__(), vega_script.__wrapped__()
    assert first == second
    assert len(first) > 500_000
    assert not re.search("</script", first)
    assert bundles == [VEGA_SNIPPET]
    (kept,) = (tmp_path / "caches" / "hpccoll").iterdir()
    monkeypatch.setattr(module, "VEGA_SNIPPET", "another")
    vega_script.__wrapped__()
    assert {kept} < {*kept.parent.glob(f"vega-{version('vl-convert-python')}-*.js")}  # that of another is beside it
    assert bundles == [VEGA_SNIPPET, "another"]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_where_it_cannot_be_kept_it_is_bundled_each_time(bundles, place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    assert vega_script.__wrapped__() == vega_script.__wrapped__()
    assert bundles == [VEGA_SNIPPET] * 2
