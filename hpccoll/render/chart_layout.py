"""The layout of a chart: the panels in a row and the width of each, for the pixels of room that it has.

A specification carries in its ``usermeta`` what both ``fitted`` and page.js need.
"""

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

WIDTH = 780
"""Width in pixels of a row of panels in a picture file; the page fits charts to its own width."""

PANEL_GAP = {"row": 20, "column": 40}
"""Pixels between panels, for the labels at the ends of their axes."""

LETTER_WIDTH = 7
"""Approximate width in pixels of a letter of the legend."""

AXIS_ROOM, LEAST_WIDTH = 96, 180
"""Pixels: for a vertical axis, its title and half a label at the right; and the least width of panels in a row."""


def text_from(width: int) -> dict[str, int]:
    """Return the ``usermeta`` of panels whose texts have room from ``width`` pixels on; narrower ones have none."""
    return {"text": width}


def layout_record(specification: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the ``usermeta`` of a chart whose legend has ``names``, and take that of its panels out of it.

    It has the layouts, the widest first; the width of a name in the legend (``label``), the most
    pixels of a panel, and those from which on its texts have room (``text``).
    """
    panel = specification.get("spec", specification)
    longest_name = max(map(len, names))
    double_width = 2 * panel.get("width", WIDTH)
    panel_meta = panel.pop("usermeta", {})
    return {
        "label": 40 + longest_name * LETTER_WIDTH,
        "layouts": _layouts(specification.get("columns", 1)),
        "most": max(double_width, 420),
        "text": panel_meta.get("text", 0),
    }


def _layouts(columns: int) -> list[dict[str, int]]:
    """Return how many panels are in a row, the widest first, from which room on, and what of it is not panels."""
    layouts = []
    while columns > 1:
        fixed = AXIS_ROOM + PANEL_GAP["column"] * (columns - 1)
        layouts.append({"columns": columns, "fixed": fixed, "room": fixed + columns * LEAST_WIDTH})
        columns = math.ceil(columns / 2)
    return [*layouts, {"columns": 1, "fixed": AXIS_ROOM, "room": 0}]


def fitted(specification: Mapping[str, Any], room: int) -> dict[str, Any]:
    """Return a specification of ``apply_theme`` for ``room`` pixels; page.js does the same."""
    spec = copy.deepcopy({name: part for name, part in specification.items() if name != "datasets"})
    if "datasets" in specification:  # most of a chart, which stays as it is
        spec["datasets"] = specification["datasets"]
    meta = spec["usermeta"]
    layout = next(candidate for candidate in meta["layouts"] if room >= candidate["room"])
    panel = spec.get("spec", spec)
    panel["width"] = min(meta["most"], (room - layout["fixed"]) // layout["columns"])
    if "facet" in spec:
        spec["columns"] = layout["columns"]
        spec["config"]["header"]["labelLimit"] = panel["width"]
        if layout["columns"] == 1:
            spec["resolve"] = {"axis": {"x": "independent"}}
    if panel["width"] < meta["text"]:
        panel["layer"] = [layer for layer in panel["layer"] if layer["mark"]["type"] != "text"]
    spec["config"]["legend"]["columns"] = max(1, room // meta["label"])
    return spec
