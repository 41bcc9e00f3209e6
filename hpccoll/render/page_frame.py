"""What every page is built in: the head with its style, figures that the browser draws, and the scripts that do it."""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from zlib import crc32

from hpccoll.render.chart_base import chart_engine


def page_head(title: str, note: str = "") -> str:
    """Return the beginning of a page up to its body.

    Args:
        title: the title.
        note: an element of the head that programs read.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{note}\n"
        f"<title>{escape(title)}</title>\n<style>\n{_static('page.css')}</style>\n</head>\n<body>"
    )


def chart_figure(identity: str, title: str, specification: Mapping[str, object], caption: str, links: str = "") -> str:
    """Return a figure that a script of the page draws.

    Args:
        identity: the id of the element.
        title: the title.
        specification: the chart in Vega-Lite.
        caption: how to read it, folded.
        links: links to files of the chart, as HTML.
    """
    name = escape(identity)
    spec = {key: value for key, value in specification.items() if key != "title"}  # the page has its own title
    text = json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure id="{name}"><h3>{escape(title[:1].upper() + title[1:])}</h3>\n'
        f'<div class="chart" data-spec="{name}-spec" role="img" aria-label="{escape(title)}"></div>\n'
        f"<figcaption><details><summary>How to read it {links}</summary>{escape(caption)}</details></figcaption>\n"
        f'<script type="application/json" id="{name}-spec">{text}</script></figure>'
    )


def page_scripts(*, with_charts: bool, instead: str = "") -> str:
    """Return the scripts: the choice of the tab, Vega if there are charts, and the drawing of charts.

    Args:
        with_charts: whether the page has charts.
        instead: where charts are for readers without JavaScript, as the end of a sentence.
    """
    drawing = f'<script type="module">{vega_script()}</script>\n' if with_charts else ""
    needed = f"<noscript><p>The charts need JavaScript{escape(instead)}.</p></noscript>\n"
    tabs = f"<script>\n{{\n{_static('tabs.js')}}}\n</script>\n"
    return f'{needed}{tabs}{drawing}<script type="module">\n{_static("page.js")}</script>'


def _static(name: str) -> str:
    return files("hpccoll.render").joinpath("static", name).read_text(encoding="utf-8")


VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> str:
    """Return Vega and Vega-Embed as text for a ``script`` element.

    Bundling takes vl-convert longer than the rest of a report, and always has the same result: the text is cached in
    ``$XDG_CACHE_HOME/hpccoll``, by default ``~/.cache/hpccoll``.
    """
    script = None
    with suppress(OSError, RuntimeError):  # no writable cache directory: the script is bundled for each report
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hpccoll")
        path = directory / f"vega-{version('vl-convert-python')}-{crc32(VEGA_SNIPPET.encode()):08x}.js"
        if path.exists():
            return path.read_text(encoding="utf-8")
        script = _bundle_vega()
        directory.mkdir(parents=True, exist_ok=True)
        _write_atomically(script, path)
    return script or _bundle_vega()


def _bundle_vega() -> str:
    script: str = chart_engine().javascript_bundle(VEGA_SNIPPET)
    return script.replace("</script", "<\\/script")


def _write_atomically(text: str, path: Path) -> None:
    """Write a file atomically."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        written = Path(directory, path.name)
        written.write_text(text, encoding="utf-8")
        written.replace(path)
