"""The charts of a diagnosis: maps of pairs, or of nodes and racks, and ranked effects beside their thresholds."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from hpccoll.common.units import format_factor
from hpccoll.diagnosis.ranked_effects import Outcome, RankedEffect
from hpccoll.diagnosis.recorded import Question
from hpccoll.diagnosis.records import Floats, Kind
from hpccoll.diagnosis.transfer_ratios import Ratios
from hpccoll.render.chart_base import (
    FACTOR_LABEL,
    Chart,
    ChartRecord,
    colour,
    distinct,
    facet_chart,
    log_axis,
    log_values,
    scale_of,
    tooltip,
)
from hpccoll.render.chart_layout import WIDTH
from hpccoll.render.chart_maps import DARK_CELL, LIGHT_CELL, pair_cells
from hpccoll.render.colours import FAINT, GREY, INK, PALETTE, PAPER

BEFORE, AFTER = "as measured", "without the named effects"
"""The titles of the panels of a map."""

LEAST_DARKEST, MOST_DARKEST = 1.25, 2.0
"""The factors between which the darkest colour of a map lies."""

MOST_BORDERS = 64
"""The racks up to which their borders are drawn."""

MOST_LABELS = 10
"""The slow nodes or racks that have their name beside their mark."""

SENDS, RECEIVES, WITHIN = (PALETTE[0], "triangle-up"), (PALETTE[1], "triangle-down"), (PALETTE[2], "circle")
NODE_SERIES = {"sends": SENDS, "receives": RECEIVES}
RACK_SERIES = {"within": WITHIN, "sends to others": SENDS, "receives from others": RECEIVES}
"""The transfers that marks stand for, with their colours and shapes."""

KIND_PANELS: Mapping[Kind, str] = {
    "node": "both directions", "send": "send", "receive": "receive", "link": "both directions",
    "uplink": "to and from other racks",
}  # fmt: skip
"""What effects are judged of, by the kind of fault that they would be."""

OUTCOMES: Mapping[Outcome, tuple[str, str]] = {
    "slow": ("slow", "#c8443f"), "above": ("above a threshold, but not named", PALETTE[1]),
    "within": ("within the thresholds", GREY),
}  # fmt: skip
"""The name and the colour of each."""


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of a machine in the order of their racks, or its racks."""

    names: Sequence[str]  # [places]
    borders: Sequence[int]  # the places at which another rack begins
    labels: Mapping[int, str]  # of the axis: each rack at its middle, or some names

    @classmethod
    def of_nodes(cls, question: Question) -> tuple["Places", Sequence[int]]:
        """Return the places of nodes, and the number of the node at each."""
        racks = question.rack_numbers or [0] * len(question.hosts)
        order = sorted(range(len(racks)), key=racks.__getitem__)
        names = [question.hosts[node] for node in order]
        borders = [k for k in range(1, len(order)) if racks[order[k]] != racks[order[k - 1]]]
        if question.racks and borders:
            ends = zip([0, *borders], [*borders, len(order)], strict=True)
            labels = {(first + last - 1) // 2: question.racks[order[first]] for first, last in ends}
        else:
            labels = dict(list(enumerate(names))[:: math.ceil(len(names) / 16)])
        return cls(names, borders, labels), order


def pair_map(ratios: Ratios, question: Question, largest: float, *, after: bool) -> Chart:
    """Return the map of pairs: a cell for each sender and receiver, in the order of racks.

    Args:
        ratios: [sender, receiver].
        question: has the names.
        largest: the largest effect of a fault, which sets the scale of colours.
        after: whether there is a panel of what is left.
    """
    places, order = Places.of_nodes(question)
    data: list[ChartRecord] = []
    for panel, factors in _panels(ratios, after=after):
        for one, other in np.argwhere(np.isfinite(factors[np.ix_(order, order)])).tolist():
            pair = order[one], order[other]
            data.append(
                {"panel": panel, "first": one, "second": other, "sender": places.names[one]}
                | {"receiver": places.names[other], "slots": int(ratios.transfers[pair])}
                | _factor_fields(factors[pair], ratios.rails[pair], question)
            )
        data += [{"panel": panel, "border": border} for border in places.borders]
    top = min(max(largest, LEAST_DARKEST), MOST_DARKEST)
    middle = math.sqrt(top)
    ends = f"datum.value <= 1 ? ' or less' : datum.value >= {top} ? ' or more' : ''"
    legend = alt.Legend(
        type="gradient", labelExpr=f"{FACTOR_LABEL} + ({ends})", values=[1, middle, top], gradientLength=240
    )
    scale = alt.Scale(type="log", range=[LIGHT_CELL, DARK_CELL], domain=[1, top], nice=False, clamp=True)
    columns, title = places.names, "receiver"
    if places.borders:
        columns, title = [places.labels.get(k, "") for k in range(len(order))], "receiver, by rack"
    chart = pair_cells(
        places.names, columns, ("sender", title), alt.Color("value:Q", scale=scale, legend=legend),
        f"datum.value <= {middle}", ("sender", "receiver", "time", "slots", *_rail_field(question)),
        borders=bool(places.borders),
    )  # fmt: skip
    return facet_chart(chart, data, distinct(data, "panel") if after else (), 2)


def _panels(ratios: Ratios, *, after: bool) -> list[tuple[str, Floats]]:
    return [(BEFORE, ratios.before), *([(AFTER, ratios.after)] if after else [])]


def _numbers(data: Sequence[ChartRecord], field: str) -> list[float]:
    return [number for each in data if isinstance(number := each.get(field), float)]


def _factor_fields(factor: float, rail: int, question: Question) -> ChartRecord:
    """Return the fields of a factor, of which a cell has the text as well."""
    text = format_factor(factor)
    return {"value": round(float(factor), 4), "text": text, "time": f"{text} the usual time"} | (
        {"rail": int(rail)} if question.rails > 1 else {}
    )


def _rail_field(question: Question) -> tuple[str, ...]:
    return ("rail",) if question.rails > 1 else ()


def node_strip(ratios: Ratios, question: Question, named: Sequence[int], *, after: bool) -> Chart:
    """Return what each node sends and receives, [2, nodes], in the order of racks; nodes that are named have labels."""
    places, order = Places.of_nodes(question)
    return _strip(ratios, question, NODE_SERIES, places, order, named, "node", after=after)


def rack_strip(ratios: Ratios, question: Question, named: Sequence[int], *, after: bool) -> Chart:
    """Return the transfers within each rack, to others and from others, [3, racks]; named racks have labels."""
    names = question.rack_names
    places = Places(names, (), dict(enumerate(names)))
    return _strip(ratios, question, RACK_SERIES, places, range(len(names)), named, "rack", after=after)


def _strip(
    ratios: Ratios, question: Question, series: Mapping[str, tuple[str, str]], places: Places, order: Sequence[int],
    named: Sequence[int], noun: str, *, after: bool,
) -> Chart:  # fmt: skip
    labelled = [*named][:MOST_LABELS]
    data: list[ChartRecord] = []
    for panel, factors in _panels(ratios, after=after):
        for place, number in enumerate(order):
            known = {name: k for k, name in enumerate(series) if np.isfinite(factors[k, number])}
            data += [
                {"panel": panel, "place": place, "series": name, noun: places.names[place]}
                | _factor_fields(factors[k, number], ratios.rails[k, number], question)
                for name, k in known.items()
            ]
            if number in labelled and known and panel == BEFORE:
                top = max(factors[k, number] for k in known.values())
                data.append({"panel": panel, "place": place, "top": float(top), "label": places.names[place]})
        if len(places.borders) < MOST_BORDERS:
            data += [{"panel": panel, "border": border - 0.5} for border in places.borders]
    labels = f"{json.dumps({str(place): name for place, name in places.labels.items()})}[datum.value]"
    axis = alt.Axis(values=[*places.labels], labelExpr=labels, labelOverlap="greedy", labelSeparation=4, grid=False)
    scale = alt.Scale(domain=[-0.5, len(places.names) - 0.5], nice=False, zero=False)
    x = alt.X("place:Q", title=f"{noun}, by rack" if places.borders else noun, axis=axis, scale=scale)
    y = log_values("time / usual time", FACTOR_LABEL, _numbers(data, "value"))
    colours, shapes = ({name: style[k] for name, style in series.items()} for k in (0, 1))
    symbols = alt.Chart().transform_filter("isValid(datum.value)").mark_point(size=34, filled=True, opacity=0.8)
    points = symbols.encode(
        x=x, y=y, color=colour("series", colours), shape=alt.Shape("series:N", scale=scale_of(shapes)),
        tooltip=tooltip(noun, "series", "time", *_rail_field(question)),
    )  # fmt: skip
    text = alt.Chart().transform_filter("isValid(datum.label)").mark_text(align="left", dx=7, fontSize=12, color=INK)
    rules = alt.Chart().transform_filter("isValid(datum.border)").mark_rule(color=FAINT)
    layers = rules.encode(x="border:Q"), points, text.encode(x="place:Q", y="top:Q", text="label:N")
    chart = alt.layer(*layers).properties(width=WIDTH, height=180)
    return facet_chart(chart, data, distinct(data, "panel") if after else (), 1)


def effect_ranks(ranked: Sequence[RankedEffect], names: Sequence[str]) -> Chart:
    """Return the effects with their intervals and thresholds, in a panel for each direction, the most noticeable above.

    Args:
        ranked: the effects.
        names: of the node, link or rack of each.
    """
    data = [record for each, name in zip(ranked, names, strict=True) for record in _effect_records(each, name)]
    colours = {name: colour for name, colour in OUTCOMES.values() if name in distinct(data, "outcome")}
    values = [1.0, *_numbers(data, "value"), *_numbers(data, "threshold")]
    scale, axis = log_axis(FACTOR_LABEL, values, labelSeparation=6)
    x = alt.X("value:Q", title="time / usual time", axis=axis, scale=scale)
    shown = colour("outcome", colours, "stroke")
    base = alt.Chart().encode(y=alt.Y("name:N", title=None, sort=[*names]), x=x, color=shown)
    fields = tooltip("name", "time", "interval", "above", "slots")
    intervals = base.mark_rule(strokeWidth=2, clip=True).encode(
        x=alt.X("low:Q", scale=scale), x2="high:Q", tooltip=fields
    )
    points = base.mark_point(size=50, strokeWidth=1.6, opacity=1).encode(
        fill=alt.Fill("fill:N", scale=None), tooltip=fields
    )
    thresholds = base.mark_tick(orient="vertical", thickness=2, size=14).encode(
        x="threshold:Q", color=alt.ColorValue(INK)
    )
    panels = distinct(data, "panel")
    chart = alt.layer(intervals, thresholds, points).properties(width=WIDTH // len(panels), height=20 * len(names))
    return facet_chart(chart, data, panels if len(panels) > 1 else (), len(panels))


def _effect_records(ranked: RankedEffect, name: str) -> Iterator[ChartRecord]:
    for kind, effect in ranked.decisive.items():
        outcome, shade = OUTCOMES[ranked.outcome_of(kind)]
        if math.isfinite(effect.effect):
            yield {
                "panel": KIND_PANELS[kind], "name": name, "outcome": outcome,
                "fill": shade if ranked.is_decided else PAPER,
                "value": effect.effect, "low": effect.low, "high": effect.high, "threshold": effect.threshold,
                "time": format_factor(effect.effect), "slots": effect.purpose, "above": format_factor(effect.threshold),
                "interval": f"{format_factor(effect.low)} to {format_factor(effect.high)}",
            }  # fmt: skip
