#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder of JPEG pictures that are to a decoder what ImageNet's are.

    make_images.py FOLDER --count 2048 --classes 64 --seed 1 [--size 1600x1200]

ImageNet's training pictures have 110 KB in the mean, most of them 500x375 pixels, some 4.5 bits a
pixel. Made here of noise with the spectrum of natural scenes under shapes with hard edges:

  sizes    60 % 500x375, 15 % 375x500, 15 % one side of 500, 9 % small, 1 % 1200 to 2000 wide
  coding   quality 86 to 97; 82 % 4:2:0, 15 % 4:4:4, 3 % 4:2:2; 3 % progressive
  oddities 1.5 % grey, 0.3 % CMYK, and one PNG named .JPEG, as in ImageNet

With --size all pictures are that wide and high instead.

Picture i depends on the seed, the number of classes and i alone: a larger count only adds files.
The same NumPy and Pillow make the same bytes. Prints JSON: what it has made. A folder that holds
was made with the same arguments before (FOLDER.json says so) is left as it is.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import pathlib
import statistics

import numpy as np
from PIL import Image, ImageDraw

FIELD_SIDE = 2048
PNG_PICTURE = 17
# Name of a noise field -> exponent of its amplitude over frequency: busy foliage to soft skies.
SPECTRA = {"busy": 0.85, "plain": 1.05, "soft": 1.3, "blend": 2.2}
_fields: dict[str, np.ndarray] = {}
_fixed_size: list[tuple[int, int]] = []  # none, or the one of all pictures


def make_fields(seed: int) -> dict[str, np.ndarray]:
    """Periodic noise of standard deviation 1 that all pictures are cut from."""
    across, down = np.fft.rfftfreq(FIELD_SIDE), np.fft.fftfreq(FIELD_SIDE)
    frequency = np.maximum(np.hypot(down[:, None], across[None, :]), 1 / 700).astype(np.float32)
    random = np.random.default_rng([seed, 1 << 40])
    fields = {}
    for name, exponent in SPECTRA.items():
        white = np.fft.rfft2(random.standard_normal((FIELD_SIDE, FIELD_SIDE), np.float32))
        field = np.fft.irfft2(white / frequency**exponent, s=(FIELD_SIDE, FIELD_SIDE))
        fields[name] = (field / field.std()).astype(np.float32)
    fields["grain"] = random.standard_normal((FIELD_SIDE, FIELD_SIDE), np.float32)
    return fields


def window(random: np.random.Generator, name: str, width: int, height: int) -> np.ndarray:
    top = random.integers(FIELD_SIDE - height + 1)
    left = random.integers(FIELD_SIDE - width + 1)
    return _fields[name][top : top + height, left : left + width]


def picture_size(random: np.random.Generator) -> tuple[int, int]:
    if _fixed_size:
        return _fixed_size[0]
    kind = random.random()
    if kind < 0.60:
        return 500, 375
    if kind < 0.75:
        return 375, 500
    if kind < 0.90:
        side = int(random.integers(280, 500))
        return (500, side) if random.random() < 0.7 else (side, 500)
    if kind < 0.99:
        width, height = random.integers(150, 451, 2)
        return int(width), int(height)
    width = int(random.integers(1200, 2001))
    return width, int(width * random.uniform(0.6, 0.8))


def draw_shapes(random: np.random.Generator, picture: Image.Image, tint: np.ndarray) -> None:
    pen = ImageDraw.Draw(picture)
    width, height = picture.size
    for _ in range(int(random.integers(4, 20))):
        light = tint * random.uniform(-1, 1.5) + random.uniform(20, 235)
        colour = tuple(int(v) for v in np.clip(light + random.normal(0, 18, 3), 0, 255))
        x, y = random.uniform(0, width), random.uniform(0, height)
        radius = random.uniform(0.03, 0.35) * min(width, height)
        kind = random.integers(3)
        if kind == 0:
            flat = radius * random.uniform(0.4, 1)
            pen.ellipse((x - radius, y - flat, x + radius, y + flat), fill=colour)
        elif kind == 1:
            angles = np.sort(random.uniform(0, 2 * np.pi, int(random.integers(3, 8))))
            pen.polygon([(x + radius * np.cos(a), y + radius * np.sin(a)) for a in angles],
                        fill=colour)
        else:
            end = random.uniform(0, width), random.uniform(0, height)
            pen.line((x, y, *end), fill=colour, width=int(random.integers(1, 9)))


def draw(random: np.random.Generator, width: int, height: int, hue: float) -> np.ndarray:
    """Shapes under two textures that a smooth mask joins, with weak colour noise; uint8 RGB."""
    tint = 45 * np.cos(hue - np.array([0.0, 2.1, 4.2]))
    ground = tuple(int(v) for v in np.clip(tint + random.uniform(70, 170), 0, 255))
    shapes = Image.new("RGB", (width, height), ground)
    draw_shapes(random, shapes, tint)

    mask = np.clip(2 * window(random, "blend", width, height) + random.uniform(-0.5, 1.0), 0, 1)
    front = window(random, str(random.choice(["busy", "plain"])), width, height)
    back = window(random, str(random.choice(["plain", "soft"])), width, height)
    light = back * random.uniform(14, 30) + mask * front * random.uniform(24, 58)
    light = light + window(random, "grain", width, height) * random.uniform(1.0, 5.5)
    blue = window(random, "plain", width, height) * random.uniform(3, 11)
    red = window(random, "soft", width, height) * random.uniform(3, 11)

    pixels = np.asarray(shapes, np.float32) + light[..., None]
    pixels[..., 0] += red
    pixels[..., 1] -= 0.34 * blue + 0.5 * red
    pixels[..., 2] += blue
    return np.clip(pixels, 0, 255).astype(np.uint8)


def encode(seed: int, classes: int, number: int) -> tuple[bytes, int]:
    """The bytes of picture `number`, and how many pixels it has."""
    random = np.random.default_rng([seed, number])
    width, height = picture_size(random)
    hue = 2 * np.pi * (number % classes) / classes + random.normal(0, 0.15)
    picture = Image.fromarray(draw(random, width, height, hue))
    chroma, scans, mode = random.random(3)
    options = {"quality": int(random.integers(86, 98)), "progressive": bool(scans < 0.03)}
    if mode < 0.015:
        picture = picture.convert("L")
    else:
        options["subsampling"] = 0 if chroma < 0.15 else 1 if chroma < 0.18 else 2
        if mode < 0.018:
            picture = picture.convert("CMYK")
    data = io.BytesIO()
    if number == PNG_PICTURE:
        picture.save(data, "PNG")
    else:
        picture.save(data, "JPEG", **options)
    return data.getvalue(), width * height


def write(job: tuple[str, int, int, range]) -> list[tuple[int, int]]:
    folder, seed, classes, numbers = job
    made = []
    for number in numbers:
        data, pixels = encode(seed, classes, number)
        name = f"n{number % classes:08d}"
        pathlib.Path(folder, name, f"{name}_{number}.JPEG").write_bytes(data)
        made.append((len(data), pixels))
    return made


def make_images(folder: pathlib.Path, count: int, classes: int = 64, seed: int = 1,
                size: str = "") -> dict:
    """Makes the pictures below `folder`, on all cores."""
    note = folder.with_name(folder.name + ".json")
    wanted = {"count": count, "classes": classes, "seed": seed, **({"size": size} if size else {})}
    if note.exists() and (made := json.loads(note.read_text())).items() >= wanted.items():
        return made
    for number in range(min(classes, count)):
        (folder / f"n{number:08d}").mkdir(parents=True, exist_ok=True)
    if size:
        width, height = map(int, size.split("x"))
        _fixed_size.append((width, height))
    _fields.update(make_fields(seed))  # before the fork: one copy for all
    jobs = [(str(folder), seed, classes, range(first, min(first + 32, count)))
            for first in range(0, count, 32)]
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        seen = [pair for part in pool.imap(write, jobs) for pair in part]
    size_bytes, pixels = (sum(column) for column in zip(*seen))
    made = {**wanted, "mean_kb": round(size_bytes / count / 1000, 1),
            "median_kb": round(statistics.median(size for size, _ in seen) / 1000, 1),
            "mean_pixels": round(pixels / count),
            "bits_per_pixel": round(8 * size_bytes / pixels, 2)}
    note.write_text(json.dumps(made) + "\n")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2048)
    parser.add_argument("--classes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", default="", metavar="WIDTHxHEIGHT", help="of all; up to 2048")
    given = parser.parse_args()
    print(json.dumps(make_images(given.folder, given.count, given.classes, given.seed,
                                 given.size)))


if __name__ == "__main__":
    main()
