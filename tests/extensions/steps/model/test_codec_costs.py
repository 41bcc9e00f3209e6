"""The time of codecs: from which source their rates come, and that of a core is what the benchmark measures."""

import sys
from pathlib import Path

import pytest
from predicted_machines import NCCL, cluster, fitted

from hpccoll.extensions.steps.model.codec_costs import CORE, PASSES, REACHED, CodecCosts
from hpccoll.extensions.steps.training.compressed_bucket import compressed
from hpccoll.extensions.steps.training.compression import COMPRESSIONS, TOP_K, Compression
from hpccoll.extensions.steps.training.step_program import StepOperation

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import codec_rates

BUCKET = StepOperation("bucket 1", "all_reduce", "dp", 1 << 20, "float32", "backward")
GPU = {"nccl": NCCL, "reduction": {"float32": {"bytes_per_s": 1e12}}}


def costs(machine, name="fp16", rate=None, ranks=2, *, feedback=False):
    return CodecCosts.of(
        machine, Compression.parse(name, feedback=feedback), machine.layout(ranks), rate
    )


def codec(work, nbytes=1 << 20):
    return StepOperation(
        f"bucket 1 {work}", "codec", "dp", nbytes, "float32", "backward", codec=work
    )


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", [*COMPRESSIONS[:-1], f"{TOP_K}=1%"])
@pytest.mark.parametrize("machine", [cluster(), cluster(**GPU), fitted()])
def test_every_codec_of_every_chain_has_a_time(machine, name, feedback):
    found = costs(machine, name, feedback=feedback)
    works = [each for each in compressed(BUCKET, Compression.parse(name), 2) if each.is_codec]
    for each in works:
        fast, likely, slow = (
            found.seconds(each, bound) for bound in ("low_cost", "value", "high_cost")
        )
        assert 0 < fast <= likely <= slow
    assert {each.codec for each in works} == {*PASSES[name.partition("=")[0]]}


def test_the_first_source_that_there_is_counts():
    measured = {"fp16": {"encode": {"bytes_per_s": 1e8}, "decode": {"bytes_per_s": 2e8}}}
    everything = fitted(codecs=measured, **GPU)
    assert costs(everything, rate=1e9).seconds(codec("decode", 10**9), "value") == pytest.approx(
        1.0
    )
    assert costs(everything).seconds(codec("decode", 10**9), "value") == pytest.approx(5.0)
    assert costs(everything, "bf16").rates["encode"] == REACHED.times(
        3e12 / PASSES["bf16"]["encode"]
    )
    assert costs(cluster()).rates["encode"].value == pytest.approx(1e9 * CORE["fp16"]["encode"])
    assert (
        len(
            {
                costs(machine, rate=rate).source
                for machine in (everything, cluster())
                for rate in (None, 1e9)
            }
        )
        == 3
    )


def test_the_residual_of_feedback_goes_through_memory_twice():
    plain, fed_back = (costs(cluster(**GPU), feedback=feedback) for feedback in (False, True))
    assert fed_back.seconds(codec("encode"), "value") / plain.seconds(
        codec("encode"), "value"
    ) == pytest.approx((PASSES["fp16"]["encode"] + 2) / PASSES["fp16"]["encode"])
    assert fed_back.seconds(codec("decode"), "value") == plain.seconds(codec("decode"), "value")


@pytest.mark.parametrize("machine", [cluster(), cluster(**GPU)])
@pytest.mark.parametrize(("text", "times"), [("topk=1%", 1), ("topk=10%", 10)])
def test_adding_takes_as_many_times_as_long_as_values_arrive_and_selecting_does_not(
    machine, text, times
):
    def seconds(text, ranks):
        chain = {
            each.codec: each
            for each in compressed(BUCKET, Compression.parse(text), ranks)
            if each.is_codec
        }
        found = costs(machine, text)
        return [found.seconds(chain[work], "value") for work in ("select", "add")]

    (select, add), (of_few, adding_few) = seconds(text, 64), seconds("topk=1%", 2)
    assert select == of_few
    assert add / adding_few == pytest.approx(32 * times, rel=1e-3)


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", [*COMPRESSIONS[:-1], f"{TOP_K}=1%"])
def test_the_benchmark_of_a_core_finds_the_rates_of_the_table(monkeypatch, name, feedback):
    monkeypatch.setattr(codec_rates, "BYTES", 4096)
    monkeypatch.setattr(codec_rates, "RUNS", 1)
    compression = Compression.parse(name, feedback=feedback)
    found = codec_rates.rates(compression)
    assert {*found} == {*CORE[compression.codec]}
    assert all(rate > 0 for rate in found.values())


@pytest.mark.parametrize(
    ("of", "ranks", "factor"), [("machine", 2, 1), ("machine", 8, 4), ("node", 8, 1)]
)
def test_codecs_take_turns_on_the_cpus_that_ranks_share(of, ranks, factor):
    measured = {"fp16": {"encode": {"bytes_per_s": 1e8}, "decode": {"bytes_per_s": 1e8}}}
    machine = fitted(codecs=measured, cpus={"cores": 2, "of": of, "contention": 1})
    assert costs(machine, ranks=ranks).seconds(codec("encode", 10**8), "value") == pytest.approx(
        factor
    )
