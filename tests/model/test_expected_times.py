"""Expected times: measurements with too many messages have a reason in the place of a time."""

from model_observations import observation

from hpccoll.model import critical_path
from hpccoll.model.expected_times import expected_times
from hpccoll.model.machine_file import MachineFile
from hpccoll.schedule import Layout

MACHINE = MachineFile.of(
    name="along paths",
    kind="described",
    tiers={"rack": {"latency_s": {"value": 2e-6, "low": 1e-6, "high": 4e-6}, "bytes_per_s": 1e10}},
    critical_path={"following_s": 2e-7},
)


def test_an_operation_of_too_many_messages_is_not_expected_and_the_others_are(monkeypatch):
    monkeypatch.setattr(critical_path, "MOST_MESSAGES", 300)
    few, many = (
        observation("all_to_all", "direct", 1 << 20, 1.0, Layout.of(nodes, 1), addresses="all")
        for nodes in (8, 32)
    )
    simulated = []
    (of_few, interval), (of_many, none) = expected_times(
        [few, many], MACHINE, lambda: simulated.append(1)
    )
    assert interval[0] < of_few.seconds < interval[1]
    assert (of_many.seconds, none, "messages" in of_many.reason) == (None, None, True)
    assert len(simulated) == 2 * 3
