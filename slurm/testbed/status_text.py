"""What status says to people."""

from collections.abc import Mapping, Sequence
from typing import Any

from calibrate import warnings

Facts = Mapping[str, Any]


def print_status(survey: Facts) -> None:
    """Print what there is of a testbed."""
    marker = survey["marker"]
    print(f"testbed {survey['name']}: {survey['state']}")
    if not marker:
        return
    print(f"{describe_hosts(marker)}, wires {describe_wires(marker)}, MTU {marker['mtu']}")
    for rack, nodes in marker["racks"].items():
        print(f"  {rack:8}{' '.join(nodes)}")
    for host, facts in survey["hosts"].items():
        print(f"  {host:8}{_health(facts)}")
    _print_calibration("one TCP connection, n1 to n2", marker["calibrated"], marker["calibration"])
    pairs = ", ".join(" to ".join(pair) for pair in marker["uplink_pairs"])
    _print_calibration(
        f"over the uplink, {pairs}", marker["calibrated"], marker["uplink_calibration"]
    )
    for text in warnings(marker):
        print(text)


def describe_hosts(facts: Facts) -> str:
    """Return what hosts there are: 4 x 2 cpus and 8 gpus in 2 racks and 1 aggregator."""
    racks, helpers = len(facts["racks"]), facts["aggregators"]
    words = [f"{facts['nodes']} x {facts['cpus']} cpus"]
    words += [f"and {facts['gpus']} gpus"] * (facts["gpus"] > 0)
    words += [f"in {racks} racks"] * (racks > 0)
    words += [f"and {helpers} aggregator{'s' * (helpers > 1)}"] * (helpers > 0)
    return " ".join(words)


def describe_wires(facts: Facts) -> str:
    """Return what wires there are: 1gbit on 2 rails, uplinks 100mbit."""
    rails, uplink = facts["rails"], facts["uplink"]
    return f"{facts['rate']}{f' on {rails} rails' * (rails > 1)}{f', uplinks {uplink}' * (uplink is not None)}"


def _print_calibration(what: str, when: str, table: Sequence[Facts]) -> None:
    if table:
        print(f"{what}, {when}:")
    for row in table:
        print(f"  {row['bytes'] >> 10:6} KiB  {row['Bps'] / 1e6:8.2f} MB/s")


def _health(facts: Facts) -> str:
    if facts["init"] is None:
        return "gone"
    lacking = [service for service, pid in facts.items() if pid is None and service != "slurm"]
    return f"without {lacking[0]}" if lacking else facts["slurm"] or "ok"
