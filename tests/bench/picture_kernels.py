#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""picture_kernels.cc, built with -DBATCHD_BENCH=ON, beside what torchvision does to a PIL picture.

    picture_kernels.py PROGRAM [FILE...]

Median microseconds for 224 x 224 pixels, one thread each. With files, also several crops of them,
column by column and with one decode; these have nothing beside them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

SIDE = 224


def microseconds(run: Callable[[], object], count: int = 100) -> float:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def picture() -> Image.Image:
    """Smooth colours with noise, as picture_kernels.cc makes them."""
    place = np.arange(SIDE * SIDE * 3)
    noise = np.random.default_rng(1).integers(0, 16, place.size)
    values = (place // 900 + place % 3 * 40 + noise) % 256
    return Image.fromarray(values.astype(np.uint8).reshape(SIDE, SIDE, 3))


def jitter(image: Image.Image) -> Image.Image:
    image = F.adjust_contrast(F.adjust_brightness(image, 1.3), 0.7)
    return F.adjust_hue(F.adjust_saturation(image, 1.4), 0.08)


def main() -> None:
    torch.set_num_threads(1)
    ours = json.loads(subprocess.run(sys.argv[1:], check=True, stdout=subprocess.PIPE).stdout)
    image = picture()
    theirs = {
        "jitter": microseconds(lambda: jitter(image)),
        "hue": microseconds(lambda: F.adjust_hue(image, 0.08)),
        "sharpness": microseconds(lambda: F.adjust_sharpness(image, 1.7)),
        "equalize": microseconds(lambda: F.equalize(image)),
    }
    for mode in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
        theirs[f"rotate {mode.value}"] = microseconds(
            lambda mode=mode: F.rotate(image, 23, interpolation=mode, fill=[0, 0, 0]))
    for size in (3, 9, 23):
        theirs[f"blur {size}"] = microseconds(
            lambda size=size: F.gaussian_blur(image, [size, size], [1.1, 1.1]), 20)
    for name, value in ours.items():
        beside = f"{theirs[name]:8.0f}" if name in theirs else ""
        print(f"{name:20}{value:8.0f}{beside}")


if __name__ == "__main__":
    main()
