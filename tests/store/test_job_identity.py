"""Job identity: the error names the differences between the stored job and the requested one."""

from dataclasses import replace

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.common.errors import BadInputError
from hpccoll.store.job_identity import check_same_job
from hpccoll.store.raw_results import RawResults

STORED = raw_examples.job(*(raw_examples.case(size) for size in (8, 16)), name="run")
NATIVE = raw_examples.case(8, algorithm="native")
REQUESTED = {
    "variant none there, nccl-ring here; environment none there, NCCL_ALGO=Ring here": {
        "variant": "nccl-ring",
        "environment": {"NCCL_ALGO": "Ring"},
    },
    "ranks 2 there, 4 here; seconds 1.0 there, 2.0 here; rounds 1 there, 3 here": {
        "ranks": 4,
        "effort": Effort(seconds=2.0, rounds=3),
    },
    "algorithms ring there, ring,native here": {"cases": (*STORED.cases, NATIVE)},
    "sizes 8 B,16 B there, 8 B to 2 KiB (9) here": {
        "cases": tuple(raw_examples.case(8 << k) for k in range(9))
    },
    "in place False there, True here; parameters none there, channels=4 here": {
        "cases": tuple(
            raw_examples.case(size, in_place=True, params={"channels": 4}) for size in (8, 16)
        ),
    },
    "algorithms named beside all (without all) there, none here": {"named": ()},
    "what auto chooses": {"table": {"choices": []}},
    "2 cases there, 2 others here": {"cases": (replace(STORED.cases[0], ranks=2), STORED.cases[1])},
}


@pytest.mark.parametrize("differences", REQUESTED)
def test_the_error_names_the_differences_between_jobs(differences):
    requested = replace(STORED, **REQUESTED[differences])
    with pytest.raises(BadInputError) as caught:
        check_same_job(RawResults(path=None, job=STORED), requested, "F.h5")
    assert (caught.value.key, caught.value.value) == ("--out", "F.h5")
    assert f"({differences})" in caught.value.expected


def test_the_same_job_is_accepted():
    check_same_job(RawResults(path=None, job=STORED), replace(STORED), "F.h5")
