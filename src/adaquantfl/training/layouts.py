"""The two raw formats, both ways: idx (the MNIST family) and CIFAR's binary batches.

Packing is the exact inverse of unpacking, so the cache can be held to the authors' checksums again.
"""

import hashlib
import struct
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .catalogue import Spec

Bytes: TypeAlias = npt.NDArray[np.uint8]
RawFiles: TypeAlias = dict[str, bytes]


class Arrays(NamedTuple):
    """A data set as it is cached: pixels (N, C, H, W) and labels (N,), all uint8."""

    train_x: Bytes
    train_y: Bytes
    test_x: Bytes
    test_y: Bytes


class MismatchError(Exception):
    """A raw file is missing or is not the one that the authors published."""


def verify(spec: Spec, raw: RawFiles) -> None:
    """Hold every raw file to its published size and md5."""
    for file in spec.files:
        content = raw.get(file.name)
        if content is None:
            raise MismatchError(f"{file.name} is missing")
        if len(content) != file.size:
            raise MismatchError(f"{file.name} has {len(content):,} bytes, expected {file.size:,}")
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 != file.md5:
            raise MismatchError(f"{file.name} has md5 {md5}, expected {file.md5}")


def unpack(spec: Spec, raw: RawFiles) -> Arrays:
    """Arrays out of raw files. Call `verify` first: the sizes are taken on trust here."""
    content = [np.frombuffer(raw[file.name], np.uint8) for file in spec.files]
    if spec.layout == "idx":
        train_x, train_y, test_x, test_y = content
        return Arrays(
            train_x[16:].reshape(spec.train, *spec.shape),
            train_y[8:],
            test_x[16:].reshape(spec.test, *spec.shape),
            test_y[8:],
        )
    train = np.concatenate(content[:-1]).reshape(spec.train, -1)
    test = content[-1].reshape(spec.test, -1)
    return Arrays(
        train[:, 1:].reshape(spec.train, *spec.shape),
        train[:, 0],
        test[:, 1:].reshape(spec.test, *spec.shape),
        test[:, 0],
    )


def pack(spec: Spec, arrays: Arrays) -> RawFiles:
    """The raw files that `unpack` makes these arrays of."""
    names = [file.name for file in spec.files]
    if spec.layout == "idx":
        return dict(zip(names, map(_pack_idx, arrays), strict=True))
    train_x = np.split(arrays.train_x, len(names) - 1)
    train_y = np.split(arrays.train_y, len(names) - 1)
    batches = [pack_batch(x, y) for x, y in zip(train_x, train_y, strict=True)]
    return dict(zip(names, [*batches, pack_batch(arrays.test_x, arrays.test_y)], strict=True))


def pack_batch(pixels: Bytes, labels: Bytes) -> bytes:
    """A CIFAR batch: for each picture its label byte, then its planes of red, green and blue."""
    return np.concatenate([labels[:, None], pixels.reshape(len(labels), -1)], axis=1).tobytes()


def _pack_idx(array: Bytes) -> bytes:
    # The idx header: two zero bytes, type 8 (uint8), the number of axes, and each axis big-endian. The grey
    # channel is no axis of its own there.
    shape = array.shape if array.ndim == 1 else (array.shape[0], *array.shape[-2:])
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + array.tobytes()
