"""What a probe found: the record of the logs of an untimed launch, or why there is none; a file beside the raw file."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.topology import describe_balance, parse_topology_dump
from hpccoll.files import read_json, read_text
from hpccoll.limits import JOB_BYTES, LOG_BYTES, XML_BYTES

_STORED = {"failure": "why"}
"""Fields whose key in JSON differs from their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What is known of the launch of one shape of a job.

    Args:
        record: what its logs say; None where there are none that can be read.
        failure: there is no record, or not all of one.
        balance: whether each GPU of the first node has a NIC as near as its peers', in words; None where nobody knows.
        logs: the directory of the logs.
        job_sha256: of the job that was probed; empty for logs that somebody made by hand.
        allocation: where it ran: on other nodes, or at another time, a library may do something else.
    """

    record: LogRecord | None = None
    failure: str | None = None
    balance: str | None = None
    logs: str = ""
    job_sha256: str = ""
    allocation: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON has it: what an attempt in a raw file keeps."""
        record = None if self.record is None else json.loads(self.record.to_json())
        values = {_STORED.get(field.name, field.name): getattr(self, field.name) for field in fields(self)}
        return {**values, "record": record}

    @classmethod
    def from_json(cls, read: Mapping[str, object]) -> "ProbeResult":
        """Return what ``to_json`` gave.

        Raises:
            ValueError: where it is something else.
        """
        stored = {_STORED.get(field.name, field.name): field.name for field in fields(cls)}
        words: dict[str, Any] = {name: read[key] for key, name in stored.items() if key in read}
        record = words.pop("record")
        return cls(record=None if record is None else LogRecord.from_json(json.dumps(record)), **words)

    @classmethod
    def from_logs(cls, place: Path, failed: str | None = None, **about: str) -> "ProbeResult":
        """Return what the logs ``*.log`` in a directory say, and the files of settings ``*.conf``.

        Args:
            place: the directory.
            failed: how the launch failed that wrote them, None where it did not.
            about: its ``job_sha256`` and ``allocation``.
        """
        paths = sorted((*place.glob("*.log"), *place.glob("*.conf")))
        texts = {path.name: read_text(path, "--evidence", LOG_BYTES, "replace") for path in paths}
        record = read_logs(texts)
        found = cls(record=record, failure=failed, balance=_balance(place), logs=str(place), **about)
        if record.library is None:
            return replace(found, record=None, failure=failed or f"left no line in {place} that is known")
        return found

    @classmethod
    def load(cls, path: Path) -> "ProbeResult":
        """Read what a launch has left: its file, or a directory of logs.

        Raises:
            BadInputError: where it is neither.
        """
        try:
            return cls.from_logs(path) if path.is_dir() else cls.from_json(read_json(path, "--evidence", JOB_BYTES))
        except UnusableError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise BadInputError(
                "--evidence", str(path), f"what a probe found, or a directory of logs ({error})"
            ) from None


def _balance(place: Path) -> str | None:
    """Return what NCCL's dump of the topology says, where there is one that can be read."""
    with suppress(OSError, ValueError):
        return describe_balance(parse_topology_dump(read_text(place / "topology.xml", "topology", XML_BYTES)))
    return None
