"""The answer in words: a golden page of all kinds of answers, and what no wording may change."""

import re
from dataclasses import replace

from golden_page import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import KIB, MIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.recommendations import recommend
from hpccoll.render.answers import Answers, sizes_in_words
from hpccoll.render.choice_table_text import choice_table_lines

SIZES = [KIB << 2 * i for i in range(8)]
EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)
ON_GPU = {"device": "cuda", "transport": "nccl"}


def scaled(curve, factor, *, until=None):
    """Return a curve with other times, or with other ones from a size on and nearly the same ones before it."""
    return {
        size: seconds * (factor if until is None or size >= until else 1.001)
        for size, seconds in curve.items()
    }


def of(spread=0.05, iterations=20, **curves):
    return measured_results(curves, spread=spread, iterations=iterations)


def drifting(number=1, **more):
    return measured_results({"ring": LATE, "native": EARLY}, drift=(1, 3, 2), number=number, **more)


def rounds_of(*factors):
    """Return launches of two choices, in each of which native takes so many times as long as ring."""
    launches = ({"ring": LATE, "native": scaled(LATE, factor)} for factor in factors)
    return merged_results(
        *(measured_results(curves, number=number) for number, curves in enumerate(launches, 1))
    )


def on_ranks(ranks, *, oversubscribed=False):
    results = measured_results({"ring": LATE, "native": EARLY}, number=ranks)
    rows = tuple(replace(row, ranks=ranks, oversubscribed=oversubscribed) for row in results.rows)
    return replace(results, rows=rows)


SCENARIOS = {
    "a choice for small and one for large sizes": drifting(),
    "parameters and graphs": measured_results(
        {"native graph=0": LATE, "native graph=1": scaled(LATE, 0.5), "ring graph=0": EARLY}, drift=(1, 3, 2), **ON_GPU
    ),
    "a rival": of(ring=LATE, star=scaled(LATE, 1.01), native=scaled(LATE, 1.5)),
    "advice for some sizes": of(
        ring=LATE, native={n: LATE[n] * (0.97 if n < 256 * KIB else 2) for n in SIZES}, star=scaled(LATE, 9)
    ),
    "without native": of(ring=LATE, star=scaled(LATE, 2, until=16 * KIB)),
    "without native, hardly clear": of(ring=LATE, star=scaled(LATE, 2, until=4 * MIB)),
    "a small gain": of(0.0001, ring=LATE, native=scaled(LATE, 1.004)),
    "native at some sizes": of(ring=LATE, star=scaled(LATE, 2), native={n: 1.5 * LATE[n] for n in SIZES[4:]}),
    "a tie": of(ring=scaled(LATE, 1.01), native=LATE),
    "sizes of their own": of(0, ring={KIB: 1e-5}, native={MIB: 1e-5}),
    "one choice": of(0, ring={KIB: 1e-5, 4 * KIB: 2e-5}),
    "too few iterations for an interval": of(iterations=5, ring=LATE, native=scaled(LATE, 2)),
    "no sizes": measured_results({"dissemination": {1: 1e-5}, "native": {1: 2e-5}}, collective="barrier", op=None,
                                 in_place=True),
    "auto alone is no choice": of(0, auto=LATE),
    "auto is fast": of(auto=scaled(LATE, 0.5), native=LATE),
    "auto beside an answer": of(auto=scaled(LATE, 0.5), native=LATE, ring=scaled(LATE, 2)),
    "auto is fast at some sizes": of(auto={KIB: 1.0, MIB: 1.0}, native={KIB: 1.0, MIB: 1.69}),
    "auto is fast and slow": of(auto={KIB: 1.0, MIB: 2.0}, native={KIB: 2.0, MIB: 1.0}),
    "auto is slower at a size, and faster by less than the noise": of(
        auto=dict.fromkeys(SIZES, 1.0), native={n: 0.94 if n == KIB else 1.04 for n in SIZES}
    ),
    "auto is faster at a size, and slower by less than the noise": of(
        auto=dict.fromkeys(SIZES, 1.0), native={n: 1.06 if n == KIB else 0.98 for n in SIZES}
    ),
    "a choice is faster at one size of a tie": of(
        0.02, ring={KIB: 1.0, MIB: 1.0}, native={KIB: 1.03, MIB: 0.995}, star={KIB: 1.1, MIB: 1.0}
    ),
    "auto without intervals": of(iterations=5, auto=LATE, native=scaled(LATE, 2)),
    "auto of another launch": merged_results(
        measured_results({"auto": LATE}), measured_results({"native": scaled(LATE, 2)}, number=2)
    ),
    "a size at which native is faster": measured_results(
        {"ring": LATE, "native": {n: LATE[n] * (0.98 if n == 64 * KIB else 2) for n in SIZES}}, drift=(1, 3, 2)
    ),
    "another choice is faster at one size of a tie": merged_results(
        measured_results({"ring": {KIB: 1.0}, "star": {KIB: 0.985}}, spread=0.001),
        measured_results({"ring": {MIB: 1.0}, "star": {MIB: 1.05}}, spread=0.3, number=2),
    ),
    "auto is rarely faster": of(auto=LATE, native={n: LATE[n] * (2 if n < 4 * KIB else 1.001) for n in SIZES}),
    "a gain that a round denies": rounds_of(1.01, 1.05, 1.5),
    "a gain in each round": rounds_of(1.2, 1.5, 2),
    "two timings, of which single operations come first": merged_results(
        drifting(**ON_GPU),
        measured_results({"ring": EARLY, "native": LATE}, drift=(1, 3, 2), number=2, timing="aggregated", operations=1,
                         **ON_GPU),
    ),
    "two mappings": merged_results(*(measured_results({"ring": {KIB: 1e-5}}, number=number, mapping=name)
                                     for number, name in enumerate(("block", "cyclic"), 1))),
    "two machines": merged_results(measured_results({"ring": LATE}),
                                   measured_results({"ring": LATE}, number=2, about={"machine": "others"})),
    "two transports": merged_results(measured_results({"ring": LATE}),
                                     measured_results({"star": scaled(EARLY, 9)}, transport="shm", number=2)),
    "choices of different launches": merged_results(
        measured_results({"ring": LATE}), measured_results({"native": scaled(LATE, 2)}, number=2)
    ),
    "the most ranks with cores of their own": merged_results(*map(on_ranks, (2, 4)), on_ranks(8, oversubscribed=True)),
    "more ranks than cores": on_ranks(8, oversubscribed=True),
}  # fmt: skip


def test_the_answers_of_a_terminal_and_what_their_strength_follows_from():
    lines = []
    for title, results in SCENARIOS.items():
        found = Answers(recommend(results))
        lines += [f"-- {title}", *choice_table_lines(results, found)]
        answers = [
            each for name in found.by_collective for part in found.split(name) for each in part
        ]
        lines += dict.fromkeys(
            f"{line.sizes}: {line.basis}" for each in answers for line in each.lines if line.basis
        )
    assert_golden("answers", lines)


@given(st.lists(st.floats(1e-6, 1e-2), min_size=16, max_size=16))
def test_a_size_in_words_lies_between_the_sizes_of_its_ranges(times):
    curves = {
        "ring": dict(zip(SIZES, times[:8], strict=True)),
        "star": dict(zip(SIZES, times[8:], strict=True)),
    }
    (found,) = recommend(measured_results(curves))
    for number, (before, after) in enumerate(zip(found.ranges, found.ranges[1:], strict=False), 1):
        value, unit = re.match(r"(\d+) (B|KiB|MiB)", sizes_in_words(found, number)).groups()
        cut = int(value) * {"B": 1, "KiB": KIB, "MiB": KIB**2}[unit]
        assert before.sizes.sizes[-1] < cut <= after.sizes.sizes[0]
