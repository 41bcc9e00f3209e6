"""Lines of libsharp itself, with SHARP_COLL_LOG_LEVEL=3: the groups that were given trees of switches, and failures.

A job is only a promise; a group of two ranks or more with a tree is what reduces. HCOLL says nothing else.
"""

import re

from hpccoll.evidence import unavailable
from hpccoll.evidence.log_lines import LogMessage
from hpccoll.evidence.parser_state import ParserState, Rule


def _group(notes: ParserState, match: re.Match[str], message: LogMessage) -> None:
    if int(match["size"]) > 1:
        notes.say("sharp", message.text)
        notes.say("trees", match["tree"])


def _failure(notes: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    """Note an error that has no plain reason of ours in its own words."""
    if message.level == "ERROR" and not unavailable.unavailable_reason(message.text):
        notes.add_unavailable("sharp", message.text, message.text)


RULES: tuple[Rule, ...] = (
    (re.compile(r"\[group#:\d+\] .*\btree_type:(?P<tree>\w+) .*\bgroup size:(?P<size>\d{1,18})\b"), _group),
    *unavailable.RULES,
    (re.compile(""), _failure),
)
