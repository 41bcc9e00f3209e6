"""Pages from the templates of this room, and Vega, the script that draws their charts in the browser."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from zlib import crc32

from jinja2 import Environment, PackageLoader, StrictUndefined

from hpccoll.common.terminal import printable
from hpccoll.render import colours
from hpccoll.render.chart_base import chart_engine, write_picture
from hpccoll.render.definitions import definition_of
from hpccoll.store.durable_files import replacing_file

NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]iB|B|[nmu]?s)\b|%|of \d)|(?<=\d of) (?=\d)")


def keep_units(text: str) -> str:
    """Return text in which no line ends between a number and its unit, or in ``2 of 7``."""
    return NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text)


def render(template: str, context: Mapping[str, object]) -> str:
    """Return the text of a template: every text in ``context`` is escaped and printable."""
    return _templates().get_template(template).render(context)


def write_page_or_picture(
    out: Path, page: Callable[[], str], chart: Callable[[], Mapping[str, object]]
) -> None:
    """Write a page (html), or the chart that stands for it alone (svg, png); only what is written is made.

    Raises:
        OSError: if it cannot be written.
    """
    if out.suffix == ".html":
        with replacing_file(out.resolve()) as unfinished:
            unfinished.write_text(page(), encoding="utf-8")
    else:
        write_picture(chart(), out)


def write_rendered(path: Path, template: str, context: Mapping[str, object]) -> None:
    """Write the text of a template to a file, part by part: as one text, a large page is the most of a report's memory.

    Raises:
        OSError: if the file cannot be written.
    """
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_templates().get_template(template).generate(context))


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("hpccoll.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    templates.globals |= {"definition": definition_of, "colours": colours}
    templates.filters["keep_units"] = keep_units
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return templates


VEGA_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> str:
    """Return Vega and Vega-Embed as text for a ``script`` element, from ``$XDG_CACHE_HOME/hpccoll`` [~/.cache/hpccoll].

    Bundling takes vl-convert longer than the rest of a report, and always has the same result.
    """
    script = None
    # no writable cache directory: the script is bundled for each report
    with suppress(OSError, RuntimeError):
        directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hpccoll")
        path = (
            directory / f"vega-{version('vl-convert-python')}-{crc32(VEGA_SNIPPET.encode()):08x}.js"
        )
        if path.exists():
            return path.read_text(encoding="utf-8")
        script = _bundle_vega()
        directory.mkdir(parents=True, exist_ok=True)
        with replacing_file(path) as unfinished:
            unfinished.write_text(script, encoding="utf-8")
    return script or _bundle_vega()


def _bundle_vega() -> str:
    script: str = chart_engine().javascript_bundle(VEGA_SNIPPET)
    return script.replace("</script", "<\\/script")
