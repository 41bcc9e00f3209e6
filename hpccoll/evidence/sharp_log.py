"""Lines of libsharp itself, with SHARP_COLL_LOG_LEVEL=3: the groups that were given trees of switches, and failures.

A job is only a promise; a group of two ranks or more with a tree is what reduces. HCOLL says nothing else.
"""

import re

from hpccoll.evidence import unavailable
from hpccoll.evidence.log_lines import Message
from hpccoll.evidence.parser_state import Notes, Rule


def _group(notes: Notes, match: re.Match[str], message: Message) -> None:
    if int(match["size"]) > 1:
        notes.say("sharp", message.text)
        notes.say("trees", match["tree"])


def _failure(notes: Notes, _match: re.Match[str], message: Message) -> None:
    """Note an error that has no plain reason of ours in its own words."""
    if message.level == "ERROR" and not unavailable.reason(message.text):
        notes.refuse("sharp", message.text, message.text)


RULES: tuple[Rule, ...] = (
    (re.compile(r"\[group#:\d+\] .*\btree_type:(?P<tree>\w+) .*\bgroup size:(?P<size>\d{1,18})\b"), _group),
    *unavailable.RULES,
    (re.compile(""), _failure),
)
