"""Colours, marks and the font of all charts and pictures; the colours of series, which are the same in all charts."""

import colorsys
from collections.abc import Iterable, Mapping

from hpccoll.analysis.chart_groups import LegendEntry

INK = "#1f2937"
MUTED = "#5b6472"
FAINT = "#e3e7ed"
PAPER = "#ffffff"
DARK = {PAPER: "#14171c", INK: "#e6e9ee", MUTED: "#a3acb9", FAINT: "#2d333c"}
"""What these are where a reader prefers dark pages; all other colours stay."""

WHITE, BLACK = "#fffffe", "#1f2938"
"""Unlike PAPER and INK, the same on dark pages."""

GREY = "#9ca3af"
PALETTE = (
    "#2b7bba",
    "#d9662b",
    "#2f9467",
    "#b04a96",
    "#a9811a",
    "#7a5cc4",
    "#c8443f",
    "#2b97a5",
    "#8a6146",
    "#6d8b1f",
    "#e0409a",
    "#3f5ee8",
    "#c52fe0",
)
"""Colours with contrast on white, on near-black, and under white text."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

SHAPES = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)
"""Marks: a second cue for readers who cannot distinguish all colours."""

PREDICTED_SHAPE = "stroke"
"""The mark of predicted series, next to whose dashed lines it is hardly visible, and which the legend shows."""


def series_colour(i: int) -> str:
    """Return colour number ``i``: one of the palette, then a new hue."""
    if i < len(PALETTE):
        return PALETTE[i]
    # multiples of the golden ratio never repeat a hue
    return _hex(colorsys.hls_to_rgb(i * 0.618 % 1, 0.45, 0.5))


SHADES = (0.0, 0.14, -0.07, 0.21, -0.12, 0.07, -0.03)
"""What the members of a family add to the lightness of its colour; further members turn its hue a little."""


def entry_colour(entry: LegendEntry) -> str:
    """Return the colour of a series: dark for the library's own, grey for floors, else a shade of its family's hue."""
    if entry.is_floor:
        return GREY
    if entry.number < 0:
        return INK
    return _shade(series_colour(entry.number), entry.member)


def _shade(colour: str, member: int) -> str:
    if not member:
        return colour
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    turns, shade = divmod(member, len(SHADES))
    hue = (hue + 0.02 * turns) % 1
    return _hex(colorsys.hls_to_rgb(hue, lightness + SHADES[shade], saturation))


def _hex(rgb: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def group_colours(legend: Mapping[str, LegendEntry]) -> dict[str, str]:
    """Return the colour of every series."""
    return {name: entry_colour(entry) for name, entry in legend.items()}


def group_shapes(legend: Mapping[str, LegendEntry]) -> dict[str, str]:
    """Return the shape of the points of every series."""
    shapes = {}
    for name, entry in legend.items():
        number = entry.number + 1 + entry.member
        shapes[name] = PREDICTED_SHAPE if entry.is_predicted else SHAPES[number % len(SHAPES)]
    return shapes


def numbered_colours(names: Iterable[str], first: int = 0) -> dict[str, str]:
    """Return colours for ``names`` in order, from number ``first`` on."""
    return {name: series_colour(i) for i, name in enumerate(names, first)}
