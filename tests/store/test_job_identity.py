"""What differs where a raw file holds another job than the one that is asked for."""

from dataclasses import replace

import pytest
import raw_examples

from hpccoll.errors import BadInputError
from hpccoll.spec.case import Effort
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.raw import RawResults

THERE = raw_examples.job(*(raw_examples.case(size) for size in (8, 16)), name="run")
OTHERS = {
    "ranks 2 there, 4 here": {"ranks": 4},
    "variant none there, nccl-ring here; environment none there, NCCL_ALGO=Ring here": {
        "variant": "nccl-ring", "environment": {"NCCL_ALGO": "Ring"},
    },
    "seconds 1.0 there, 2.0 here; rounds 1 there, 3 here": {"effort": Effort(seconds=2.0, rounds=3)},
    "algorithms ring there, ring,native here": {"cases": (*THERE.cases, raw_examples.case(8, algorithm="native"))},
    "sizes 8 B,16 B there, 8 B to 2 KiB (9) here": {"cases": tuple(raw_examples.case(8 << k) for k in range(9))},
    "in place False there, True here; parameters none there, channels=4 here": {
        "cases": tuple(raw_examples.case(size, in_place=True, params={"channels": 4}) for size in (8, 16)),
    },
    "what auto chooses": {"table": {"choices": []}},
    "sizes 8 B,16 B there, 16 B,8 B here": {"cases": THERE.cases[::-1]},
}  # fmt: skip


@pytest.mark.parametrize("told", OTHERS)
def test_what_differs_from_what_is_there_is_told(told):
    here = replace(THERE, **OTHERS[told])
    with pytest.raises(BadInputError) as caught:
        check_same_job(RawResults(path=None, job=THERE), here, "F.h5")
    assert str(caught.value) == f"--out: 'F.h5' is not valid: a new file: this one holds another job ({told})"


def test_cases_that_are_others_though_their_words_are_the_same_are_counted():
    some, others = (
        raw_examples.job(raw_examples.case(8), raw_examples.case(16), raw_examples.case(size, algorithm="native"))
        for size in (8, 16)
    )
    with pytest.raises(BadInputError, match=r"another job \(3 cases there, 3 others here\)"):
        check_same_job(RawResults(path=None, job=some), others, "F.h5")


def test_the_same_job_is_gone_on_with():
    check_same_job(RawResults(path=None, job=THERE), replace(THERE), "F.h5")
