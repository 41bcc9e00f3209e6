"""The times of all choices at every size."""

from row_examples import make_row

from hpccoll.analysis.recommendations import recommend


def test_choices_of_a_size_are_sorted_with_their_factors_and_the_recommended_one_is_marked(of_rows):
    times = {"native": 3e-6, "ring": 2e-6, "star": 4e-6}
    rows = [
        make_row(name, nbytes=n, seconds=s)
        for name, s in times.items()
        for n in (64, 8)
        if (name, n) != ("star", 8)
    ]
    (recommendation,) = recommend(of_rows(*rows))
    by_size = recommendation.times
    assert {size: [choice.algorithm for choice in each] for size, each in by_size.items()} == {
        8: ["ring", "native"],
        64: ["ring", "native", "star"],
    }
    fastest, second, third = by_size[64].values()
    assert (fastest.factor, fastest.chosen, second.chosen) == (1.0, True, False)
    assert (round(second.factor, 6), round(third.seconds, 9)) == (1.5, 4e-6)
    assert third.interval
    assert third.interval[0] < third.seconds < third.interval[1]
