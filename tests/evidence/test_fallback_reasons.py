"""Reasons why a requested feature was not used, in the lines of refusals.txt; its last ones refuse nothing."""

import tomllib
from pathlib import Path

from golden_page import assert_golden

from hpccoll.evidence import fallback_reasons
from hpccoll.evidence.log_set import read_logs

HERE = Path(__file__).parent


def test_each_line_is_recognised_with_its_feature_and_reason_and_each_known_reason_has_a_line():
    page, found = [], set()
    for line in (HERE / "refusals.txt").read_text().splitlines():
        unavailable = read_logs({"a": line}).unavailable
        found |= {(one.feature, one.reason) for one in unavailable}
        page += [line, *(f"  {one.feature}: {one.reason} <- {one.line}" for one in unavailable)]
    assert_golden("refusals", page, HERE / "golden")
    table = tomllib.loads(Path(fallback_reasons.__file__).with_suffix(".toml").read_text())["unavailable"]
    assert {(row["feature"], row["reason"]) for row in table} <= found
