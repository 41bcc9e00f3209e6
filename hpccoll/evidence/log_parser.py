"""Rules for the messages of logs, and the facts collected so far."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from hpccoll.evidence.creation_times import CommunicatorRank, CreationTimes
from hpccoll.evidence.defect_lines import defects_of_line, raw_line
from hpccoll.evidence.fallback_reasons import unavailable_reason
from hpccoll.evidence.host_differences import NETWORK, HostFacts
from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_record import TCP_NETWORK, LogRecord, Unavailable
from hpccoll.evidence.nccl_failures import ErrorTraces


class LoggedCall(NamedTuple):
    """A call of a collective, as NCCL logs it, in the project's names.

    ``bytes`` is the size of the rank's own block, if every rank has one; ``ranks`` is None if that
    part of the line is missing.
    """

    collective: str
    bytes: int
    dtype: str
    op: str | None
    ranks: int | None


HostMembers = defaultdict[str | None, set[tuple[int, str]]]
"""The members of a communicator by host: their ranks, and what names their GPUs."""


class ParserState:
    """The facts collected from the messages of one launch, in order of their first occurrence."""

    def __init__(self) -> None:
        self.library: str | None = None
        self.version: str | None = None
        self.build = ""
        self.nodes: int | None = None
        self.ranks: int | None = None
        # by the field of the record
        self.facts: defaultdict[str, dict[Any, None]] = defaultdict(dict)
        self.paths: Counter[str] = Counter()
        self.plugins: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.communicator: dict[str, str] = {}
        self.calls: defaultdict[str, deque[LoggedCall]] = defaultdict(lambda: deque(maxlen=256))
        self.tables: dict[str, Any] = {}
        self.team_sizes: dict[str, int] = {}  # of UCC's teams, by their ids
        self.collnet_devices: dict[int | None, int] = {}  # by rank; None: the most of all ranks
        self.collnet_line = ""  # the first line that counts them
        self.started_networks: dict[str, bool] = {}  # by name: whether NCCL could start it
        self.errors = ErrorTraces()
        self.host_facts = HostFacts()
        self.hosts: set[str] = set()
        self._processes: set[str] = set()  # those whose hosts are known
        # by the text of the warning
        self.warning_hosts: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.communicators: set[tuple[int, int]] = set()  # ranks and nodes
        self.members: dict[tuple[str, int], HostMembers] = {}  # by id and size of the communicator
        # by operation, number and timeout in s: the ranks, and whether the timeout is of the group
        # of all ranks
        self.timeouts: dict[tuple[str, int, float], dict[int, bool]] = {}
        # by process and address of the communicator
        self.begun: dict[tuple[str, str], CommunicatorRank] = {}
        # those of them without a sign of their completion
        self.incomplete: set[tuple[str, str]] = set()
        self.creation_times = CreationTimes()
        self.components: dict[str, str] = {}  # versions by component
        self.defect_lines: dict[str, str] = {}  # by the id of the defect

    def add(self, field: str, fact: object) -> None:
        """Add a line, or another fact, to a field of the record, each once."""
        self.facts[field][fact] = None

    def add_host(self, message: LogMessage) -> None:
        """Add the host of a message."""
        if message.process not in self._processes or not message.process:
            self._processes.add(message.process)
            if message.host:
                self.hosts.add(message.host)

    @property
    def unavailable(self) -> Iterable[Unavailable]:
        return self.facts["unavailable"]

    def add_unavailable(self, feature: str, reason: str, line: str) -> None:
        """Add that a feature was not used, and the reason; each reason once."""
        for earlier in self.unavailable:
            if earlier.feature == feature and earlier.reason == reason:
                return
        self.add("unavailable", Unavailable(feature=feature, reason=reason, line=line))

    def record(self) -> LogRecord:
        """Return what all messages say together."""
        facts: dict[str, Any] = {field: tuple(lines) for field, lines in self.facts.items()}
        if len(facts.get("versions", ())) < 2:
            facts.pop("versions", None)
        # versions up to 2.5 have no other line
        facts.setdefault("network", self._networks_of_paths())
        facts["failures"] = tuple(self.errors.failures())
        facts["gdr"] = self._uses_gpudirect()
        facts["paths"] = dict(sorted(self.paths.items()))
        facts["settings"] = dict(sorted(self.settings.items()))
        facts["communicator"] = dict(sorted(self.communicator.items()))
        facts["creations"] = tuple(self.creation_times.communicators())
        facts["host_differences"] = tuple(self.host_facts.differences())
        facts["network_hosts"] = self.host_facts.hosts(NETWORK)
        facts["components"] = dict(sorted(self.components.items()))
        facts["defect_lines"] = self.defect_lines
        facts["warning_hosts"] = self._hosts_of_rare_warnings()
        return LogRecord(
            library=self.library,
            version=self.version,
            build=self.build,
            nodes=self.nodes,
            ranks=self.ranks,
            plugins=self.plugins,
            **facts,
        )

    def _networks_of_paths(self) -> tuple[str, ...]:
        """Return the networks that paths of channels name, such as ``IB`` in ``NET/IB/0``."""
        paths = [path for path in self.paths if path.startswith("NET/")]
        networks = dict.fromkeys(path.split("/")[1] for path in paths)
        return tuple(filter(None, networks))

    def _uses_gpudirect(self) -> bool | None:
        """Return whether all channels over RDMA use GPUDirect; None without such a channel."""
        is_used = None
        for path in self.paths:
            if path.startswith("NET/") and not TCP_NETWORK.search(path):
                is_used = is_used is not False and "GDRDMA" in path
        return is_used

    def _hosts_of_rare_warnings(self) -> dict[str, tuple[str, ...]]:
        """Return the hosts of warnings that some hosts did not log."""
        rare = {}
        for text, hosts in self.warning_hosts.items():
            if len(hosts) < len(self.hosts):
                rare[text] = tuple(hosts)
        return rare


AddFacts: TypeAlias = Callable[[ParserState, re.Match[str], LogMessage], None]
"""Adds the facts of a message that matches the pattern of a rule."""

Rule: TypeAlias = tuple[re.Pattern[str], AddFacts]
"""A pattern for the beginning of a message, and what it adds."""


def rule(pattern: str, add_facts: AddFacts) -> Rule:
    return re.compile(pattern), add_facts


def line_rules(field: str, *patterns: str) -> list[Rule]:
    """Return rules that add every message that matches one of ``patterns`` to a field of the record.

    The group ``name`` of a pattern is added, if it has one, else the whole message.
    """

    def add(state: ParserState, match: re.Match[str], message: LogMessage) -> None:
        has_name = "name" in match.re.groupindex
        state.add(field, match["name"] if has_name else message.text)

    return [rule(pattern, add) for pattern in patterns]


def _add_warning_and_known_reason(
    state: ParserState, _match: re.Match[str], message: LogMessage
) -> None:
    feature_and_reason = unavailable_reason(message.text)
    if feature_and_reason is not None:
        state.add_unavailable(*feature_and_reason, message.text)
    state.add_host(message)
    if message.level == "WARN":
        state.add("warnings", message.placed_text)
        if message.host:
            state.warning_hosts[message.placed_text][message.host] = None


def _add_defect_line(state: ParserState, _match: re.Match[str], message: LogMessage) -> None:
    line = raw_line(message)
    for defect in defects_of_line(line):
        state.defect_lines.setdefault(defect, line)


COMMON_RULES = (rule("", _add_warning_and_known_reason), rule("", _add_defect_line))
"""The rules for the messages of every library: known reasons why a feature was not used, warnings, known defects."""


def _version_rule(component: str, pattern: str) -> Rule:
    """Return a rule that adds the version of a component."""

    def add(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
        state.components[component] = match["version"]

    return rule(pattern, add)


COMPONENT_RULES = (
    _version_rule(
        "aws-ofi-nccl", r"NET/OFI (?:Initializing|Using) aws-ofi-[nr]ccl v?(?P<version>\d\S*)"
    ),
    _version_rule("libfabric", r"NET/OFI Using [Ll]ibfabric version (?P<version>\d\S*)"),
    _version_rule("ROCm", r"(?:.*\s)?ROCm version *: *(?P<version>\d\S*)"),
)
"""The rules for the versions of what NCCL and RCCL run on."""


def _add_gpu(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    state.add("gpus", match["name"])


PROGRAM_RULES = (
    rule("", _add_defect_line),
    *COMPONENT_RULES,
    _version_rule("UCX", r".*\bUCX +INFO +Version (?P<version>\d\S*) \(loaded"),
    rule(r"# +Rank +\d+ .* device +\d+ \[\w+\] (?P<name>\S.*?) *$", _add_gpu),  # of nccl-tests
)
"""The rules for lines without a header: those of programs and of other libraries."""
