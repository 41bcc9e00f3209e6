"""Vega as the one script that a page carries.

To bundle it takes vl-convert longer than everything else in a report takes, and the outcome is always the same: it is
kept where caches are, in ~/.cache/hpccoll, or below what XDG_CACHE_HOME names.
"""

import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

import vl_convert

VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> str:
    """Return Vega and Vega-Embed as text for a ``script`` element."""
    script = None
    with suppress(OSError, RuntimeError):  # there is no home, or no room in it: the script is bundled each time
        kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hpccoll")
        path = kept / f"vega-{version('vl-convert-python')}-{crc32(VEGA_SNIPPET.encode()):08x}.js"
        if path.exists():
            return path.read_text(encoding="utf-8")
        script = _bundle_vega()
        kept.mkdir(parents=True, exist_ok=True)
        _write_atomically(script, path)
    return script or _bundle_vega()


def _bundle_vega() -> str:
    return vl_convert.javascript_bundle(VEGA_SNIPPET).replace("</script", "<\\/script")


def _write_atomically(text: str, path: Path) -> None:
    """Write a file of which others see all or nothing."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        written = Path(place, path.name)
        written.write_text(text, encoding="utf-8")
        written.replace(path)
