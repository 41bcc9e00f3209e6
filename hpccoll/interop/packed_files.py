"""Files in tar archives, read in memory."""

import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from hpccoll.common.errors import UnusableError, file_error
from hpccoll.common.units import format_size

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_ARCHIVE_BYTES = 4 << 30
"""The maximum size of all files of an archive."""


def is_archive(path: Path) -> bool:
    """Return whether a path is the name of an archive that ``packed_files`` reads."""
    return path.name.endswith(ARCHIVE_SUFFIXES) and not path.is_dir()


def packed_files(path: Path, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each regular file of an archive, in its order.

    Raises:
        UnusableError: if the archive cannot be read, is damaged or cut, has a file of more than
            ``max_bytes`` bytes, or files of more than ``MAX_ARCHIVE_BYTES`` together.
    """
    total = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if not member.isfile():
                    continue
                total += member.size
                if member.size > max_bytes or total > MAX_ARCHIVE_BYTES:
                    limit = format_size(max_bytes)
                    raise UnusableError(
                        "FILE", f"{path}: {member.name} is larger than a file of it can be, {limit}"
                    )
                file = archive.extractfile(member)
                if file is not None:
                    yield member.name, file.read()
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnusableError("FILE", f"{path} is damaged, cut or not an archive: {error}") from None
    except OSError as error:
        if error.errno is None:  # gzip and bz2 raise such errors for damaged data
            raise UnusableError("FILE", f"{path} is damaged or cut: {error}") from None
        raise file_error("FILE", path, error) from None
