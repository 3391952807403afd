# SPDX-License-Identifier: Apache-2.0
"""Data sets for tests: small pictures that carry their number, so that a row names its sample."""

from __future__ import annotations

import io
import pathlib

import numpy as np
from PIL import Image


def numbered(number: int, width: int = 16, height: int = 8, fmt: str = "JPEG") -> bytes:
    """A picture of two flat halves whose grey levels are the number's digits to the base of 60."""
    low, high = number % 60, number // 60
    assert 0 <= high < 60
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:, : width // 2] = 8 + 4 * high
    pixels[:, width // 2 :] = 8 + 4 * low
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, fmt, **({"quality": 95} if fmt == "JPEG" else {}))
    return data.getvalue()


def number_of(row: np.ndarray) -> int:
    """The number in a row of height x width x 3; JPEG is off by a level at most."""
    height, width = row.shape[:2]
    high = (int(row[height // 2, width // 4, 0]) - 8 + 2) // 4
    low = (int(row[height // 2, 3 * width // 4, 0]) - 8 + 2) // 4
    return high * 60 + low


def make_numbered_folder(root: pathlib.Path, count: int, classes: int = 4, reverse: bool = False,
                         **picture: int) -> pathlib.Path:
    """`count` numbered pictures below `root`; sample i of the index carries the number i."""
    per_class = -(-count // classes)
    order = range(count - 1, -1, -1) if reverse else range(count)
    for number in order:
        folder = root / f"c{number // per_class:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.jpg").write_bytes(numbered(number, **picture))
    return root


def make_photo_folder(root: pathlib.Path, count: int, classes: int = 4, side: int = 64,
                      seed: int = 1) -> pathlib.Path:
    """Pictures with something in every pixel, of varied sizes, for augmentation."""
    random = np.random.default_rng(seed)
    for number in range(count):
        folder = root / f"c{number % classes:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = (int(v) for v in random.integers(side // 2, side * 2, 2))
        coarse = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:06d}.jpg", quality=85 + number % 10,
                     subsampling=number % 3)
    return root
