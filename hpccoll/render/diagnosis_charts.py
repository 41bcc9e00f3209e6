"""The charts of a diagnosis: maps of pairs, or of nodes and racks, and ranked effects beside their thresholds."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from hpccoll.common.units import format_factor
from hpccoll.diagnosis.ranked_effects import Outcome, RankedEffect
from hpccoll.diagnosis.recorded import Question
from hpccoll.diagnosis.slot_records import Floats, Kind
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

SENDS = PALETTE[0], "triangle-up"
RECEIVES = PALETTE[1], "triangle-down"
WITHIN = PALETTE[2], "circle"
NODE_SERIES = {"sends": SENDS, "receives": RECEIVES}
RACK_SERIES = {"within": WITHIN, "sends to others": SENDS, "receives from others": RECEIVES}
"""The transfers that marks stand for, with their colours and shapes."""

KIND_PANELS: Mapping[Kind, str] = {
    "node": "both directions",
    "send": "send",
    "receive": "receive",
    "link": "both directions",
    "uplink": "to and from other racks",
}
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
        borders = [
            place
            for place in range(1, len(order))
            if racks[order[place]] != racks[order[place - 1]]
        ]
        labels: dict[int, str] = {}
        if question.racks and borders:
            for first, end in itertools.pairwise([0, *borders, len(order)]):
                middle = (first + end - 1) // 2
                labels[middle] = question.racks[order[first]]
        else:
            every = math.ceil(len(names) / 16)
            labels = {place: names[place] for place in range(0, len(names), every)}
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
        measured = np.isfinite(factors[np.ix_(order, order)])
        for sender, receiver in np.argwhere(measured).tolist():
            pair = order[sender], order[receiver]
            cell: ChartRecord = {
                "panel": panel,
                "first": sender,
                "second": receiver,
                "sender": places.names[sender],
                "receiver": places.names[receiver],
                "slots": int(ratios.transfers[pair]),
            }
            data.append(cell | _factor_fields(factors[pair], ratios.rails[pair], question))
        data += [{"panel": panel, "border": border} for border in places.borders]
    top = min(max(largest, LEAST_DARKEST), MOST_DARKEST)
    middle = math.sqrt(top)
    ends = f"datum.value <= 1 ? ' or less' : datum.value >= {top} ? ' or more' : ''"
    legend = alt.Legend(
        type="gradient",
        labelExpr=f"{FACTOR_LABEL} + ({ends})",
        values=[1, middle, top],
        gradientLength=240,
    )
    scale = alt.Scale(
        type="log", range=[LIGHT_CELL, DARK_CELL], domain=[1, top], nice=False, clamp=True
    )
    columns, title = places.names, "receiver"
    if places.borders:
        columns = [places.labels.get(place, "") for place in range(len(order))]
        title = "receiver, by rack"
    chart = pair_cells(
        places.names,
        columns,
        ("sender", title),
        alt.Color("value:Q", scale=scale, legend=legend),
        f"datum.value <= {middle}",
        ("sender", "receiver", "time", "slots", *_rail_field(question)),
        borders=bool(places.borders),
    )
    return facet_chart(chart, data, distinct(data, "panel") if after else (), 2)


def _panels(ratios: Ratios, *, after: bool) -> list[tuple[str, Floats]]:
    panels = [(BEFORE, ratios.before)]
    if after:
        panels.append((AFTER, ratios.after))
    return panels


def _numbers(data: Sequence[ChartRecord], field: str) -> list[float]:
    values = (record.get(field) for record in data)
    return [value for value in values if isinstance(value, float)]


def _factor_fields(factor: float, rail: int, question: Question) -> ChartRecord:
    """Return the fields of a factor; a cell also has its text."""
    text = format_factor(factor)
    fields: ChartRecord = {
        "value": round(float(factor), 4),
        "text": text,
        "time": f"{text} the usual time",
    }
    if question.rails > 1:
        fields["rail"] = int(rail)
    return fields


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
    return _strip(
        ratios, question, RACK_SERIES, places, range(len(names)), named, "rack", after=after
    )


def _strip(
    ratios: Ratios,
    question: Question,
    series: Mapping[str, tuple[str, str]],
    places: Places,
    order: Sequence[int],
    named: Sequence[int],
    noun: str,
    *,
    after: bool,
) -> Chart:
    data: list[ChartRecord] = []
    for panel, factors in _panels(ratios, after=after):
        for place, number in enumerate(order):
            name = places.names[place]
            finite: list[float] = []
            for position, transfers in enumerate(series):
                factor = factors[position, number]
                if np.isfinite(factor):
                    finite.append(float(factor))
                    mark: ChartRecord = {
                        "panel": panel,
                        "place": place,
                        "series": transfers,
                        noun: name,
                    }
                    data.append(
                        mark | _factor_fields(factor, ratios.rails[position, number], question)
                    )
            if panel == BEFORE and finite and number in named[:MOST_LABELS]:
                data.append({"panel": panel, "place": place, "top": max(finite), "label": name})
        if len(places.borders) < MOST_BORDERS:
            data += [{"panel": panel, "border": border - 0.5} for border in places.borders]
    x = _place_axis(places, noun)
    y = log_values("time / usual time", FACTOR_LABEL, _numbers(data, "value"))
    colours = {name: fill for name, (fill, _) in series.items()}
    shapes = {name: shape for name, (_, shape) in series.items()}
    shape = alt.Shape("series:N", scale=scale_of(shapes))
    fields = tooltip(noun, "series", "time", *_rail_field(question))
    symbols = (
        alt.Chart()
        .transform_filter("isValid(datum.value)")
        .mark_point(size=34, filled=True, opacity=0.8)
    )
    points = symbols.encode(x=x, y=y, color=colour("series", colours), shape=shape, tooltip=fields)
    texts = (
        alt.Chart()
        .transform_filter("isValid(datum.label)")
        .mark_text(align="left", dx=7, fontSize=12, color=INK)
    )
    rules = alt.Chart().transform_filter("isValid(datum.border)").mark_rule(color=FAINT)
    labels = texts.encode(x="place:Q", y="top:Q", text="label:N")
    chart = alt.layer(rules.encode(x="border:Q"), points, labels).properties(
        width=WIDTH, height=180
    )
    return facet_chart(chart, data, distinct(data, "panel") if after else (), 1)


def _place_axis(places: Places, noun: str) -> alt.X:
    """Return the axis of nodes or racks, with the labels that the places have."""
    labels = json.dumps({str(place): name for place, name in places.labels.items()})
    axis = alt.Axis(
        values=list(places.labels),
        labelExpr=f"{labels}[datum.value]",
        labelOverlap="greedy",
        labelSeparation=4,
        grid=False,
    )
    scale = alt.Scale(domain=[-0.5, len(places.names) - 0.5], nice=False, zero=False)
    return alt.X(
        "place:Q", title=f"{noun}, by rack" if places.borders else noun, axis=axis, scale=scale
    )


def effect_ranks(ranked: Sequence[RankedEffect], names: Sequence[str]) -> Chart:
    """Return the effects with their intervals and thresholds, in a panel for each direction, the most noticeable above.

    Args:
        ranked: the effects.
        names: of the node, link or rack of each.
    """
    data: list[ChartRecord] = []
    for effect, name in zip(ranked, names, strict=True):
        data += _effect_records(effect, name)
    outcomes = distinct(data, "outcome")
    colours = {name: shade for name, shade in OUTCOMES.values() if name in outcomes}
    values = [1.0, *_numbers(data, "value"), *_numbers(data, "threshold")]
    scale, axis = log_axis(FACTOR_LABEL, values, labelSeparation=6)
    x = alt.X("value:Q", title="time / usual time", axis=axis, scale=scale)
    y = alt.Y("name:N", title=None, sort=list(names))
    base = alt.Chart().encode(y=y, x=x, color=colour("outcome", colours, "stroke"))
    fields = tooltip("name", "time", "interval", "above", "slots")
    rules = base.mark_rule(strokeWidth=2, clip=True)
    intervals = rules.encode(x=alt.X("low:Q", scale=scale), x2="high:Q", tooltip=fields)
    symbols = base.mark_point(size=50, strokeWidth=1.6, opacity=1)
    points = symbols.encode(fill=alt.Fill("fill:N", scale=None), tooltip=fields)
    ticks = base.mark_tick(orient="vertical", thickness=2, size=14)
    thresholds = ticks.encode(x="threshold:Q", color=alt.ColorValue(INK))
    panels = distinct(data, "panel")
    chart = alt.layer(intervals, thresholds, points)
    chart = chart.properties(width=WIDTH // len(panels), height=20 * len(names))
    return facet_chart(chart, data, panels if len(panels) > 1 else (), len(panels))


def _effect_records(ranked: RankedEffect, name: str) -> Iterator[ChartRecord]:
    for kind, effect in ranked.decisive.items():
        if not math.isfinite(effect.effect):
            continue
        outcome, shade = OUTCOMES[ranked.outcome_of(kind)]
        interval = f"{format_factor(effect.low)} to {format_factor(effect.high)}"
        yield {
            "panel": KIND_PANELS[kind],
            "name": name,
            "outcome": outcome,
            "fill": shade if ranked.is_decided else PAPER,
            "value": effect.effect,
            "low": effect.low,
            "high": effect.high,
            "threshold": effect.threshold,
            "time": format_factor(effect.effect),
            "slots": effect.purpose,
            "above": format_factor(effect.threshold),
            "interval": interval,
        }
