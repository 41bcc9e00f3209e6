"""The text of slow geometries, in the outputs of ``accept`` and ``compare``."""

from collections.abc import Iterable, Iterator

from hpccoll.common.text import Finding


def geometry_lines(geometries: Iterable[Finding]) -> Iterator[str]:
    """Yield a line for each slow geometry, and one below it on why, if that is known."""
    for finding in geometries:
        yield finding.text
        if finding.remedy:
            yield f"  {finding.remedy}"
