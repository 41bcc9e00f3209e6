"""How fast the codecs of compressed gradients are on one core: the table CORE of codec_costs.py in
hpccoll/extensions/steps/model.

By hand, on an idle machine:

    taskset -c 1 python tests/benchmarks/codec_rates.py

A bucket of 25 MiB is compressed on one of two ranks as in a step, and the other one sends the same.
A rate is the bytes that ``compressed_bucket`` says of a codec, over the median time of 15 runs.
"""

import time
from collections import defaultdict
from statistics import median

import ml_dtypes
import numpy as np

from hpccoll.extensions.steps.measure.codecs import CODECS, CodecMessage
from hpccoll.extensions.steps.training.compressed_bucket import compressed
from hpccoll.extensions.steps.training.compression import COMPRESSIONS, TOP_K, Compression
from hpccoll.extensions.steps.training.step_program import StepOperation

BYTES, RANKS, RUNS = 25 << 20, 2, 15
TYPES = {"bfloat16": ml_dtypes.bfloat16}


def message(operation: StepOperation) -> CodecMessage:
    """Return the buffers of a collective at a rank."""
    dtype = np.dtype(TYPES.get(operation.dtype, operation.dtype))
    whole = np.zeros(operation.nbytes // dtype.itemsize, dtype)
    return CodecMessage(
        whole[: len(whole) // RANKS] if operation.collective == "all_gather" else whole.copy(),
        whole,
    )


def rates(compression: Compression) -> dict[str, float]:
    """Return the bytes a second of each codec."""
    bucket = StepOperation("bucket 1", "all_reduce", "dp", BYTES, "float32", "backward")
    chain = compressed(bucket, compression, RANKS)
    messages = [message(each) for each in chain if not each.is_codec]
    draw = np.random.default_rng(1)
    gradient = draw.standard_normal(BYTES // 4).astype(np.float32)
    codec = CODECS[compression.name](compression, gradient, messages, RANKS, 0)
    taken = defaultdict(list)
    for _ in range(RUNS):
        gradient[:] = draw.standard_normal(len(gradient)).astype(np.float32)
        iter_messages = iter(messages)
        for operation in chain:
            if operation.is_codec:
                begin = time.perf_counter()
                getattr(codec, operation.codec)()
                taken[operation.codec].append(operation.nbytes / (time.perf_counter() - begin))
            else:
                own, arrived = next(iter_messages)
                arrived[:] = np.tile(own, RANKS) if operation.collective == "all_gather" else own
    return {work: median(each) for work, each in taken.items()}


if __name__ == "__main__":
    print("CORE: Mapping[str, Mapping[str, float]] = {")
    for name in (*COMPRESSIONS[:-1], f"{TOP_K}=1%"):
        for feedback in (False, True):
            compression = Compression.parse(name, feedback=feedback)
            found = {work: float(f"{rate / 1e9:.2g}") for work, rate in rates(compression).items()}
            print(f'    "{compression.codec}": {found},'.replace("'", '"'))
    print("}")
