"""Integrity of the content of raw files: checks for content that no raw file has, and the digest of earlier versions.

Files of schema 1.5 to 1.10 have a digest of their content as HDF5 reads it: names, attributes, types, shapes,
dimensions and values of every object, sorted by name. Later ones have a digest of their bytes (seal.py).
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

DIGEST_ATTRIBUTE = "content_sha256"
"""The attribute of the root group that holds the digest of everything else."""

MAX_COMPRESSION_RATIO = 1100
"""The maximum ratio of a chunk's size to its compressed size; deflate reaches 1032."""

MAX_ABSENT_ROW_BYTES = 1 << 16
"""The maximum size of a row that a file need not store because all its values are absent."""

MAX_READ_BYTES = 1 << 25
"""The number of bytes of a column that are read at once."""

MAX_GROUP_DEPTH = 4
"""The maximum depth of nested groups; a raw file has one level."""

_SCALE_ATTRIBUTES = ("DIMENSION_LIST", "REFERENCE_LIST")
"""The attributes by which HDF5 connects datasets and dimensions; they hold addresses in the file."""


class IntegrityError(ValueError):
    """The content of a file is not that of a raw file, or not what was written."""


def check_integrity(file: Any, size: int) -> bool:
    """Check the content of an open file against its digest; return False if it has none.

    All datasets are first checked to lie in this file and to have a possible size; only then values are read.

    Args:
        file: the file, opened by h5py.
        size: the size of the file in bytes.

    Raises:
        IntegrityError: if a check fails; the message names the problem.
    """
    objects = [*_objects(file)]
    for name, item in objects:
        if isinstance(item, h5py.Dataset):
            _check_size(name, item, size)
    if DIGEST_ATTRIBUTE not in file.attrs:
        return False
    if file.attrs[DIGEST_ATTRIBUTE] != _sha256(objects):
        raise IntegrityError("its content is not what was written: the digests differ")
    return True


def content_sha256(file: Any) -> str:
    """Return the digest of the content of an open file without the digest itself, in hexadecimal digits."""
    return _sha256(_objects(file))


def _sha256(objects: Iterable[tuple[str, Any]]) -> str:
    digest = hashlib.sha256()

    def add(*values: bytes) -> None:
        for value in values:
            digest.update(len(value).to_bytes(8, "little"))
            digest.update(value)

    for name, item in objects:
        add(b"object", name.encode())
        attributes = item.attrs
        for key in sorted(attributes):
            if key not in _SCALE_ATTRIBUTES and (name, key) != ("/", DIGEST_ATTRIBUTE):
                add(b"attribute", key.encode(), *_array_bytes(np.asarray(attributes[key])))
        if isinstance(item, h5py.Dataset):
            shape = item.shape
            add(b"dataset", item.dtype.str.encode(), repr((shape, _scale_names(item, len(shape)))).encode())
            for row in _row_bytes(item):
                add(*row)
    return digest.hexdigest()


def _objects(group: Any, path: str = "/", depth: int = MAX_GROUP_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield a group and all objects below it, each with its path.

    Raises:
        IntegrityError: for a link to another object or file, which may be a pipe that blocks for ever.
    """
    yield path, group
    if not depth:
        raise IntegrityError(f"{path!r:.200} is a group too deep in others")
    for name in sorted(group):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise IntegrityError(f"{name!r:.200} is a link to elsewhere")
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _objects(item, f"{path}{name}/", depth - 1)
        else:
            yield f"{path}{name}", item


def _scale_names(item: Any, dims: int) -> list[list[str]]:
    """Return the names of the scales of each dimension; a lower call than ``Dataset.dims``, which opens every scale."""
    scales: list[list[Any]] = [[] for _ in range(dims)]
    for dim, found in enumerate(scales):
        if h5py.h5ds.get_num_scales(item.id, dim):
            h5py.h5ds.iterate(item.id, dim, found.append)
    return [[h5py.h5ds.get_scale_name(scale).decode() for scale in found] for found in scales]


def _check_size(name: str, item: Any, size: int) -> None:
    """Check that the values of a dataset are in the file.

    Raises:
        IntegrityError: if they are in another file, or larger than the file can hold.
    """
    if item.is_virtual or item.external:
        raise IntegrityError(f"{name!r:.200} lies in another file")
    if item.shape is None:
        raise IntegrityError(f"{name!r:.200} has no values")
    stored, dims = item.id.get_storage_size(), len(item.shape)
    max_bytes = (
        stored if item.chunks is None else MAX_COMPRESSION_RATIO * (stored if dims < 2 else size) + MAX_ABSENT_ROW_BYTES
    )
    at_once = item.nbytes if item.chunks is None or dims < 2 else item.nbytes // max(1, len(item))
    if stored > size or at_once > max_bytes:
        raise IntegrityError(f"{name!r:.200} has {item.nbytes} bytes, and the file {size}")


def _row_bytes(item: Any) -> Iterator[tuple[bytes, ...]]:
    """Yield the values of a dataset; if it has several dimensions, row by row without the rows of absent values."""
    if len(item.shape) < 2:
        yield _array_bytes(item[()])
        return
    absent = np.full(item.shape[1:], item.fillvalue, item.dtype).tobytes()
    for first, last in _stored_row_ranges(item):
        for number, row in enumerate(item[first:last], first):
            if (content := row.tobytes()) != absent:
                yield str(number).encode(), content


def _stored_row_ranges(item: Any) -> Iterator[tuple[int, int]]:
    """Yield the ranges [first, last) of consecutive rows stored in the file, each of at most ``MAX_READ_BYTES``."""
    stored = {*range(len(item))} if item.chunks is None else set[int]()
    if item.chunks:
        item.id.chunk_iter(
            lambda chunk: stored.update(range(chunk.chunk_offset[0], chunk.chunk_offset[0] + item.chunks[0]))
        )
    max_rows = max(1, MAX_READ_BYTES // max(1, item.nbytes // max(1, len(item))))
    rows = sorted(row for row in stored if row < len(item))
    for _, run in groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
        numbers = [row for _, row in run]
        for at in range(0, len(numbers), max_rows):
            yield numbers[at], numbers[min(at + max_rows, len(numbers)) - 1] + 1


def _array_bytes(values: NDArray[Any]) -> tuple[bytes, ...]:
    """Return an array as bytes: its shape and type, then its values; texts one by one."""
    array = np.asarray(values)
    header = repr((array.shape, array.dtype.kind if array.dtype.kind in "OUS" else array.dtype.str)).encode()
    if array.dtype.kind not in "OUS":
        return header, array.tobytes()
    return header, *(each if isinstance(each, bytes) else str(each).encode() for each in array.ravel().tolist())
