"""The result of a probe: the record of the logs of an untimed launch, or the reason why there is none.

A probe writes it to a file next to the raw file; an attempt in the raw file keeps a copy.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_json, read_text
from hpccoll.common.limits import JOB_BYTES, LOG_BYTES, XML_BYTES
from hpccoll.common.records import from_builtins, to_builtins
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.nic_gpu_affinity import describe_balance, parse_topology_dump


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The evidence about the launch of one shape of a job."""

    record: LogRecord | None = None  # the content of its logs; None without readable logs
    # the reason why the record is missing or incomplete, as a predicate of "the probe"; None if
    # complete
    failure: str | None = None
    # whether all GPUs of the first node are equally near to a NIC, as a sentence; None if unknown
    balance: str | None = None
    logs: str = ""  # the directory of the logs
    job_sha256: str = ""  # the hash of the job; empty for logs that no probe wrote
    # the allocation: on other nodes, or at another time, a library may choose differently
    allocation: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document that an attempt in a raw file keeps."""
        document: dict[str, Any] = to_builtins(self)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ProbeResult":
        """Return the result that ``to_json`` wrote.

        Raises:
            BadInputError: if the document is something else.
        """
        return from_builtins(document, cls, "evidence")

    @classmethod
    def from_logs(cls, directory: Path, failed: str | None = None, **about: str) -> "ProbeResult":
        """Return the result of the logs ``*.log`` and configuration files ``*.conf`` in a directory.

        ``failed`` is how the launch failed that wrote them; ``about`` are its ``job_sha256`` and
        ``allocation``.
        """
        paths = sorted((*directory.glob("*.log"), *directory.glob("*.conf")))
        texts = {path.name: read_text(path, "--evidence", LOG_BYTES, "replace") for path in paths}
        record = read_logs(texts)
        result = cls(
            record=record, failure=failed, balance=_balance(directory), logs=str(directory), **about
        )
        if record.library is None:
            return replace(
                result, record=None, failure=failed or f"left no line in {directory} that is known"
            )
        return result

    @classmethod
    def load(cls, path: Path) -> "ProbeResult":
        """Return the result in a file, or that of a directory of logs.

        Raises:
            BadInputError: if the path is neither.
        """
        try:
            return (
                cls.from_logs(path)
                if path.is_dir()
                else from_builtins(read_json(path, "--evidence", JOB_BYTES), cls)
            )
        except UnusableError:
            raise
        except BadInputError as error:
            expected = f"the result of a probe, or a directory of logs ({error})"
            raise BadInputError("--evidence", str(path), expected) from None


def _balance(directory: Path) -> str | None:
    """Return the sentence about NCCL's dump of the topology; None without a readable dump."""
    with suppress(OSError, ValueError):
        return describe_balance(
            parse_topology_dump(read_text(directory / "topology.xml", "topology", XML_BYTES))
        )
    return None
