"""libsharp's log with SHARP_COLL_LOG_LEVEL=3: the groups of ranks that were given trees of switches, and failures.

A job shows only that switches are reserved; a group of two or more ranks with a tree shows that
they can reduce. HCOLL has no other lines.
"""

import re

from hpccoll.evidence import fallback_reasons
from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_parser import COMMON_RULES, ParserState, Rule, rule


def _add_group(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
    if int(match["size"]) > 1:
        state.add("sharp", message.text)
        state.add("trees", match["tree"])


def _add_error(state: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    """Add an error whose reason is not in the table of known reasons, with its text as the reason."""
    if message.level == "ERROR" and not fallback_reasons.unavailable_reason(message.text):
        state.add_unavailable("sharp", message.text, message.text)


RULES: tuple[Rule, ...] = (
    rule(
        r"\[group#:\d+\] .*\btree_type:(?P<tree>\w+) .*\bgroup size:(?P<size>\d{1,18})\b",
        _add_group,
    ),
    rule("", _add_error),
    *COMMON_RULES,
)
