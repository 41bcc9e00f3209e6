"""What to use in each setting: for each rule the times that show it, and on a golden page what follows from them."""

from golden_page import assert_golden
from synthetic_timings import KIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.recommendations import recommend

SIZES = [KIB << 2 * i for i in range(8)]
LATE = linear_curve(1e-4, 2e-10, SIZES)


def times(factor):
    return {size: factor * seconds for size, seconds in LATE.items()}


SLOWER = times(1.5)
DENTED = {size: seconds * (0.98 if size == SIZES[3] else 2) for size, seconds in LATE.items()}
ONE_BUFFER = {"collective": "broadcast", "op": None, "root": 0}


def both(out_of_place, in_place, **more):
    """Return results of both placements, each by one launch."""
    each = enumerate((out_of_place, in_place), 1)
    return merged_results(
        *(measured_results(curves, number=n, in_place=n == 2, **more) for n, curves in each)
    )


def placements(factor):
    """Return results in which native takes 1.5 times as long as a ring out of place, and ``factor`` times in place."""
    return both(
        {"ring": LATE, "native": SLOWER}, {"ring": LATE, "native": times(factor)}, spread=0.1
    )


def of_one_size(native, *drift):
    return measured_results({"ring": {KIB: 1e-5}, "native": {KIB: native}}, spread=0.1, drift=drift)


SCENARIOS = {
    "a gain within the noise is no reason for a second set": placements(0.995),
    "a large one is": placements(0.5),
    "placements at other sizes have answers of their own": both(
        {"ring": LATE}, {"ring": {size: LATE[size] for size in SIZES[1:]}}),
    "so have placements without a common choice": both({"ring": LATE}, {"star": LATE}),
    "a call with one buffer is compared in both placements": both(
        {"binomial": LATE}, {"binomial": LATE, "native": SLOWER}, **ONE_BUFFER),
    "a placement of such a call alone has no answer of its own": both(
        {"binomial": LATE}, {"native": SLOWER}, **ONE_BUFFER),
    "a verdict is clear where every round is": of_one_size(2e-5, 1, 3, 2),
    "else it is a tie": of_one_size(1.01e-5, 1, 3, 2),
    "one choice is alone": measured_results({"ring": LATE}),
    "a size at which another choice is clearly faster says so": measured_results(
        {"ring": LATE, "star": DENTED}, spread=0.001, drift=(1, 1, 1)),
    "a gain is the median of the rounds, with their ends": measured_results(
        {"ring": LATE, "native": SLOWER}, drift=(1, 7, 2)),
    "one round has no ends": measured_results({"ring": LATE, "native": SLOWER}),
    "native has no gain": measured_results({"ring": SLOWER, "native": LATE}),
}  # fmt: skip


def test_each_rule_of_recommendations_shows_in_its_times():
    lines = []
    for rule, results in SCENARIOS.items():
        lines.append(f"-- {rule}")
        for found in recommend(results):
            for each in found.ranges:
                gain = each.evidence.gain
                ends = gain and [end and f"{end:.3f}" for end in (gain.factor, gain.low, gain.high)]
                verdicts = (f"{of.verdict} {of.lead and f'{of.lead:.2f}'}" for of in each.verdicts)
                lines.append(
                    f"in_place {found.setting.in_place}, {each.choice.label} {each.sizes.label}"
                )
                lines.append(f"  {each.strength}, gain {ends}")
                lines.append(f"  {'; '.join(verdicts)}")
    assert_golden("recommendations", lines)
