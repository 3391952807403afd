# SPDX-License-Identifier: Apache-2.0
"""Several columns of one picture: shared decodes, shared geometry, masks."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from daemon import Daemon
from pictures import make_photo_folder
from PIL import Image

import batchd
from batchd import transforms as T

TRANSPORTS = ("shm", "grpc")


@pytest.fixture(scope="module")
def daemon():
    with Daemon() as running:
        yield running


def crop(size: int, scale: tuple[float, float], **decode: object) -> list:
    return [T.DecodeImage(**decode), T.RandomResizedCrop(size, scale=scale),
            T.RandomHorizontalFlip()]


def rows(daemon: Daemon, root: pathlib.Path, columns: dict, **options) -> list[dict]:
    with batchd.Loader(batchd.ImageFolder(str(root)), columns, batch_size=4, shuffle=True, seed=3,
                       address=daemon.address, **options) as loader:
        return [{name: batch[name].numpy().copy() for name in columns} for batch in loader]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_views_have_the_bytes_of_columns_alone(daemon, tmp_path, transport):
    root = make_photo_folder(tmp_path / "d", 12)
    columns = {"global0": crop(32, (0.4, 1)), "global1": crop(32, (0.4, 1)),
               "local0": crop(12, (0.05, 0.4)), "local1": crop(12, (0.05, 0.4))}
    together = rows(daemon, root, columns, transport=transport)

    for name, column in columns.items():
        for batch, want in zip(rows(daemon, root, {name: column}), together, strict=True):
            np.testing.assert_array_equal(batch[name], want[name])
    assert any((batch["global0"] != batch["global1"]).any() for batch in together)


def make_label_maps(root: pathlib.Path) -> list[np.ndarray]:
    """Palette pictures of class numbers; 255 is a class too."""
    (root / "a").mkdir(parents=True)
    random = np.random.default_rng(5)
    maps = []
    for number in range(8):
        numbers = random.choice(np.array([0, 1, 2, 20, 255], np.uint8), (40, 50))
        picture = Image.fromarray(numbers, "P")
        picture.putpalette(random.integers(0, 256, 768, np.uint8).tobytes())
        picture.save(root / "a" / f"{number}.png")
        maps.append(numbers)
    return maps


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_masks_are_class_numbers(daemon, tmp_path, dtype, transport):
    maps = make_label_maps(tmp_path / "d")

    with batchd.Loader(batchd.ImageFolder(str(tmp_path / "d")), {"mask": T.DecodeMask(dtype=dtype)},
                       batch_size=8, shuffle=False, address=daemon.address,
                       transport=transport) as loader:
        batch, = loader
        got = batch["mask"].numpy()
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, np.stack(maps))


def test_a_mask_goes_with_its_picture(daemon, tmp_path):
    make_label_maps(tmp_path / "d")
    moves = [T.RandomResizedCrop((24, 20), interpolation="nearest"), T.RandomHorizontalFlip()]
    columns = {"image": [T.DecodeImage(geometry="g"), *moves],
               "mask": [T.DecodeMask(geometry="g"), *moves]}

    for batch in rows(daemon, tmp_path / "d", columns):
        # A colour is a class, whatever the place: each class of a row has one colour.
        for image, mask in zip(batch["image"], batch["mask"], strict=True):
            for number in np.unique(mask):
                assert len(np.unique(image[mask == number], axis=0)) == 1
        assert set(np.unique(batch["mask"])) <= {0, 1, 2, 20, 255}


def test_what_does_not_fit_is_refused_with_its_path(daemon, tmp_path):
    make_label_maps(tmp_path / "d")
    moves = [T.RandomResizedCrop(20), T.RandomHorizontalFlip()]

    with pytest.raises(batchd.OpenError, match=r"pipeline\.mask: pipeline\.image of the "
                       r"same geometry"):
        rows(daemon, tmp_path / "d", {"image": [T.DecodeImage(geometry="g"), *moves],
                                      "mask": [T.DecodeMask(geometry="g"), moves[0]]})
    with pytest.raises(batchd.OpenError, match=r"pipeline\.mask\[1\].*class numbers"):
        rows(daemon, tmp_path / "d", {"mask": [T.DecodeMask(), T.ToTensor()]})
