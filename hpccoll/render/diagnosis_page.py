"""The page of a diagnosis: the verdict, the map of the machine, ranked effects with their thresholds, what was done."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from hpccoll.common.errors import UnusableError
from hpccoll.common.text import Columns, filled_columns, join_words, table_of
from hpccoll.common.units import format_count, format_factor, format_seconds
from hpccoll.diagnosis.nodes_alone import DOES, OwnRate, compare_rates
from hpccoll.diagnosis.ranked_effects import MOST_RANKED, RankedEffect, Subject, rank_effects
from hpccoll.diagnosis.recorded import Question, RecordedDiagnosis
from hpccoll.diagnosis.slot_records import OF_A_RACK, JudgedEffect, Purpose
from hpccoll.diagnosis.small_clusters import FEWEST_NODES_TO_FIT
from hpccoll.diagnosis.transfer_ratios import MeasuredRatios, SlotSummary
from hpccoll.diagnosis.verdict import MachineVerdict, verdict_of
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart
from hpccoll.render.diagnosis_charts import (
    KIND_PANELS,
    NODE_SERIES,
    OUTCOMES,
    RACK_SERIES,
    effect_ranks,
    node_strip,
    pair_map,
    rack_strip,
)
from hpccoll.render.diagnosis_text import diagnosis_lines
from hpccoll.render.page_frame import render, vega_script, write_page_or_picture
from hpccoll.render.provenance_text import provenance_facts

MOST_NODES_OF_PAIRS = 64
"""The nodes up to which the map has a cell for each pair; of more nodes most pairs are not measured."""

PURPOSES: Mapping[Purpose, str] = {
    "contention": "whether pairs slow one another",
    "screen": "random pairs: which nodes stand out",
    "racks": "suspected racks beside healthy ones",
    "retest": "suspected nodes beside healthy ones",
    "accused": "slow nodes among themselves",
    "links": "pairs that are slower than their nodes explain",
    "alone": "slow nodes while the rest of the machine is silent",
    "hung": "silent nodes with other partners",
}
"""What slots are measured for."""

SLOT_COLUMNS: Columns[SlotSummary] = (
    ("slots of", lambda slots: slots.purpose),
    ("what they measure", lambda slots: PURPOSES[slots.purpose]),
    ("slots", lambda slots: slots.slots),
    (
        "median time",
        lambda slots: (
            format_seconds(slots.seconds) if math.isfinite(slots.seconds) else "none ended"
        ),
    ),
)

PAIRS_CAPTION = (
    "A cell is the transfers from the node of its row to that of its column, the lower quartile of those in its slots; "
    "of a single slot it may be dark by chance. Blank: the pair has not met, or did not answer. "
)
STRIP_CAPTION = (
    "A mark is the lower quartile over the transfers of a node or a rack with all of its partners: of more than "
    f"{MOST_NODES_OF_PAIRS} nodes most pairs have not met. "
)
USUAL = "The usual time is the median of the transfers in the same slot. "
SLOWEST_RAIL = "Each is that of the rail on which it is slowest. "
TAKEN_OUT = (
    "What is left is noise, or something that the verdict does not name: the effects that it names are taken out, and "
    "the cost of distance between racks."
)
EFFECTS_CAPTION = (
    "How many times as long transfers take as those of others, with the 95 % interval. The dark tick is the threshold. "
    "Filled marks are of the slots that decide; hollow ones of the screen, whose threshold only decides what is "
    "measured again."
)
FEW_NODES_CAPTION = (
    "Each effect with its 95 % interval is fitted as if it were the only fault. The dark tick is the threshold: of the "
    "effects above it, the verdict names the one that fits all times best, or all that fit alike."
)

TITLES: Mapping[Subject, str] = {
    "node": "Effects of nodes",
    "link": "Effects of links",
    "rack": "Effects of racks",
}


class PageFigure(TypedDict, total=False):
    """A chart with its title and caption, and what is below it."""

    id: str
    title: str
    chart: Mapping[str, object]
    caption: str
    note: str  # on the effects that the chart leaves out; may be empty
    table: tuple[list[str], list[list[str]]]


def write_diagnosis_page(
    recorded: RecordedDiagnosis, path: Path, verdict: MachineVerdict | None = None
) -> None:
    """Write the page of a diagnosis (html), or its first map alone (svg, png).

    Args:
        recorded: the diagnosis.
        path: the page or the picture.
        verdict: the verdict on it; None if the caller does not have it.

    Raises:
        UnusableError: if the map has nothing to show.
        OSError: if the file cannot be written.
    """

    def chart() -> Mapping[str, object]:
        figure = next(_maps(recorded, MeasuredRatios(recorded)), None)
        if figure is None:
            raise UnusableError("--out", f"{path}: there is no map, because no transfer has ended")
        return figure["chart"]

    write_page_or_picture(path, lambda: diagnosis_page(recorded, verdict), chart)


def diagnosis_page(recorded: RecordedDiagnosis, verdict: MachineVerdict | None = None) -> str:
    """Return the HTML of the page; without ``verdict`` the diagnosis is judged first."""
    verdict = verdict or verdict_of(recorded)
    ratios = MeasuredRatios(recorded)
    maps = list(_maps(recorded, ratios))
    distance = ""
    if ratios.has_distance:
        distance = format_factor(ratios.distance)
    facts = {"seed": recorded.question.seed} | provenance_facts(recorded.provenance)
    context = {
        "title": f"Diagnosis of {recorded.machine}",
        "summary": _summary(recorded),
        "verdict": list(diagnosis_lines(verdict)),
        "distance": distance,
        "maps": maps,
        "effects": list(_effects(recorded)),
        "alone": _rates(recorded),
        "slots": table_of(SLOT_COLUMNS, ratios.slots),
        "facts": facts,
        "vega": vega_script() if maps else "",
    }
    return render("diagnosis.html", context)


def _summary(recorded: RecordedDiagnosis) -> str:
    question = recorded.question
    counts = {"node": len(question.hosts), "rack": len(question.rack_names), "rail": question.rails}
    shape = [format_count(f"{count:,}", noun) for noun, count in counts.items() if count > 1]
    words = [recorded.machine, *shape, recorded.kind, str(recorded.provenance["begun"])]
    return f"{', '.join(words)}."


def _maps(recorded: RecordedDiagnosis, ratios: MeasuredRatios) -> Iterator[PageFigure]:
    """Yield the map of pairs; of many nodes those of nodes and of racks, first the one with the gravest fault."""
    if not ratios.ended:
        return
    question = recorded.question
    faults = recorded.diagnosis.faults if recorded.diagnosis else ()
    slow = [fault for fault in faults if math.isfinite(fault.effect)]
    after = bool(slow) or ratios.has_distance
    caption = USUAL
    if question.rails > 1:
        caption += SLOWEST_RAIL
    if after:
        caption += TAKEN_OUT
    gravest = max(slow, key=lambda fault: fault.effect, default=None)
    if len(question.hosts) <= MOST_NODES_OF_PAIRS:
        chart = pair_map(ratios.of_pairs, question, gravest.effect if gravest else 1, after=after)
        yield _figure("pairs", "Transfers of each pair", chart, PAIRS_CAPTION + caption, [""])
        return
    nodes: list[int] = []
    racks: list[int] = []
    for fault in slow:
        numbers = racks if fault.component.kind in OF_A_RACK else nodes
        numbers += fault.component.where
    chart = node_strip(ratios.of_nodes, question, nodes, after=after)
    maps = [_figure("nodes", "Transfers of each node", chart, STRIP_CAPTION + caption, NODE_SERIES)]
    if question.racks:
        chart = rack_strip(ratios.of_racks, question, racks, after=after)
        maps.append(
            _figure("racks", "Transfers of each rack", chart, STRIP_CAPTION + caption, RACK_SERIES)
        )
    if gravest and gravest.component.kind in OF_A_RACK:
        maps.reverse()
    yield from maps


def _figure(name: str, title: str, chart: Chart, caption: str, legend: Iterable[str]) -> PageFigure:
    specification = chart_base.apply_theme(chart, title, [], legend)
    return {"id": name, "title": title, "chart": specification, "caption": caption}


def _effects(recorded: RecordedDiagnosis) -> Iterator[PageFigure]:
    """Yield the effects of nodes, links and racks, if they were judged."""
    if recorded.diagnosis is None:
        return
    by_subject = rank_effects(recorded.diagnosis)
    judged_nodes = {effect.where for effect in by_subject.get("node", ())}
    caption = EFFECTS_CAPTION if len(judged_nodes) >= FEWEST_NODES_TO_FIT else FEW_NODES_CAPTION
    legend = [name for name, _ in OUTCOMES.values()]
    for subject, ranked in by_subject.items():
        shown, hidden = ranked[:MOST_RANKED], ranked[MOST_RANKED:]
        names = [_name(subject, effect, recorded.question) for effect in shown]
        figure = _figure(
            f"{subject}-effects", TITLES[subject], effect_ranks(shown, names), caption, legend
        )
        yield figure | {"note": _others(subject, hidden), "table": _table(subject, shown, names)}


def _rates(recorded: RecordedDiagnosis) -> tuple[list[str], list[list[str]]] | None:
    """Return the lowest rates of nodes alone beside those of the others; None if they were not measured."""
    rates = sorted(compare_rates(recorded.rates), key=lambda rate: rate.ratio)
    if not rates:
        return None
    columns: Columns[OwnRate] = (
        ("node", lambda rate: recorded.question.hosts[rate.node]),
        ("what it does alone", lambda rate: DOES[rate.name]),
        ("rate / usual rate", lambda rate: format_factor(rate.ratio)),
        ("95 % interval", lambda rate: f"{format_factor(rate.low)} to {format_factor(rate.high)}"),
        ("slow", lambda rate: "slow" if rate.slow else ""),
    )
    head, rows = table_of(columns, rates[:MOST_RANKED])
    return filled_columns(head, rows)


def _name(subject: Subject, effect: RankedEffect, question: Question) -> str:
    names = question.rack_names if subject == "rack" else question.hosts
    where = join_words(names[number] for number in effect.where)
    if effect.rail is not None:
        where += f", rail {effect.rail}"
    return where


def _others(subject: Subject, hidden: Sequence[RankedEffect]) -> str:
    """Return a sentence on the effects that are not shown; empty without any."""
    outcomes = Counter(effect.outcome for effect in hidden)
    counts = []
    for outcome, (name, _) in OUTCOMES.items():
        if outcomes[outcome]:
            counts.append(f"{format_count(f'{outcomes[outcome]:,}', subject)} {name}")
    return f"Not shown: {join_words(counts)}." if counts else ""


def _table(
    subject: Subject, shown: Sequence[RankedEffect], names: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the figures: a row for the slots that decided, and one for the screen before them."""
    kinds = dict.fromkeys(kind for ranked in shown for kind in ranked.decisive)
    head = [subject, "slots of"]
    for kind in kinds:
        head += [KIND_PANELS[kind], "threshold"]
    rows = []
    for ranked, name in zip(shown, names, strict=True):
        for effects in (ranked.tested, ranked.screened):
            for purpose in {effect.purpose for effect in effects.values()}:
                row = [name, purpose]
                for kind in kinds:
                    row += _effect_cells(effects.get(kind))
                rows.append(row)
    return filled_columns(head, rows)


def _effect_cells(effect: JudgedEffect | None) -> tuple[str, str]:
    if effect is None or not math.isfinite(effect.effect):
        return "", ""
    interval = f"{format_factor(effect.low)} to {format_factor(effect.high)}"
    return f"{format_factor(effect.effect)} ({interval})", format_factor(effect.threshold)
