# SPDX-License-Identifier: Apache-2.0
"""What all entries share: options, the recipes' numbers, the measuring, the look at the pixels.

An entry is a script that calls `run(name, make)`. `make(options)` is a generator of (images,
labels), NumPy arrays of `options.batch_size` rows, that goes on for `options.total_batches` at
least. The script prints one line of JSON.

The measured window lies inside a run: it begins after the first batches, when workers and buffers
are filled, and ends before the last ones, so that no loader pays for the start and the end of an
epoch, which ImageNet has once in 20,000 batches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import processes

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIZE, SHORT_SIDE = 224, 256
MEMORY_LOOKS = 4
# Batches behind the window that no loader should have to be without: more than any has in flight.
TAIL_BATCHES = 32

Batches = Iterator[tuple[Any, Any]]


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="one folder of pictures for each class")
    parser.add_argument("--recipe", choices=("train", "eval"), default="train")
    parser.add_argument("--dtype", choices=("u8", "f32"), default="u8")
    parser.add_argument("--workers", type=int, default=2, help="processes or threads")
    parser.add_argument("--variant", default="", help="where an entry has several forms")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--warm", type=int, default=12, help="batches before the window")
    parser.add_argument("--batches", type=int, default=48, help="batches of the window")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--address", default="", help="batchd: a daemon that runs already")
    parser.add_argument("--cache", default="", help="folder for a format of the loader's own")
    parser.add_argument("--check", action="store_true", help="compare the eval pixels with Pillow")
    parsed = parser.parse_args(arguments)
    parsed.train = parsed.recipe == "train"
    if parsed.check:
        parsed.recipe, parsed.train, parsed.dtype, parsed.workers = "eval", False, "u8", 1
    parsed.total_batches = parsed.warm + parsed.batches + MEMORY_LOOKS + TAIL_BATCHES
    return parsed


def samples(parsed: argparse.Namespace) -> list[tuple[str, int]]:
    """(path, label) of every picture, in the order of torchvision's ImageFolder."""
    found = []
    for label, name in enumerate(sorted(os.listdir(parsed.data))):
        folder = os.path.join(parsed.data, name)
        found += [(os.path.join(folder, file), label) for file in sorted(os.listdir(folder))]
    return found


def repeated(parsed: argparse.Namespace, items: list[Any]) -> list[Any]:
    """`items` often enough for the whole run, for a loader that ends with its list."""
    rows = parsed.total_batches * parsed.batch_size * parsed.world_size
    return items * (-(-rows // len(items)))


def normalised(images: np.ndarray) -> np.ndarray:
    """uint8 NHWC to float32 NCHW, for loaders that have no such operation."""
    scale = (1 / (255 * np.array(STD))).astype(np.float32)
    shift = (np.array(MEAN) / np.array(STD)).astype(np.float32)
    out = np.empty((len(images), 3, *images.shape[1:3]), np.float32)
    for channel in range(3):
        np.multiply(images[..., channel], scale[channel], out=out[:, channel])
        out[:, channel] -= shift[channel]
    return out


def touch(images: np.ndarray) -> float:
    """A read here and there, about one a page, of what a trainer would read."""
    return float(images.reshape(-1)[::4099].sum())


def run(name: str, make: Callable[[argparse.Namespace], Batches]) -> None:
    parsed = options()
    if parsed.variant:
        name = f"{name}:{parsed.variant}"
    if parsed.check:
        record = {"entry": name, **compare_with_pillow(parsed, make(parsed))}
    else:
        record = {"entry": name, "recipe": parsed.recipe, "dtype": parsed.dtype,
                  "workers": parsed.workers, **measure(parsed, make)}
    print(json.dumps(record), flush=True)


def measure(parsed: argparse.Namespace,
            make: Callable[[argparse.Namespace], Batches]) -> dict[str, Any]:
    pid = os.getpid()
    imports_mb = processes.pss_mb(pid)
    started = time.perf_counter()
    batches = make(parsed)
    images, labels = next(batches)
    first_batch_s = time.perf_counter() - started
    check_form(parsed, images, labels)
    for _ in range(parsed.warm - 1):
        images, labels = next(batches)
        touch(images)

    rows, handoff_us = 0, []
    window, cpu = time.perf_counter(), processes.cpu_seconds(pid)
    for _ in range(parsed.batches):
        before = time.thread_time_ns()
        images, labels = next(batches)
        handoff_us.append((time.thread_time_ns() - before) / 1000)
        touch(images)
        rows += len(images)
    window, cpu = time.perf_counter() - window, processes.cpu_seconds(pid) - cpu

    pss_mb = 0.0
    for _ in range(MEMORY_LOOKS):  # outside the window: reading smaps takes its time
        images, labels = next(batches)
        pss_mb = max(pss_mb, processes.pss_mb(pid))
    del images, labels
    batches.close()
    return {"images": rows, "images_s": rows / window, "cpu_s_per_1000": 1000 * cpu / rows,
            "pss_mb": pss_mb, "imports_pss_mb": imports_mb, "first_batch_s": first_batch_s,
            "handoff_us": statistics.median(handoff_us)}


def check_form(parsed: argparse.Namespace, images: np.ndarray, labels: np.ndarray) -> None:
    """What came is what was asked for: no entry may be fast by doing less."""
    assert images.dtype == (np.uint8 if parsed.dtype == "u8" else np.float32), images.dtype
    assert len(images) == len(labels) == parsed.batch_size, (len(images), len(labels))
    assert images.shape[1:] in ((SIZE, SIZE, 3), (3, SIZE, SIZE)), images.shape


def compare_with_pillow(parsed: argparse.Namespace, batches: Batches) -> dict[str, Any]:
    """Mean and largest difference of the eval pixels to Pillow's, in levels, and how many pictures
    are equal.
    Labels and order must be the folder's.
    """
    from PIL import Image

    expected = samples(parsed)[: parsed.batch_size * parsed.batches]
    differences: list[float] = []
    largest = 0
    while len(differences) < len(expected):
        images, labels = next(batches)
        if images.shape[1] == 3:
            images = images.transpose(0, 2, 3, 1)
        for image, label in zip(images, labels):
            path, right = expected[len(differences)]
            assert int(label) == right, (path, int(label), right)
            with Image.open(path) as picture:
                picture = picture.convert("RGB")
            width, height, left, top = eval_geometry(*picture.size)
            reference = picture.resize((width, height), Image.Resampling.BILINEAR).crop(
                (left, top, left + SIZE, top + SIZE))
            difference = image.astype(np.int16) - np.asarray(reference)
            differences.append(float(np.abs(difference).mean()))
            largest = max(largest, int(np.abs(difference).max()))
            if len(differences) == len(expected):
                break
    batches.close()
    return {"pictures": len(differences), "equal": differences.count(0.0),
            "mean_difference": statistics.fmean(differences), "largest_difference": largest}


def eval_geometry(width: int, height: int) -> tuple[int, int, int, int]:
    """Width and height once the short side has 256 pixels, left and top of the centred 224."""
    if width <= height:
        width, height = SHORT_SIDE, int(SHORT_SIDE * height / width)
    else:
        width, height = int(SHORT_SIDE * width / height), SHORT_SIDE
    return width, height, round((width - SIZE) / 2), round((height - SIZE) / 2)
