#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus that fuzzing begins with: make_corpus.py FOLDER [CASES_FOLDER].

What is kept in tests/fuzz/corpus is this, and what fuzzing has found to reach more code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pathlib
import struct
import sys

import numpy as np
import xxhash
from PIL import Image

CASE_BYTES_MAX = 3000
CHOICES = (bytes(8), bytes([10, 30, 128, 200, 1, 7, 7, 7]))  # of picture_fuzz.cc


def write(folder: pathlib.Path, target: str, data: bytes) -> None:
    path = folder / target / hashlib.sha1(data).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def encoded(picture: Image.Image, fmt: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, fmt, **options)
    return data.getvalue()


def pictures(folder: pathlib.Path, cases: pathlib.Path | None) -> None:
    dice = np.random.default_rng(1)
    rgb = Image.fromarray(dice.integers(0, 256, (21, 34, 3), np.uint8))
    deep = Image.fromarray(dice.integers(0, 2**16, (9, 12), np.uint16))
    all_of = {
        "jpeg": [encoded(rgb, "JPEG", subsampling=s) for s in (0, 1, 2)]
        + [encoded(rgb, "JPEG", progressive=True), encoded(rgb.convert("L"), "JPEG"),
           encoded(rgb.convert("CMYK"), "JPEG"), encoded(rgb, "JPEG", restart_marker_blocks=1)],
        "png": [encoded(rgb.convert(mode), "PNG") for mode in ("1", "L", "LA", "P", "RGB", "RGBA")]
        + [encoded(deep, "PNG")],
        "pnm": [encoded(rgb, "PPM"), encoded(rgb.convert("L"), "PPM"), encoded(deep, "PPM"),
                b"P6 # a comment\n2 1 # more\n7\n123456"],
        "bmp": [encoded(rgb.convert(mode), "BMP") for mode in ("1", "L", "P", "RGB", "RGBA")],
        "gif": [encoded(rgb.convert("P"), "GIF", interlace=i) for i in (0, 1)],
        "webp": [encoded(rgb, "WEBP"), encoded(rgb, "WEBP", lossless=True),
                 encoded(rgb.convert("RGBA"), "WEBP", lossless=True),
                 encoded(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(180)])],
        "tiff": [encoded(rgb, "TIFF", compression=c)
                 for c in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")]
        + [encoded(rgb.convert(mode), "TIFF") for mode in ("1", "P", "CMYK", "LA")]
        + [encoded(rgb.convert("1"), "TIFF", compression="group4")],
        "avif": [encoded(rgb, "AVIF", subsampling=s, quality=30) for s in ("4:4:4", "4:2:0")]
        + [encoded(rgb.convert("RGBA"), "AVIF", quality=30)],
        "jp2": [encoded(rgb, "JPEG2000"), encoded(rgb.convert("LA"), "JPEG2000"),
                encoded(rgb, "JPEG2000", irreversible=True, tile_size=(16, 16), no_jp2=True)],
    }
    starts = {"jpeg": (0, b"\xff\xd8"), "png": (1, b"PNG"), "bmp": (0, b"BM"), "gif": (0, b"GIF8"),
              "webp": (8, b"WEBP"), "tiff": (0, b"II*"), "avif": (4, b"ftypavi"),
              "jp2": (4, b"jP  ")}
    for path in sorted(cases.glob("images/*")) if cases else ():
        data = path.read_bytes()
        for kind, (at, start) in starts.items():
            if data[at:].startswith(start) and len(data) <= CASE_BYTES_MAX:
                all_of[kind].append(data)
    for target, some in all_of.items():
        for number, data in enumerate(some):
            write(folder, target, CHOICES[number % len(CHOICES)] + data)


def index_file(classes: dict[str, list[str]], warnings: bytes = b"") -> bytes:
    """As server/dataset/folder_index_file.cc writes it."""
    folders, ends, text = [(0, 0, 1, 0, -1)], b"", b""
    for number, (path, names) in enumerate(classes.items()):
        folders.append((len(text), len(ends) // 4, 1, len(path), number))
        text += path.encode()
        size = 0
        for name in names:
            text += name.encode()
            size += len(name)
            ends += struct.pack("<I", size)
    sections = [b"".join(struct.pack("<QQQIi", *folder) for folder in folders), ends, text,
                warnings]
    header = struct.pack("<8sIIq4Q4Q", b"batchdIX", 1, 0, 5, *map(len, sections),
                         *(xxhash.xxh3_64_intdigest(section) for section in sections))
    return (header + struct.pack("<Q", xxhash.xxh3_64_intdigest(header)) + b"".join(sections))


def indexes(folder: pathlib.Path) -> None:
    for classes, warnings in [({"a": ["1.jpg", "2.jpg"], "b": [], "c": ["x.png"]}, b""),
                              ({"a": ["1.jpg"]}, b"left out 1 thing: a\n"), ({}, b"")]:
        for flag in (b"\0", b"\1"):
            write(folder, "index", flag + index_file(classes, warnings))


def open_message(operations: list[tuple[str, dict]], **more: object) -> dict:
    return {"dataset": {"name": "d"},
            "pipeline": {"columns": [
                {"name": "image", "operations": [{"name": name, "arguments": arguments}
                                                 for name, arguments in operations]},
                {"name": "label", "operations": [{"name": "Label"}]}]},
            "sampling": {"seed": "3", "shuffle": "SHUFFLE_FEISTEL", "globalBatchSize": "4",
                         "lastBatch": "LAST_BATCH_PARTIAL"},
            "worldSize": 1, "prefetch": 2, **more}


SMALL = ("DecodeImage", {"max_pixels": 10000, "max_encoded_bytes": 100000})
PIPELINES = [
    [SMALL, ("RandomResizedCrop", {"size": 8}), ("RandomHorizontalFlip", {}), ("ToTensor", {}),
     ("Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}),
     ("Cast", {"dtype": "float16"})],
    [SMALL, ("Resize", {"size": [9, 7], "interpolation": "bicubic"}), ("CenterCrop", {"size": 12}),
     ("Layout", {"order": "NCHW"})],
    [SMALL, ("Resize", {"size": 20}), ("CenterCrop", {"size": [3, 5]}), ("ToTensor", {}),
     ("Layout", {"order": "NHWC"})],
    [SMALL],
    [SMALL, ("RandomCrop", {"size": 8, "padding": [1, 2], "pad_if_needed": True, "fill": 7}),
     ("RandomApply", {"p": 0.7, "transforms": [
         {"name": "RandomChoice", "arguments": {"p": [1, 2], "transforms": [
             {"name": "ColorJitter", "arguments": {"brightness": 0.4, "hue": [-0.1, 0.2]}},
             {"name": "RandomGrayscale"}]}},
         {"name": "GaussianBlur", "arguments": {"kernel_size": [3, 5]}}]}),
     ("ToTensor", {}), ("RandomErasing", {"p": 1, "value": [0, 1, 2]})],
    [SMALL, ("Pad", {"padding": 3, "padding_mode": "reflect"}), ("RandAugment", {"num_ops": 3}),
     ("TrivialAugmentWide", {"interpolation": "bicubic"}), ("AutoAugment", {"policy": "svhn"}),
     ("RandomAffine", {"degrees": 30, "translate": [0.1, 0.2], "scale": [0.5, 2], "shear": 9}),
     ("RandomRotation", {"degrees": 45, "expand": True}), ("Resize", {"size": [9, 9]}),
     ("Grayscale", {})],
    [SMALL, ("RandomAdjustSharpness", {"sharpness_factor": 2}), ("RandomAutocontrast", {}),
     ("RandomEqualize", {}), ("RandomInvert", {}), ("RandomPosterize", {"bits": 3}),
     ("RandomSolarize", {"threshold": 99.5}), ("RandomVerticalFlip", {})],
]


def pipelines(folder: pathlib.Path) -> None:
    for operations in PIPELINES:
        write(folder, "pipeline", json.dumps({"open": open_message(operations)}).encode())


# The steps of datagrams_fuzz.cc.
RAW, HELLO, MESSAGE, CUT, AWAIT, TAKE, RELEASE, RECORD = range(8)


def step(what: int, data: bytes = b"") -> bytes:
    return struct.pack("<BH", what, len(data)) + data


def message(value: dict) -> bytes:
    return step(MESSAGE, json.dumps(value).encode())


def conversations(folder: pathlib.Path) -> None:
    label = {"pipeline": {"columns": [{"name": "l", "operations": [{"name": "Label"}]}]}}
    cut = json.dumps({"open": open_message(PIPELINES[0])}).encode()
    hello, one = step(HELLO), message({"open": open_message(PIPELINES[0])})
    seek = message({"seek": {"generation": 1, "position": {"epoch": "1", "step": "2"}}})
    query = message({"query": {"queryId": "1", "sampleNames": {"ordinals": ["0", "3"]}}})
    classes = message({"query": {"queryId": "2", "classNames": {"first": "0"}}})
    batch = step(AWAIT) + step(TAKE)
    for some in [
        [hello, one, batch, step(RELEASE), batch, step(RELEASE), message({"close": {}})],
        [hello, one, batch * 3, seek, batch, step(RELEASE) * 4, query, classes],
        [hello, step(CUT, b"\x40" + cut), seek, query, batch, step(RELEASE) * 2],
        [hello, message({"open": open_message([SMALL], **label, prefetch=1, rank=1, worldSize=3,
                                              start={"epoch": "2", "step": "1"})}), batch * 6],
        [step(RAW, b"GET / HTTP/1.1\r\n\r\n"), hello, one],
        [hello, step(RAW, b"J\0\0\0\x10\0\0\0abc"), step(RECORD, b"\2" + bytes(63))],
        [hello, step(RECORD, b"\3" + bytes(63)), one, one],
    ]:
        write(folder, "datagrams", b"".join(some))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    pictures(folder, pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    indexes(folder)
    pipelines(folder)
    conversations(folder)


if __name__ == "__main__":
    main()
