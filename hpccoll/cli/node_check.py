"""``hpccoll diagnose --here``: the check of this node, its line, and its reference."""

import json
import platform
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.common.errors import writing
from hpccoll.common.interruption import INTERRUPTED, interruptible
from hpccoll.common.units import format_rate

if TYPE_CHECKING:
    from hpccoll.diagnosis.node_health import NodeReference

EXIT_CODES = {"healthy": 0, "cannot tell": 0, "bad": 3}
"""The exit codes of verdicts: Slurm is not to drain a node that is only busy."""


SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
"""What ends a check, with the processes that it has started."""


def main_here(
    seconds: float | None,
    reference: Path | None,
    new_reference: Path | None,
    junit: Path | None = None,
    *,
    as_json: bool,
) -> int:
    """Check this node, or make its reference, and return the exit code.

    Raises:
        BadInputError: if the reference cannot be read or written.
    """
    try:
        with interruptible(*SIGNALS):
            if new_reference:
                return make_reference_here(seconds, new_reference)
            return check_here(seconds, reference, junit, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


def check_here(
    seconds: float | None, reference_file: Path | None, junit: Path | None = None, *, as_json: bool
) -> int:
    """Check this node, print the verdict in one line or as JSON, and return the exit code.

    Raises:
        BadInputError: if the reference cannot be read, or the file for a CI system be written.
    """
    from hpccoll.diagnosis.node_health import judge_node, read_node_reference
    from hpccoll.sweep.health import USUAL_S, check_node

    reference = None
    if reference_file:
        reference = read_node_reference(reference_file)
    health = judge_node(check_node(seconds or USUAL_S), reference)
    text = health.line
    if as_json:
        text = json.dumps(health.to_json(), indent=1)
    print(text, flush=True)
    if junit:
        from hpccoll.render.diagnosis_junit import write_health_junit

        with writing(junit):
            write_health_junit(health, platform.node(), junit)
    return EXIT_CODES[health.verdict]


def make_reference_here(seconds: float | None, out: Path) -> int:
    """Check this node several times, write their reference, and return the exit code.

    A node that is bad without a reference gets none.

    Raises:
        BadInputError: if the file cannot be written.
    """
    from hpccoll.diagnosis.node_health import (
        REPEATS,
        NodeReference,
        judge_node,
        write_node_reference,
    )
    from hpccoll.sweep.health import USUAL_S, check_node

    states = []
    for _ in range(REPEATS):
        state = check_node(seconds or USUAL_S)
        health = judge_node(state, None)
        if health.verdict != "healthy":
            print(f"no reference: {health.line}", flush=True)
            return EXIT_CODES[health.verdict] or 1
        states.append(state)
    reference = NodeReference.of(platform.node(), states)
    with writing(out):
        write_node_reference(reference, out)
    print(f"reference: {out} ({_spread(reference)})", flush=True)
    disturbed = [*filter(None, (state.other_load for state in states)), *reference.wide_rates()]
    if disturbed:
        print(f"hpccoll: {disturbed[0]}: the reference may be low", file=sys.stderr)
    return 0


def _spread(reference: "NodeReference") -> str:
    parts = []
    for name, rates in reference.rates.items():
        parts.append(f"{name} {format_rate(min(rates))} to {format_rate(max(rates))}")
    return ", ".join(parts)
