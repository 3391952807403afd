# SPDX-License-Identifier: Apache-2.0
"""Every picture format through a daemon, with Pillow as the oracle; DecodeImage's options."""

from __future__ import annotations

import hashlib
import io
import json
import pathlib

import numpy as np
import pytest
from daemon import Daemon
from PIL import Image, ImageOps

import batchd
from batchd import transforms as T

CASES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "cases"
HEIGHT, WIDTH = 27, 38
ORIENTATION = 0x0112


@pytest.fixture(scope="module")
def daemon():
    with Daemon() as running:
        yield running


def rows_of(daemon, folder: pathlib.Path, **options: object) -> list[np.ndarray]:
    """All pictures of a folder, which has to have one size of them."""
    with batchd.Loader(batchd.ImageFolder(str(folder)), {"image": T.DecodeImage(**options)},
                       batch_size=1, shuffle=False, address=daemon.address) as loader:
        return [batch["image"].numpy()[0].copy() for batch in loader]


def write(folder: pathlib.Path, name: str, data: bytes) -> None:
    (folder / "a").mkdir(parents=True, exist_ok=True)
    (folder / "a" / f"{name}.jpg").write_bytes(data)  # by content and never by suffix


def photo(mode: str = "RGB") -> Image.Image:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    pixels = np.stack([5 * x, 255 - 8 * y, 3 * (x + y)], -1).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encoded(picture: Image.Image, fmt: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, fmt, **options)
    return data.getvalue()


FORMATS = {
    "jpeg": ("JPEG", {"quality": 90}), "png": ("PNG", {}), "ppm": ("PPM", {}), "bmp": ("BMP", {}),
    "gif": ("GIF", {}), "webp": ("WEBP", {"quality": 80}),
    "webp_lossless": ("WEBP", {"lossless": True}),
    "tiff": ("TIFF", {}), "tiff_lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "tiff_jpeg": ("TIFF", {"compression": "jpeg"}), "avif": ("AVIF", {"speed": 10}),
    "jp2": ("JPEG2000", {}),
}


def test_all_formats_have_the_pixels_of_pillow(daemon, tmp_path):
    expected = []
    for name in sorted(FORMATS):
        fmt, options = FORMATS[name]
        data = encoded(photo(), fmt, **options)
        write(tmp_path, name, data)
        expected.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))

    rows = rows_of(daemon, tmp_path)

    assert [int(np.abs(row.astype(int) - want).max()) for row, want in zip(rows, expected)] == (
        [0] * len(FORMATS))


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("turned", [False, True])
def test_upright_is_what_pillow_shows(daemon, tmp_path, fmt, turned):
    expected = []
    for orientation in range(5, 9) if turned else range(1, 5):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        data = encoded(photo(), fmt, exif=exif)
        write(tmp_path, str(orientation), data)
        # A TIFF is turned by opening it.
        expected.append(np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))))

    rows = rows_of(daemon, tmp_path, orientation="upright")
    stored = rows_of(daemon, tmp_path)

    for row, want in zip(rows, expected, strict=True):
        np.testing.assert_array_equal(row, want)
    assert {row.shape for row in stored} == {(HEIGHT, WIDTH, 3)}


def image_cases(key: str) -> list[dict]:
    if not CASES.is_dir():
        return []
    return [c for c in json.loads((CASES / "expected.json").read_text())["cases"]
            if c["group"] == "img" and key in c["expect"]]


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared cases")
def test_shared_cases_are_shown_as_a_viewer_does(daemon, tmp_path):
    cases = image_cases("oriented")
    assert len(cases) >= 4
    for case in cases:
        write(tmp_path / case["id"], "p", (CASES / case["file"]).read_bytes())
        row, = rows_of(daemon, tmp_path / case["id"], orientation="upright")
        want = case["expect"]["oriented"]
        assert row.shape == (want["height"], want["width"], 3)
        assert hashlib.sha256(row.tobytes()).hexdigest() == want["rgb_sha256"], case["id"]


@pytest.mark.skipif(not CASES.is_dir(), reason="no shared cases")
def test_damaged_pictures_are_taken_where_that_is_asked_for_and_counted(daemon, tmp_path):
    cases = image_cases("recover")
    assert len(cases) >= 2
    before = daemon.metric("batchd_samples_damaged_total")
    for case in cases:
        folder = tmp_path / case["id"]
        write(folder, "p", (CASES / case["file"]).read_bytes())
        with pytest.raises(batchd.SampleError) as refused:
            rows_of(daemon, folder)
        assert refused.value.reason == "truncated"
        assert "a/p.jpg" in str(refused.value)
        row, = rows_of(daemon, folder, damaged="accept")
        want = case["expect"]["recover"]
        assert row.shape == (want["height"], want["width"], 3)
        if want["good_rows"]:
            whole = np.asarray(Image.open(CASES / want["whole_ref"]).convert("RGB"))
            np.testing.assert_array_equal(row[:want["good_rows"]], whole[:want["good_rows"]])
    assert daemon.metric("batchd_samples_damaged_total") >= before + len(cases)
