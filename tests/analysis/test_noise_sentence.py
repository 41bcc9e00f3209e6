"""How far rounds differ, in one sentence."""

from dataclasses import replace

from synthetic_timings import KIB, MIB, measured_results

from hpccoll.analysis.noise_sentence import noise_sentence

TIMES = {KIB: 1e-4, MIB: 2e-4}


def test_noise_is_one_sentence():
    noisy = measured_results({"ring": {KIB: 1e-5}, "star": {KIB: 1e-5}}, drift=(1, 1.1, 3))
    assert noise_sentence(noisy).startswith(
        "Weak evidence: between the rounds of a case, times differ by a factor of 3"
    )
    calm = measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.1, 1.05))
    assert noise_sentence(calm).startswith("Some noise: between the rounds of a case, times differ by 10 %")
    quiet = noise_sentence(measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.01, 1.02)))
    assert quiet.startswith("Low noise: between the rounds of a case, times differ by 2 %")
    assert "in one round, and noise is therefore unknown" in noise_sentence(measured_results({"ring": TIMES}))
    assert noise_sentence(measured_results({"null": TIMES})) == ""


def test_a_time_without_an_interval_has_none_that_is_wide():
    few = measured_results({"ring": {KIB: 1e-5}}, drift=(1, 1.1))
    (row,) = few.rows
    bare = replace(few, rows=(row, replace(row, ci_low_s=None, ci_high_s=None, converged=False)))
    sentence = noise_sentence(bare)
    assert sentence.startswith("Some noise")
    assert sentence.endswith("; 1 of 2 times have no 95 % interval, which takes 6 iterations in each round.")
    assert "wider" not in sentence
