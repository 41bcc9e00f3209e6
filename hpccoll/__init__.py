"""hpccoll measures how fast a cluster's collectives are, and reports why and what to change."""

from typing import TYPE_CHECKING

from hpccoll.common.version import __version__

__all__ = ["__version__", "open"]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpccoll.result_set import PathLike, ResultSet


def open(*paths: "PathLike | Iterable[PathLike]", rule: str = "max") -> "ResultSet":  # noqa: A001 - a reader's verb
    """Open results in a notebook: ``rows``, ``runs`` and ``missing`` as pandas frames, raw ``times`` as xarray.

    Args:
        paths: raw files (*.h5), directories that contain raw files, or iterables of such paths.
        rule: the rule for the time of an operation: ``max``, the longest duration over ranks, or
            ``span``, the latest end minus the earliest start; ``max`` if a case has no span.

    Raises:
        BadInputError: if a path does not exist, none of the named files can be read, or the rule is
            unknown. It is a ValueError of one line. Any other unreadable file becomes a warning,
            and its cases are in ``missing``.
        ImportError: if pandas or xarray is not installed.
    """
    try:
        from hpccoll.result_set import open_results
    except ModuleNotFoundError as error:
        if error.name not in ("pandas", "xarray"):
            raise
        raise ImportError(
            f"{error.name} is not installed: pip install 'hpccoll[analysis]'", name=error.name
        ) from None
    return open_results(paths, rule)
